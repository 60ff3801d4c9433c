# SPDX-License-Identifier: MIT
"""Every published measurement beside its plan, which takes minutes: how far plans may be off (docs/truth.md)."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from support import BINARY, SOURCE


class TruthPointsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "figures.json"
            done = subprocess.run(
                [sys.executable, pathlib.Path(SOURCE) / "scripts/bench.d/truth.py", "--json", path, "--jobs", str(len(os.sched_getaffinity(0)))],
                env={**os.environ, "GARONNE_BINARY": str(BINARY)}, capture_output=True, text=True)
            if done.returncode != 0:
                raise AssertionError(done.stderr)
            print(done.stdout)
            answer = json.loads(path.read_text())
        cls.figures, cls.rows = answer["figures"], answer["rows"]

    def test_step_times(self):
        for source, figures in self.figures.items():
            with self.subTest(source):
                self.assertLessEqual(figures["mape"], 0.08)
        self.assertLessEqual(self.figures["all"]["median"], 0.06)
        self.assertGreaterEqual(self.figures["all"]["points"], 182)

    def test_layouts_are_ranked_as_they_were_measured(self):
        for source in ("bloom_jean_zay", "vtrain_single"):
            with self.subTest(source):
                self.assertGreaterEqual(self.figures[source]["rank_correlation"], 0.8)
        self.assertLessEqual(self.figures["vtrain_single"]["regret"], 0.05)
        # Of BLOOM's the one planned fastest took 6.1 % longer than the best, and does not fit by its plan.
        self.assertLessEqual(self.figures["bloom_jean_zay"]["regret"], 0.065)

    # Whoever asks is offered nothing else.
    def test_of_layouts_that_fit_by_their_plans_the_fastest_is_nearly_the_best(self):
        groups = {}
        for row in self.rows:
            point = row["point"]
            if point["seconds"] and row["peak_bytes"] <= row["device_bytes"]:
                key = tuple(point[name] for name in ("source", "layers", "hidden", "heads", "sequence", "gpus", "recompute"))
                of_a_sample = lambda seconds: seconds / point["global_batch"]
                groups.setdefault(key, []).append((of_a_sample(row["seconds"]), of_a_sample(point["seconds"])))
        compared = [pairs for pairs in groups.values() if len(pairs) >= 4]
        self.assertGreater(len(compared), 4)
        for pairs in compared:
            self.assertLessEqual(min(pairs)[1], 1.05 * min(measured for _, measured in pairs), pairs)


if __name__ == "__main__":
    unittest.main()
