# SPDX-License-Identifier: MIT
"""Checkpoints: tensors whose shards lie in files of several ranks, as whole arrays."""
import json
import pathlib

import numpy as np

TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "U8": "u1"}


def _from_stored(stored, kind):
    """bfloat16, which numpy has not, becomes float32."""
    if kind != "BF16":
        return stored
    return (stored.astype(np.uint32) << 16).view(np.float32)


def _header(path):
    """Entries of a safetensors file, and where its tensors begin."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > pathlib.Path(path).stat().st_size - 8:
            raise ValueError(f"{path}: is no safetensors file, or cut short")
        entries = json.loads(file.read(length))
    entries.pop("__metadata__", None)
    return entries, 8 + length


def _entry(path, entries, begin, name):
    entry = entries[name]
    first, last = entry["data_offsets"]
    kind = np.dtype(TYPES[entry["dtype"]])
    stored = np.fromfile(path, kind, (last - first) // kind.itemsize, offset=begin + first)
    return _from_stored(stored, entry["dtype"]).reshape(entry["shape"])


def read_safetensors(path):
    """{name: array} of a safetensors file."""
    entries, begin = _header(path)
    return {name: _entry(path, entries, begin, name) for name in entries}


class Checkpoint:
    """A folder `step-<n>`: `checkpoint[name]` is a whole tensor, read when it is asked for."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.manifest = json.loads((self.path / "manifest.json").read_text(encoding="utf-8"))
        if self.manifest.get("format") != "garonne.checkpoint" or self.manifest.get("version") != 1:
            raise ValueError(f"{path}: is no garonne.checkpoint of version 1")
        self.step = self.manifest["step"]
        self.shapes = {tensor["name"]: tuple(tensor["shape"]) for tensor in self.manifest["tensors"]}
        self._types = {tensor["name"]: tensor["type"] for tensor in self.manifest["tensors"]}
        self._shards = {}
        for shard in self.manifest["shards"]:
            self._shards.setdefault(shard["tensor"], []).append(shard)
        self._headers = {}

    def __repr__(self):
        return f"<checkpoint of step {self.step}: {len(self)} tensors, {self.path}>"

    def __len__(self):
        return len(self.shapes)

    def __iter__(self):
        return iter(self.shapes)

    def __contains__(self, name):
        return name in self.shapes

    def keys(self):
        return self.shapes.keys()

    def parameters(self):
        """Names of the tensors that are trained, without states of the optimizer."""
        states = {name for name in self.shapes if name.rpartition(".")[0] in self.shapes}
        return [name for name in self.shapes if name not in states]

    def __getitem__(self, name):
        whole = np.zeros(self.shapes[name], np.float32 if self._types[name] == "BF16" else TYPES[self._types[name]])
        there = 0
        for shard in self._shards.get(name, []):
            box = tuple(slice(first, first + size) for first, size in zip(shard["box_offset"], shard["box_shape"]))
            values = np.ascontiguousarray(whole[box]).reshape(-1)
            values[shard["begin"]:shard["end"]] = self._read(shard)
            whole[box] = values.reshape(whole[box].shape)
            there += shard["end"] - shard["begin"]
        if there != whole.size:
            raise ValueError(f"{self.path}: {there} of {whole.size} elements of {name} are in its files")
        return whole

    def _read(self, shard):
        path = self.path / shard["file"]
        if path.parent != self.path:
            raise ValueError(f"{self.path}: the name {shard['file']} leads out of the checkpoint")
        if shard["file"] not in self._headers:
            self._headers[shard["file"]] = _header(path)
        entries, begin = self._headers[shard["file"]]
        return _entry(path, entries, begin, shard["entry"]).reshape(-1)
