#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Weights of trained operators in neuraloperator, torch-harmonics and a model of makani's names, and theirs here.

Our outputs are forecasts of one step on random fields, without normalisation. scripts/test --peer installs the packages.
"""
import importlib.util
import os
import pathlib
import sys
import unittest

SOURCE = pathlib.Path(os.environ["GARONNE_SOURCE"])
ENVIRONMENT = SOURCE / ".deps" / "bench-python"
if (ENVIRONMENT / "garonne-wheels.txt").exists() and pathlib.Path(sys.prefix).resolve() != ENVIRONMENT.resolve():
    # Python finds its environment by the name that it is called by.
    os.execv(ENVIRONMENT / "bin" / "python", [str(ENVIRONMENT / "bin" / "python"), *sys.argv])

NEEDED = ("torch", "neuralop", "tltorch", "torch_harmonics", "xarray", "netCDF4", "h5py")
if any(importlib.util.find_spec(name) is None for name in NEEDED):
    sys.exit("neuraloperator and torch-harmonics are not installed: scripts/bench --environment-only")

import h5py  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import xarray as xr  # noqa: E402

sys.path[:0] = [str(SOURCE / "tests" / "apps"), str(SOURCE / "scripts" / "bench.d"), str(SOURCE / "python")]
import garonne_read  # noqa: E402
import references  # noqa: E402
from support import FieldsTest, run  # noqa: E402

STARTS = (3, 5)
TOLERANCE = 1e-5  # of the largest value

RUN_FILE = """
[model]
hidden = 8
layers = 3
{model}
[data]
path = "{folder}/random.nc"
inputs = "a,b,c"
targets = "a,b"
normalisation = "none"
[train]
steps = 2
global_batch = 2
micro_batch = 1
"""

FNO = """kind = "fno"
modes = [4, 6]"""


def latitudes(rows, grid):
    if grid == "legendre-gauss":
        return np.degrees(np.arcsin(np.polynomial.legendre.leggauss(rows)[0]))[::-1]
    return np.linspace(90, -90, rows)


class PackageTest(FieldsTest):
    ROWS, COLUMNS, GRID = 16, 32, "equiangular"

    @classmethod
    def make_data(cls):
        frames = np.random.default_rng(7).standard_normal((9, 3, cls.ROWS, cls.COLUMNS)).astype(np.float32)
        cls.frames = torch.from_numpy(frames[list(STARTS)])
        axes = {"time": np.arange("2001-01-01", "2001-01-10", dtype="datetime64[D]").astype("datetime64[ns]"),
                "latitude": ("latitude", latitudes(cls.ROWS, cls.GRID), {"units": "degrees_north"}),
                "longitude": ("longitude", np.arange(cls.COLUMNS) * 360 / cls.COLUMNS, {"units": "degrees_east"})}
        variables = {name: (("time", "latitude", "longitude"), frames[:, i]) for i, name in enumerate("abc")}
        xr.Dataset(variables, axes).to_netcdf(cls.folder / "random.nc", engine="netcdf4")

    def outputs(self, directory):
        """[start, channel, latitude, longitude] of a run's newest checkpoint."""
        path = self.folder / f"{pathlib.Path(directory).name}.nc"
        run("forecast", directory, "--from", ",".join(map(str, STARTS)), "--steps", 1, "--output", path)
        with xr.open_dataset(path) as forecast:
            return torch.from_numpy(np.stack([forecast[name].values[:, 0] for name in "ab"], 1))

    def check_close(self, ours, theirs):
        self.assertEqual(ours.shape, theirs.shape)
        self.assertGreater(ours.std().item(), 1e-3)
        error = (ours - theirs).abs().max() / theirs.abs().max()
        print(f"{self.id().split('.')[-1]}: {error:.1e}")
        self.assertLess(error.item(), TOLERANCE)

    def export(self, directory, name):
        folder = self.folder / name
        run("checkpoint", "export", directory, "--to", self.PACKAGE, folder)
        return folder

    def import_from(self, folder, name, check=0):
        directory = self.folder / name
        done = run("checkpoint", "import", "--from", self.PACKAGE, folder, "--config", self.config, "--output", directory,
                   check=check)
        return directory, done

    def check_round_trip(self, name, *overrides):
        """Two steps here, weights to the package, outputs there; back and out again to the byte."""
        directory = self.folder / name
        self.train(directory, *overrides)
        exported = self.export(directory, f"{name}-exported")
        with torch.no_grad():
            self.check_close(self.outputs(directory), self.theirs(exported)(self.frames))
        imported, _ = self.import_from(exported, f"{name}-imported")
        again = self.export(imported, f"{name}-again")
        for file in ("model.safetensors", "config.json"):
            self.assertEqual((exported / file).read_bytes(), (again / file).read_bytes())

    def check_weights_of_theirs(self, name, model, arguments):
        folder = self.folder / name
        garonne_read.save_package(folder, self.PACKAGE, model, arguments)
        imported, _ = self.import_from(folder, f"{name}-imported")
        with torch.no_grad():
            self.check_close(self.outputs(imported), model.eval()(self.frames))

    def theirs(self, folder):
        return garonne_read.load_package(folder)


class NeuralOperator(PackageTest, unittest.TestCase):
    PACKAGE = "neuraloperator"
    RUN_FILE = RUN_FILE.replace("{model}", FNO)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = references.load_neuraloperator()

    def test_every_form(self):
        for number, overrides in enumerate((
                (), ("--model.modes", "16,32"), ("--model.modes", "5,7", "--model.coordinates", "false"),
                ("--model.padding", 2, "--model.mlp_ratio", 2), ("--model.spectral_weights", "corners"),
                ("--model.kind", "tfno", "--model.rank", 0.3),
                ("--model.kind", "tfno", "--model.rank", 0.3, "--model.factorization", "cp"),
                ("--model.kind", "tfno", "--model.rank", 0.3, "--model.implementation", "reconstructed"))):
            with self.subTest(overrides):
                self.check_round_trip(f"fno-{number}", *overrides)

    def test_their_own_weights(self):
        torch.manual_seed(3)
        needed = {"n_modes": [6, 8], "in_channels": 3, "out_channels": 2, "hidden_channels": 8}
        for number, more in enumerate(({}, {"domain_padding": [0.125, 0.0625], "n_layers": 2},
                                       {"factorization": "tucker", "rank": 0.4, "positional_embedding": None})):
            with self.subTest(more):
                arguments = needed | more
                self.check_weights_of_theirs(f"their-fno-{number}", self.model(**arguments), arguments)

    def test_what_is_something_else_is_refused(self):
        needed = {"n_modes": [6, 8], "in_channels": 3, "out_channels": 2, "hidden_channels": 8}
        for more in ({"norm": "group_norm"}, {"fno_skip": "soft-gating"}, {"stabilizer": "tanh"}, {"in_channels": 2},
                     {"use_channel_mlp": False}, {"domain_padding": 0.125}, {"factorization": "tt"}):
            with self.subTest(more):
                arguments = needed | more
                folder = self.folder / "refused"
                garonne_read.save_package(folder, self.PACKAGE, self.model(**needed), arguments)
                directory, done = self.import_from(folder, "refused-run", check=2)
                self.assertIn(f"arguments.{next(iter(more))}", done.stderr)
                self.assertFalse(directory.exists())


class OtherAxes(PackageTest):
    """Fields of one or three axes, in files of PDEBench."""
    PACKAGE = "neuraloperator"
    RUN_FILE = (RUN_FILE.replace("{model}", 'kind = "fno"\nmodes = [4, 6]').replace("random.nc", "random.h5")
                .replace('inputs = "a,b,c"\ntargets = "a,b"\n', ""))

    @classmethod
    def make_data(cls):
        references.load_neuraloperator()
        frames = np.random.default_rng(8).standard_normal((1, 9, *cls.POINTS)).astype(np.float32)
        cls.frames = torch.from_numpy(frames[0, list(STARTS)])[:, None]
        with h5py.File(cls.folder / "random.h5", "w") as file:
            file["tensor"] = frames
            for name, count in zip("xyz", cls.POINTS):
                file[f"{name}-coordinate"] = np.arange(count) / count

    def outputs(self, directory):
        path = self.folder / f"{pathlib.Path(directory).name}.nc"
        run("forecast", directory, "--from", ",".join(map(str, STARTS)), "--steps", 1, "--output", path)
        with h5py.File(path) as forecast:
            return torch.from_numpy(forecast["tensor"][:])

    def test_same_outputs(self):
        self.check_round_trip("fno", "--model.modes", self.MODES)
        self.check_round_trip("tfno", "--model.modes", self.MODES, "--model.kind", "tfno", "--model.rank", 0.3)


class OneAxis(OtherAxes, unittest.TestCase):
    POINTS, MODES = (33,), 9


class ThreeAxes(OtherAxes, unittest.TestCase):
    POINTS, MODES = (8, 10, 11), "4,5,6"


SFNO = """kind = "sfno"
block = "{block}"
scale_factor = 2"""


class TorchHarmonics(PackageTest, unittest.TestCase):
    PACKAGE = "torch-harmonics"
    RUN_FILE = RUN_FILE.replace("{model}", SFNO.replace("{block}", "torch-harmonics"))

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = references.load_torch_harmonics()

    def test_every_form(self):
        for number, overrides in enumerate(((), ("--model.norm", "none"), ("--model.scale_factor", 3, "--model.mlp_ratio", 1),
                                            ("--model.big_skip", "false"))):
            with self.subTest(overrides):
                self.check_round_trip(f"sfno-{number}", *overrides)

    def test_their_own_weights(self):
        torch.manual_seed(3)
        needed = {"img_size": [self.ROWS, self.COLUMNS], "grid": self.GRID, "in_chans": 3, "out_chans": 2, "embed_dim": 8,
                  "scale_factor": 2}
        for number, more in enumerate(({}, {"normalization_layer": "instance_norm", "residual_prediction": True})):
            with self.subTest(more):
                arguments = needed | more
                self.check_weights_of_theirs(f"their-sfno-{number}", self.model(**arguments), arguments)


class TorchHarmonicsOnGauss(TorchHarmonics):
    ROWS, COLUMNS, GRID = 17, 34, "legendre-gauss"


class Makani:
    """makani's spherical operator in plain PyTorch with the transforms of torch-harmonics, from names and shapes alone."""

    def __init__(self, folder):
        config, tensors = garonne_read.read_package(folder)
        self.p = {name: torch.from_numpy(value) for name, value in tensors.items()}
        self.given = config["arguments"]
        references.load_torch_harmonics()
        transforms = sys.modules["torch_harmonics.sht"]
        outer = tuple(self.given["inp_shape"])
        inner = tuple(size // self.given["scale_factor"] for size in outer)
        degrees = {"lmax": inner[0], "mmax": inner[1] // 2 + 1}
        grids = (outer, self.given["model_grid_type"]), (inner, self.given["sht_grid_type"])
        self.forward = [transforms.RealSHT(*size, grid=grid, **degrees).float() for size, grid in grids]
        self.back = [transforms.InverseRealSHT(*size, grid=grid, **degrees).float() for size, grid in grids]
        self.same_grid = grids[0] == grids[1]

    def convolve(self, name, x):
        return F.conv2d(x, self.p[name + ".weight"], self.p.get(name + ".bias"))

    def two_layers(self, name, second, x):
        return self.convolve(f"{name}.{second}", F.gelu(self.convolve(f"{name}.0", x)))

    def normalised(self, name, x):
        if self.given["normalization_layer"] == "none":
            return x
        return F.instance_norm(x, weight=self.p[name + ".weight"], bias=self.p[name + ".bias"], eps=1e-6)

    def block(self, number, x):
        last = number + 1 == self.given["num_layers"]
        name, before, after = f"blocks.{number}", int(number > 0), int(not last)
        spectrum = self.forward[before](x)
        skipped = x if before == after or self.same_grid else self.back[after](spectrum)
        weight = self.p[name + ".filter.filter.weight"][0]
        axes = "iol" if self.given["operator_type"] == "dhconv" else "iolm"
        y = self.back[after](torch.einsum(f"bilm,{axes}->bolm", spectrum, weight))
        y = F.gelu(self.normalised(name + ".norm0", y))
        y = self.normalised(name + ".norm1", self.two_layers(name + ".mlp.fwd", 3, y))
        return y + self.convolve(name + ".outer_skip", skipped)

    def __call__(self, x):
        y = self.two_layers("encoder.fwd", 2, x)
        for number in range(self.given["num_layers"]):
            y = self.block(number, y)
        y = self.two_layers("decoder.fwd", 2, y)
        return y + self.convolve("residual_transform", x) if self.given["big_skip"] else y


class MakaniTest(PackageTest, unittest.TestCase):
    PACKAGE = "makani"
    RUN_FILE = RUN_FILE.replace("{model}", SFNO.replace("{block}", "makani"))

    def theirs(self, folder):
        return Makani(folder)

    def test_every_form(self):
        for number, overrides in enumerate((
                (), ("--model.norm", "none"), ("--model.spectral_operator", "diagonal"), ("--model.big_skip", "false"),
                ("--model.scale_factor", 1), ("--model.scale_factor", 3, "--model.mlp_ratio", 1))):
            with self.subTest(overrides):
                # A learning rate with which biases come to be seen.
                self.check_round_trip(f"sfno-{number}", *overrides, "--optimizer.learning_rate", 0.05)

    def test_weights_from_elsewhere(self):
        directory = self.folder / "made"
        self.train(directory)
        config, tensors = garonne_read.read_package(self.export(directory, "made-exported"))
        torch.manual_seed(5)
        weights = torch.nn.Module()
        weights.named_parameters = lambda: [
            (name, 0.3 * torch.randn(value.shape, dtype=torch.from_numpy(value).dtype)) for name, value in tensors.items()]
        folder = self.folder / "elsewhere"
        garonne_read.save_package(folder, "makani", weights, config["arguments"])
        imported, _ = self.import_from(folder, "elsewhere-imported")
        self.check_close(self.outputs(imported), Makani(folder)(self.frames))


if __name__ == "__main__":
    unittest.main()
