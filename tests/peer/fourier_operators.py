# SPDX-License-Identifier: MIT
"""Fourier neural operators and losses of fields in plain PyTorch: fast transforms, einsum, autograd.

Written from the papers and the libraries' descriptions, channels first as those are. Parameters are named and laid
out as Garonne stores them and are brought into the reference's shapes here.
"""
import math

import torch
import torch.nn.functional as F


def fraction(x):
    return x - torch.floor(x)


def numbers(which, count):
    """Made-up numbers in [-0.5, 0.5), the same in C++: element i of array `which`."""
    i = torch.arange(1, count + 1, dtype=torch.float64)
    return fraction((which + 1) * 0.7548776662466927 + i * 0.5698402909980532) - 0.5


def as_complex(weight):
    return torch.view_as_complex(weight.contiguous())


def frequencies(keys, axis_points, modes, last):
    """Indices into the unshifted spectrum of an axis, in the order in which the weights have them."""
    if keys["spectral_weights"] == "corners":
        kept = list(range(modes)) if last else list(range(-modes, modes))
    else:
        kept = list(range(modes // 2 + 1)) if last else list(range(-(modes // 2), modes - modes // 2))
    return torch.tensor([k % axis_points for k in kept])


class Operator:
    """keys: those of [model]; shape: input_channels, target_channels, points; p: name -> tensor."""

    def __init__(self, keys, shape, p):
        self.keys, self.shape, self.p = keys, shape, p
        self.li = keys["block"] == "li"

    def linear(self, name, x, bias=True):
        weight = self.p[name + ".weight"]
        y = torch.einsum("oi,bi...->bo...", weight, x)
        if not bias:
            return y
        return y + self.p[name + ".bias"].reshape(1, -1, *[1] * (x.dim() - 2))

    def weights(self, prefix):
        """(inputs, outputs, modes...) complex"""
        p, keys = self.p, self.keys
        axes = len(self.shape["points"])
        letters = "xyz"[:axes]
        if keys["kind"] == "fno":
            return torch.einsum(f"{letters}io->io{letters}", as_complex(p[prefix + "weight"]))
        factors = [as_complex(p[f"{prefix}axis.{a}"]) for a in range(axes)]
        enter, leave = as_complex(p[prefix + "inputs"]), as_complex(p[prefix + "outputs"])
        if keys["factorization"] == "cp":
            of_axes = ",".join(letter + "r" for letter in letters)
            return torch.einsum(f"r,{of_axes},ir,ro->io{letters}", as_complex(p[prefix + "weights"]), *factors, enter,
                                leave)
        ranks = "uvw"[:axes]
        of_axes = ",".join(letter + rank for letter, rank in zip(letters, ranks))
        return torch.einsum(f"{ranks}fg,{of_axes},if,go->io{letters}", as_complex(p[prefix + "core"]), *factors, enter,
                            leave)

    def spectral(self, prefix, x):
        points = list(x.shape[2:])
        axes = list(range(2, x.dim()))
        letters = "xyz"[:len(points)]
        spectrum = torch.fft.rfftn(x, dim=axes)
        index = [frequencies(self.keys, n, m, a + 1 == len(points))
                 for a, (n, m) in enumerate(zip(points, self.keys["modes"]))]
        kept = spectrum
        for axis, which in zip(axes, index):
            kept = kept.index_select(axis, which)
        kept = torch.einsum(f"bi{letters},io{letters}->bo{letters}", kept, self.weights(prefix + "spectral."))
        grid = torch.meshgrid(*index, indexing="ij")
        full = torch.zeros(kept.shape[0], kept.shape[1], *spectrum.shape[2:], dtype=kept.dtype)
        full[(slice(None), slice(None), *grid)] = kept
        y = torch.fft.irfftn(full, s=points, dim=axes)
        return y + self.p[prefix + "bias"].reshape(1, -1, *[1] * len(points))

    def layer(self, prefix, x, last):
        y = self.spectral(prefix, x) + self.linear(prefix + "skip", x, bias=False)
        y = y if last else F.gelu(y)
        if self.li:
            return y
        gate = self.p[prefix + "gate"].reshape(1, -1, *[1] * (x.dim() - 2))
        y = self.linear(prefix + "mlp.down", F.gelu(self.linear(prefix + "mlp.up", y))) + gate * x
        return y if last else F.gelu(y)

    def coordinates(self, x):
        points = x.shape[2:]
        steps = [max(n - 1, 1) if self.li else n for n in points]
        axes = [torch.arange(n, dtype=x.dtype) / s for n, s in zip(points, steps)]
        grid = torch.stack(torch.meshgrid(*axes, indexing="ij"))
        return torch.cat([x, grid.expand(x.shape[0], *grid.shape)], 1)

    def __call__(self, x):
        keys = self.keys
        x = self.coordinates(x) if keys["coordinates"] else x
        if self.li:
            x = self.linear("lift", x)
        else:
            x = self.linear("lift.down", F.gelu(self.linear("lift.up", x)))
        points = x.shape[2:]
        x = F.pad(x, [0, keys["padding"]] * len(points))
        for number in range(keys["layers"]):
            x = self.layer(f"layer.{number}.", x, number + 1 == keys["layers"])
        x = x[(slice(None), slice(None), *[slice(n) for n in points])]
        return self.linear("project.down", F.gelu(self.linear("project.up", x)))


def tucker_ranks(shape, rank):
    dense, squares = math.prod(shape), sum(n * n for n in shape)
    low, high = 0.0, max(rank, 1.0)
    for _ in range(200):
        middle = (low + high) / 2
        if dense * middle ** len(shape) + squares * middle < rank * dense:
            low = middle
        else:
            high = middle
    return [max(1, round(n * high)) for n in shape]


def parameter_shapes(keys, shape):
    """Name -> shape, in Garonne's order."""
    hidden, axes = keys["hidden"], len(shape["points"])
    li = keys["block"] == "li"
    features = shape["input_channels"] + (axes if keys["coordinates"] else 0)
    shapes = {}

    def linear(name, outputs, inputs):
        shapes[name + ".weight"] = [outputs, inputs]
        shapes[name + ".bias"] = [outputs]

    if li:
        linear("lift", hidden, features)
    else:
        linear("lift.up", 2 * hidden, features)
        linear("lift.down", hidden, 2 * hidden)
    kept = [len(frequencies(keys, 10 ** 6, m, a + 1 == axes)) for a, m in enumerate(keys["modes"])]
    dense = [hidden, hidden, *kept]
    for number in range(keys["layers"]):
        prefix = f"layer.{number}."
        shapes[prefix + "skip.weight"] = [hidden, hidden]
        shapes[prefix + "bias"] = [hidden]
        if keys["kind"] == "fno":
            shapes[prefix + "spectral.weight"] = [*kept, hidden, hidden, 2]
        elif keys["factorization"] == "cp":
            rank = max(1, round(math.prod(dense) * keys["rank"] / sum(dense)))
            shapes[prefix + "spectral.weights"] = [rank, 2]
            for a in range(axes):
                shapes[f"{prefix}spectral.axis.{a}"] = [kept[a], rank, 2]
            shapes[prefix + "spectral.inputs"] = [hidden, rank, 2]
            shapes[prefix + "spectral.outputs"] = [rank, hidden, 2]
        else:
            enter, leave, *of_axes = tucker_ranks(dense, keys["rank"])
            shapes[prefix + "spectral.core"] = [*of_axes, enter, leave, 2]
            for a in range(axes):
                shapes[f"{prefix}spectral.axis.{a}"] = [kept[a], of_axes[a], 2]
            shapes[prefix + "spectral.inputs"] = [hidden, enter, 2]
            shapes[prefix + "spectral.outputs"] = [leave, hidden, 2]
        if not li:
            inner = round(hidden * (keys["mlp_ratio"] or 0.5))
            linear(prefix + "mlp.up", inner, hidden)
            linear(prefix + "mlp.down", hidden, inner)
            shapes[prefix + "gate"] = [hidden]
    inner = 128 if li else 2 * hidden
    linear("project.up", inner, hidden)
    linear("project.down", shape["target_channels"], inner)
    return shapes


def made_up_parameters(shapes):
    """One half of the numbers, moved up by 1 for gates so that they are like those of a training."""
    return {name: numbers(k, math.prod(dims)).reshape(dims) * 0.7 + (1.0 if name.endswith("gate") else 0.0)
            for k, (name, dims) in enumerate(shapes.items())}


# ---- losses


def decoded(field, shape):
    if not shape.get("target_deviation"):
        return field
    def table(values):
        t = torch.tensor(values, dtype=field.dtype)
        if t.numel() == field.shape[1]:
            return t.reshape(1, -1, *[1] * len(shape["points"]))
        return t.reshape(1, field.shape[1], *shape["points"])
    return field * table(shape["target_deviation"]) + table(shape["target_mean"])


def difference(u, axis, periodic):
    """First derivative along an axis of unit length."""
    n = u.shape[axis]
    if periodic:
        return (torch.roll(u, -1, axis) - torch.roll(u, 1, axis)) * n / 2

    def at(i):
        return u.select(axis, i)

    inner = (u.narrow(axis, 2, n - 2) - u.narrow(axis, 0, n - 2)) * n / 2
    first = (-11 * at(0) + 18 * at(1) - 9 * at(2) + 2 * at(3)) * n / 6
    last = (11 * at(-1) - 18 * at(-2) + 9 * at(-3) - 2 * at(-4)) * n / 6
    return torch.cat([first.unsqueeze(axis), inner, last.unsqueeze(axis)], axis)


def masked_field_loss(name, prediction, target, shape, mask):
    """mask: True where the target has a value."""
    d, t = decoded(prediction, shape), decoded(target, shape)
    axes = list(range(2, d.dim()))
    nothing = torch.zeros((), dtype=d.dtype)
    e, t = torch.where(mask, d - t, nothing), torch.where(mask, t, nothing)
    if name in ("squared-l2", "area-l2"):
        weights = mask.to(d.dtype)
        if name == "area-l2":
            weights = weights * torch.tensor(shape["area_weights"], dtype=d.dtype).reshape(-1, *[1] * (len(axes) - 1))
        return ((weights * e ** 2).sum(axes) / weights.sum(axes)).mean()
    if name == "relative-l2":
        over = [1, *axes]
        return ((e ** 2).sum(over).sqrt() / ((t ** 2).sum(over).sqrt() + 1e-8)).mean()
    error, wanted = (e ** 2).sum(axes), (t ** 2).sum(axes)
    if name == "h1":
        for axis in axes:
            longitude = axis == axes[-1] and shape["grid"] in ("equiangular", "legendre-gauss")
            periodic = longitude or shape["grid"] == "periodic"
            # A difference that some value is missing for is none.
            whole = ~torch.isnan(difference(torch.where(mask, 0.0, float("nan")), axis, periodic))
            error = error + (difference(e, axis, periodic) ** 2 * whole).sum(axes)
            wanted = wanted + (difference(t, axis, periodic) ** 2 * whole).sum(axes)
    return (error.sqrt() / (wanted.sqrt() + 1e-8)).mean()


def field_loss(name, prediction, target, shape):
    d, t = decoded(prediction, shape), decoded(target, shape)
    axes = list(range(2, d.dim()))
    if name == "squared-l2":
        return ((d - t) ** 2).mean()
    if name == "area-l2":
        weights = torch.tensor(shape["area_weights"], dtype=d.dtype).reshape(1, 1, -1, *[1] * (len(axes) - 1))
        return (weights * (d - t) ** 2).mean()
    if name == "relative-l2":
        over = [1, *axes]
        return (((d - t) ** 2).sum(over).sqrt() / ((t ** 2).sum(over).sqrt() + 1e-8)).mean()
    error, wanted = ((d - t) ** 2).sum(axes), (t ** 2).sum(axes)
    if name == "h1":
        for axis in axes:
            longitude = axis == axes[-1] and shape["grid"] in ("equiangular", "legendre-gauss")
            periodic = longitude or shape["grid"] == "periodic"
            error = error + (difference(d - t, axis, periodic) ** 2).sum(axes)
            wanted = wanted + (difference(t, axis, periodic) ** 2).sum(axes)
    return (error.sqrt() / (wanted.sqrt() + 1e-8)).mean()


def rollout_loss(name, operator, x, targets, shape, mask=None):
    """Mean over the steps that have a target, the last ones; those before are constants.

    The prediction moves into the window of input channels from the far end. mask [steps, ...]: True where there is a
    value; elsewhere a prediction becomes 0 before it is read again.
    """
    losses, predictions = [], []
    before = shape.get("push_forward", 0)
    for step in range(before + len(targets)):
        prediction = operator(x)
        predictions.append(prediction)
        if step < before:
            prediction = prediction.detach()
        elif mask is None:
            losses.append(field_loss(name, prediction, targets[step - before], shape))
        else:
            losses.append(masked_field_loss(name, prediction, targets[step - before], shape, mask[step]))
        filled = prediction if mask is None else prediction * mask[step]
        x = torch.cat([x, filled], 1)[:, -x.shape[1]:]
    return torch.stack(losses).mean(), predictions
