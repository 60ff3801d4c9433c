# SPDX-License-Identifier: MIT
"""Reads what Garonne writes: runs, checkpoints, Programs, skill and forecasts. Needs numpy, and h5py for HDF5 files.

    import garonne_read
    run = garonne_read.Run("runs/darcy_fno")
    run.metrics["loss"]               # array by step
    run.checkpoint()["lift.weight"]   # the whole tensor, merged from the shards of all ranks
"""
from .checkpoint import Checkpoint, read_safetensors
from .hdf5 import read_hdf5, read_skill
from .package import load_package, read_package, save_package
from .program import Program
from .run import Run
from .trace import split_trace

__all__ = ["Checkpoint", "Program", "Run", "load_package", "read_hdf5", "read_package", "read_safetensors", "read_skill",
           "save_package", "split_trace"]
