# SPDX-License-Identifier: MIT
"""The whole product: each kind that moves to a disk alone and all together, with what runs again and without, on one rank, in a
pipeline, with tensor ranks, with ZeRO 0 to 3, in both precisions; and the solvers of chains. Bits of the run without a disk,
bytes of the plan."""
import os
import unittest

from offload_runs import OffloadRuns

KINDS = ("offload-activations", "offload-gradients", "offload-weights", "offload-states",
         "offload-activations,offload-gradients,offload-weights,offload-states")
GRIDS = {
    "alone": ((), 0),
    "1f1b": (("--grid.pipeline", 2), 2),
    # Half of the values on each rank, which are a mebibyte with twice the samples.
    "tensor": (("--grid.tensor", 2, "--grid.sequence_parallel", "true", "--train.micro_batch", 32, "--train.global_batch", 64), 2),
    **{f"zero-{zero}": (("--grid.data", 2, "--grid.zero", zero, "--train.global_batch", 64), 2) for zero in range(4)},
}


class OffloadProductTest(OffloadRuns):
    def test_every_kind_on_every_grid(self):
        copies = {}
        for precision in ("float32", "bfloat16"):
            for name, (grid, ranks) in GRIDS.items():
                keys = (*grid, "--train.precision", precision, "--train.steps", 3)
                if precision == "bfloat16":  # as many bytes a value
                    given = dict(zip(grid[::2], grid[1::2], strict=True))
                    keys = (*keys, "--train.micro_batch", 2 * given.get("--train.micro_batch", 16), "--train.global_batch",
                            2 * given.get("--train.global_batch", 32))
                plain = self.directory(f"{precision}-{name}")
                self.train(plain, *self.model(*keys), ranks=ranks)
                for again in ("", "recompute,"):
                    for kinds in KINDS:
                        with self.subTest(precision=precision, grid=name, allow=again + kinds):
                            options, budget = self.only_moved(*keys, way=again + kinds)
                            directory = self.directory(f"{precision}-{name}-{again}{kinds}")
                            done = self.train(directory, *options, ranks=ranks)
                            self.same_training(plain, directory)
                            copies[kinds] = copies.get(kinds, 0) + self.check_bytes(directory, done, budget)
                            self.assertEqual(os.listdir(self.disk), [])
        for kinds in KINDS:
            self.assertGreater(copies[kinds], 0, kinds)
        print("copies out:", copies)

    def test_every_solver_of_chains_on_every_grid(self):
        for name, (grid, ranks) in GRIDS.items():
            plain = self.directory(name)
            self.train(plain, *self.model(*grid), ranks=ranks)
            for policy in ("pofo", "offload-greedy", "offload-greedy-star"):
                with self.subTest(policy, grid=name):
                    keys = (*grid, "--memory.plan", policy)
                    least, without, _ = self.budgets(*keys)
                    self.assertLess(least, without)
                    directory = self.directory(f"{name}-{policy}")
                    done = self.train(directory, *self.with_budget(least, *keys), "--memory.disk", self.disk, ranks=ranks)
                    self.same_training(plain, directory)
                    self.assertGreater(self.check_bytes(directory, done, least), 0)
                    self.assertEqual(os.listdir(self.disk), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
