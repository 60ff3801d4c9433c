# SPDX-License-Identifier: MIT
"""Whole trainings on the emulated device, whose lanes are late in another way with every seed and which spoils what was
freed: losses, norms and checkpoints have the bits that they have on the CPU.

Two seeds by default; GARONNE_SEEDS=100:120 takes those (test emulated_long, label long)."""
import os
import unittest

from support import FieldsTest, ProgramTest, metrics, run

SEEDS = range(*map(int, os.environ.get("GARONNE_SEEDS", "1:3").split(":")))
STEPS = 3

FIELDS_RUN_FILE = """
[model]
kind = "fno"
layers = 2
hidden = 8
modes = [4, 6]
[data]
path = "{folder}/weather/train"
validation = "{folder}/weather/test"
statistics = "{folder}/statistics.h5"
[train]
steps = 3
global_batch = 4
micro_batch = 1
loss = "area-l2"
"""


def tensors(directory):
    folder = directory / "checkpoints" / f"step-{STEPS}"
    return {file.name: file.read_bytes() for file in sorted(folder.glob("*.safetensors"))}


class Emulated:
    """For every seed the same training on both devices."""

    def compare(self, name, *keys, ranks=0):
        keys = ("--train.steps", STEPS, "--evaluation.batches", 1, *keys)
        for seed in SEEDS:
            with self.subTest(name, seed=seed):
                runs = {device: self.folder / f"{name}-{seed}-{device}" for device in ("cpu", "emulated")}
                for device, directory in runs.items():
                    self.train(directory, "--run.device", device, "--train.seed", seed, *keys, ranks=ranks)
                for key in ("loss", "gradient_norm", "validation_loss", "peak_bytes"):
                    cpu, emulated = ([row.get(key) for row in metrics(runs[device])] for device in ("cpu", "emulated"))
                    self.assertEqual(cpu, emulated, key)
                    self.assertIsNotNone(cpu[-1], key)
                self.assertTrue(tensors(runs["cpu"]))
                self.assertEqual(tensors(runs["cpu"]), tensors(runs["emulated"]))


class EmulatedText(Emulated, ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        run("profile", cls.config)

    def test_one_rank(self):
        self.compare("alone", "--memory.plan", "full", "--train.precision", "bfloat16")

    def test_data_ranks_that_share_the_state(self):
        self.compare("zero", "--grid.data", 2, "--grid.zero", 3, "--grid.bucket", "8 KiB", ranks=2)

    def test_pipeline_that_recomputes(self):
        self.compare("pipeline", "--grid.pipeline", 2, "--memory.plan", "full", ranks=2)

    def test_both_directions_of_a_pipeline(self):
        self.compare("chimera", "--grid.pipeline", 2, "--grid.schedule", "chimera", ranks=2)

    def test_tensor_ranks(self):
        self.compare("tensor", "--grid.tensor", 2, "--grid.sequence_parallel", "true", ranks=2)

    def test_auto_is_the_processor_where_there_is_no_gpu(self):
        rows = []
        for device in ("cpu", "auto"):
            directory = self.directory(device)
            done = self.train(directory, "--run.device", device, "--train.steps", 1)
            self.assertEqual("run.device = auto: cpu, since" in done.stdout, device == "auto", done.stdout)
            rows.append([(row["loss"], row["gradient_norm"], row["peak_bytes"]) for row in metrics(directory)])
        self.assertEqual(*rows)

    def test_what_is_not_finite_is_said_alike(self):
        said = []
        for device in ("cpu", "emulated"):
            done = self.train(self.directory(device), "--run.device", device, "--optimizer.learning_rate", 1e18,
                              "--optimizer.clip_norm", 0, "--optimizer.warmup_steps", 0, check=6)
            said.append(done.stderr)
        self.assertIn("nothing was updated", said[0])
        self.assertEqual(*said)


class EmulatedFields(Emulated, FieldsTest, unittest.TestCase):
    RUN_FILE = FIELDS_RUN_FILE

    @classmethod
    def make_data(cls):
        run("data", "synthetic-era5", "--latitudes", 9, "--longitudes", 16, "--channels", "t2m,u10m", "--years", 1,
            "--frames-a-year", 12, "--output", cls.folder / "weather", "--no-progress")
        run("data", "statistics", cls.folder / "weather/train", "--output", cls.folder / "statistics.h5")
        run("profile", cls.config)

    def test_fourier_neural_operator(self):
        self.compare("fno")


if __name__ == "__main__":
    unittest.main()
