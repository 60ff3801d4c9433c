# SPDX-License-Identifier: MIT
"""A run that is small enough for a test: its text, its run file, and how the program is called on it.

Python's standard library alone.
"""
import hashlib
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys

MODEL = {"kind": "gpt", "layers": 2, "hidden": 64, "heads": 4, "sequence": 32, "dropout": 0.0}
LLAMA = {"kind": "llama", "layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "inner": 96, "sequence": 32}
TRAIN = {"steps": 12, "global_batch": 8, "micro_batch": 4, "seed": 1}
OPTIMIZER = {"learning_rate": 3e-3, "minimum_learning_rate": 3e-4, "warmup_steps": 3, "beta1": 0.9, "beta2": 0.95,
             "epsilon": 1e-8, "weight_decay": 0.1, "clip_norm": 1.0}
STEPS_COMPARED = 10


def tiny_text():
    """The same 16 Ki letters on every machine: words of a small vocabulary, picked by a linear congruence."""
    state = 1
    words = []
    for _ in range(4096):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        words.append(("the", "a", "river", "stone", "runs", "under", "light", "and", "slow", "bridge")[(state >> 33) % 10])
        if len(words) % 9 == 0:
            words[-1] += ".\n"
    return " ".join(words)[:16384]


def toml(sections):
    lines = []
    for section, keys in sections.items():
        lines.append(f"[{section}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    return "\n".join(lines) + "\n"


class TinyRun:
    """A folder with the text, its tokens and one run of the given precision."""

    def __init__(self, folder, precision, threads, keep_checkpoints=False, model=MODEL):
        self.folder = pathlib.Path(folder).resolve()
        shutil.rmtree(self.folder, ignore_errors=True)  # of an earlier test, whose run would be continued
        self.folder.mkdir(parents=True)
        self.run_file = self.folder / "run.toml"
        self.directory = self.folder / "run"
        checkpoint = {"every": 1, "keep": 20} if keep_checkpoints else {"every": 0}
        self.run_file.write_text(toml({
            "model": model, "data": {"path": str(self.folder / "tokens.h5")}, "train": TRAIN | {"precision": precision},
            "optimizer": OPTIMIZER, "evaluation": {"batches": 0}, "checkpoint": checkpoint,
            "run": {"directory": str(self.directory), "threads": threads}}))
        (self.folder / "text.txt").write_text(tiny_text())
        self.call("data", "text", self.folder / "text.txt", "--output", self.folder / "tokens.h5")

    def call(self, *arguments):
        """Calls garonne and returns its standard output; ends the test where it fails."""
        command = [os.environ["GARONNE_BINARY"], *map(str, arguments)]
        environment = os.environ | {"GARONNE_CACHE": str(self.folder / "cache")}
        run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
        if run.returncode != 0:
            sys.exit(f"{' '.join(command)}\nended with code {run.returncode}:\n{run.stdout}{run.stderr}")
        return run.stdout

    def train(self):
        """Trains and returns the rows of metrics.jsonl."""
        self.call("train", self.run_file)
        return [json.loads(line) for line in (self.directory / "metrics.jsonl").read_text().splitlines()]

    def batch(self, step):
        """{"samples", "tokens", "targets"} of a step's global batch."""
        return json.loads(self.call("data", "batch", self.run_file, "--step", step, "--json"))

    def export(self, step):
        """Writes the model as Hugging Face has it and returns the folder."""
        folder = self.folder / f"huggingface-{step}"
        self.call("checkpoint", "export", self.directory, "--step", step, "--to", "huggingface", folder)
        return folder


def learning_rate_at(step):
    """Linear to the learning rate over the warm-up, then a cosine down to the least at the last step."""
    most, least, warm_up = OPTIMIZER["learning_rate"], OPTIMIZER["minimum_learning_rate"], OPTIMIZER["warmup_steps"]
    if step <= warm_up:
        return most * step / warm_up
    progress = min(1.0, (step - warm_up) / max(1, TRAIN["steps"] - warm_up))
    return least + 0.5 * (1 + math.cos(math.pi * progress)) * (most - least)


def hash_of(value):
    """Of anything that JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


class Checks:
    """Compares numbers, prints every comparison, and remembers whether one failed."""

    def __init__(self):
        self.failed = 0

    def close(self, what, value, expected, tolerance):
        """Relative; absolute below 1."""
        error = abs(value - expected) / max(1.0, abs(expected))
        good = error <= tolerance
        self.failed += not good
        print(f"{'ok' if good else 'FAILED':6} {what}: {value!r}, expected {expected!r} "
              f"(error {error:.1e}, allowed {tolerance:.0e})")

    def true(self, what, good, otherwise=""):
        self.failed += not good
        print(f"{'ok' if good else 'FAILED':6} {what}{'' if good else ': ' + otherwise}")

    def finish(self):
        sys.exit(f"{self.failed} checks failed" if self.failed else 0)
