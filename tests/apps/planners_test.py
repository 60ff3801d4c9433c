# SPDX-License-Identifier: MIT
"""`garonne plan --planner`: planners of the literature beside the search, each choice planned and replayed."""
import json
import os
import random
import re
import unittest

from grid_search_test import CLUSTER
from support import ProgramTest, run

NAMES = ["megatron", "vtrain", "2bw", "pipedream", "piper", "flexflow", "elf"]
# So many random runs; more under the label long.
CASES = int(os.environ.get("GARONNE_RANDOM_PLANNERS", 2))


class PlannersTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cluster = cls.folder / "cluster.toml"
        cls.cluster.write_text(CLUSTER)

    def plan(self, *arguments, check=0):
        return run("plan", self.config, "--cluster", self.cluster, *arguments, timeout=600, check=check)

    def compare(self, *arguments):
        return json.loads(self.plan("--json", *arguments).stdout)

    def check(self, answer):
        """What holds of every comparison; returns the rows by name."""
        rows = {row["planner"]: row for row in answer["planners"]}
        for name, row in rows.items():
            self.assertTrue(row["note"] or row["outcome"], name)
            self.assertEqual(row["own_seconds"] is None, not row["placed"], name)
            if row["grid"] is None:
                self.assertIsNone(row["outcome"], name)
                continue
            grid = row["grid"]
            self.assertEqual(grid["data"] * grid["pipeline"] * grid["tensor"], answer["ranks"], name)
            if row["outcome"] is None or not row["outcome"]["fits"]:
                self.assertIsNone(row["to_auto"], name)
                continue
            self.assertLessEqual(max(row["outcome"]["peak_bytes"]), answer["budget_bytes"], name)
            self.assertEqual(len(row["outcome"]["peak_bytes"]), grid["pipeline"], name)
            self.assertEqual(row["to_auto"], row["outcome"]["seconds"] / answer["auto"]["outcome"]["seconds"], name)
            self.assertGreaterEqual(row["to_auto"], 1, f"{name} is faster than auto: {row}")
        return rows

    def test_all_of_them(self):
        answer = self.compare("--ranks", 8, "--planner", "all")
        self.assertEqual(answer["format"], "garonne.planners")
        self.assertEqual([row["planner"] for row in answer["planners"]], NAMES)
        rows = self.check(answer)
        for name in ("megatron", "vtrain", "2bw", "piper"):
            self.assertIsNotNone(rows[name]["outcome"], name)
        # The same grids as the search plans get the same seconds.
        search = json.loads(self.plan("--json", "--ranks", 8, "--exhaustive").stdout)
        self.assertEqual(answer["auto"]["outcome"]["seconds"], search["grids"][0]["seconds"])
        text = self.plan("--ranks", 8, "--planner", "all").stdout
        for name in ["auto", *NAMES]:
            self.assertRegex(text, rf"(?m)^{name} ")
        self.assertEqual(len(re.findall(r"(?m)^ {45}chose \S", text)), sum(bool(row["choice"]) for row in answer["planners"]))
        self.assertLessEqual(max(map(len, text.splitlines())), 120)
        self.assertNotIn("[grid]", text)

    def test_the_keys_of_one(self):
        answer = self.compare("--ranks", 4, "--planner", "vtrain")
        self.check(answer)
        text = self.plan("--ranks", 4, "--planner", "vtrain").stdout
        keys = re.findall(r"(?m)^(\w+) = \"?([\w-]+)\"?$", text[text.index("[grid]"):])
        arguments = [part for key, value in keys
                     for part in ((f"--train.{key}" if key == "micro_batch" else f"--grid.{key}"), value)]
        plan = json.loads(self.plan("--json", *arguments).stdout)
        self.assertEqual(plan["format"], "garonne.plan")
        self.assertLessEqual(plan["seconds"], answer["planners"][0]["outcome"]["seconds"] * (1 + 1e-9))

    def test_refusals(self):
        error = self.plan("--ranks", 4, "--planner", "megatron,alpa", check=2).stderr
        self.assertIn("alpa", error)
        self.assertIn("flexflow", error)
        for option, value in (("--tolerance", 10), ("--program", self.directory("programs"))):
            self.assertIn(option, self.plan("--ranks", 4, "--planner", "all", option, value, check=2).stderr)

    def test_none_is_faster_than_auto(self):
        draw = random.Random(int(os.environ.get("GARONNE_RANDOM_SEED", 5)))
        compared = 0
        planned = 0
        ratios_of = {}
        while compared < CASES:
            heads = draw.choice([2, 4])
            on_node = draw.choice([2, 4])
            arguments = ("--ranks", draw.choice([2, 4, 2 * on_node]), "--devices-per-node", on_node,
                         "--model.layers", draw.randint(1, 6), "--model.heads", heads,
                         "--model.hidden", heads * draw.choice([8, 16, 32]),
                         "--train.global_batch", draw.choice([4, 8, 12, 16]), "--train.micro_batch", draw.choice([1, 2]),
                         "--memory.budget", f"{draw.choice([300, 600, 1000, 2000, 8000])}KiB")
            done = self.plan("--json", "--planner", "all", *arguments, check=None)
            if done.returncode == 3:
                continue  # nothing fits
            self.assertEqual(done.returncode, 0, done.stderr)
            compared += 1
            rows = self.check(json.loads(done.stdout))
            for name, row in rows.items():
                if row["to_auto"] is not None:
                    planned += 1
                    ratios_of.setdefault(name, []).append(row["to_auto"])
        for name, ratios in ratios_of.items():
            print(f"{name}: {len(ratios)} of {compared} planned, {min(ratios):.3f} to {max(ratios):.3f} of auto")
        self.assertGreater(planned, 3 * compared)


if __name__ == "__main__":
    unittest.main(verbosity=2)
