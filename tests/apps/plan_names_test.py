# SPDX-License-Identifier: MIT
"""Every memory.plan by its name: planned, trained with the bits of keep-all, in the bytes that were planned."""
import json
import unittest

from support import ProgramTest, check_peaks_of_ranks, run, series

NOT_BUILT = "which this build does not have"
# offload_host_test.py and offload_ways_test.py have these.
WITH_TIERS = ("zero-offload", "zero-infinity", "pofo", "offload-greedy", "offload-greedy-star")


def plan_names(config):
    """All names but auto, as the refusal of another says them."""
    refused = run("plan", config, "--memory.plan", "nothing", check=2).stderr
    return refused.split("must be one of auto, ")[1].strip().split(", ")


class PlanNamesTest(ProgramTest):
    # One micro-batch of one layer: integer programs of it are solved at once.
    MODEL = ("--model.layers", 1, "--train.global_batch", 4, "--train.micro_batch", 4, "--train.steps", 2,
             "--evaluation.batches", 0)

    def planned(self, name, budget, **options):
        return run("plan", self.config, *self.MODEL, "--memory.plan", name, "--memory.budget", budget, "--json",
                   **options)

    def test_every_plan_trains_with_the_bits_of_keep_all_in_the_planned_bytes(self):
        kept = self.directory("kept")
        self.train(kept, *self.MODEL, "--memory.plan", "keep-all")
        most = json.loads(self.planned("keep-all", "1 GiB").stdout)["minimum_budget_bytes"]
        weights = self.tensor_files(kept, 2)
        names = plan_names(self.config)
        for name in ("periodic", "chen-sqrt", "revolve", "best", "rotor", "annealing", "checkmate", "full",
                     "megatron-selective", *WITH_TIERS):
            self.assertIn(name, names)
        ran_again = 0
        for name in [name for name in names if name not in WITH_TIERS]:
            with self.subTest(name):
                done = self.planned(name, "1 GiB", check=None)
                if done.returncode == 2 and NOT_BUILT in done.stderr:
                    continue
                self.assertEqual(done.returncode, 0, done.stderr)
                least = json.loads(done.stdout)["minimum_budget_bytes"]
                self.assertLessEqual(least, most)
                budget = least + (most - least) // 4
                directory = self.directory(name)
                self.train(directory, *self.MODEL, "--memory.plan", name, "--memory.budget", budget)
                check_peaks_of_ranks(self, directory, 1)
                program = json.loads((directory / "program" / "rank_0.json").read_text())
                self.assertEqual(program["name"].split(",")[0].split(" ")[0], name)
                forwards = sum(row["operation"].startswith("forward") for row in program["instructions"])
                ran_again += forwards > len({row["node"] for row in program["instructions"]
                                             if row["operation"].startswith("forward")})
                for key in ("loss", "gradient_norm"):
                    self.assertEqual(series(kept, key), series(directory, key))
                self.assertEqual(self.tensor_files(directory, 2), weights)
        self.assertGreaterEqual(ran_again, 8)

    def test_what_does_not_apply_is_refused_with_what_does(self):
        deep = ("--model.layers", 30, "--memory.budget", "1 GiB", "--evaluation.batches", 0)
        for command in (("plan", self.config), ("train", self.config, "--run.directory", self.directory("deep"))):
            refused = run(*command, *deep, "--memory.plan", "checkmate", check=2).stderr
            for word in ("memory.plan = checkmate", "what does: auto, keep-all", "annealing"):
                self.assertIn(word, refused)
            self.assertTrue("300 tasks" in refused or NOT_BUILT in refused, refused)
        self.assertFalse(self.directory("deep").exists())


if __name__ == "__main__":
    unittest.main()
