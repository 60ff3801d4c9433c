# SPDX-License-Identifier: MIT
"""Is what Garonne is held against the same model? Equal numbers of parameters, and the same first loss of the same weights.

`scripts/bench --cuda` asks this before it times anything; alone it asks it of tiny models on the processor:

  GARONNE_BINARY=build/bin/garonne .deps/bench-python/bin/python scripts/bench.d/same_model.py
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from programs import Refused

# Relative, of losses in float32 by other orders of sums; a wrong weight or layer changes a loss of random weights by 1e-3.
TOLERANCE = 2e-5
SAMPLES = 4

TINY = (
    {"kind": "gpt", "layers": 2, "hidden": 64, "heads": 4, "sequence": 32, "vocabulary": 256},
    {"kind": "fno", "layers": 2, "hidden": 8, "modes": [8, 8], "points": [16, 16]},
    {"kind": "sfno", "layers": 3, "hidden": 8, "scale_factor": 2, "points": [16, 32]},
)
# What makes our SFNO that of torch-harmonics' example with its own defaults.
SFNO_KEYS = {"block": "torch-harmonics", "norm": "none", "big_skip": False}


def garonne(*arguments):
    run = subprocess.run([os.environ["GARONNE_BINARY"], *map(str, arguments)], capture_output=True, text=True, check=False)
    if run.returncode == Refused.CODE:
        raise Refused(["garonne", *arguments], run.stderr)
    if run.returncode != 0:
        sys.exit(f"garonne {' '.join(map(str, arguments))}\nended with code {run.returncode}:\n{run.stdout}{run.stderr}")
    return run.stdout


def toml(sections):
    return "".join(f"[{section}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
                   for section, keys in sections.items())


def make_data(keys, folder):
    """A file or folder of `SAMPLES` samples, or a few tokens, and what [data] says of it."""
    if keys["kind"] == "gpt":
        (folder / "text.txt").write_text("the quick brown fox jumps over a lazy dog. " * (keys["sequence"] // 2 + 50))
        garonne("data", "text", folder / "text.txt", "--output", folder / "tokens.h5")
        return {"path": str(folder / "tokens.h5")}
    points = keys["points"]
    if keys["kind"] == "fno":
        garonne("data", "darcy", "--output", folder / "darcy.h5", "--samples", SAMPLES, "--resolution", points[0],
                "--stride", 1, "--no-progress")
        return {"path": str(folder / "darcy.h5"), "normalisation": "none"}
    garonne("data", "shallow-water", "--output", folder / "sphere", "--latitudes", points[0], "--longitudes", points[1],
            "--trajectories", SAMPLES, "--test-trajectories", 1, "--trajectory-length", 2, "--no-progress")
    # In units of their own the three channels differ by orders of magnitude, and one would be all of the loss.
    return {"path": str(folder / "sphere" / "train"), "normalisation": "channel"}


def model_section(keys):
    section = {name: value for name, value in keys.items() if name != "points"}
    return section | (SFNO_KEYS if keys["kind"] == "sfno" else {})


def run_file(keys, folder, data, batch=SAMPLES, **train):
    path = folder / f"{keys['kind']}.toml"
    path.write_text(toml({
        "model": model_section(keys), "data": data,
        "train": {"steps": 1, "global_batch": batch, "micro_batch": batch, **train},
        "optimizer": {"learning_rate": 0.0, "minimum_learning_rate": 0.0, "warmup_steps": 0},
        "evaluation": {"batches": 0}, "checkpoint": {"every": 0}, "run": {"directory": str(folder / "run")}}))
    return path


def batch_of(keys, path, data):
    """(inputs, targets, shape) of the only step; fields come in any order, and the loss is a mean over them."""
    import torch
    if keys["kind"] == "gpt":
        batch = json.loads(garonne("data", "batch", path, "--step", 1, "--json"))
        return torch.tensor(batch["tokens"]), torch.tensor(batch["targets"]), {}
    import h5py
    import numpy
    if keys["kind"] == "fno":
        with h5py.File(data["path"]) as file:
            inputs, targets = (torch.from_numpy(numpy.asarray(file[name], dtype=numpy.float32)) for name in ("nu", "tensor"))
        inputs, targets = (x.reshape(SAMPLES, 1, *keys["points"]) for x in (inputs, targets))
    else:
        stats = pathlib.Path(data["path"]).parent / "stats"
        mean, deviation = (torch.from_numpy(numpy.load(stats / f"global_{name}.npy")) for name in ("means", "stds"))
        frames = []
        for file_path in sorted(pathlib.Path(data["path"]).glob("*.h5")):
            with h5py.File(file_path) as file:
                frames.append(torch.from_numpy(numpy.asarray(file["fields"], dtype=numpy.float32)))
        frames = ((torch.cat(frames) - mean) / deviation).reshape(SAMPLES, 2, mean.shape[1], *keys["points"])
        inputs, targets = frames[:, 0], frames[:, 1]
    return inputs, targets, {"inputs": inputs.shape[1], "targets": targets.shape[1], "points": keys["points"],
                             "grid": "legendre-gauss"}


def compare(keys, folder, device="cpu"):
    """{parameters, loss} of both; ends the process where they differ. Ours is computed on the device."""
    import references
    folder.mkdir()
    data = make_data(keys, folder)
    path = run_file(keys, folder, data)
    where = [] if device == "cpu" else ["--run.device", device]
    count = json.loads(garonne("plan", path, "--memory.budget", 1 << 42, "--json"))["parameters"]
    # A learning rate of 0 leaves the weights as they were made, and the checkpoint has them.
    garonne("train", path, *where)
    ours = json.loads((folder / "run" / "metrics.jsonl").read_text().splitlines()[0])["loss"]
    inputs, targets, shape = batch_of(keys, path, data)
    model = references.make_model(keys, shape)
    theirs_count = references.parameter_count(model)
    if count != theirs_count:
        sys.exit(f"{keys['kind']}: garonne has {count} parameters, the other model {theirs_count}: not the same model")
    if keys["kind"] == "gpt":
        from safetensors.torch import load_file
        garonne("checkpoint", "export", folder / "run", "--to", "huggingface", folder / "exported")
        tensors = load_file(folder / "exported" / "model.safetensors")
    else:
        tensors = references.checkpoint_tensors(folder / "run" / "checkpoints" / "step-1")
    references.set_weights(model, keys["kind"], keys, tensors)
    # On the processor also where ours is a GPU's: there the library's inverse transforms of spectra that belong to no real
    # field, as truncated ones do, are others, and so is its loss.
    loss = references.loss_of(model, keys["kind"], inputs, targets).item()
    if not abs(loss / ours - 1) <= TOLERANCE:
        sys.exit(f"{keys['kind']}: the first loss is {ours!r} in garonne and {loss!r} in the other model with its weights: "
                 "not the same model")
    found = {"parameters": count, "loss": ours, "loss_of_the_other": loss}
    if device != "cpu":
        # Made anew: a model that has run keeps coordinates where it ran.
        model = references.make_model(keys, shape)
        references.set_weights(model, keys["kind"], keys, tensors)
        model = model.to(device)
        there = references.loss_of(model, keys["kind"], inputs.to(device), targets.to(device)).item()
        found["loss_of_the_other_on_the_device"] = there
    return found


def main():
    with tempfile.TemporaryDirectory(prefix="garonne-bench-") as folder:
        os.environ["GARONNE_CACHE"] = str(pathlib.Path(folder) / "cache")
        for keys in TINY:
            found = compare(keys, pathlib.Path(folder) / keys["kind"])
            print(f"{keys['kind']:<6}{found['parameters']} parameters, first loss {found['loss']!r} and "
                  f"{found['loss_of_the_other']!r}")


if __name__ == "__main__":
    main()
