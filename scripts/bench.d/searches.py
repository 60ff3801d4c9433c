# SPDX-License-Identifier: MIT
"""How long `garonne plan` looks for the grid of a job: 64 and 4,096 devices, models and machines that are shipped.

Started by `scripts/bench searches`. Seconds are of the clock, from the start of the program to its answer, in the middle of the
turns; "proven": that no other grid is faster, for all ten that are listed.
"""
import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time

from programs import Runner, describe_machine, positive, spread, write_figures

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Model, cluster, devices, samples a step.
CASES = [("gpt2_124m", "dgx_h100", 64, 512), ("gpt2_1558m", "dgx_h100", 64, 512), ("llama_1b", "dgx_h100", 64, 512),
         ("gpt2_1558m", "frontier", 4096, 4096), ("llama_1b", "frontier", 4096, 4096)]
# By devices: what a person at a login node waits for.
GOALS = {64: 5, 4096: 60}


def parse_arguments():
    parser = argparse.ArgumentParser(prog="scripts/bench searches", description="seconds that searches for grids take")
    parser.add_argument("--repeats", type=positive, default=3, help="turns of each search")
    parser.add_argument("--json", type=pathlib.Path, help="where to write every figure")
    return parser.parse_args()


def search(binary, case, environment):
    """(what was found, seconds of the clock, seconds of processors)."""
    model, cluster, devices, batch = case
    command = [binary, "plan", ROOT / f"config/{model}.toml", "--cluster", ROOT / f"config/clusters/{cluster}.toml", "--ranks", devices,
               "--train.global_batch", batch, "--model.vocabulary", 50304, "--json"]
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    run = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True)
    seconds, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    if run.returncode != 0:
        sys.exit(f"\n{' '.join(map(str, command))}\nended with code {run.returncode}:\n{run.stdout}{run.stderr}")
    return json.loads(run.stdout), seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    options = parse_arguments()
    machine = describe_machine(1)
    runner = Runner(len(CASES) * options.repeats, dict(os.environ))
    turns = {case: [] for case in CASES}
    for _ in range(options.repeats):
        for case in CASES:
            runner.announce(f"{case[0]} on {case[2]} devices of {case[1]}")
            turns[case].append(search(os.environ["GARONNE_BINARY"], case, runner.environment))
            runner.result(f"{turns[case][-1][1]:.1f} s")
    print("\nmodel        machine     devices    grids  planned  proven   seconds  spread  goal   processor s")
    every = []
    for case, runs in turns.items():
        model, cluster, devices, _ = case
        found = runs[0][0]
        seconds = statistics.median(run[1] for run in runs)
        row = {"model": model, "cluster": cluster, "devices": devices, "candidates": found["candidates"], "planned": found["planned"],
               "proven": found["proven"], "seconds": seconds, "spread": spread([run[1] for run in runs]), "goal_seconds": GOALS[devices],
               "processor_seconds": statistics.median(run[2] for run in runs)}
        every.append(row)
        print(f"{model:<12} {cluster:<10} {devices:>8} {row['candidates']:>8} {row['planned']:>8}  {'yes' if row['proven'] else 'no':<6}"
              f" {seconds:>9.1f} {100 * row['spread']:>5.0f} % {GOALS[devices]:>5} {row['processor_seconds']:>13.1f}")
    write_figures(options.json, machine, searches=every)


if __name__ == "__main__":
    main()
