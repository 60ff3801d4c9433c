# SPDX-License-Identifier: MIT
"""Runs of random models on random grids within random budgets: measured bytes are as planned, losses those of one rank.

GARONNE_RANDOM_RUNS = A:B does the seeds from A to below B."""
import json
import unittest

from random_models import (RandomModelsTest, arguments_of, check_refusal, grid_refusals, model_refusals, random_run, ranks_of,
                           refused_key, seeds_of)
from support import check_peaks_of_ranks, run, series

# Seeds whose runs once went wrong.
FOUND_DEFECTS = [129, 344, 373]
# A U-shaped operator in a pipeline, and dropout of attention on two tensor ranks.
FURTHER = [8, 186]
GLOBAL_BATCH = 24
OPTIMIZERS = ("adamw", "lamb", "lars", "sgd", "lion", "adafactor")


def with_optimizer(keys, seed):
    """Those that have one moment, or none of complex numbers, know no convention for it."""
    return keys if keys.get("optimizer.complex") == "joint" else keys | {"optimizer.name": OPTIMIZERS[seed % len(OPTIMIZERS)]}


class RandomRunsTest(RandomModelsTest):
    TRAIN = f"steps = 2\nglobal_batch = {GLOBAL_BATCH}"

    def check_run(self, seed):
        keys, grid, memory, plan, share = random_run(seed, self.folder)
        keys = with_optimizer(keys, seed)
        alone, directory = self.folder / f"{seed}-alone", self.folder / f"{seed}-grid"
        first = run("train", self.config, *arguments_of(keys), "--run.directory", alone, check=None)
        if check_refusal(self, first, model_refusals(keys), set()):
            return False
        arguments = arguments_of(keys | grid)
        ranks = ranks_of(grid)
        must, may = grid_refusals(self.config, keys, grid, GLOBAL_BATCH)
        planned = run("plan", self.config, *arguments, "--memory.plan", "keep-all", "--memory.budget", "64GiB", check=None)
        refused = check_refusal(self, planned, must, may)
        extra = ["--memory.plan", plan] if memory == "plan" else []
        if memory in ("budget", "least") and not refused:
            run("profile", self.config, *arguments)
            answer = json.loads(run("plan", self.config, *arguments, "--json").stdout)
            least, most = answer["minimum_budget_bytes"], answer["peak_bytes"]
            extra = ["--memory.budget", least if memory == "least" else int(least + share * max(0, most - least))]
        done = run("train", self.config, *arguments, *extra, "--run.directory", directory, ranks=ranks, check=None, timeout=300)
        if refused:
            self.assertEqual((done.returncode, done.stderr.count("garonne: ")), (2, 1), "what garonne plan refuses trains")
            self.assertIn(f" {refused_key(planned)}", done.stderr, "refused for something else")
            return False
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        check_peaks_of_ranks(self, directory, ranks)
        tolerance = 1e-9 if keys["train.precision"] == "float64" else 1e-3
        for key in ("loss", "gradient_norm"):
            for one, other in zip(series(alone, key), series(directory, key), strict=True):
                self.assertLessEqual(abs(one - other), tolerance * abs(one), key)
        return True

    def test_bytes_and_losses(self):
        seeds = seeds_of("GARONNE_RANDOM_RUNS", [*range(8), *FURTHER, *FOUND_DEFECTS])
        trained = 0
        for seed in seeds:
            keys, grid, *memory = random_run(seed, self.folder)
            keys = with_optimizer(keys, seed)
            with self.subTest(f"seed {seed}: {' '.join(map(str, arguments_of(keys | grid)))} {memory}"):
                trained += self.check_run(seed)
        # As many are refused as the rules above say; were it most, the models would be badly drawn.
        self.assertGreater(trained, len(seeds) / 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
