#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes tests/nn/reference_values/operators.json: predictions and gradients of small SFNO and AFNO networks by
PyTorch's autograd in float64, from the formulas of the papers and with no code of Garonne.

  .deps/bench-python/bin/python tests/nn/operators/make_operator_values.py

Wants torch, numpy and mpmath. Weights and inputs are made from integers (`numbers` below, and in operator_test.cpp).
The transforms are sums over all points: Legendre functions as hypergeometric series, Clenshaw-Curtis weights from
the moments, Fourier sums by exponentials.
"""
import json
import math
import pathlib

import mpmath
import numpy as np
import torch

VALUES = pathlib.Path(__file__).resolve().parent / "reference_values" / "operators.json"
torch.set_default_dtype(torch.float64)


def numbers(count, salt):
    """SplitMix64 of (salt, position), uniform in [-1, 1)."""
    with np.errstate(over="ignore"):
        x = (np.arange(count, dtype=np.uint64) + np.uint64(salt) * np.uint64(1 << 32)) * np.uint64(0x9E3779B97F4A7C15)
        x ^= x >> np.uint64(30)
        x *= np.uint64(0xBF58476D1CE4E5B9)
        x ^= x >> np.uint64(27)
        x *= np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    return (x >> np.uint64(11)).astype(np.float64) * 2.0 ** -52 - 1.0


def legendre(l, m, x):
    mpmath.mp.dps = 30
    if m > 0 and abs(x) == 1:
        return 0.0
    x = mpmath.mpf(x)
    series = mpmath.hyp2f1(m - l, l + m + 1, m + 1, (1 - x) / 2)
    plain = mpmath.factorial(l + m) / (mpmath.factorial(l - m) * mpmath.factorial(m) * 2 ** m) \
        * (1 - x * x) ** (mpmath.mpf(m) / 2) * series
    norm = mpmath.sqrt((2 * l + 1) / (4 * mpmath.pi) * mpmath.factorial(l - m) / mpmath.factorial(l + m))
    return float(norm * plain)


class Sphere:
    def __init__(self, grid, rows, columns, degrees):
        if grid == "legendre-gauss":
            x, weights = np.polynomial.legendre.leggauss(rows)
            x, weights = x[::-1], weights[::-1]
        else:
            x = np.cos(np.pi * np.arange(rows) / (rows - 1))
            powers = np.polynomial.chebyshev.chebvander(x, rows - 1).T
            moments = np.array([0.0 if n % 2 else 2.0 / (1 - n * n) for n in range(rows)])
            weights = np.linalg.solve(powers, moments)
        self.grid, self.rows, self.columns, self.degrees = grid, rows, columns, degrees
        table = np.zeros((degrees, degrees, rows))
        for l in range(degrees):
            for m in range(l + 1):
                table[l, m] = [legendre(l, m, value) for value in x]
        wave = np.exp(2j * np.pi * np.outer(np.arange(degrees), np.arange(columns)) / columns)
        self.table = torch.tensor(table)
        self.wave = torch.tensor(wave)  # [m, j]
        self.weights = torch.tensor(weights.copy())
        both = np.full(degrees, 2.0)
        both[0] = 1.0
        if columns % 2 == 0 and degrees == columns // 2 + 1:
            both[-1] = 1.0
        self.both = torch.tensor(both)

    def same(self, other):
        return (self.grid, self.rows, self.columns) == (other.grid, other.rows, other.columns)

    def forward(self, field):  # [b, c, k, j] -> [b, c, l, m]
        fourier = torch.einsum("bckj,mj->bckm", field.to(torch.complex128), self.wave.conj())
        return torch.einsum("bckm,lmk,k->bclm", fourier, (2 * math.pi / self.columns * self.table).to(torch.complex128),
                            self.weights.to(torch.complex128))

    def inverse(self, coefficients):
        fourier = torch.einsum("bclm,lmk->bckm", coefficients, self.table.to(torch.complex128))
        return torch.einsum("bckm,mj,m->bckj", fourier, self.wave, self.both.to(torch.complex128)).real


def conv(x, weight, bias=None):  # [b, c, k, j], weight [out, in]
    y = torch.einsum("oc,bckj->bokj", weight, x)
    return y if bias is None else y + bias[:, None, None]


def instance_norm(x, gain, bias, epsilon):
    mean = x.mean(dim=(2, 3), keepdim=True)
    variance = ((x - mean) ** 2).mean(dim=(2, 3), keepdim=True)
    return (x - mean) / torch.sqrt(variance + epsilon) * gain[:, None, None] + bias[:, None, None]


def layer_norm(x, gain, bias, epsilon):  # over the last
    mean = x.mean(dim=-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(dim=-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + epsilon) * gain + bias


def gelu(x):
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def sfno(case, p, x):
    keys = case["model"]
    rows, columns = case["points"]
    makani = keys["block"] == "makani"
    factor = keys["scale_factor"]
    if makani:
        inner_rows, inner_columns = rows // factor, columns // factor
        degrees = min(inner_rows, inner_columns // 2 + 1)
    else:
        inner_rows, inner_columns = (rows - 1) // factor + 1, columns // factor
        degrees = min(inner_rows, inner_columns // 2)
    outer = Sphere(case["grid"], rows, columns, degrees)
    inner = Sphere("legendre-gauss", inner_rows, inner_columns, degrees)
    given = x
    x = conv(x, p["encoder.0.weight"], p.get("encoder.0.bias"))
    if makani:
        x = conv(gelu(x), p["encoder.1.weight"])
    for number in range(keys["layers"]):
        q = {name.removeprefix(f"block.{number}."): value for name, value in p.items()}
        before = outer if number == 0 else inner
        after = outer if number == keys["layers"] - 1 else inner
        spectrum = before.forward(x)
        residual = x if before.same(after) else after.inverse(spectrum)
        weight = torch.view_as_complex(q["spectral.weight"])
        if keys["spectral_operator"] == "dhconv":
            mixed = torch.einsum("lio,bilm->bolm", weight, spectrum)
        else:
            full = torch.zeros(degrees, degrees, *weight.shape[1:], dtype=torch.complex128)
            places = [(l, m) for l in range(degrees) for m in range(l + 1)]
            full = full.index_put(tuple(torch.tensor(axis) for axis in zip(*places)), weight)
            mixed = torch.einsum("lmio,bilm->bolm", full, spectrum)
        y = after.inverse(mixed)
        if keys["norm"] != "none":
            y = instance_norm(y, q["norm0.weight"], q["norm0.bias"], 1e-6)
        if makani:
            y = gelu(y)
        y = conv(gelu(conv(y, q["mlp.up.weight"], q["mlp.up.bias"])), q["mlp.down.weight"], q.get("mlp.down.bias"))
        if makani:
            if keys["norm"] != "none":
                y = instance_norm(y, q["norm1.weight"], q["norm1.bias"], 1e-6)
            y = y + conv(residual, q["skip.weight"], q["skip.bias"])
        else:
            y = y + residual
        x = y
    x = conv(x, p["decoder.0.weight"], p.get("decoder.0.bias"))
    if makani:
        x = conv(gelu(x), p["decoder.1.weight"])
    if keys["big_skip"]:
        x = x + (conv(given, p["big_skip.weight"]) if "big_skip.weight" in p else given)
    return x


def afno(case, p, x):
    keys = case["model"]
    side, hidden, blocks = keys["patch"], keys["hidden"], keys["spectral_blocks"]
    batch, channels, rows, columns = x.shape
    h, w = rows // side, columns // side
    kernel = p["patch.weight"].reshape(hidden, channels, side, side)
    x = torch.nn.functional.conv2d(x, kernel, p["patch.bias"], stride=side).permute(0, 2, 3, 1)
    x = x + p["position"].reshape(h, w, hidden)
    for number in range(keys["layers"]):
        q = {name.removeprefix(f"block.{number}."): value for name, value in p.items()}
        y = layer_norm(x, q["norm1.weight"], q["norm1.bias"], 1e-6)
        z = torch.fft.rfft2(y, dim=(1, 2), norm="ortho").reshape(batch, h, w // 2 + 1, blocks, hidden // blocks)
        modes = h // 2 + 1
        kept = int(modes * keys["hard_thresholding"])
        taken = z[:, modes - kept:modes + kept, :kept]
        first = [torch.view_as_complex(torch.stack((q[f"filter.{name}"][0], q[f"filter.{name}"][1]), -1))
                 for name in ("weight1", "bias1", "weight2", "bias2")]
        taken = torch.einsum("...bi,bio->...bo", taken, first[0]) + first[1]
        taken = torch.complex(torch.relu(taken.real), torch.relu(taken.imag))
        taken = torch.einsum("...bi,bio->...bo", taken, first[2]) + first[3]
        shrink = keys["sparsity_threshold"]
        taken = torch.complex(torch.nn.functional.softshrink(taken.real, shrink),
                              torch.nn.functional.softshrink(taken.imag, shrink))
        out = torch.zeros_like(z)
        out[:, modes - kept:modes + kept, :kept] = taken
        filtered = torch.fft.irfft2(out.reshape(batch, h, w // 2 + 1, hidden), s=(h, w), dim=(1, 2), norm="ortho")
        x = x + filtered + y
        y = layer_norm(x, q["norm2.weight"], q["norm2.bias"], 1e-6)
        y = gelu(y @ q["mlp.up.weight"].T + q["mlp.up.bias"]) @ q["mlp.down.weight"].T + q["mlp.down.bias"]
        x = x + y
    x = x @ p["head.weight"].T  # [b, h, w, (row, column, channel)]
    outputs = x.shape[-1] // (side * side)
    return x.reshape(batch, h, w, side, side, outputs).permute(0, 5, 1, 3, 2, 4).reshape(batch, outputs, rows, columns)


def sfno_parameters(case):
    keys = case["model"]
    hidden = keys["hidden"]
    rows, columns = case["points"]
    factor = keys["scale_factor"]
    makani = keys["block"] == "makani"
    if makani:
        degrees = min(rows // factor, columns // factor // 2 + 1)
    else:
        degrees = min((rows - 1) // factor + 1, columns // factor // 2)
    groups = degrees if keys["spectral_operator"] == "dhconv" else degrees * (degrees + 1) // 2
    inputs, outputs = case["input_channels"], case["target_channels"]
    shapes = {"encoder.0.weight": (hidden, inputs)}
    if makani:
        shapes |= {"encoder.0.bias": (hidden,), "encoder.1.weight": (hidden, hidden)}
    for number in range(keys["layers"]):
        q = {"spectral.weight": (groups, hidden, hidden, 2)}
        if keys["norm"] != "none":
            q |= {"norm0.weight": (hidden,), "norm0.bias": (hidden,)}
        q |= {"mlp.up.weight": (2 * hidden, hidden), "mlp.up.bias": (2 * hidden,),
              "mlp.down.weight": (hidden, 2 * hidden)}
        if makani:
            q |= {"mlp.down.bias": (hidden,), "skip.weight": (hidden, hidden), "skip.bias": (hidden,)}
            if keys["norm"] != "none":
                q |= {"norm1.weight": (hidden,), "norm1.bias": (hidden,)}
        shapes |= {f"block.{number}.{name}": shape for name, shape in q.items()}
    if makani:
        shapes |= {"decoder.0.weight": (hidden, hidden), "decoder.0.bias": (hidden,),
                   "decoder.1.weight": (outputs, hidden)}
    else:
        shapes |= {"decoder.0.weight": (outputs, hidden)}
    if keys["big_skip"] and (makani or inputs != outputs):
        shapes |= {"big_skip.weight": (outputs, inputs)}
    return shapes


def afno_parameters(case):
    keys = case["model"]
    hidden, side, blocks = keys["hidden"], keys["patch"], keys["spectral_blocks"]
    rows, columns = case["points"]
    size = hidden // blocks
    shapes = {"patch.weight": (hidden, case["input_channels"] * side * side), "patch.bias": (hidden,),
              "position": (rows // side * (columns // side), hidden)}
    for number in range(keys["layers"]):
        q = {"norm1.weight": (hidden,), "norm1.bias": (hidden,), "norm2.weight": (hidden,), "norm2.bias": (hidden,)}
        for which in ("1", "2"):
            q |= {f"filter.weight{which}": (2, blocks, size, size), f"filter.bias{which}": (2, blocks, size)}
        width = int(hidden * (keys["mlp_ratio"] or 4))
        q |= {"mlp.up.weight": (width, hidden), "mlp.up.bias": (width,), "mlp.down.weight": (hidden, width),
              "mlp.down.bias": (hidden,)}
        shapes |= {f"block.{number}.{name}": shape for name, shape in q.items()}
    return shapes | {"head.weight": (side * side * case["target_channels"], hidden)}


def spherical(name, grid, points, inputs, outputs, **keys):
    defaults = {"kind": "sfno", "block": "makani", "layers": 2, "hidden": 5, "scale_factor": 2, "norm": "instance",
                "spectral_operator": "dhconv", "big_skip": True}
    return {"name": name, "grid": grid, "points": points, "batch": 2, "input_channels": inputs,
            "target_channels": outputs, "model": defaults | keys}


def adaptive(name, points, inputs, outputs, **keys):
    defaults = {"kind": "afno", "layers": 2, "hidden": 12, "patch": 2, "spectral_blocks": 3, "mlp_ratio": 0.0,
                "sparsity_threshold": 0.01, "hard_thresholding": 1.0}
    return {"name": name, "grid": "equiangular", "points": points, "batch": 2, "input_channels": inputs,
            "target_channels": outputs, "model": defaults | keys}


CASES = [
    spherical("makani", "equiangular", [13, 24], 3, 2),
    spherical("makani, three layers on one grid", "legendre-gauss", [8, 16], 2, 2, layers=3, scale_factor=1),
    spherical("makani, one layer by order, no norm, no skip", "equiangular", [9, 16], 2, 2, layers=1,
              spectral_operator="diagonal", norm="none", big_skip=False),
    spherical("torch-harmonics", "legendre-gauss", [12, 24], 2, 2, layers=3, block="torch-harmonics"),
    spherical("torch-harmonics with projection", "equiangular", [11, 20], 3, 2, block="torch-harmonics"),
    adaptive("afno", [12, 20], 3, 2),
    adaptive("afno with fewer frequencies", [16, 12], 2, 2, hard_thresholding=0.6, sparsity_threshold=0.05,
             mlp_ratio=1.5),
]


def weight_of(name, shape, salt):
    values = 0.5 * numbers(math.prod(shape), salt)
    if "norm" in name and name.endswith("weight"):
        values = 1 + values
    return torch.tensor(values.reshape(shape)).requires_grad_(True)


def summary(tensor):
    flat = tensor.detach().numpy().reshape(-1)
    return {"norm": float(np.linalg.norm(flat)),
            "projections": [float(flat @ numbers(flat.size, 900 + k)) for k in range(4)]}


def evaluate(case):
    make = {"sfno": (sfno, sfno_parameters), "afno": (afno, afno_parameters)}[case["model"]["kind"]]
    shapes = make[1](case)
    p = {name: weight_of(name, shape, salt + 1) for salt, (name, shape) in enumerate(sorted(shapes.items()))}
    points = math.prod(case["points"])
    size = case["batch"] * case["input_channels"] * points
    x = torch.tensor(numbers(size, 500).reshape(case["batch"], case["input_channels"], *case["points"]))
    y = make[0](case, p, x).permute(0, 2, 3, 1)  # channels last
    given = torch.tensor(numbers(y.numel(), 501).reshape(y.shape))
    (y * given).sum().backward()
    return case | {"parameters": {name: list(shape) for name, shape in shapes.items()}, "prediction": summary(y),
                   "gradients": {name: summary(value.grad) for name, value in p.items()}}


def main():
    cases = [evaluate(case) for case in CASES]
    VALUES.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(case) for case in cases)
    head = json.dumps({"made_by": "tests/nn/operators/make_operator_values.py",
                       "with": f"torch {torch.__version__.split('+')[0]}, float64"})[1:-1]
    VALUES.write_text("{%s,\n\"cases\": [\n%s\n]}\n" % (head, lines))
    for case in cases:
        print(case["name"], case["prediction"]["norm"])


main()
