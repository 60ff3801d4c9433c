# SPDX-License-Identifier: MIT
"""Generators on the command line: the same files for any number of ranks, check values, refusals."""
import hashlib
import json
import pathlib
import re
import shutil
import struct
import tempfile
import unittest

from support import run

SMALL = {
    "darcy": ["--samples", 5, "--test-samples", 2, "--resolution", 17],
    "navier-stokes": ["--samples", 3, "--test-samples", 1, "--resolution", 16, "--step", 0.05, "--time", 2],
    "shallow-water": ["--latitudes", 12, "--longitudes", 24, "--trajectories", 5, "--test-trajectories", 2,
                      "--step", 600],
    "synthetic-era5": ["--latitudes", 13, "--longitudes", 24, "--channels", "t2m,z500,u250", "--years", 1,
                       "--frames-a-year", 4],
}
IN_FILES = ("darcy", "navier-stokes")


def hashes(folder):
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(folder.rglob("*")) if path.is_file()}


class Generators(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="garonne-generate-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def generate(self, name, folder, *more, **how):
        folder.mkdir()
        outputs = ["--output", folder / "train.h5", "--test", folder / "test.h5"] if name in IN_FILES else [
            "--output", folder]
        return run("data", name, *outputs, *SMALL[name], *more, **how)

    def test_files_do_not_depend_on_the_ranks(self):
        for name in SMALL:
            with self.subTest(name):
                self.generate(name, self.folder / f"{name}-1")
                expected = hashes(self.folder / f"{name}-1")
                self.assertEqual(len(expected), {"shallow-water": 10, "synthetic-era5": 10}.get(name, 2))
                for ranks in (1, 2, 3):
                    folder = self.folder / f"{name}-mpi-{ranks}"
                    shown = self.generate(name, folder, ranks=ranks).stdout
                    self.assertEqual(hashes(folder), expected)
                    self.assertTrue(shown.strip())

    def test_seeds_give_other_samples(self):
        for name in SMALL:
            with self.subTest(name):
                self.generate(name, self.folder / f"{name}-a")
                self.generate(name, self.folder / f"{name}-b", "--seed", 77)
                # Statistics may agree: a mean over the sphere is that of the climate.
                fields = [{value for path, value in hashes(self.folder / f"{name}-{run}").items()
                           if path.endswith(".h5")} for run in "ab"]
                self.assertEqual(len(fields[0]), 2)
                self.assertFalse(fields[0] & fields[1])

    def test_the_jet_meets_its_table(self):
        shown = run("data", "shallow-water", "--output", self.folder / "jet", "--initial", "galewsky",
                    "--frame-hours", 24, "--trajectory-length", 2).stdout.splitlines()
        self.assertEqual(shown[2].split(), ["24.00", "97920.018711", "1.21374861e+07", "4.8124043627e+09",
                                            "3.99003099e-14", "5.91075e-05", "58.7364", "0.5868"])
        metadata = json.loads((self.folder / "jet/data.json").read_text())
        self.assertEqual(metadata["dhours"], 24)
        self.assertEqual(metadata["coords"]["channel"], ["geopotential", "vorticity", "divergence"])
        means = (self.folder / "jet/stats/global_means.npy").read_bytes()
        self.assertAlmostEqual(struct.unpack("<3f", means[-12:])[0], 97920.02, delta=0.02)

    def test_darcy_has_its_statistics(self):
        shown = run("data", "darcy", "--output", self.folder / "darcy.h5", "--samples", 60).stdout
        mean, deviation, largest, share = map(float, re.findall(r"([\d.]+(?:e-\d+)?)[,;\n]", shown))
        # Of 1,100 samples of another program; five standard deviations of what twelve sets of 60 with other seeds have.
        self.assertAlmostEqual(mean, 5.604e-3, delta=5 * 6.4e-5)
        self.assertAlmostEqual(deviation, 3.805e-3, delta=5 * 4.2e-5)
        self.assertLess(largest, 0.0736714 / 3)
        self.assertAlmostEqual(share, 0.502, delta=5 * 5.4e-3)

    def test_refusals(self):
        for code, text, arguments in (
                (2, "stride", ["darcy", "--output", self.folder / "a.h5", "--stride", 3]),
                (2, "neither", ["darcy", "--output", self.folder / "a.h5", "--coefficient", "flat"]),
                (2, "--output", ["darcy"]),
                (2, "--test", ["darcy", "--output", self.folder / "a.h5", "--test-samples", 3]),
                (2, "lognormal", ["darcy", "--output", self.folder / "a.h5", "--coefficient", "lognormal",
                                  "--large", 3]),
                (2, "galewsky", ["shallow-water", "--output", self.folder / "b", "--initial", "galewsky",
                                 "--seed", 3]),
                (2, "grid", ["shallow-water", "--output", self.folder / "b", "--grid", "gaussian"]),
                (2, "trajectories", ["shallow-water", "--output", self.folder / "b", "--initial", "galewsky",
                                     "--trajectories", 4]),
                (2, "z501", ["synthetic-era5", "--output", self.folder / "b", "--channels", "z501"]),
                (2, "does not exist", ["navier-stokes", "--output", self.folder / "none/a.h5"]),
                (6, "step below", ["navier-stokes", "--output", self.folder / "a.h5", "--resolution", 16,
                                   "--step", 1, "--alpha", 1.1, "--tau", 200, "--time", 400])):
            with self.subTest(text):
                self.assertIn(text, run("data", *arguments, check=code).stderr)
        self.assertFalse(list(self.folder.rglob("*.h5*")))
        self.assertIn("stride", run("data", "darcy", "--output", self.folder / "a.h5", "--stride", 3, ranks=2,
                                    check=2).stderr)
        self.assertIn("does not exist", run("data", "darcy", "--output", self.folder / "none/a.h5", ranks=2,
                                            check=2).stderr)


if __name__ == "__main__":
    unittest.main()
