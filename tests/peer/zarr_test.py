#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Zarr stores that the package zarr wrote, by itself and for xarray, as the program reads them. scripts/test --peer
installs it."""
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

if any(importlib.util.find_spec(name) is None for name in ("numcodecs", "numpy", "xarray", "zarr")):
    sys.exit("zarr is not installed: scripts/bench --environment-only")

import numcodecs  # noqa: E402
import numpy as np  # noqa: E402
import xarray as xr  # noqa: E402

sys.path.insert(0, str(SOURCE / "tests" / "apps"))
from skill_test import RUN_FILE  # noqa: E402
from support import FieldsTest, run, series  # noqa: E402

CODECS = {
    "blosc lz4": numcodecs.Blosc("lz4", 5, numcodecs.Blosc.SHUFFLE),
    "blosc zstd": numcodecs.Blosc("zstd", 3, numcodecs.Blosc.BITSHUFFLE),
    "blosc zlib": numcodecs.Blosc("zlib", 3, numcodecs.Blosc.NOSHUFFLE),
    "zstd": numcodecs.Zstd(3),
    "zlib": numcodecs.Zlib(3),
    "gzip": numcodecs.GZip(3),
    "none": None,
}


def weather(transposed=False):
    """In WeatherBench 2's names."""
    random = np.random.default_rng(1)
    space = ("longitude", "latitude") if transposed else ("latitude", "longitude")
    sizes = {"time": 12, "level": 2, "latitude": 9, "longitude": 16}

    def field(name, dimensions, units):
        smooth = random.normal(270, 10, [sizes[axis] for axis in dimensions]).astype("f4")
        return (dimensions, smooth, {"units": units, "long_name": name})

    return xr.Dataset(
        {"geopotential": field("geopotential", ("time", "level", *space), "m**2 s**-2"),
         "2m_temperature": field("2 metre temperature", ("time", *space), "K")},
        {"time": np.datetime64("1959-01-01T06", "ns") + np.arange(12) * np.timedelta64(6, "h"), "level": [500, 850],
         "latitude": ("latitude", np.linspace(-80, 80, 9), {"units": "degrees_north"}),
         "longitude": ("longitude", np.arange(16) * 22.5, {"units": "degrees_east"})})


class ZarrTest(FieldsTest, unittest.TestCase):
    RUN_FILE = RUN_FILE.replace("{folder}/data/train", "{folder}/train.zarr").replace(
        'validation = "{folder}/data/test"', 'validation_period = "1959-01-03/"\nstatistics = "{folder}/statistics.h5"')

    @classmethod
    def make_data(cls):
        weather().to_zarr(cls.folder / "train.zarr", zarr_format=2, consolidated=True)
        run("data", "statistics", cls.folder / "train.zarr", "--output", cls.folder / "statistics.h5")

    def check(self, store, dataset):
        """Mean, deviation, least and greatest value of every channel are numpy's."""
        facts = json.loads(run("data", "inspect", store, "--full", "--json").stdout)
        self.assertEqual(facts["layout"], "zarr")
        self.assertEqual(facts["channels"], ["2m_temperature", "geopotential_500", "geopotential_850"])
        self.assertEqual(facts["target_units"], ["K", "m**2 s**-2", "m**2 s**-2"])
        self.assertEqual(facts["files"][0]["first_time"], "1959-01-01 06:00")
        values = facts["values"]["inputs"]
        fields = [dataset["2m_temperature"], dataset["geopotential"].sel(level=500), dataset["geopotential"].sel(level=850)]
        for channel, field in enumerate(fields):
            self.assertEqual(values["least"][channel], float(np.float32(field.min())))
            self.assertEqual(values["greatest"][channel], float(np.float32(field.max())))
            self.assertEqual(values["missing"][channel], float(field.isnull().sum()))

    def test_every_codec_and_chunk(self):
        dataset = weather()
        for number, (name, codec) in enumerate(CODECS.items()):
            for consolidated in (True, False):
                store = self.folder / f"codec{number}-{consolidated}.zarr"
                encoding = {"geopotential": {"compressors": codec, "chunks": (5, 1, 4, 16)},
                            "2m_temperature": {"compressors": codec, "chunks": (1, 9, 7)}}
                dataset.to_zarr(store, zarr_format=2, consolidated=consolidated, encoding=encoding)
                with self.subTest(name):
                    self.check(store, dataset)

    def test_longitude_first_packed_and_missing(self):
        dataset = weather(transposed=True)
        dataset["2m_temperature"][2, 3, 4] = np.nan
        store = self.folder / "packed.zarr"
        dataset.to_zarr(store, zarr_format=2, encoding={
            "2m_temperature": {"dtype": "i2", "scale_factor": 0.01, "add_offset": 270.0, "_FillValue": -32768}})
        with xr.open_zarr(store) as opened:
            self.check(store, opened.load())

    def test_training_evaluation_and_forecasts(self):
        directory = self.folder / "run"
        self.train(directory)
        shown = run("eval", directory, "--lead-steps", 2).stdout
        self.assertIn("2m_temperature, 2 metre temperature (K)", shown)
        run("forecast", directory, "--steps", 2, "--output", self.folder / "x.nc")
        with xr.open_dataset(self.folder / "x.nc") as forecast:
            self.assertEqual(forecast.time.values[0], weather().time.values[-1])
            self.assertEqual(forecast.field_2m_temperature.attrs["units"], "K")
        # The same fields as netCDF give the same numbers, to the last bit.
        weather().to_netcdf(self.folder / "same.nc")
        again = self.folder / "again"
        self.train(again, "--data.path", self.folder / "same.nc")
        self.assertEqual(series(directory, "loss"), series(again, "loss"))

    def test_version_three_is_refused_by_name(self):
        store = self.folder / "three.zarr"
        weather().to_zarr(store, zarr_format=3)
        self.assertIn("Zarr version 3", run("data", "inspect", store, check=5).stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
