#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Files of forecasts and of their skill in xarray, with both of its engines, and errors computed there.

scripts/test --peer installs it.
"""
import importlib.util
import os
import pathlib
import sys
import unittest
import warnings

SOURCE = pathlib.Path(os.environ["GARONNE_SOURCE"])
ENVIRONMENT = SOURCE / ".deps" / "bench-python"
if (ENVIRONMENT / "garonne-wheels.txt").exists() and pathlib.Path(sys.prefix).resolve() != ENVIRONMENT.resolve():
    # Python finds its environment by the name that it is called by.
    os.execv(ENVIRONMENT / "bin" / "python", [str(ENVIRONMENT / "bin" / "python"), *sys.argv])

if any(importlib.util.find_spec(name) is None for name in ("xarray", "h5netcdf", "netCDF4", "cftime", "numpy")):
    sys.exit("xarray is not installed: scripts/bench --environment-only")

import cftime  # noqa: E402
import numpy as np  # noqa: E402
import xarray as xr  # noqa: E402

sys.path.insert(0, str(SOURCE / "tests" / "apps"))
from skill_test import RUN_FILE  # noqa: E402
from support import FieldsTest, run  # noqa: E402

ENGINES = ("h5netcdf", "netcdf4")


def opened(path, engine, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with xr.open_dataset(path, engine=engine, **options) as dataset:
            return dataset.load()


class WeatherTest(FieldsTest, unittest.TestCase):
    RUN_FILE = RUN_FILE

    @classmethod
    def make_data(cls):
        run("data", "synthetic-era5", "--latitudes", 19, "--longitudes", 36, "--channels", "t2m,z500", "--frame-hours", 24,
            "--years", 2, "--output", cls.folder / "data", "--no-progress")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.run_directory = cls.folder / "run"
        cls.train(cls.run_directory)
        run("eval", cls.run_directory, "--lead-steps", 4, "--samples", 3, "--maps", 2, "--map-leads", 0)
        cls.skill = cls.run_directory / "skill.h5"

    def forecast(self, name, *arguments):
        path = self.folder / name
        run("forecast", self.run_directory, "--output", path, *arguments)
        return path

    def test_errors_of_forecasts_are_those_of_the_evaluation(self):
        for engine in ENGINES:
            skill = opened(self.skill, engine)
            starts = ",".join(str(start)[:16] for start in skill.start_time.values.astype("datetime64[m]"))
            forecast = opened(self.forecast(f"{engine}.nc", "--steps", 4, "--from", starts), engine)
            np.testing.assert_array_equal(forecast.time.values, skill.start_time.values)
            files = [opened(file, engine) for file in sorted((self.folder / "data" / "test").glob("*.h5"))]
            for number, name in enumerate(("t2m", "z500")):
                self.assertEqual(forecast[name].attrs["units"], str(skill.channel_units.sel(channel=name).values))
                for lead in range(4):
                    squares = []
                    for start in range(3):
                        made = forecast[name].isel(time=start, lead=lead)
                        valid = made.valid_time.values.astype("datetime64[s]").astype(np.int64)
                        self.assertEqual(made.valid_time.values, made.time.values + made.lead.values)
                        frames = [file.fields.isel(timestamp=np.flatnonzero(file.timestamp.values == valid)[0])
                                  for file in files if valid in file.timestamp.values]
                        truth = frames[0].values[number]
                        squares.append(((made - truth) ** 2 * skill.row_weight).mean().values)
                    ours = float(skill.rmse.sel(source="model", lead=lead + 1, channel=name))
                    self.assertAlmostEqual(float(np.sqrt(np.mean(squares))) / ours, 1, delta=1e-6)

    def test_skill_has_names_dates_and_units(self):
        for engine in ENGINES:
            skill = opened(self.skill, engine)
            self.assertEqual(skill.rmse.dims, ("source", "lead", "channel"))
            self.assertEqual(list(skill.source.values), ["model", "persistence", "climatology"])
            self.assertEqual(list(skill.channel_units.values), ["K", "m2 s-2"])
            self.assertEqual(skill.lead_time.values[1], np.timedelta64(48, "h"))
            self.assertEqual(skill.latitude.attrs["units"], "degrees_north")
            self.assertAlmostEqual(float(skill.row_weight.mean()), 1)
            maps = opened(self.skill, engine, group="maps")
            self.assertEqual(maps.truth.dims, ("sample", "lead", "channel", "latitude", "longitude"))
            self.assertEqual(list(maps.lead.values), [1, 2, 3, 4])
            self.assertEqual(maps.time.values[0, 3], skill.start_time.values[0] + np.timedelta64(96, "h"))
            spectra = opened(self.skill, engine, group="spectra")
            self.assertEqual(spectra.truth.dims, ("lead", "channel", "degree"))

    def test_ensembles_have_members(self):
        path = self.forecast("members.nc", "--steps", 2, "--members", 3)
        for engine in ENGINES:
            forecast = opened(path, engine)
            self.assertEqual(forecast.t2m.dims, ("realization", "time", "lead", "latitude", "longitude"))
            self.assertEqual(forecast.finished.values.tolist(), [[2]] * 3)
            self.assertGreater(float(forecast.t2m.std("realization").mean()), 1e-3)
            self.assertTrue(bool(np.isfinite(forecast.t2m).all()))


class ClimateTest(FieldsTest, unittest.TestCase):
    """Years of 360 days."""

    RUN_FILE = RUN_FILE.replace("{folder}/data/train", "{folder}/years.nc").replace('validation = "{folder}/data/test"', "")

    @classmethod
    def make_data(cls):
        times = [cftime.Datetime360Day(1900 + year, 6, 1) for year in range(12)]
        latitudes = np.linspace(30, 60, 13)
        longitudes = np.linspace(230, 290, 24)
        values = np.random.default_rng(1).normal(280, 5, (12, 13, 24)).astype("f4")
        xr.Dataset({"tas": (("time", "latitude", "longitude"), values, {"units": "K"})},
                   {"time": times, "latitude": ("latitude", latitudes, {"units": "degrees_north"}),
                    "longitude": ("longitude", longitudes, {"units": "degrees_east"})}).to_netcdf(
                        cls.folder / "years.nc", encoding={"time": {"units": "days since 1859-12-01", "calendar": "360_day"}})
        run("data", "statistics", cls.folder / "years.nc", "--output", cls.folder / "statistics.h5")

    def test_dates_of_another_calendar(self):
        directory = self.folder / "run"
        self.train(directory, "--data.statistics", self.folder / "statistics.h5")
        path = self.folder / "future.nc"
        run("forecast", directory, "--output", path, "--steps", 3)
        run("eval", directory, "--lead-steps", 2)
        for engine in ENGINES:
            forecast = opened(path, engine)
            self.assertEqual(forecast.time.values[0], cftime.Datetime360Day(1911, 6, 1))
            self.assertEqual(list(forecast.valid_time.values[0]), [cftime.Datetime360Day(1912 + year, 6, 1) for year in range(3)])
            self.assertEqual(forecast.tas.attrs["units"], "K")
            skill = opened(directory / "skill.h5", engine)
            self.assertEqual(skill.start_time.values[0], cftime.Datetime360Day(1900, 6, 1))
            maps = opened(directory / "skill.h5", engine, group="maps")
            self.assertEqual(maps.time.values[0, 0], cftime.Datetime360Day(1901, 6, 1))


if __name__ == "__main__":
    unittest.main(verbosity=2)
