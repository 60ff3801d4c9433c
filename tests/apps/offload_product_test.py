# SPDX-License-Identifier: MIT
"""The whole product: each kind that moves to a disk alone and all together, with what runs again and without, on one rank, in a
pipeline, with tensor ranks, with ZeRO 0 to 3 and in a pipeline besides, in both precisions; and the solvers of chains. Bits of
the run without a disk, bytes of the plan."""
import itertools
import os
import shutil
import time
import unittest

from offload_runs import GRIDS, KINDS, OffloadRuns, in_precision

# Half of the values on each rank, which are a mebibyte with twice the samples.
TENSOR = ({"--grid.tensor": 2, "--grid.sequence_parallel": "true", "--train.micro_batch": 32, "--train.global_batch": 64}, 2)
ALL = {**GRIDS, "tensor": TENSOR}


def widened(keys):
    """Weights and gradients each make more room by themselves than copies to the disk take."""
    return {**keys, "--model.hidden": 192}


def words(keys):
    return tuple(word for pair in keys.items() for word in pair)


class OffloadProductTest(OffloadRuns):
    def test_every_kind_on_every_grid(self):
        for precision, (name, (grid, ranks)) in itertools.product(("float32", "bfloat16"), ALL.items()):
            start = time.monotonic()
            copies = {}
            keys = words(widened(in_precision(precision, grid)))
            plain = self.directory(f"{precision}-{name}")
            self.train(plain, *self.model(*keys), ranks=ranks)
            for again, kinds in itertools.product(("", "recompute,"), KINDS):
                with self.subTest(precision=precision, grid=name, allow=again + kinds):
                    options, budget = self.only_moved(*keys, way=again + kinds)
                    directory = self.directory(f"{precision}-{name}-{again}{kinds}")
                    done = self.train(directory, *options, ranks=ranks)
                    self.same_training(plain, directory)
                    copies[again + kinds] = self.check_bytes(directory, done, budget)
                    self.assertEqual(os.listdir(self.disk), [])
                    shutil.rmtree(directory)
            shutil.rmtree(plain)
            # With one or the other: what a kind is at the peak differs.
            for kinds in KINDS:
                with self.subTest(precision=precision, grid=name, moved=kinds):
                    self.assertGreater(copies.get(kinds, 0) + copies.get(f"recompute,{kinds}", 0), 0)
            print(f"{precision} {name}: copies out {list(copies.values())}, {time.monotonic() - start:.0f} s", flush=True)

    def test_every_solver_of_chains_on_every_grid(self):
        for name, (grid, ranks) in ALL.items():
            # Their schedules keep what is smaller than a mebibyte, which is much with fewer samples.
            grid = {**grid, "--train.micro_batch": max(16, grid["--train.micro_batch"])}
            plain = self.directory(name)
            self.train(plain, *self.model(*words(grid)), ranks=ranks)
            for policy in ("pofo", "offload-greedy", "offload-greedy-star"):
                with self.subTest(policy, grid=name):
                    keys = (*words(grid), "--memory.plan", policy)
                    least, without, _ = self.budgets(*keys)
                    self.assertLess(least, without)
                    directory = self.directory(f"{name}-{policy}")
                    done = self.train(directory, *self.with_budget(least, *keys), "--memory.disk", self.disk, ranks=ranks)
                    self.same_training(plain, directory)
                    self.assertGreater(self.check_bytes(directory, done, least), 0)
                    self.assertEqual(os.listdir(self.disk), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
