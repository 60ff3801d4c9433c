# SPDX-License-Identifier: MIT
"""Times training steps of an FNO in Garonne and in the neuraloperator library, in turn, and prints the ratios.

Started by `scripts/bench operators`, which makes the environment. Both have the same layers, sizes, loss and batch, and
AdamW; the library's kinds of layers are described in docs/operators.md.
"""
import argparse
import dataclasses
import importlib.metadata
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from programs import HERE, Runner, describe_machine, list_of, positive, spread


@dataclasses.dataclass(frozen=True)
class Case:
    """An FNO of four layers on a square of `points` points a side."""
    points: int
    hidden: int
    modes: int
    batch: int
    steps: int  # that a process times

    @property
    def name(self):
        return str(self.points)

    @property
    def title(self):
        return f"{self.points} x {self.points}, hidden {self.hidden}, modes {self.modes}, batch {self.batch}"


# The first is neuraloperator's own small example, the last what it calls medium, of half the modes.
CASES = (Case(16, 24, 8, 64, 100), Case(32, 32, 16, 16, 100), Case(128, 64, 32, 4, 10))
LAYERS = 4

# What is compared: key of the figures, title, how it is printed, which ratio is better for Garonne.
ROWS = (
    ("samples_per_second", "samples/s", lambda v: f"{v:.1f}", "higher"),
    ("peak_bytes", "peak live tensors, MiB", lambda v: f"{v / 2**20:.1f}", "lower"),
    ("resident_bytes", "resident, MiB", lambda v: f"{v / 2**20:.0f}", "lower"),
)


def parse_arguments():
    parser = argparse.ArgumentParser(prog="scripts/bench operators")
    names = [case.name for case in CASES]
    parser.add_argument("--points", type=list_of(names), default=names,
                        help="points along a side, of %s; comma-separated" % ", ".join(names))
    parser.add_argument("--threads", type=positive, default=len(os.sched_getaffinity(0)), help="for both programs")
    parser.add_argument("--repeats", type=positive, default=3, help="processes of each program, taken in turn")
    parser.add_argument("--steps", type=positive, help="steps that a process times, after two that it does not")
    parser.add_argument("--json", type=pathlib.Path, help="where to write every figure")
    return parser.parse_args()


def run_file(case, threads, folder):
    """What the library does by default, written out. Nothing is read of the data but its shape."""
    data = folder / f"{case.points}.h5"
    subprocess.run([os.environ["GARONNE_BINARY"], "data", "darcy", "--output", data, "--samples", "1", "--resolution",
                    str(case.points), "--stride", "1", "--no-progress"], check=True, stdout=subprocess.DEVNULL)
    path = folder / f"{case.points}.toml"
    path.write_text(f"""
[model]
kind = "fno"
layers = {LAYERS}
hidden = {case.hidden}
modes = [{case.modes}, {case.modes}]
[data]
path = "{data}"
normalisation = "none"
[train]
global_batch = {case.batch}
micro_batch = {case.batch}
loss = "relative-l2-channels"
[optimizer]
learning_rate = 1e-3
minimum_learning_rate = 1e-3
beta2 = 0.999
weight_decay = 1e-4
clip_norm = 0.0
[run]
threads = {threads}
""")
    return path


def library(case, options, measure):
    sizes = {"points": case.points, "layers": LAYERS, "hidden": case.hidden, "modes": case.modes, "batch": case.batch,
             "steps": options.steps or case.steps, "threads": options.threads}
    return [sys.executable, HERE / "eager_operator.py", "--measure", measure,
            *[word for name, value in sizes.items() for word in (f"--{name}", str(value))]]


def compare(case, options, runner, folder):
    figures = {"garonne": {}, "neuraloperator": {}}

    def add(program, more):
        for key, value in more.items():
            figures[program].setdefault(key, []).append(value)

    ours = [os.environ["GARONNE_BINARY"], "bench", run_file(case, options.threads, folder), "--json", "--steps"]
    runner.use_cache(folder / f"cache-{case.points}")
    runner.announce(f"{case.title}: garonne measures its nodes, once for a machine")
    runner.json_of([*ours, "1"])
    runner.result("done")
    runner.announce(f"{case.title}: bytes of neuraloperator")
    add("neuraloperator", runner.json_of(library(case, options, "memory")))
    runner.result(f"{figures['neuraloperator']['peak_bytes'][0] / 2**20:.1f} MiB")
    for turn in range(1, options.repeats + 1):
        for program, command in (("garonne", [*ours, str(options.steps or case.steps)]),
                                 ("neuraloperator", library(case, options, "time"))):
            runner.announce(f"{case.title}: {program}, turn {turn} of {options.repeats}")
            answer = runner.json_of(command)
            add(program, answer)
            runner.result(f"{answer['samples_per_second']:.1f} samples/s")
    return figures


def print_table(case, figures, threads):
    print(f"\n{case.title}, {figures['neuraloperator']['parameters'][0]} parameters, {threads} "
          f"thread{'' if threads == 1 else 's'}")
    print(f"{'':<28}{'garonne':>12}{'neuraloperator':>16}{'ratio':>8}")
    ratios = {}
    for key, title, text, better in ROWS:
        ours, theirs = (statistics.median(figures[program][key]) for program in ("garonne", "neuraloperator"))
        ratios[key] = ours / theirs
        print(f"{title:<28}{text(ours):>12}{text(theirs):>16}{ratios[key]:>8.2f}   {better} is better")
    spreads = ", ".join(f"{program} {100 * spread(of['samples_per_second']):.0f} %" for program, of in figures.items())
    print(f"spread of samples/s over the turns: {spreads}", flush=True)
    return ratios


def main():
    options = parse_arguments()
    machine = describe_machine(options.threads)
    machine["neuraloperator"] = importlib.metadata.version("neuraloperator")
    cases = [case for case in CASES if case.name in options.points]
    results = []
    with tempfile.TemporaryDirectory(prefix="garonne-bench-") as name:
        folder = pathlib.Path(name)
        runner = Runner(len(cases) * (2 + 2 * options.repeats), os.environ | {"OMP_NUM_THREADS": str(options.threads)})
        for case in cases:
            figures = compare(case, options, runner, folder)
            ratios = print_table(case, figures, options.threads)
            results.append({"case": dataclasses.asdict(case), "ratios": ratios, "figures": figures})
    if options.json:
        result = {"format": "garonne.benchmark", "version": 1, "machine": machine, "cases": results}
        options.json.write_text(json.dumps(result, indent=1) + "\n")
        print(f"\nevery figure: {options.json}")


main()
