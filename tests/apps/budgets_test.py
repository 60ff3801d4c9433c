# SPDX-License-Identifier: MIT
"""Twelve budgets, from the smallest to everything kept, on real text: bytes as planned, bits of plain training."""
import json
import pathlib
import shutil
import sys
import tempfile
import unittest

from support import SOURCE, metrics, run, series

DATA = SOURCE / "data" / "shakespeare.h5"
BUDGETS = 12
MODEL = ("--model.layers", 6, "--model.hidden", 192, "--model.heads", 6, "--model.sequence", 128, "--model.dropout", 0.1,
         "--train.steps", 3, "--train.global_batch", 16, "--train.micro_batch", 8, "--evaluation.batches", 0,
         "--checkpoint.every", 0)


class BudgetsTest(unittest.TestCase):
    def test_any_budget_trains_the_same_within_its_bytes(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="garonne-budgets-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        config = SOURCE / "config" / "gpt_shakespeare.toml"
        arguments = ("--data.path", DATA, "--grid.data", 1, *MODEL)
        run("profile", config, *arguments)
        plan = json.loads(run("plan", config, *arguments, "--memory.budget", "8GiB", "--json").stdout)
        least, most = plan["minimum_budget_bytes"], plan["peak_bytes"]
        self.assertEqual(plan["plan"], "keep-all")
        kept = folder / "kept"
        run("train", config, *arguments, "--memory.budget", "8GiB", "--run.directory", kept, timeout=600)
        for number in range(BUDGETS):
            budget = least + (most - least) * number // (BUDGETS - 1)
            directory = folder / f"budget-{number}"
            run("train", config, *arguments, "--memory.budget", budget, "--run.directory", directory, timeout=600)
            for key in ("loss", "gradient_norm"):
                self.assertEqual(series(directory, key), series(kept, key))
            for row in metrics(directory):
                self.assertLessEqual(row["peak_bytes"], row["planned_peak_bytes"])
                self.assertGreaterEqual(row["peak_bytes"], 0.99 * row["planned_peak_bytes"])
                self.assertLessEqual(row["planned_peak_bytes"], budget)
            program = json.loads((directory / "program" / "rank_0.json").read_text())
            print(f"budget {budget:>12} B  peak {program['peak_bytes']:>12} B  "
                  f"planned {1e3 * program['seconds']:.1f} ms  measured "
                  f"{1e3 * min(row['seconds'] for row in metrics(directory)):.1f} ms")
        refused = run("train", config, *arguments, "--memory.budget", least - 1, "--run.directory", folder / "below",
                      check=3)
        self.assertIn(str(least), refused.stderr)


if __name__ == "__main__":
    if not DATA.exists():
        sys.exit(f"{DATA} is missing; scripts/fetch-data makes it")
    unittest.main(verbosity=2)
