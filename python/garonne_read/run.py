# SPDX-License-Identifier: MIT
"""Run directories."""
import json
import pathlib

import numpy as np

from .checkpoint import Checkpoint
from .hdf5 import read_skill
from .program import Program


class Run:
    """What `garonne train` left in a directory; nothing is read before it is asked for."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        if not (self.path / "config.toml").exists():
            raise FileNotFoundError(f"{path}: is no run directory, it has no config.toml")

    def __repr__(self):
        return f"<run {self.path}: steps {self.steps}>"

    @property
    def config(self):
        """{section: {key: value}}; from Python 3.11 on."""
        import tomllib
        return tomllib.loads((self.path / "config.toml").read_text(encoding="utf-8"))

    @property
    def metrics(self):
        """{key: array by step}; NaN where a step has no such value. A last line that was cut short is left out."""
        rows = []
        for line in (self.path / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:
                continue
        keys = dict.fromkeys(key for row in rows for key in row)
        return {key: np.array([np.nan if row.get(key) is None else row[key] for row in rows]) for key in keys}

    @property
    def steps(self):
        """Those of its checkpoints, ascending."""
        found = [folder.name[5:] for folder in (self.path / "checkpoints").glob("step-*") if (folder / "manifest.json").exists()]
        return sorted(int(number) for number in found if number.isdigit())

    def checkpoint(self, step=None):
        """Of a step, or the newest."""
        steps = self.steps
        if not steps:
            raise FileNotFoundError(f"{self.path}: has no checkpoint")
        return Checkpoint(self.path / "checkpoints" / f"step-{steps[-1] if step is None else step}")

    def program(self, rank=0):
        return Program(self.path / "program" / f"rank_{rank}.json")

    def skill(self):
        return read_skill(self.path / "skill.h5")
