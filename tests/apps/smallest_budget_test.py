# SPDX-License-Identifier: MIT
"""The smallest budget of random runs is one number: plan and train take it, and refuse one byte less with it, before and
after a profile.

GARONNE_RANDOM_BUDGETS = A:B does the seeds from A to below B."""
import json
import os
import random
import re
import shutil
import unittest

from random_models import (GRIDS, SCHEDULES, RandomModelsTest, arguments_of, check_refusal, grid_refusals, model_refusals,
                           random_run, ranks_of, seeds_of)
from support import check_peaks_of_ranks, run

# Which once had two numbers: ZeRO 3 with several micro-batches, alone and in a pipeline.
FOUND_DEFECTS = [({"model.kind": "gpt", "model.layers": 4, "model.hidden": 32, "model.heads": 4, "model.sequence": 32,
                   "train.micro_batch": 1, "train.precision": "float32"}, grid, 8)
                 for grid in ({"grid.data": 2, "grid.pipeline": 1, "grid.tensor": 1, "grid.zero": 3},
                              {"grid.data": 2, "grid.pipeline": 2, "grid.tensor": 1, "grid.zero": 3, "grid.schedule": "zb-h2"})]

# A U-shaped operator in a pipeline, and dropout of attention on data and tensor ranks.
FURTHER = [25, 73]


def random_case(seed, folder):
    """Keys of the run file, keys of the grid, the samples of a step, and memory.plan."""
    pick = random.Random(f"budget {seed}").choice
    keys, *_ = random_run(seed, folder)
    layers = pick([1, 2, 3])
    if "model.layers" in keys:
        keys["model.layers"] = layers
    keys["evaluation.batches"] = pick([0, 2])
    if keys["model.kind"] == "gpt":
        keys["data.path"] = folder / pick(["text.h5", "validated.h5"])
    grid = dict(zip(("grid.data", "grid.pipeline", "grid.tensor"), pick(GRIDS), strict=True))
    if grid["grid.pipeline"] > 1:
        grid["grid.schedule"] = pick(SCHEDULES)
    if grid["grid.data"] > 1:
        grid |= {"grid.zero": pick([0, 1, 2, 3, 3]), "grid.bucket": pick([1000, 40000, 4194304])}
    of_rank = pick([2, 4]) if grid["grid.pipeline"] > 1 else pick([1, 2, 4])
    plan = pick(["auto", "auto", "auto", "keep-all", "selective", "full", "greedy"])
    return keys, grid, of_rank * grid["grid.data"] * keys["train.micro_batch"], plan


class SmallestBudgetTest(RandomModelsTest):
    TRAIN = "steps = 1"

    def refused_with(self, done):
        """The smallest budget that a refusal names; it is the only reason."""
        self.assertEqual(done.returncode, 3, done.stderr[-2000:])
        found = re.findall(r"the smallest budget that works is (\d+) bytes", done.stderr)
        self.assertEqual(len(found), 1, done.stderr)
        return int(found[0])

    def check_case(self, name, keys, grid, batch, plan):
        os.environ["GARONNE_CACHE"] = str(self.folder / f"cache-{name}")
        arguments = [*arguments_of(keys | grid), "--train.global_batch", batch, "--memory.plan", plan]
        ranks = ranks_of(grid)
        directory = self.folder / f"run-{name}"

        def planned(budget, **options):
            return run("plan", self.config, *arguments, "--memory.budget", budget, "--json", **options)

        def trained(budget, **options):
            return run("train", self.config, *arguments, "--memory.budget", budget, "--run.directory", directory, ranks=ranks,
                       timeout=300, **options)

        first = planned(1, check=None)
        must, may = grid_refusals(self.config, keys, grid, batch)
        if first.returncode == 2:
            check_refusal(self, first, model_refusals(keys) | must, may)
            return False
        self.assertFalse(model_refusals(keys) | must, "what cannot work was not refused")
        least = self.refused_with(first)
        # Before anything is measured.
        self.assertEqual(self.refused_with(planned(least - 1, check=None)), least)
        self.assertEqual(json.loads(planned(least).stdout)["minimum_budget_bytes"], least)
        self.assertEqual(self.refused_with(trained(least - 1, check=None)), least)
        self.assertEqual(list((self.folder / f"cache-{name}").glob("costs-*")), [], "measured before it was refused")
        trained(least)
        check_peaks_of_ranks(self, directory, ranks)
        # With what that run has measured.
        after = json.loads(planned(least).stdout)
        self.assertEqual((after["costs"], after["minimum_budget_bytes"]), ("measured", least))
        self.assertEqual(self.refused_with(planned(least - 1, check=None)), least)
        shutil.rmtree(directory)
        self.assertEqual(self.refused_with(trained(least - 1, check=None)), least)
        shutil.rmtree(self.folder / f"cache-{name}")
        return True

    def test_is_one_number(self):
        cases = {f"seed {seed}": random_case(seed, self.folder) for seed in seeds_of("GARONNE_RANDOM_BUDGETS", [*range(4), *FURTHER])}
        for keys, grid, batch in FOUND_DEFECTS:
            cases[f"found {len(cases)}"] = keys | {"data.path": self.folder / "text.h5"}, grid, batch, "auto"
        worked = 0
        for name, (keys, grid, batch, plan) in cases.items():
            with self.subTest(f"{name}: {' '.join(map(str, arguments_of(keys | grid)))} batch {batch} {plan}"):
                worked += self.check_case(name.replace(" ", "-"), keys, grid, batch, plan)
        self.assertGreater(worked, len(cases) / 2)

    # What auto runs within a budget, it also runs where it is asked for by name.
    def test_what_auto_runs_can_be_asked_for(self):
        os.environ["GARONNE_CACHE"] = str(self.folder / "cache-named")
        for number, (keys, grid, batch) in enumerate(FOUND_DEFECTS[:1]):
            keys = keys | grid | {"data.path": self.folder / "text.h5"}
            arguments = [*arguments_of(keys), "--train.global_batch", batch]
            kept = self.refused_with(run("plan", self.config, *arguments, "--memory.plan", "keep-all", "--memory.budget", 1,
                                         check=None))
            for plan in ("auto", "keep-all"):
                directory = self.folder / f"named-{number}-{plan}"
                run("train", self.config, *arguments, "--memory.budget", kept, "--memory.plan", plan,
                    "--run.directory", directory, ranks=2)
                program = json.loads((directory / "program/rank_0.json").read_text())
                self.assertIn("keep-all", program["name"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
