# SPDX-License-Identifier: MIT
"""Weights that `garonne checkpoint export` writes for packages of PyTorch, and files that `checkpoint import` reads.

Needs torch and the package itself.
"""
import importlib
import json
import pathlib

import numpy as np

from .checkpoint import read_safetensors

# What a package's class is called here, which has to be imported by this name.
CLASSES = {"neuraloperator": "neuralop.models.fno.FNO",
           "torch-harmonics": "torch_harmonics.examples.models.sfno.SphericalFourierNeuralOperator",
           "makani": "makani.models.networks.sfnonet.SphericalFourierNeuralOperatorNet"}


def read_package(path):
    """(config, {name: array}) of a folder; complex weights are complex."""
    path = pathlib.Path(path)
    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    if config.get("format") != "garonne.package" or config.get("version") != 1:
        raise ValueError(f"{path}: is no garonne.package of version 1")
    tensors = read_safetensors(path / "model.safetensors")
    for name in config["complex"]:
        pairs = tensors[name]
        tensors[name] = pairs[..., 0] + 1j * pairs[..., 1]
    return config, tensors


def load_package(path):
    """The package's model with the weights of a folder, in evaluation mode."""
    import torch
    config, tensors = read_package(path)
    if CLASSES.get(config["package"]) != config["class"]:
        raise ValueError(f"{path}: {config['class']} is not the class of {config['package']}")
    module, _, name = config["class"].rpartition(".")
    model = getattr(importlib.import_module(module), name)(**config["arguments"])
    model.load_state_dict({name: torch.from_numpy(value) for name, value in tensors.items()})
    return model.eval()


def save_package(path, package, model, arguments):
    """Writes a model of a package, and the arguments that its constructor was given, for `checkpoint import`."""
    path = pathlib.Path(path)
    path.mkdir(parents=True, exist_ok=True)
    arrays = {name: value.detach().cpu().numpy() for name, value in model.named_parameters()}
    are_complex = [name for name, value in arrays.items() if np.iscomplexobj(value)]
    for name in are_complex:
        arrays[name] = np.stack([arrays[name].real, arrays[name].imag], -1)
    config = {"format": "garonne.package", "version": 1, "package": package, "class": CLASSES[package],
              "arguments": arguments, "complex": are_complex}
    (path / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    header, begin = {"__metadata__": {"format": "pt"}}, 0
    for name, value in arrays.items():
        arrays[name] = np.ascontiguousarray(value, "<f4")
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [begin, begin + arrays[name].nbytes]}
        begin += arrays[name].nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for value in arrays.values():
            file.write(value.tobytes())
