# SPDX-License-Identifier: MIT
"""Programs: the instructions of a rank for one step."""
import json
import pathlib

import numpy as np


class Program:
    """The file `rank_<n>.json` of a folder that `garonne train` or `garonne plan --program` wrote."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.json = json.loads(self.path.read_text(encoding="utf-8"))
        if self.json.get("format") != "garonne.program" or self.json.get("version") != 2:
            raise ValueError(f"{path}: is no garonne.program of version 2")
        self.name = self.json["name"]
        self.budget_bytes = self.json["budget_bytes"]
        self.peak_bytes = self.json["peak_bytes"]
        self.buffers = self.json["buffers"]
        self.instructions = self.json["instructions"]

    def __repr__(self):
        return (f"<Program {self.name}: {len(self.instructions)} instructions, peak {self.peak_bytes} of "
                f"{self.budget_bytes} bytes>")

    def __len__(self):
        return len(self.instructions)

    def column(self, key, missing=np.nan):
        """A number of every instruction: seconds, measured_seconds, measured_live_bytes, …"""
        return np.array([instruction.get(key, missing) for instruction in self.instructions])

    def live_bytes(self, tier="device"):
        """[instructions]: bytes of all buffers of a tier while the instruction runs, without its transients."""
        on_tier = [buffer["bytes"] if buffer["tier"] == tier else 0 for buffer in self.buffers]
        live = {number for number, buffer in enumerate(self.buffers) if buffer["live_at_start"]}
        total = sum(on_tier[number] for number in live)
        bytes_of = []
        for instruction in self.instructions:
            for number in instruction["writes"]:
                if number not in live:
                    live.add(number)
                    total += on_tier[number]
            bytes_of.append(total)
            for number in instruction["frees"]:
                live.remove(number)
                total -= on_tier[number]
        return np.array(bytes_of)
