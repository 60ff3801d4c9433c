# SPDX-License-Identifier: MIT
"""The model of config/era5_sfno.toml, all 73 channels and all its width, at 64 x 128 from data to forecast."""
import importlib.util
import json
import os
import pathlib
import sys
import unittest
import warnings

SOURCE = pathlib.Path(os.environ["GARONNE_SOURCE"])
ENVIRONMENT = SOURCE / ".deps" / "bench-python"
if (ENVIRONMENT / "garonne-wheels.txt").exists() and pathlib.Path(sys.prefix).resolve() != ENVIRONMENT.resolve():
    # With what opens netCDF, where that is installed (scripts/bench --environment-only).
    os.execv(ENVIRONMENT / "bin" / "python", [str(ENVIRONMENT / "bin" / "python"), *sys.argv])

from support import FieldsTest, metrics, peaks_of_ranks, run, series  # noqa: E402

# In the order in which makani's models have them.
SURFACE = ["u10m", "v10m", "u100m", "v100m", "t2m", "sp", "msl", "tcwv"]
LEVELS = [50, 100, 150, 200, 250, 300, 400, 500, 600, 700, 850, 925, 1000]
CHANNELS = SURFACE + [f"{name}{level}" for name in "uvztq" for level in LEVELS]
STEPS, LEADS = 16, 4


class Era5Test(FieldsTest, unittest.TestCase):
    RUN_FILE, RUN_FILE_END = (SOURCE / "config" / "era5_sfno.toml").read_text(), ""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.directory = cls.folder / "run"
        # A sample on each of two ranks instead of 64, and some steps instead of 70,000.
        keys = ("--data.path", cls.folder / "era5/train", "--data.validation", cls.folder / "era5/test", "--grid.data", 2,
                "--train.global_batch", 2, "--train.precision", "float32", "--train.steps", STEPS,
                "--optimizer.warmup_steps", 4, "--evaluation.every", 0, "--evaluation.batches", 2, "--checkpoint.every", 0,
                "--run.threads", 1)
        plan = run("plan", cls.config, *keys, "--memory.budget", "4 GiB", "--json", timeout=600)
        cls.least = json.loads(plan.stdout)["minimum_budget_bytes"]
        cls.train(cls.directory, *keys, "--memory.budget", cls.least, ranks=2, timeout=900)

    @classmethod
    def make_data(cls):
        run("data", "synthetic-era5", "--output", cls.folder / "era5", "--latitudes", 64, "--longitudes", 128, "--years", 1,
            "--frames-a-year", 24, "--no-progress")

    def test_losses_fall_and_bytes_are_as_planned(self):
        losses = series(self.directory, "loss")
        self.assertEqual(len(losses), STEPS)
        self.assertLess(sum(losses[-4:]) / 4, 0.7 * losses[0])
        self.assertLess(metrics(self.directory)[-1]["validation_loss"], losses[0])
        for rank, (measured, planned, budget) in enumerate(peaks_of_ranks(self.directory, 2)):
            self.assertLessEqual(measured, planned, rank)
            self.assertLessEqual(planned, budget, rank)
            self.assertEqual(budget, self.least)
        for row in metrics(self.directory):
            self.assertLessEqual(row["peak_bytes"], row["planned_peak_bytes"])

    def test_skill_is_of_all_channels(self):
        result = json.loads(run("eval", self.directory, "--samples", 2, "--lead-steps", LEADS, "--members", 2, "--json",
                                ranks=2, timeout=300).stdout)
        self.assertAlmostEqual(result["validation_loss"], metrics(self.directory)[-1]["validation_loss"], places=6)
        skill = result["skill"]
        self.assertEqual(skill["channels"], CHANNELS)
        self.assertLessEqual(skill["peak_bytes"], skill["planned_peak_bytes"])
        for key in ("rmse", "acc"):
            model = skill[key][skill["sources"].index("model")]
            self.assertEqual([len(lead) for lead in model], [73] * LEADS)
        for lead in skill["crps"]:
            self.assertTrue(all(value > 0 for value in lead))

    def test_the_forecast_is_a_file_for_everybody(self):
        output = self.folder / "forecast.nc"
        made = json.loads(run("forecast", self.directory, "--from", 3, "--steps", LEADS, "--output", output, "--json",
                              ranks=2, timeout=300).stdout)
        self.assertEqual(made["steps_made"], LEADS)
        self.assertLessEqual(made["peak_bytes"], made["planned_peak_bytes"])
        facts = json.loads(run("data", "inspect", output, "--full", "--json").stdout)
        self.assertEqual(facts["points"], [64, 128])
        names = {f"{channel}_{6 * lead}" for channel in CHANNELS for lead in range(1, LEADS + 1)}
        self.assertEqual(set(facts["values"]["inputs"]["channels"]), names)
        self.assertEqual(sum(facts["values"]["inputs"]["missing"]), 0)
        if importlib.util.find_spec("xarray") and importlib.util.find_spec("h5netcdf"):
            import xarray
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                with xarray.open_dataset(output, engine="h5netcdf") as dataset:
                    self.assertTrue(set(CHANNELS) <= set(dataset.data_vars))
                    self.assertTrue(all(dataset[name].notnull().all() for name in CHANNELS))
        elif importlib.util.find_spec("h5py"):
            import h5py
            with h5py.File(output) as file:
                self.assertTrue(set(CHANNELS) <= set(file))


if __name__ == "__main__":
    unittest.main(verbosity=2)
