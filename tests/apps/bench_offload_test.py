# SPDX-License-Identifier: MIT
"""garonne bench offload: plans that run again, that move and that do both, planned beside measured."""
import json
import unittest

from offload_runs import OffloadRuns
from support import run


class BenchOffloadTest(OffloadRuns):
    def bench(self, *options, check=0):
        return run("bench", "offload", self.config, *self.model(), "--memory.disk", self.disk, "--steps", 3, *options, check=check)

    def test_rows(self):
        least, without, most = self.budgets()
        below = (least + without) // 2
        rows = json.loads(self.bench("--shares", "60", "--budgets", f"{below},{most}", "--json").stdout)
        self.assertEqual([row["may"] for row in rows], ["keep-all", *3 * ("recompute", "offload", "both")])
        whole, by_share, small, large = rows[0], rows[1:4], rows[4:7], rows[7:]
        self.assertEqual({row["share"] for row in by_share}, {0.6})
        self.assertEqual({row["budget_bytes"] for row in small}, {below})
        self.assertAlmostEqual(large[0]["share"], 1)
        self.assertLess(small[0]["share"], by_share[0]["share"])
        # Less than what a plan without the disk takes is had by moving.
        self.assertEqual([row["fits"] for row in small], [False, small[1]["fits"], True])
        for row in rows:
            if not row["fits"]:
                continue
            self.assertGreater(row["step_seconds"], 0)
            self.assertLessEqual(row["peak_bytes"], row["planned_peak_bytes"])
            if row["may"] != "keep-all":
                self.assertLessEqual(row["planned_peak_bytes"], row["budget_bytes"])
            self.assertEqual(row["disk_bytes"] > 0, row["copied_out_bytes"] > 0)
            self.assertEqual(sorted(row["lanes"]), ["disk-read", "disk-write"] if row["disk_bytes"] > 0 else [])
            for lane in row["lanes"].values():
                self.assertGreater(lane["busy_seconds"], 0)
                self.assertGreaterEqual(lane["waited_seconds"], 0)
        # Whoever may do both plans no slower than the better of the two.
        for recompute, offload, both in (by_share, small, large):
            for one in (recompute, offload):
                if one["fits"]:
                    self.assertLessEqual(both["planned_seconds"], one["planned_seconds"])
        self.assertEqual(large[2]["planned_seconds"], whole["planned_seconds"])

    def test_stages_of_a_pipeline(self):
        """Each with a plan and a peak of its own; seconds are those of both together."""
        grid = ("--grid.pipeline", 2, "--train.micro_batch", 8)
        config = (self.config, *self.model(*grid), "--memory.disk", self.disk)
        least = json.loads(run("plan", *config, "--json").stdout)["minimum_budget_bytes"]
        done = run("bench", "offload", *config, "--steps", 3, "--shares", "100,60", "--budgets", f"{least},{least - 100000}",
                   "--json", ranks=2)
        rows = json.loads(done.stdout)
        self.assertEqual([row["may"] for row in rows], ["keep-all", *4 * ("recompute", "offload", "both")])
        keep_all, whole, part, small, less = rows[0], rows[1:4], rows[4:7], rows[7:10], rows[10:]
        self.assertEqual({row["budget_bytes"] for row in whole}, {keep_all["planned_peak_bytes"]})
        self.assertEqual({row["plan"] for row in whole}, {"keep-all"})
        self.assertEqual([row["fits"] for row in less], [False, False, False])
        self.assertTrue(part[2]["fits"] and small[2]["fits"])
        self.assertEqual(keep_all["peak_bytes"], keep_all["planned_peak_bytes"])
        moved = 0
        for row in rows:
            if not row["fits"]:
                continue
            self.assertGreater(row["step_seconds"], 0)
            self.assertLessEqual(row["peak_bytes"], row["planned_peak_bytes"])
            self.assertGreaterEqual(row["peak_bytes"], 0.99 * row["planned_peak_bytes"])
            if row["may"] != "keep-all":
                self.assertLessEqual(row["planned_peak_bytes"], row["budget_bytes"])
            self.assertEqual(row["copied_out_bytes"] > 0, "disk-write" in row["lanes"])
            moved += row["copied_out_bytes"]
        self.assertGreater(moved, 0)

    def test_one_plan_at_a_time(self):
        """As asked for, and where there is no room for all; plans for which there is none at all are planned only."""
        least, _, _ = self.budgets()
        shown = self.bench("--budgets", least, "--one-at-a-time").stdout
        self.assertIn("plans were held one at a time", shown)
        self.assertRegex(shown, r"(?m)^ *-?\d+% .* both .* disk-(read|write) -?\d+%")
        none = "export SLURM_MEM_PER_NODE=1"
        command = ("bench", "offload", self.config, *self.model(), "--memory.disk", self.disk, "--budgets", least)
        rows = json.loads(run(*command, "--json", before=none).stdout)
        self.assertEqual([row["runs"] for row in rows], len(rows) * [False])
        self.assertEqual([row["fits"] for row in rows], [True, False, rows[2]["fits"], True])
        for row in rows:
            self.assertEqual(row["fits"], row["planned_seconds"] > 0)
            self.assertEqual((row["step_seconds"], row["peak_bytes"], row["lanes"]), (0, 0, {}))
        shown = run(*command, before=none).stdout
        self.assertIn("the planned time of keep-all, which is more than this machine has", shown)
        self.assertEqual(shown.count("ms  more than this machine has"), sum(row["fits"] for row in rows))

    def test_the_table_and_refusals(self):
        least, _, _ = self.budgets()
        shown = self.bench("--budgets", least).stdout
        self.assertRegex(shown, r"(?m)^ *100% +keep-all ")
        self.assertRegex(shown, r"(?m)^ *-?\d+% .* both .* disk-write -?\d+%, disk-read -?\d+%$|disk-read -?\d+%, disk-write -?\d+%$")
        self.assertEqual(shown.count(" recompute "), 1)
        for options, words in ((("--budgets", "many"), "--budgets"), (("--memory.allow", "recompute"), "memory.disk"),
                               (("--link", 1), "--link")):
            self.assertIn(words, self.bench(*options, check=2).stderr)


if __name__ == "__main__":
    unittest.main()
