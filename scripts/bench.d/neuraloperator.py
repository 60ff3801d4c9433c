# SPDX-License-Identifier: MIT
"""neuraloperator's models, without what its packages load beside them: data sets, trackers, plots."""
import importlib.util
import sys
import types

PACKAGES = ("neuralop", "neuralop.models", "neuralop.layers", "neuralop.losses")


def load():
    """Makes `neuralop.models.fno` and its like importable alone."""
    root = importlib.util.find_spec("neuralop").submodule_search_locations[0]
    for package in PACKAGES:
        module = types.ModuleType(package)
        module.__path__ = ["/".join([root, *package.split(".")[1:]])]
        sys.modules[package] = module
