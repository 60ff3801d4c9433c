# SPDX-License-Identifier: MIT
"""What training on fields can do besides: missing values, noise, push-forward, moments of complex weights."""
import array
import json
import struct
import unittest

from support import KeptFieldsTest, metrics, run, series

ROWS, COLUMNS, FRAMES, CHANNELS = 9, 16, 12, 2

RUN_FILE = """
[model]
kind = "fno"
layers = 2
hidden = 7
modes = [4, 6]
[data]
path = "{folder}/weather/train"
validation = "{folder}/weather/test"
statistics = "{folder}/statistics.h5"
missing = "mask"
[train]
steps = 5
global_batch = 4
micro_batch = 1
loss = "area-l2"
rollout = 2
push_forward = 1
noise = 0.1
precision = "float64"
seed = 3
[optimizer]
complex = "joint"
learning_rate = 1e-3
warmup_steps = 1
[evaluation]
every = 0
batches = 2
[checkpoint]
every = 0
[memory]
budget = "64 MiB"
[run]
directory = "{folder}/run"
threads = 1
"""


def poke_holes(path):
    """Takes values out of the yearly file: a piece of land in channel 0, always, and a point of channel 1 once."""
    content = bytearray(path.read_bytes())
    values = FRAMES * CHANNELS * ROWS * COLUMNS
    # The layout of a contiguous dataset: where it is, then its bytes.
    at = content.index(struct.pack("<Q", 4 * values))
    place = struct.unpack_from("<Q", content, at - 8)[0]
    fields = array.array("f", bytes(content[place:place + 4 * values]))
    for frame in range(FRAMES):
        for row in range(2, 5):
            for column in range(3, 9):
                fields[((frame * CHANNELS) * ROWS + row) * COLUMNS + column] = float("nan")
    fields[((4 * CHANNELS + 1) * ROWS + 6) * COLUMNS + 1] = float("nan")
    content[place:place + 4 * values] = fields.tobytes()
    path.write_bytes(content)


class FieldTraining(KeptFieldsTest, unittest.TestCase):
    RUN_FILE, RUN_FILE_END = RUN_FILE, ""

    @classmethod
    def make_data(cls):
        run("data", "synthetic-era5", "--latitudes", ROWS, "--longitudes", COLUMNS, "--channels", "t2m,u10m",
            "--years", 1, "--frames-a-year", FRAMES, "--output", cls.folder / "weather", "--no-progress")
        for path in (cls.folder / "weather").glob("*/*.h5"):
            poke_holes(path)
        run("data", "statistics", cls.folder / "weather/train", "--missing", "mask", "--output",
            cls.folder / "statistics.h5")

    def compare(self, directory, tolerance=1e-9):
        for key in ("loss", "gradient_norm"):
            for one, other in zip(series(self.kept, key), series(directory, key), strict=True):
                self.assertLessEqual(abs(one - other), tolerance * abs(one), key)

    def losses(self, name, *overrides):
        self.train(self.folder / name, *overrides)
        return series(self.folder / name, "loss")

    def test_losses_fall_and_bytes_are_as_planned(self):
        directory = self.folder / "falls"
        self.train(directory, "--train.steps", 40, "--optimizer.learning_rate", 1e-2)
        losses = series(directory, "loss")
        self.assertLess(sum(losses[-6:]), 0.8 * sum(losses[:6]))
        self.check_bytes(directory)
        self.check_bytes(self.kept)

    def test_a_tight_budget_gives_the_same_bits(self):
        least = json.loads(run("plan", self.config, "--json").stdout)["minimum_budget_bytes"]
        directory = self.folder / "tight"
        self.train(directory, "--memory.budget", least)
        for key in ("loss", "gradient_norm"):
            self.assertEqual(series(directory, key), series(self.kept, key))
        self.check_bytes(directory, least)

    def test_data_ranks_train_the_same(self):
        for zero in (0, 1, 3):
            directory = self.folder / f"zero-{zero}"
            self.train(directory, "--grid.data", 2, "--grid.zero", zero, "--grid.bucket", "2 KiB", ranks=2)
            self.compare(directory)
            self.check_bytes(directory)

    def test_tensor_ranks_train_the_same(self):
        for data, tensor in ((1, 2), (1, 3), (2, 2)):
            directory = self.folder / f"tensor-{data}-{tensor}"
            self.train(directory, "--grid.data", data, "--grid.tensor", tensor, ranks=data * tensor)
            self.compare(directory)
            self.check_bytes(directory)

    def test_pipelines_train_the_same(self):
        alone = self.losses("alone", "--train.rollout", 3)
        directory = self.folder / "pipeline"
        self.train(directory, "--train.rollout", 3, "--grid.pipeline", 2, ranks=2)
        for one, other in zip(alone, series(directory, "loss"), strict=True):
            self.assertLessEqual(abs(one - other), 1e-9 * abs(one))
        self.check_bytes(directory)
        # What has no gradient is not handed over.
        refused = self.train(self.folder / "refused", "--grid.pipeline", 2, "--train.push_forward", 8,
                             "--train.rollout", 1, ranks=2, check=2)
        self.assertIn("steps without gradients", refused.stderr)
        self.assertIn("the nearest that works is grid.pipeline = 1", refused.stderr)
        run("plan", self.config, "--ranks", 2, "--train.push_forward", 8, "--train.rollout", 1)

    def test_every_key_counts(self):
        losses = series(self.kept, "loss")
        for key, value in (("train.noise", 0), ("train.push_forward", 0), ("train.push_forward", 2)):
            self.assertNotEqual(self.losses(f"{key}-{value}", f"--{key}", value)[0], losses[0], key)
        # The first loss is before any update.
        independent = self.losses("independent", "--optimizer.complex", "independent")
        self.assertEqual(independent[0], losses[0])
        self.assertNotEqual(independent[1:], losses[1:])

    def test_noise_is_for_training_only(self):
        quiet, loud = self.folder / "quiet", self.folder / "loud"
        for directory, noise in ((quiet, 0), (loud, 1000)):
            self.train(directory, "--train.noise", noise, "--train.push_forward", 0, "--train.steps", 1,
                       "--optimizer.learning_rate", 0, "--optimizer.minimum_learning_rate", 0)
        self.assertEqual(metrics(quiet)[0]["validation_loss"], metrics(loud)[0]["validation_loss"])
        self.assertGreater(metrics(loud)[0]["loss"], 1.5 * metrics(quiet)[0]["loss"])

    def test_other_precisions_and_losses(self):
        for precision, loss in (("bfloat16", "relative-l2"), ("float32", "h1")):
            directory = self.folder / precision
            self.train(directory, "--train.precision", precision, "--train.loss", loss)
            self.check_bytes(directory)

    def test_missing_values_are_refused_unless_masked(self):
        refused = self.train(self.folder / "missing", "--data.missing", "refuse", check=5)
        self.assertIn("data.missing = mask", refused.stderr)

    def test_keys_that_mean_nothing_are_refused(self):
        refused = self.train(self.folder / "afno", "--model.kind", "afno", "--model.modes", "", "--model.patch", 1,
                             "--model.spectral_blocks", 7, check=2)
        self.assertIn("optimizer.complex", refused.stderr)

    def test_evaluation_leaves_missing_values_out(self):
        result = json.loads(run("eval", self.kept, "--json").stdout)
        self.assertAlmostEqual(result["validation_loss"], metrics(self.kept)[-1]["validation_loss"], places=12)
        for source in result["skill"]["rmse"]:
            for lead in source:
                for value in lead:
                    self.assertGreater(value, 0)  # None fails


if __name__ == "__main__":
    unittest.main(verbosity=2)
