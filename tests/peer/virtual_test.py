#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Virtual datasets and LZF as h5py writes them, against the same values in plain files. scripts/test --peer installs it."""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(os.environ["GARONNE_SOURCE"])
ENVIRONMENT = SOURCE / ".deps" / "bench-python"
if (ENVIRONMENT / "garonne-wheels.txt").exists() and pathlib.Path(sys.prefix).resolve() != ENVIRONMENT.resolve():
    # Python finds its environment by the name that it is called by.
    os.execv(ENVIRONMENT / "bin" / "python", [str(ENVIRONMENT / "bin" / "python"), *sys.argv])

if any(importlib.util.find_spec(name) is None for name in ("h5py", "numpy")):
    sys.exit("h5py is not installed: scripts/bench --environment-only")

import h5py  # noqa: E402
import numpy as np  # noqa: E402

sys.path.insert(0, str(SOURCE / "tests" / "apps"))
from skill_test import RUN_FILE  # noqa: E402
from support import BINARY, FieldsTest, run, series  # noqa: E402

ROWS, COLUMNS = 9, 16
NAMES = ("u10", "v10", "t2m", "z500")
YEARS = {"1979": 12, "1980": 9}


def annotate(file, times, names):
    """What makani puts beside `fields`: scales with labels."""
    file["timestamp"] = np.asarray(times, "f8")
    file["lat"] = np.linspace(80, -80, ROWS, dtype="f4")
    file["lon"] = np.arange(COLUMNS, dtype="f4") * 22.5
    file["channel"] = np.array(names, h5py.string_dtype(length=max(map(len, names))))
    for axis, (scale, label) in enumerate({"timestamp": "Timestamp in UTC time zone", "channel": "Channel name",
                                           "lat": "Latitude in degrees", "lon": "Longitude in degrees"}.items()):
        file[scale].make_scale(scale)
        file["fields"].dims[axis].label = label
        file["fields"].dims[axis].attach_scale(file[scale])


class VirtualTest(FieldsTest, unittest.TestCase):
    RUN_FILE = RUN_FILE.replace("{folder}/data/train", "{folder}/plain.h5").replace(
        'validation = "{folder}/data/test"', "") + "[grid]\ndata = 2\n"

    @classmethod
    def make_data(cls):
        random = np.random.default_rng(1)
        frames = sum(YEARS.values())
        cls.values = random.normal(270, 10, (frames, len(NAMES), ROWS, COLUMNS)).astype("f4")
        cls.times = 283996800 + 21600 * np.arange(frames)
        with h5py.File(cls.folder / "plain.h5", "w") as file:
            file["fields"] = cls.values
            annotate(file, cls.times, NAMES)
        begin = 0
        for year, length in YEARS.items():
            for group, channels, options in (("surface", slice(0, 3), {"compression": "lzf", "shuffle": True}),
                                             ("levels", slice(3, 4), {})):
                (cls.folder / group).mkdir(exist_ok=True)
                with h5py.File(cls.folder / group / f"{year}.h5", "w", libver=("v110", "v110")) as file:
                    file.create_dataset("fields", data=cls.values[begin:begin + length, channels],
                                        chunks=(2, 1, ROWS, COLUMNS) if options else None, **options)
                    annotate(file, cls.times[begin:begin + length], NAMES[channels])
            begin += length

    def virtual(self, name, step=1, channels=None, libver=("earliest", "v110")):
        """As makani concatenates: years along time in steps, folders along channels; or some channels of the first."""
        path = self.folder / name
        count = len(NAMES) if channels is None else len(channels)
        lengths = {year: -(-length // step) for year, length in YEARS.items()}
        layout = h5py.VirtualLayout((sum(lengths.values()), count, ROWS, COLUMNS), "f4")
        begin = 0
        for year, length in lengths.items():
            groups = (("surface", slice(0, 3)), ("levels", slice(3, 4))) if channels is None else (("surface", slice(0, count)),)
            for group, place in groups:
                shape = (YEARS[year], 3 if group == "surface" else 1, ROWS, COLUMNS)
                source = h5py.VirtualSource(f"{group}/{year}.h5", "fields", shape)
                chosen = source if step == 1 and channels is None else source[::step, channels or slice(None)]
                layout[begin:begin + length, place] = chosen
            begin += length
        starts = np.concatenate([np.arange(0, YEARS["1979"], step), YEARS["1979"] + np.arange(0, YEARS["1980"], step)])
        with h5py.File(path, "w", libver=libver) as file:
            file.create_virtual_dataset("fields", layout, fillvalue=0)
            annotate(file, self.times[0] + 21600 * step * np.arange(len(starts)),
                     NAMES if channels is None else [NAMES[channel] for channel in channels])
        return path, self.values[starts][:, channels if channels is not None else slice(None)]

    def check(self, path, wanted):
        shown = run("data", "inspect", path, "--full", "--json")
        found = json.loads(shown.stdout)
        self.assertEqual(found["frames"], wanted.shape[0])
        values = np.moveaxis(wanted.astype("f8"), 1, 0).reshape(wanted.shape[1], -1)
        for key, numbers in {"least": values.min(1), "greatest": values.max(1)}.items():
            self.assertEqual(found["values"]["inputs"][key], numbers.tolist())
        np.testing.assert_allclose(found["values"]["inputs"]["deviation"], values.std(1), rtol=1e-2)  # weighted by area

    def test_years_and_channels(self):
        for number, libver in enumerate((("earliest", "v110"), ("v110", "v110"))):
            self.check(*self.virtual(f"all-{number}.h5v", libver=libver))

    def test_selections_of_a_newer_hdf5_are_read_or_named(self):
        """As makani asks for them, by libver="latest": of HDF5 1.12 and newer."""
        path, wanted = self.virtual("latest.h5v", libver="latest")
        done = subprocess.run([BINARY, "data", "inspect", path], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            self.check(path, wanted)
            return
        self.assertEqual(done.returncode, 5)
        self.assertIn("newer HDF5", done.stderr)
        self.assertIn('libver=("v110", "v110")', done.stderr)

    def test_steps(self):
        self.check(*self.virtual("coarse.h5v", step=2))

    def test_some_channels(self):
        self.check(*self.virtual("some.h5v", channels=[0, 2]))

    def test_lzf_by_itself(self):
        self.check(self.folder / "surface/1979.h5", self.values[:12, :3])

    def test_training_is_that_of_plain_files(self):
        path, _ = self.virtual("train.h5v")
        losses = {}
        for name, data in (("plain", self.folder / "plain.h5"), ("virtual", path)):
            run("data", "statistics", data, "--output", self.folder / f"{name}-statistics.h5")
            run("train", self.config, "--data.path", data, "--data.statistics", self.folder / f"{name}-statistics.h5",
                "--run.directory", self.folder / f"run-{name}", ranks=2)
            losses[name] = series(self.folder / f"run-{name}", "loss")
        self.assertGreater(len(losses["plain"]), 3)
        self.assertEqual(losses["virtual"], losses["plain"])

    def test_a_missing_source_is_named(self):
        path, _ = self.virtual("gap.h5v")
        away = self.folder / "surface/1980.h5"
        away.rename(away.with_suffix(".away"))
        try:
            with h5py.File(path) as file:
                self.assertEqual(float(np.abs(file["fields"][YEARS["1979"]:, :3]).max()), 0)  # what HDF5 makes of it
            self.assertIn("surface/1980.h5", run("data", "inspect", path, check=5).stderr)
        finally:
            away.with_suffix(".away").rename(away)


if __name__ == "__main__":
    unittest.main()
