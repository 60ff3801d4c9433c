# SPDX-License-Identifier: MIT
"""What was saved on one grid goes on on another: the first step there has the loss that it has where it was saved,
and the second one, after an update with the moments that were saved, too.
From each of some grids to the next one by default; every pair of all with GARONNE_ALL_PAIRS=1 (test grid_pairs_long)."""
import os
import shutil
import unittest

from grid_test import LLAMA, keys_of, name_of
from support import ProgramTest, metrics

ALL = os.environ.get("GARONNE_ALL_PAIRS") == "1"
GRIDS = [
    (1, 1, 1, {}),
    (2, 2, 1, {"zero": 1}),
    (1, 1, 2, {"sequence_parallel": "true"}),
    (2, 1, 1, {"zero": 3}),
    (1, 2, 1, {"schedule": "zb-v"}),
    (2, 1, 1, {}),
    (4, 1, 1, {"zero": 2}),
    (1, 2, 1, {}),
    (1, 4, 1, {"schedule": "zb-h1"}),
    (1, 1, 4, {}),
    (1, 2, 2, {"schedule": "chimera"}),
    (2, 2, 2, {"zero": 3, "sequence_parallel": "true"}),
]
QUICK = 4
# Of a llama, quick ones.
LLAMA_GRIDS = [GRIDS[3], (1, 2, 1, {}), (1, 1, 2, {"sequence_parallel": "true"})]
SAVED = 2
OPTIONS = ["--model.layers", 4, "--train.global_batch", 8, "--train.micro_batch", 1, "--train.steps", 20]


class GridPairsTest(ProgramTest):
    def start(self, directory, grid, last, model):
        data, pipeline, tensor, _ = grid
        self.train(directory, *OPTIONS, *model, *keys_of(grid, self.folder), "--train.stop_after", last,
                   ranks=data * pipeline * tensor, check=75)
        return metrics(directory)

    def test_saved_on_one_grid_a_run_goes_on_on_another(self):
        self.go_on(GRIDS if ALL else GRIDS[:QUICK], ())

    def test_a_llama_saved_on_one_grid_goes_on_on_another(self):
        self.go_on([grid for grid in GRIDS if grid[2] <= 2] if ALL else LLAMA_GRIDS, LLAMA)

    def go_on(self, grids, model):
        worst = 0.0
        for number, saved_on in enumerate(grids):
            saved = self.directory(f"saved {number}")
            self.start(saved, saved_on, SAVED, model)
            at_home = self.directory(f"at home {number}")
            shutil.copytree(saved, at_home)
            wanted = self.start(at_home, saved_on, 2, model)
            others = [grid for grid in grids if grid is not saved_on] if ALL else [grids[(number + 1) % len(grids)]]
            for grid in others:
                with self.subTest(saved=name_of(saved_on), goes_on=name_of(grid)):
                    directory = self.folder / "goes-on"
                    shutil.rmtree(directory, ignore_errors=True)
                    shutil.copytree(saved, directory)
                    found = self.start(directory, grid, 2, model)
                    self.assertEqual([row["step"] for row in found], list(range(1, SAVED + 3)))
                    for row, at in zip(found[SAVED:], wanted[SAVED:], strict=True):
                        difference = abs(row["loss"] - at["loss"]) / at["loss"]
                        worst = max(worst, difference)
                        self.assertLessEqual(difference, 1e-6)
                        self.assertLessEqual(abs(row["gradient_norm"] - at["gradient_norm"]), 1e-5 * at["gradient_norm"])
            print(f"saved on {name_of(saved_on)}: {len(others)} other grids, difference of losses up to {worst:.1e}", flush=True)


if __name__ == "__main__":
    unittest.main()
