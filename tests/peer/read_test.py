#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The module garonne_read on what the program writes, and the notebook that shows it. scripts/test --peer installs numpy."""
import importlib.util
import json
import os
import pathlib
import sys
import unittest

SOURCE = pathlib.Path(os.environ["GARONNE_SOURCE"])
ENVIRONMENT = SOURCE / ".deps" / "bench-python"
if (ENVIRONMENT / "garonne-wheels.txt").exists() and pathlib.Path(sys.prefix).resolve() != ENVIRONMENT.resolve():
    # Python finds its environment by the name that it is called by.
    os.execv(ENVIRONMENT / "bin" / "python", [str(ENVIRONMENT / "bin" / "python"), *sys.argv])

if any(importlib.util.find_spec(name) is None for name in ("numpy", "h5py")):
    sys.exit("numpy and h5py are not installed: scripts/bench --environment-only")

import numpy as np  # noqa: E402

sys.path[:0] = [str(SOURCE / "tests" / "apps"), str(SOURCE / "python")]
import garonne_read  # noqa: E402
from skill_test import RUN_FILE  # noqa: E402
from support import FieldsTest, checkpoint_tensors, run, series  # noqa: E402


class ReadTest(FieldsTest, unittest.TestCase):
    RUN_FILE = RUN_FILE

    @classmethod
    def make_data(cls):
        run("data", "synthetic-era5", "--latitudes", 19, "--longitudes", 36, "--channels", "t2m,z500", "--frame-hours", 24,
            "--years", 2, "--output", cls.folder / "data", "--no-progress")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.directory = cls.folder / "run"
        cls.train(cls.directory, "--grid.data", 2, "--grid.zero", 2, ranks=2)
        run("eval", cls.directory, "--lead-steps", 2)
        cls.of_run = garonne_read.Run(cls.directory)

    def test_checkpoints_are_merged(self):
        checkpoint = self.of_run.checkpoint()
        wanted = checkpoint_tensors(checkpoint.path)
        self.assertEqual(set(checkpoint), set(wanted))
        self.assertGreater(len({shard["file"] for shard in checkpoint.manifest["shards"]}), 1)
        for name, (shape, values) in wanted.items():
            tensor = checkpoint[name]
            self.assertEqual(tensor.shape, tuple(shape))
            self.assertEqual(tensor.reshape(-1).tolist(), values)
        parameters = checkpoint.parameters()
        self.assertEqual(len(checkpoint), 3 * len(parameters))
        self.assertFalse([name for name in parameters if name.endswith("moment")])

    def test_metrics_are_those_of_the_run(self):
        metrics = self.of_run.metrics
        self.assertEqual(metrics["loss"].tolist(), series(self.directory, "loss"))
        self.assertEqual(metrics["step"].tolist(), [1, 2, 3, 4])
        self.assertEqual(self.of_run.steps, [4])
        self.assertEqual(self.of_run.config["model"]["kind"], "fno")

    def test_live_bytes_come_to_the_peak(self):
        program = self.of_run.program(1)
        peaks = program.live_bytes() + program.column("transient_bytes")
        self.assertEqual(int(peaks.max()), program.peak_bytes)
        self.assertLessEqual(program.column("measured_peak_bytes").max(), program.peak_bytes)

    def test_skill_is_that_of_the_report(self):
        skill = self.of_run.skill()
        page = json.loads((self.directory / "skill.json").read_text())
        self.assertEqual(skill["source"], page["sources"])
        np.testing.assert_allclose(skill["rmse"], np.array(page["rmse"]), rtol=1e-5)

    def test_the_notebook_runs(self):
        notebook = json.loads((SOURCE / "python" / "examples" / "look_at_a_run.ipynb").read_text(encoding="utf-8"))
        os.environ["GARONNE_RUN"] = str(self.directory)
        names = {}
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                exec("".join(cell["source"]), names)  # noqa: S102
        self.assertEqual(names["live"].shape, (len(names["program"]),))

    def test_what_is_not_whole_is_refused(self):
        self.assertRaises(FileNotFoundError, garonne_read.Run, self.folder)
        cut = self.folder / "cut.safetensors"
        cut.write_bytes(b"\xff" * 8 + b"{}")
        self.assertRaises(ValueError, garonne_read.read_safetensors, cut)


if __name__ == "__main__":
    unittest.main(verbosity=2)
