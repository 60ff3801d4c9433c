# SPDX-License-Identifier: MIT
"""What moves to a disk for part of the step, all ways together on all grids and each alone on one: bits of the run without,
bytes of the plan."""
import os
import unittest

from offload_runs import OffloadRuns


POLICIES = ("zero-infinity", "pofo", "offload-greedy", "offload-greedy-star")


class OffloadWaysTest(OffloadRuns):
    # Further keys and ranks; of two micro-batches, between which gradients are idle. Then the ways that are tried by
    # themselves; offload_product_test.py has all of them on all grids.
    RUNS = {
        "alone": ((), 0, ("between", "moved", "states", "weights", "gradients", "zero-infinity", "pofo",
                            "offload-greedy")),
        "bfloat16": (("--train.precision", "bfloat16", "--train.micro_batch", 32, "--train.global_batch", 64), 0, ("states",)),
        # Two micro-batches a rank, between which gradients are in shards.
        "shards": (("--grid.data", 2, "--grid.zero", 3, "--train.global_batch", 64), 2, ("gradients", "offload-greedy-star")),
        "pipeline": (("--grid.pipeline", 2), 2, ("moved", "pofo")),
        "tensor": (("--grid.tensor", 2, "--grid.sequence_parallel", "true", "--train.micro_batch", 32,
                    "--train.global_batch", 64), 2, ("weights",)),
    }

    def test_bits_and_bytes_are_those_of_the_plan(self):
        for name, (keys, ranks, ways) in self.RUNS.items():
            with self.subTest(name):
                plain = self.directory(f"{name}-plain")
                self.train(plain, *self.model(*keys), ranks=ranks)
                least, without, most = self.budgets(*keys)
                self.assertLessEqual(least, without)
                for way in ("smallest", *ways):
                    with self.subTest(name, way=way):
                        options, budget = self.keys_of(way, keys, least, without, most)
                        directory = self.directory(f"{name}-{way}")
                        done = self.train(directory, *options, ranks=ranks)
                        self.same_training(plain, directory)
                        moved = self.check_bytes(directory, done, budget)
                        if way in POLICIES:
                            self.assertTrue(all(one["name"].split(",")[0] == way for one in self.programs(directory)))
                        self.assertTrue(moved > 0 or way == "between")
                self.assertEqual(os.listdir(self.disk), [])

    def keys_of(self, way, keys, least, without, most):
        """Keys of a run that moves so, and its budget."""
        if way in ("smallest", "between"):
            budget = least if way == "smallest" else least + (most - least) // 3
            return [*self.with_budget(budget, *keys), "--memory.disk", self.disk], budget
        if way in POLICIES:
            keys = (*keys, "--memory.plan", way)
            least, without, _ = self.budgets(*keys)
            self.assertLess(least, without)
            return [*self.with_budget(least, *keys), "--memory.disk", self.disk], least
        # Weights and gradients beside what runs again, or these would not be at the peak.
        allowed, bound = {"moved": ("offload-activations", most), "states": ("offload-states", most),
                          "weights": ("recompute,offload-weights", without),
                          "gradients": ("recompute,offload-gradients", without)}[way]
        options, budget = self.only_moved(*keys, way=allowed)
        self.assertLess(budget, bound)
        return options, budget


if __name__ == "__main__":
    unittest.main()
