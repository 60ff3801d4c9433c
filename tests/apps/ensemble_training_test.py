# SPDX-License-Identifier: MIT
"""Training on the fair CRPS of ensembles: the same losses on any grid and within any budget, bytes, what it refuses."""
import json
import unittest

from support import KeptFieldsTest, metrics, run, series

ROWS, COLUMNS, FRAMES = 18, 36, 12

RUN_FILE = """
[model]
kind = "sfno"
layers = 2
hidden = 6
scale_factor = 2
[data]
path = "{folder}/weather/train"
validation = "{folder}/weather/test"
[train]
steps = 5
global_batch = 4
micro_batch = 1
loss = "crps"
members = 3
noise = 0.2
rollout = 2
precision = "float64"
seed = 3
[optimizer]
learning_rate = 1e-3
warmup_steps = 1
[evaluation]
every = 0
batches = 2
[checkpoint]
every = 0
[memory]
budget = "256 MiB"
[run]
directory = "{folder}/run"
threads = 1
"""


class EnsembleTraining(KeptFieldsTest, unittest.TestCase):
    RUN_FILE, RUN_FILE_END = RUN_FILE, ""

    @classmethod
    def make_data(cls):
        run("data", "synthetic-era5", "--latitudes", ROWS, "--longitudes", COLUMNS, "--channels", "t2m,u10m",
            "--years", 1, "--frames-a-year", FRAMES, "--output", cls.folder / "weather", "--no-progress")

    def compare(self, directory, tolerance=1e-9):
        for key in ("loss", "gradient_norm", "validation_loss"):
            for one, other in zip(metrics(self.kept), metrics(directory), strict=True):
                self.assertEqual(key in one, key in other)
                if key in one:
                    self.assertLessEqual(abs(one[key] - other[key]), tolerance * abs(one[key]), key)

    def test_losses_fall_and_bytes_are_as_planned(self):
        directory = self.folder / "falls"
        self.train(directory, "--train.steps", 40, "--optimizer.learning_rate", 1e-2, "--train.precision", "float32")
        losses = series(directory, "loss")
        self.assertLess(sum(losses[-6:]), 0.8 * sum(losses[:6]))
        self.check_bytes(directory)
        self.check_bytes(self.kept)

    def test_small_budgets_give_the_same_bits(self):
        least = json.loads(run("plan", self.config, "--json").stdout)["minimum_budget_bytes"]
        for share in (1, 1.2):
            directory = self.folder / f"budget-{share}"
            self.train(directory, "--memory.budget", int(share * least))
            for key in ("loss", "gradient_norm"):
                self.assertEqual(series(directory, key), series(self.kept, key))
            self.check_bytes(directory, int(share * least))

    def test_members_take_their_bytes(self):
        def least(members):
            return json.loads(run("plan", self.config, "--train.members", members, "--json").stdout)["minimum_budget_bytes"]
        # What a member takes does not depend on how many there are.
        two, four, six = least(2), least(4), least(6)
        self.assertGreater(four - two, 2 * 6 * 8 * ROWS * COLUMNS)
        self.assertLess(abs((six - four) - (four - two)), 0.1 * (four - two))

    def test_grids_train_the_same(self):
        for name, ranks, keys in (("data", 2, ("--grid.data", 2)),
                                  ("zero", 2, ("--grid.data", 2, "--grid.zero", 3, "--grid.bucket", "2 KiB")),
                                  ("tensor", 2, ("--grid.tensor", 2)),
                                  ("pipeline", 2, ("--grid.pipeline", 2)),
                                  ("all", 4, ("--grid.data", 2, "--grid.tensor", 2, "--grid.zero", 1))):
            directory = self.folder / name
            self.train(directory, *keys, ranks=ranks)
            self.compare(directory)
            self.check_bytes(directory)

    def test_the_noise_is_that_of_the_sample_whatever_comes_with_it(self):
        directory = self.folder / "together"
        self.train(directory, "--train.micro_batch", 2, "--evaluation.batches", 1)
        self.compare(directory)

    def test_every_key_counts(self):
        losses = series(self.kept, "loss")
        for key, value in (("train.noise", 0.3), ("train.members", 2), ("train.seed", 4), ("train.push_forward", 1),
                           ("train.rollout", 1)):
            directory = self.folder / f"{key}-{value}"
            self.train(directory, f"--{key}", value, "--train.steps", 1)
            self.assertNotEqual(series(directory, "loss")[0], losses[0], key)

    def test_scores_are_those_of_ensembles(self):
        # Without a step of training members differ by their noise alone, and a fair score is below the mean distance,
        # which is what members that are all the same have.
        apart, near = self.folder / "apart", self.folder / "near"
        for directory, noise in ((apart, 1), (near, 1e-9)):
            self.train(directory, "--train.noise", noise, "--train.steps", 1, "--train.rollout", 1,
                       "--optimizer.learning_rate", 0, "--optimizer.minimum_learning_rate", 0)
        self.assertNotEqual(metrics(apart)[0]["validation_loss"], metrics(near)[0]["validation_loss"])

    def test_evaluation_and_forecasts(self):
        result = json.loads(run("eval", self.kept, "--lead-steps", 2, "--members", 4, "--json").stdout)
        self.assertAlmostEqual(result["validation_loss"], metrics(self.kept)[-1]["validation_loss"], places=12)
        self.assertTrue(all(value > 0 for value in result["skill"]["crps"][0]))
        self.assertLessEqual(result["skill"]["peak_bytes"], result["skill"]["planned_peak_bytes"])
        output = self.folder / "forecast.nc"
        made = json.loads(run("forecast", self.kept, "--steps", 2, "--members", 2, "--output", output, "--json").stdout)
        self.assertEqual((made["members"], made["steps_made"]), (2, 4))

    def test_other_models_and_precisions(self):
        for name, keys in (("bfloat16", ("--train.precision", "bfloat16")),
                           ("afno", ("--model.kind", "afno", "--model.scale_factor", 1, "--model.patch", 6,
                                     "--model.spectral_blocks", 2)),
                           ("fno", ("--model.kind", "fno", "--model.scale_factor", 1, "--model.modes", "4,4",
                                    "--train.decode", "true"))):
            directory = self.folder / name
            self.train(directory, *keys)
            self.check_bytes(directory)

    def test_what_cannot_be_is_refused(self):
        for keys, words in ((("--train.members", 1), ("train.members", "give 2 or more")),
                            (("--train.noise", 0), ("train.noise", "makes all members of train.loss = crps the same")),
                            (("--train.loss", "area-l2"), ("train.members", "give train.loss = crps")),
                            (("--train.loss", "crsp"), ("train.loss", "did you mean crps?")),
                            (("--train.members", 1001), ("train.members", "1000"))):
            refused = self.train(self.folder / "refused", *keys, check=2)
            for word in words:
                self.assertIn(word, refused.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
