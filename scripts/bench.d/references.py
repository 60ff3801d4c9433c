# SPDX-License-Identifier: MIT
"""The models that Garonne is held against on GPUs, made from the same keys, and with the weights of a checkpoint of ours.

GPTs are pytorch_gpt.py's, FNOs the neuraloperator library's, SFNOs those of torch-harmonics' examples."""
import functools
import importlib
import importlib.util
import json
import pathlib
import sys
import types

import torch

import neuraloperator
import pytorch_gpt


@functools.cache
def load_torch_harmonics():
    """Its transforms and its example alone: the package as a whole loads an extension that is built for one torch only."""
    root = importlib.util.find_spec("torch_harmonics").submodule_search_locations[0]
    for package in ("torch_harmonics", "torch_harmonics.examples", "torch_harmonics.examples.models"):
        module = types.ModuleType(package)
        module.__path__ = ["/".join([root, *package.split(".")[1:]])]
        sys.modules[package] = module
    transforms = importlib.import_module("torch_harmonics.sht")
    for name in ("RealSHT", "InverseRealSHT"):
        setattr(sys.modules["torch_harmonics"], name, getattr(transforms, name))
    return importlib.import_module("torch_harmonics.examples.models.sfno").SphericalFourierNeuralOperator


@functools.cache
def load_neuraloperator():
    neuraloperator.load()
    return importlib.import_module("neuralop.models.fno").FNO


def fno(keys, shape):
    return load_neuraloperator()(n_modes=tuple(keys["modes"]), in_channels=shape["inputs"], out_channels=shape["targets"],
                                 hidden_channels=keys["hidden"], n_layers=keys["layers"])


def sfno(keys, shape):
    return load_torch_harmonics()(img_size=tuple(shape["points"]), grid=shape["grid"], scale_factor=keys["scale_factor"],
                                  in_chans=shape["inputs"], out_chans=shape["targets"], embed_dim=keys["hidden"],
                                  num_layers=keys["layers"], mlp_ratio=2.0)


def make_model(keys, shape):
    """`shape` of fields: inputs, targets, points, grid; not read for GPTs."""
    if keys["kind"] == "gpt":
        return pytorch_gpt.Gpt(types.SimpleNamespace(**keys))
    return {"fno": fno, "sfno": sfno}[keys["kind"]](keys, shape)


def parameter_count(model):
    """Real numbers: a complex one counts twice."""
    return sum(p.numel() * (2 if p.is_complex() else 1) for p in model.parameters())


def blocks_of(model, kind):
    return {"gpt": lambda: model.blocks, "sfno": lambda: model.blocks, "fno": lambda: []}[kind]()


def relative_l2(prediction, target):
    """Mean over samples of |d - t| / |t|, over channels and points together."""
    return ((prediction - target).flatten(1).norm(dim=1) / target.flatten(1).norm(dim=1)).mean()


def loss_of(model, kind, inputs, targets):
    return pytorch_gpt.loss_of(model(inputs), targets) if kind == "gpt" else relative_l2(model(inputs), targets)


# ---- weights of a checkpoint


def checkpoint_tensors(folder):
    """Name -> tensor, of a checkpoint that one rank has written."""
    from safetensors.torch import load_file
    folder = pathlib.Path(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    files = {entry["name"]: load_file(folder / entry["name"]) for entry in manifest["files"]}
    shapes = {tensor["name"]: tensor["shape"] for tensor in manifest["tensors"]}
    return {shard["tensor"]: files[shard["file"]][shard["entry"]].reshape(shapes[shard["tensor"]])
            for shard in manifest["shards"]}


def as_complex(tensor):
    return torch.view_as_complex(tensor.contiguous())


def gpt_weights(tensors, keys):
    """Of Hugging Face's GPT-2, whose products have their weights the other way round."""
    found = {"token_embedding.weight": tensors["transformer.wte.weight"],
             "position_embedding.weight": tensors["transformer.wpe.weight"]}
    names = {"attention_norm": "ln_1", "qkv": "attn.c_attn", "projection": "attn.c_proj", "feed_forward_norm": "ln_2",
             "up": "mlp.c_fc", "down": "mlp.c_proj"}
    for number in range(keys["layers"]):
        for ours, theirs in names.items():
            for part in ("weight", "bias"):
                tensor = tensors[f"transformer.h.{number}.{theirs}.{part}"]
                found[f"blocks.{number}.{ours}.{part}"] = tensor.t() if tensor.dim() == 2 else tensor
    for part in ("weight", "bias"):
        found[f"final_norm.{part}"] = tensors[f"transformer.ln_f.{part}"]
    return found


def fno_weights(tensors, keys):
    found = {}

    def linear(theirs, ours):
        found[theirs + ".weight"], found[theirs + ".bias"] = tensors[ours + ".weight"], tensors[ours + ".bias"]

    for ours, theirs in (("lift.up", "lifting.fcs.0"), ("lift.down", "lifting.fcs.1"),
                         ("project.up", "projection.fcs.0"), ("project.down", "projection.fcs.1")):
        linear(theirs, ours)
    for number in range(keys["layers"]):
        prefix = f"layer.{number}."
        found[f"fno_blocks.fno_skips.{number}.conv.weight"] = tensors[prefix + "skip.weight"]
        found[f"fno_blocks.convs.{number}.bias"] = tensors[prefix + "bias"]
        found[f"fno_blocks.channel_mlp_skips.{number}.weight"] = tensors[prefix + "gate"]
        for part, position in (("up", 0), ("down", 1)):
            linear(f"fno_blocks.channel_mlp.{number}.fcs.{position}", f"{prefix}mlp.{part}")
        spectral = as_complex(tensors[prefix + "spectral.weight"])
        axes = spectral.dim() - 2
        found[f"fno_blocks.convs.{number}.weight.tensor"] = spectral.permute(axes, axes + 1, *range(axes))
    return found


def sfno_weights(tensors, keys):
    found = {"encoder.0.weight": tensors["encoder.0.weight"], "decoder.0.weight": tensors["decoder.0.weight"]}
    for number in range(keys["layers"]):
        ours, theirs = f"block.{number}.", f"blocks.{number}."
        found[theirs + "global_conv.weight"] = as_complex(tensors[ours + "spectral.weight"]).permute(2, 1, 0)
        found[theirs + "mlp.fwd.0.weight"] = tensors[ours + "mlp.up.weight"]
        found[theirs + "mlp.fwd.0.bias"] = tensors[ours + "mlp.up.bias"]
        found[theirs + "mlp.fwd.2.weight"] = tensors[ours + "mlp.down.weight"]
    return found


def set_weights(model, kind, keys, tensors):
    """Every parameter of the model gets its own of ours; none is left as it was made, and none of ours is left over."""
    given = {"gpt": gpt_weights, "fno": fno_weights, "sfno": sfno_weights}[kind](tensors, keys)
    wanted = dict(model.named_parameters())
    if set(given) != set(wanted):
        raise SystemExit(f"parameters of one {kind} alone: {sorted(set(given) ^ set(wanted))}")
    with torch.no_grad():
        for name, parameter in wanted.items():
            parameter.copy_(given[name].reshape(parameter.shape))
