# SPDX-License-Identifier: MIT
"""The shipped run files of neural operators, run as their heads say, reach the accuracy that is promised there."""
import json
import os
import pathlib
import shutil
import tempfile
import unittest

from support import SOURCE, run


class AccuracyTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="garonne-accuracy-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def relative_l2(self, config, *arguments):
        """Of the model after one step, by channel, over the whole test part."""
        directory = self.folder / "run"
        shutil.rmtree(directory, ignore_errors=True)
        run("train", SOURCE / "config" / config, "--run.directory", directory, "--evaluation.every", 0,
            "--run.threads", min(2, os.cpu_count()), *arguments, timeout=2400)
        skill = json.loads(run("eval", directory, "--samples", 1000, "--json").stdout)["skill"]
        self.assertEqual(skill["sources"][0], "model")
        errors = skill["relative_l2"][0][0]
        print(config, *arguments, dict(zip(skill["channels"], errors, strict=True)))
        return errors

    def test_darcy(self):
        train, test, statistics = (self.folder / f"{name}.h5" for name in ("train", "test", "statistics"))
        run("data", "darcy", "--samples", 1000, "--test-samples", 100, "--resolution", 141, "--stride", 4, "--output", train,
            "--test", test, "--no-progress", timeout=900)
        run("data", "statistics", train, "--pointwise", "--output", statistics)
        data = ("--data.path", train, "--data.validation", test, "--data.statistics", statistics)
        self.assertLessEqual(self.relative_l2("darcy_fno.toml", *data)[0], 0.022)
        hundred = self.relative_l2("darcy_fno.toml", *data, "--train.steps", 5000, "--checkpoint.every", 5000)
        self.assertLessEqual(hundred[0], 0.014)

    def test_shallow_water(self):
        output = self.folder / "shallow_water"
        run("data", "shallow-water", "--latitudes", 64, "--longitudes", 128, "--trajectories", 512, "--test-trajectories", 64,
            "--trajectory-length", 2, "--frame-hours", 1, "--output", output, "--no-progress", timeout=1200)
        errors = self.relative_l2("shallow_water_sfno.toml", "--data.path", output / "train", "--data.validation",
                                  output / "test")
        # The reference's geopotential is without its mean, which is 340 times what is left.
        for error, reference in zip(errors, (0.187 / 340, 0.212, 0.154), strict=True):
            self.assertLessEqual(error, 1.05 * reference)


if __name__ == "__main__":
    unittest.main(verbosity=2)
