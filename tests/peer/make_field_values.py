#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes tests/nn/reference_values/fields.json: what PyTorch says of small operators, in float64.

  .deps/bench-python/bin/python tests/peer/make_field_values.py

Weights, inputs and targets are a formula (fourier_operators.numbers), so the file holds only what comes out. To be run
again where a case below is added or the names, the order or the layout of parameters change on purpose.
"""
import json
import math
import pathlib

import torch

from fourier_operators import Operator, made_up_parameters, numbers, parameter_shapes, rollout_loss

VALUES = pathlib.Path(__file__).resolve().parent.parent / "nn" / "reference_values" / "fields.json"

KEYS = {"kind": "fno", "layers": 2, "hidden": 4, "block": "neuralop", "modes": [4, 4], "spectral_weights": "centred",
        "padding": 0, "coordinates": True, "factorization": "tucker", "rank": 0.1, "implementation": "factorized",
        "mlp_ratio": 0.0}
SHAPE = {"input_channels": 2, "target_channels": 1, "points": [8, 8], "grid": "box", "rollout": 1, "area_weights": [],
         "target_mean": [], "target_deviation": []}
LI = {"block": "li", "spectral_weights": "corners"}


def case(name, batch=2, loss="relative-l2", shape=None, **keys):
    return {"name": name, "batch": batch, "loss": loss, "model": {**KEYS, **keys}, "shape": {**SHAPE, **(shape or {})}}


CASES = [
    case("neuralop 2d"),
    case("neuralop 1d", batch=3, modes=[6], shape={"points": [13]}),
    case("neuralop 3d", modes=[2, 3, 4], hidden=3, shape={"points": [5, 4, 6], "target_channels": 2}),
    case("neuralop 2d, all modes", batch=1, modes=[6, 8], mlp_ratio=1.25, shape={"points": [6, 8]}),
    case("neuralop 2d with corners and padding", spectral_weights="corners", modes=[2, 3], padding=3,
         coordinates=False, shape={"points": [7, 6]}),
    case("li 1d", modes=[3], padding=2, shape={"points": [11]}, **LI),
    case("li 2d", modes=[3, 2], hidden=3, padding=1, layers=3, **LI),
    case("li 3d", modes=[1, 2, 2], hidden=2, shape={"points": [4, 5, 6]}, **LI),
    case("li 2d centred", block="li", modes=[3, 5], hidden=3),
    case("tucker 2d", kind="tfno", rank=0.4),
    case("tucker 1d reconstructed", kind="tfno", rank=0.5, implementation="reconstructed", modes=[7],
         shape={"points": [15]}),
    case("tucker 3d", kind="tfno", rank=0.3, modes=[3, 2, 4], hidden=3, shape={"points": [4, 5, 6]}),
    case("cp 2d", kind="tfno", rank=0.5, factorization="cp"),
    case("cp 3d reconstructed", kind="tfno", rank=0.6, factorization="cp", implementation="reconstructed",
         modes=[3, 2, 4], hidden=3, shape={"points": [4, 5, 6]}),
    case("squared-l2 decoded by channel", loss="squared-l2", hidden=3,
         shape={"target_channels": 2, "target_mean": [0.3, -1.5], "target_deviation": [2.0, 0.25]}),
    case("relative-l2 decoded by point", hidden=3, layers=1, modes=[2, 2],
         shape={"target_channels": 2, "points": [3, 4], "target_mean": numbers(71, 24).tolist(),
                "target_deviation": (numbers(72, 24) + 1).tolist()}),
    case("relative-l2-channels", loss="relative-l2-channels", hidden=3, layers=1,
         shape={"target_channels": 3, "target_mean": [0.3, -1.5, 0.0], "target_deviation": [2.0, 0.25, 1.0]}),
    case("h1 in a box", loss="h1", hidden=3, layers=1, shape={"points": [5, 7], "target_channels": 2}),
    case("h1 periodic", loss="h1", hidden=3, layers=1, modes=[2, 2, 2],
         shape={"points": [4, 3, 5], "grid": "periodic"}),
    case("h1 on a sphere", loss="h1", hidden=3, layers=1, shape={"points": [5, 6], "grid": "equiangular"}),
    case("area-l2", loss="area-l2", hidden=3, layers=1,
         shape={"points": [4, 6], "grid": "equiangular", "area_weights": [0.4, 1.6, 1.5, 0.5]}),
    case("rollout of one channel set", hidden=3, layers=1,
         shape={"input_channels": 2, "target_channels": 2, "rollout": 3}),
    case("rollout of a history", hidden=3, layers=1, **LI, modes=[2, 2],
         shape={"input_channels": 5, "target_channels": 2, "rollout": 4, "points": [6, 5]}),
    case("masked relative-l2", hidden=3, layers=1, shape={"target_channels": 2, "masked": True}),
    case("masked relative-l2-channels", loss="relative-l2-channels", hidden=3, layers=1,
         shape={"target_channels": 3, "target_mean": [0.3, -1.5, 0.0], "target_deviation": [2.0, 0.25, 1.0],
                "masked": True}),
    case("masked squared-l2", loss="squared-l2", hidden=3, layers=1,
         shape={"target_channels": 2, "target_mean": [0.3, -1.5], "target_deviation": [2.0, 0.25], "masked": True}),
    case("masked area-l2", loss="area-l2", hidden=3, layers=1,
         shape={"points": [4, 6], "grid": "equiangular", "area_weights": [0.4, 1.6, 1.5, 0.5], "masked": True}),
    case("masked h1 in a box", loss="h1", hidden=3, layers=1,
         shape={"points": [9, 11], "target_channels": 2, "masked": True}),
    case("masked h1 periodic", loss="h1", hidden=3, layers=1, modes=[2, 2, 2],
         shape={"points": [4, 3, 5], "grid": "periodic", "masked": True}),
    case("masked rollout", hidden=3, layers=1,
         shape={"input_channels": 3, "target_channels": 2, "rollout": 3, "masked": True}),
    case("push-forward before a rollout", hidden=3, layers=1,
         shape={"input_channels": 3, "target_channels": 2, "rollout": 2, "push_forward": 2}),
    case("push-forward, masked", hidden=3, layers=1, loss="squared-l2",
         shape={"input_channels": 2, "target_channels": 1, "push_forward": 1, "masked": True}),
]


def outcome(item):
    shape, batch = item["shape"], item["batch"]
    shapes = parameter_shapes(item["model"], shape)
    parameters = {name: value.requires_grad_(True) for name, value in made_up_parameters(shapes).items()}
    points = shape["points"]
    x_shape = [batch, shape["input_channels"], *points]
    t_shape = [shape["rollout"], batch, shape["target_channels"], *points]
    x = numbers(501, math.prod(x_shape)).reshape(x_shape)
    targets = numbers(502, math.prod(t_shape)).reshape(t_shape) * 3
    mask = None
    if shape.get("masked"):
        m_shape = [shape.get("push_forward", 0) + shape["rollout"], *t_shape[1:]]
        mask = (numbers(504, math.prod(m_shape)) > -0.3).reshape(m_shape)
    loss, predictions = rollout_loss(item["loss"], Operator(item["model"], shape, parameters), x, targets, shape, mask)
    gradients = torch.autograd.grad(loss, list(parameters.values()))
    rows = {}
    for name, gradient in zip(parameters, gradients):
        flat = gradient.flatten()
        which = [(k * (flat.numel() - 1)) // 4 for k in range(5)]
        rows[name] = {"shape": list(gradient.shape), "norm": flat.norm().item(),
                      "probe": (flat * numbers(503, flat.numel())).sum().item(), "elements": flat[which].tolist()}
    last = predictions[-1].detach().flatten()
    return {"loss": loss.item(), "prediction_norm": last.norm().item(),
            "prediction": last[[0, last.numel() // 2, -1]].tolist(), "gradients": rows}


def main():
    values = {"made_by": "tests/peer/make_field_values.py",
              "with": f"torch {torch.__version__.split('+')[0]}, float64",
              "cases": [{**item, "outcome": outcome(item)} for item in CASES]}
    VALUES.parent.mkdir(parents=True, exist_ok=True)
    VALUES.write_text(json.dumps(values, indent=None, separators=(", ", ": ")).replace('{"name"', '\n{"name"') + "\n")
    for item in values["cases"]:
        print(f'{item["name"]}: loss {item["outcome"]["loss"]:.6f}')


main()
