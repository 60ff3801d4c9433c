# SPDX-License-Identifier: MIT
"""The Python environment that the comparisons with other programs need."""
import os
import pathlib
import sys

ENVIRONMENT = pathlib.Path(os.environ["GARONNE_SOURCE"]) / ".deps" / "bench-python"


def enter_environment():
    """Starts this script again with the Python that has the other programs."""
    if pathlib.Path(sys.prefix).resolve() == ENVIRONMENT.resolve():
        return
    # The list of wheels is written when all of them are there.
    if not (ENVIRONMENT / "garonne-wheels.txt").exists():
        sys.exit(".deps/bench-python is not there; `scripts/bench --environment-only` makes it")
    python = str(ENVIRONMENT / "bin" / "python")
    # Python finds its environment by the name that it is called by.
    os.execv(python, [python, *sys.argv])
