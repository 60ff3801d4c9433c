# SPDX-License-Identifier: MIT
"""`scripts/bench truth`: published measurements beside plans, a few of them."""
import importlib.util
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

from support import BINARY, SOURCE

TRUTH = pathlib.Path(SOURCE) / "tests" / "truth"


def load_bench():
    specification = importlib.util.spec_from_file_location("truth", pathlib.Path(SOURCE) / "scripts/bench.d/truth.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


bench = load_bench()


class TruthTest(unittest.TestCase):
    def bench_truth(self, *arguments, check=0):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "figures.json"
            done = subprocess.run([sys.executable, pathlib.Path(SOURCE) / "scripts/bench.d/truth.py", "--json", path, *arguments],
                                  env={**os.environ, "GARONNE_BINARY": str(BINARY)}, capture_output=True, text=True)
            self.assertEqual(done.returncode, check, done.stderr)
            return done.stdout, json.loads(path.read_text())

    def test_every_point_has_what_a_plan_needs(self):
        points = json.loads((TRUTH / "points.json").read_text())["points"]
        self.assertEqual(len({point["id"] for point in points}), len(points))
        for point in points:
            with self.subTest(point["id"]):
                self.assertTrue(point["note"])
                self.assertEqual(point["gpus"], point["data"] * point["pipeline"] * point["tensor"])
                for folder in ("machines", "data_sheets"):
                    self.assertTrue((TRUTH / folder / f"{point['machine']}.toml").is_file())
                self.assertIn(point["recompute"], bench.PLANS)

    def test_at_most_twelve_constants_are_fitted(self):
        constants = json.loads((TRUTH / "constants.json").read_text())["constants"]
        self.assertLessEqual(len(constants), 12)
        sources = {point["source"] for point in json.loads((TRUTH / "points.json").read_text())["points"]}
        for constant in constants:
            self.assertIn(constant["fitted_on"], sources)
            self.assertTrue(constant["published"])

    def test_cluster_files_are_changed_by_key(self):
        text = 'name = "x"\n[device]\nefficiency = 0.7  # of products\n[link.inside_node]\nlatency_seconds = 0\n'
        changed = bench.merged(text, {"device.efficiency": 0.5, "device.memory": "80 GB", "name": None,
                                      "link.inside_node.latency_seconds": None, "copy.out": 2.0})
        self.assertEqual(changed, '[device]\nmemory = "80 GB"\nefficiency = 0.5\n[link.inside_node]\n\n[copy]\nout = 2.0\n')

    # Against the definition: one less than six times the sum of squared differences of ranks.
    def test_rank_correlation(self):
        random.seed(3)
        for count in range(4, 12):
            planned = random.sample(range(100), count)
            measured = random.sample(range(100), count)
            differences = [sum(other < value for other in planned) - sum(other < beside for other in measured)
                           for value, beside in zip(planned, measured)]
            expected = 1 - 6 * sum(d * d for d in differences) / (count * (count * count - 1))
            self.assertAlmostEqual(bench.rank_correlation(list(zip(planned, measured))), expected)

    # The same layouts measured as planned, twice as slow, and in another order.
    def test_the_table_is_of_what_was_planned(self):
        points = [point for point in json.loads((TRUTH / "points.json").read_text())["points"] if point["source"] == "vtrain_single"]
        rows = [{"point": {**points[k], "layers": 4, "hidden": 64, "gpus": 2, "global_batch": 8, "seconds": 2.0 + k}, "seconds": 4.0 + 2 * k}
                for k in range(5)]
        _, figures = bench.table_of(rows)
        self.assertAlmostEqual(figures["all"]["mape"], 1)
        self.assertAlmostEqual(figures["all"]["bias"], 1)
        self.assertAlmostEqual(figures["all"]["rank_correlation"], 1)
        self.assertAlmostEqual(figures["all"]["regret"], 0)
        rows[4]["seconds"] = 1.0
        _, figures = bench.table_of(rows)
        self.assertLess(figures["all"]["rank_correlation"], 1)
        self.assertAlmostEqual(figures["all"]["regret"], 2)  # 6 s in the place of 2 s

    def test_some_points(self):
        points = json.loads((TRUTH / "points.json").read_text())["points"]
        some = [point for point in points if point["id"] in ("vtrain_single/0996", "vtrain_single/0093",
                                                             "llm_c/124M", "korthikanti_22/22B-selective")]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "points.json"
            path.write_text(json.dumps({"points": some}))
            constants = pathlib.Path(folder) / "constants.json"
            constants.write_text(json.dumps({"constants": [
                {"key": "device.efficiency", "value": 0.2, "of": "eager", "fitted_on": "vtrain_single", "published": "0.7"},
                {"key": "link.inside_node.curve_bytes_per_second", "scale": 0.5, "of": "all", "machine": "selene",
                 "fitted_on": "korthikanti_22", "published": "the curve"}]}))
            out, fitted = self.bench_truth("--points", path, "--list", "--constants", constants)
            self.assertIn("2 fitted constants", out)
            for point in some:
                self.assertIn(point["id"], out)
            _, unfitted = self.bench_truth("--points", path, "--unfitted", "--constants", constants)
            for source in ("vtrain_single", "korthikanti_22"):
                self.assertGreater(fitted["figures"][source]["bias"], unfitted["figures"][source]["bias"])
            self.assertEqual(fitted["figures"]["llm_c"], unfitted["figures"]["llm_c"])
            some[0]["heads"] = 7
            path.write_text(json.dumps({"points": some}))
            out, _ = self.bench_truth("--points", path, check=1)


if __name__ == "__main__":
    unittest.main()
