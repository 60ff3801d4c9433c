#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Our plain PyTorch operators (fourier_operators.py) beside the neuraloperator library with the same weights.

The library computes its spectra in complex64 whatever the weights, so this holds to float32 only. scripts/test --peer
installs it.
"""
import importlib.util
import math
import os
import pathlib
import sys
import types
import unittest

ENVIRONMENT = pathlib.Path(os.environ["GARONNE_SOURCE"]) / ".deps" / "bench-python"
if (ENVIRONMENT / "garonne-wheels.txt").exists() and pathlib.Path(sys.prefix).resolve() != ENVIRONMENT.resolve():
    # Python finds its environment by the name that it is called by.
    os.execv(ENVIRONMENT / "bin" / "python", [str(ENVIRONMENT / "bin" / "python"), *sys.argv])

if any(importlib.util.find_spec(name) is None for name in ("torch", "neuralop", "tltorch", "opt_einsum")):
    sys.exit("neuraloperator is not installed: scripts/bench --environment-only")

# The packages' own __init__ import data sets, trackers and plots; the model alone needs none of them.
for package in ("neuralop", "neuralop.models", "neuralop.layers", "neuralop.losses"):
    found = importlib.util.find_spec("neuralop") if package == "neuralop" else None
    root = found.submodule_search_locations[0] if found else sys.modules["neuralop"].__path__[0]
    module = types.ModuleType(package)
    module.__path__ = [root if found else f"{root}/{package.split('.')[1]}"]
    sys.modules[package] = module

import torch  # noqa: E402
from neuralop.losses.data_losses import H1Loss, LpLoss  # noqa: E402
from neuralop.models.fno import FNO  # noqa: E402

from fourier_operators import Operator, field_loss, parameter_shapes  # noqa: E402

KEYS = {"kind": "fno", "layers": 3, "hidden": 6, "block": "neuralop", "modes": [4, 6], "spectral_weights": "centred",
        "padding": 0, "coordinates": True, "factorization": "tucker", "rank": 0.3, "implementation": "factorized",
        "mlp_ratio": 0.0}
SHAPE = {"input_channels": 2, "target_channels": 1, "points": [8, 10], "grid": "box"}


def their_model(keys, shape):
    factors = {}
    if keys["kind"] == "tfno":
        factors = {name: keys[name] for name in ("factorization", "rank", "implementation")}
    return FNO(n_modes=tuple(keys["modes"]), in_channels=shape["input_channels"], out_channels=shape["target_channels"],
               hidden_channels=keys["hidden"], n_layers=keys["layers"], **factors)


def our_parameters(model, keys, shape):
    """Their weights under our names and in our layout."""
    theirs = dict(model.named_parameters())
    axes = len(shape["points"])
    modes_first = [*range(2, 2 + axes), 0, 1]
    ours = {}
    for mine, other in (("lift.up", "lifting.fcs.0"), ("lift.down", "lifting.fcs.1"),
                        ("project.up", "projection.fcs.0"), ("project.down", "projection.fcs.1")):
        ours[mine + ".weight"], ours[mine + ".bias"] = theirs[other + ".weight"][:, :, 0], theirs[other + ".bias"]
    for i in range(keys["layers"]):
        mine, blocks = f"layer.{i}.", "fno_blocks."
        ours[mine + "skip.weight"] = theirs[f"{blocks}fno_skips.{i}.conv.weight"][:, :, 0]
        ours[mine + "bias"] = theirs[f"{blocks}convs.{i}.bias"].flatten()
        ours[mine + "gate"] = theirs[f"{blocks}channel_mlp_skips.{i}.weight"].flatten()
        for part, number in (("up", 0), ("down", 1)):
            other = f"{blocks}channel_mlp.{i}.fcs.{number}"
            ours[f"{mine}mlp.{part}.weight"] = theirs[other + ".weight"][:, :, 0]
            ours[f"{mine}mlp.{part}.bias"] = theirs[other + ".bias"]
        weight = f"{blocks}convs.{i}.weight."
        spectral = {}
        if keys["kind"] == "fno":
            spectral["weight"] = theirs[weight + "tensor"].permute(modes_first)
        else:
            factors = [value for name, value in theirs.items() if name.startswith(weight + "factors")]
            spectral = {"inputs": factors[0], "outputs": factors[1].t()}
            spectral |= {f"axis.{a}": factors[2 + a] for a in range(axes)}
            if keys["factorization"] == "tucker":
                spectral["core"] = theirs[weight + "core"].permute(modes_first)
            else:
                spectral["weights"] = theirs[weight + "weights"]
        ours |= {f"{mine}spectral.{name}": torch.view_as_real(value.resolve_conj()) for name, value in spectral.items()}
    return {name: value.detach() for name, value in ours.items()}


class NeuralOperator(unittest.TestCase):
    def test_same_function_of_the_same_weights(self):
        torch.manual_seed(0)
        for more in ({}, {"modes": [8, 10]}, {"kind": "tfno"}, {"kind": "tfno", "implementation": "reconstructed"},
                     {"kind": "tfno", "factorization": "cp"}):
            with self.subTest(**more):
                keys = KEYS | more
                model = their_model(keys, SHAPE)
                ours = our_parameters(model, keys, SHAPE)
                shapes = parameter_shapes(keys, SHAPE)
                self.assertEqual({name: list(value.shape) for name, value in ours.items()}, shapes)
                reals = sum(p.numel() * (2 if p.is_complex() else 1) for p in model.parameters())
                self.assertEqual(sum(math.prod(s) for s in shapes.values()), reals)
                x = torch.randn(2, SHAPE["input_channels"], *SHAPE["points"])
                wanted = model(x)
                error = (Operator(keys, SHAPE, ours)(x) - wanted).norm() / wanted.norm()
                self.assertLess(error.item(), 1e-5)

    def test_same_parameter_counts(self):
        shape = SHAPE | {"input_channels": 1, "points": [16, 16]}
        for more in ({"modes": [16, 16], "hidden": 24}, {"modes": [8, 8], "hidden": 24},
                     {"kind": "tfno", "modes": [16, 16], "hidden": 32, "rank": 0.42},
                     {"kind": "tfno", "modes": [12, 8], "hidden": 32, "rank": 0.1, "factorization": "cp"}):
            with self.subTest(**more):
                keys = KEYS | more
                reals = sum(p.numel() * (2 if p.is_complex() else 1) for p in their_model(keys, shape).parameters())
                self.assertEqual(sum(math.prod(s) for s in parameter_shapes(keys, shape).values()), reals)

    def test_same_losses(self):
        torch.manual_seed(1)
        d, t = torch.randn(2, 2, 3, 9, 8, dtype=torch.double)
        for grid, periodic in (("periodic", True), ("box", False)):
            theirs = H1Loss(d=2, reduction="mean", periodic_in_x=periodic, periodic_in_y=periodic)(d, t)
            ours = field_loss("h1", d, t, SHAPE | {"grid": grid, "points": [9, 8]})
            self.assertAlmostEqual(theirs.item(), ours.item(), places=12)
        theirs = LpLoss(d=2, reduction="mean")(d, t)
        self.assertAlmostEqual(theirs.item(), field_loss("relative-l2-channels", d, t, SHAPE).item(), places=12)


if __name__ == "__main__":
    unittest.main()
