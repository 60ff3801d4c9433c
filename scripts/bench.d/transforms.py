# SPDX-License-Identifier: MIT
"""Times spherical harmonic transforms of Garonne and of torch-harmonics, in turn, and prints the ratios.

Started by `scripts/bench transforms`, which makes the environment. Each program has the fields in its own order:
torch-harmonics [fields, latitudes, longitudes], Garonne [latitudes, longitudes, fields], as its networks have them.
"""
import argparse
import importlib
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
import types

SIZES = ((64, 128, 64), (240, 480, 240))
CHANNELS = (1, 4, 32, 128)


def parse_arguments():
    parser = argparse.ArgumentParser(prog="scripts/bench transforms")
    parser.add_argument("--quick", action="store_true", help="240 × 480 and 32 fields in float32 only")
    parser.add_argument("--threads", type=int, default=1, help="for both programs")
    parser.add_argument("--repeats", type=int, default=3, help="turns of each program")
    parser.add_argument("--seconds", type=float, default=0.5, help="time to repeat each direction for, in a turn")
    parser.add_argument("--json", type=pathlib.Path, help="where to write every figure")
    return parser.parse_args()


def transforms_module():
    """torch_harmonics.sht alone: the package as a whole loads an extension that is built for one torch only."""
    folder = pathlib.Path(importlib.util.find_spec("torch_harmonics").submodule_search_locations[0])
    package = types.ModuleType("torch_harmonics")
    package.__path__ = [str(folder)]
    sys.modules["torch_harmonics"] = package
    return importlib.import_module("torch_harmonics.sht")


def shortest(work, allowed):
    best, total, runs = float("inf"), 0.0, 0
    while runs < 5 or total < allowed:
        start = time.perf_counter()
        work()
        spent = time.perf_counter() - start
        best, total, runs = min(best, spent), total + spent, runs + 1
    return best


def theirs(module, torch, case, seconds):
    latitudes, longitudes, degrees, channels, precision = case
    dtype = getattr(torch, precision)
    keys = {"lmax": degrees, "mmax": degrees, "grid": "legendre-gauss"}
    forward = module.RealSHT(latitudes, longitudes, **keys).to(dtype)
    inverse = module.InverseRealSHT(latitudes, longitudes, **keys).to(dtype)
    field = torch.randn(channels, latitudes, longitudes, dtype=dtype)
    with torch.no_grad():
        coefficients = forward(field)
        return {"analysis_seconds": shortest(lambda: forward(field), seconds),
                "synthesis_seconds": shortest(lambda: inverse(coefficients), seconds)}


def ours(case, threads, seconds):
    latitudes, longitudes, degrees, channels, precision = case
    command = [os.environ["GARONNE_BINARY"], "bench", "transforms", "--json", "--latitudes", latitudes, "--longitudes",
               longitudes, "--degrees", degrees, "--channels", channels, "--precision", precision, "--threads", threads,
               "--seconds", seconds]
    done = subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    arguments = parse_arguments()
    import torch
    torch.set_num_threads(arguments.threads)
    module = transforms_module()
    version = importlib.metadata.version("torch_harmonics")
    cases = [(*size, channels, precision) for size in SIZES for channels in CHANNELS
             for precision in ("float32", "float64")]
    if arguments.quick:
        cases = [(240, 480, 240, 32, "float32")]
    print(f"torch-harmonics {version}, torch {torch.__version__}, {arguments.threads} threads; shortest of each turn, "
          f"median of {arguments.repeats} turns")
    print(f"{'grid':>10}{'fields':>8} {'':8}{'direction':>11}{'theirs, ms':>12}{'ours, ms':>10}{'ratio':>8}")
    rows = []
    for case in cases:
        turns = {"theirs": [], "ours": []}
        for _ in range(arguments.repeats):
            turns["theirs"].append(theirs(module, torch, case, arguments.seconds))
            turns["ours"].append(ours(case, arguments.threads, arguments.seconds))
        for direction in ("analysis", "synthesis"):
            name = direction + "_seconds"
            figures = {who: statistics.median(turn[name] for turn in all_turns) for who, all_turns in turns.items()}
            ratio = figures["theirs"] / figures["ours"]
            rows.append({"latitudes": case[0], "longitudes": case[1], "degrees": case[2], "fields": case[3],
                         "precision": case[4], "direction": direction, **figures, "ratio": ratio})
            print(f"{case[0]:>5} × {case[1]:<3}{case[3]:>7} {case[4]:8}{direction:>11}{1e3 * figures['theirs']:>12.2f}"
                  f"{1e3 * figures['ours']:>10.2f}{ratio:>8.1f}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


main()
