# SPDX-License-Identifier: MIT
"""Times grids of two ranks beside what PyTorch offers for the same, in turn, and prints the ratios of the medians.

Started by `scripts/bench --grids`, which says what the options are. Two processes of one thread each, every one bound
to a core, on this machine; PyTorch's talk over gloo. What a grid costs is held against two processes that train at the
same time without a word to each other, each on half of the samples: that is all that two cores could do.
"""
import argparse
import os
import pathlib
import socket
import statistics
import sys
import tempfile

try:
    import tomllib
except ImportError:
    import tomli as tomllib

from programs import HERE, describe_machine, launcher, list_of, measure, positive, spread, write_figures

RANKS = 2
# Samples of a step over both ranks, and of a micro-batch.
BATCHES = {"0.8m": (16, 2), "10m": (8, 1)}
STEPS = {"0.8m": 20, "10m": 6}
# Seconds for one process that hangs, as pipelines over gloo have been seen to do.
PATIENCE = 900

# Name, what PyTorch calls it, our keys.
GRIDS = {
    "data": ("ddp", {"data": 2}),
    "zero-3": ("fsdp2", {"data": 2, "zero": 3}),
    "gpipe": ("gpipe", {"pipeline": 2, "schedule": "gpipe"}),
    "1f1b": ("1f1b", {"pipeline": 2, "schedule": "1f1b"}),
    "interleaved": ("interleaved", {"pipeline": 2, "schedule": "interleaved", "chunks": 2}),
}


def parse_arguments():
    parser = argparse.ArgumentParser(prog="scripts/bench --grids", add_help=False)
    parser.add_argument("--models", type=list_of(tuple(BATCHES)), default=list(BATCHES))
    parser.add_argument("--only", type=list_of(tuple(GRIDS)), default=list(GRIDS))
    parser.add_argument("--repeats", type=positive, default=5)
    parser.add_argument("--steps", type=positive)
    parser.add_argument("--json", dest="json_path")
    return parser.parse_args()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ideal_share(grid, micro_batches):
    """Of the time without a bubble, what the ideal schedule of a pipeline of two takes; 1 where there is none."""
    if grid in ("gpipe", "1f1b"):
        return (micro_batches + RANKS - 1) / micro_batches
    if grid == "interleaved":
        return (micro_batches + (RANKS - 1) / 2) / micro_batches
    return 1.0


class Case:
    """One model, and tokens a second of every program on every grid."""

    def __init__(self, model, options, folder):
        self.model, self.options, self.folder = model, options, folder
        self.run_file = HERE / f"{model}.toml"
        self.keys = tomllib.loads(self.run_file.read_text())["model"]
        self.batch, self.micro_batch = BATCHES[model]
        self.steps = options.steps or STEPS[model]
        self.grids = ["alone", *options.only]
        self.seconds = {(program, grid): [] for program in ("garonne", "pytorch") for grid in self.grids}
        self.hung = set()

    def processes(self):
        return len(self.grids) * (1 + 2 * self.options.repeats)

    def garonne(self, keys, steps, batch):
        command = [os.environ["GARONNE_BINARY"], "bench", self.run_file, "--train.precision", "float32", "--run.threads",
                   "1", "--train.global_batch", batch, "--train.micro_batch", self.micro_batch, "--steps", steps, "--json"]
        for key, value in keys.items():
            command += [f"--grid.{key}", value]
        return [str(word) for word in command]

    def run_garonne(self, runner, grid, steps):
        if grid == "alone":
            command = self.garonne({}, steps, self.batch // RANKS)
            return runner.json_of_several([(command, {}, core) for core in self.cores()], PATIENCE)
        return runner.json_of([*launcher(RANKS), *self.garonne(GRIDS[grid][1], steps, self.batch)])

    def run_pytorch(self, runner, grid):
        mode = "alone" if grid == "alone" else GRIDS[grid][0]
        sizes = {name: self.keys[name] for name in ("layers", "hidden", "heads", "sequence", "vocabulary")}
        sizes |= {"global-batch": self.batch, "micro-batch": self.micro_batch, "steps": self.steps, "threads": 1}
        command = [sys.executable, str(HERE / "grid_pytorch.py"), "--mode", mode]
        command += [word for name, value in sizes.items() for word in (f"--{name}", str(value))]
        port = str(free_port())
        return runner.json_of_several(
            [(command, {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port},
              core) for rank, core in enumerate(self.cores())], PATIENCE)

    def cores(self):
        allowed = sorted(os.sched_getaffinity(0))
        return [allowed[rank % len(allowed)] for rank in range(RANKS)]

    def prepare(self, runner):
        runner.use_cache(self.folder / f"cache-{self.model}")
        for grid in self.grids:
            runner.announce(f"{self.model} {grid}: garonne measures its nodes")
            # Alone first, on one process: two would write one cache.
            figures = runner.json_of(self.garonne({}, 1, self.batch // RANKS)) if grid == "alone" else \
                self.run_garonne(runner, grid, 1)
            runner.result(f"{1e3 * figures['step_seconds']:.0f} ms")

    def repeat(self, runner, number):
        for grid in self.grids:
            # The other way round every second turn.
            programs = ("garonne", "pytorch") if number % 2 else ("pytorch", "garonne")
            for program in programs:
                runner.announce(f"{self.model} {grid}: {program}, turn {number} of {self.options.repeats}")
                if (program, grid) in self.hung:
                    runner.result("left out, it hung before")
                    continue
                figures = self.run_garonne(runner, grid, self.steps) if program == "garonne" else \
                    self.run_pytorch(runner, grid)
                if figures is None:
                    self.hung.add((program, grid))
                    runner.result(f"ended after {PATIENCE} s")
                    continue
                self.seconds[program, grid].append(figures["step_seconds"])
                runner.result(f"{1e3 * figures['step_seconds']:.0f} ms")

    def median(self, program, grid):
        values = self.seconds[program, grid]
        return statistics.median(values) if values else float("nan")

    def rows(self):
        micro_batches = self.batch // self.micro_batch
        for grid in self.grids:
            ours, theirs = self.median("garonne", grid), self.median("pytorch", grid)
            tokens = self.batch * self.keys["sequence"]
            yield {"grid": grid, "tokens_per_second": tokens / ours, "pytorch_tokens_per_second": tokens / theirs,
                   "ratio": theirs / ours, "cost": ours / self.median("garonne", "alone"),
                   "pytorch_cost": theirs / self.median("pytorch", "alone"),
                   "ideal_cost": ideal_share(grid, micro_batches)}

    def print_table(self):
        keys = self.keys
        print(f"\n{self.model} float32: {keys['layers']} layers, hidden {keys['hidden']}, sequence {keys['sequence']}, "
              f"{self.batch} samples a step in micro-batches of {self.micro_batch}, {RANKS} processes of one thread")
        print(f"{'':<14}{'tokens/s':>10}{'PyTorch':>10}{'ratio':>8}   {'cost over two alone':<22}{'PyTorch':>8}{'ideal':>8}")
        for row in self.rows():
            beside = "" if row["grid"] == "alone" else f"   beside {GRIDS[row['grid']][0]}"
            print(f"{row['grid']:<14}{row['tokens_per_second']:>10.0f}{row['pytorch_tokens_per_second']:>10.0f}"
                  f"{row['ratio']:>8.2f}   {row['cost']:<22.3f}{row['pytorch_cost']:>8.3f}{row['ideal_cost']:>8.3f}{beside}")
        spreads = max(spread(values) for values in self.seconds.values() if values)
        print(f"ratio: garonne's tokens/s over PyTorch's, higher is better; spread over the turns at most "
              f"{100 * spreads:.0f} %")

    def to_json(self):
        return {"model": self.model, "keys": self.keys, "global_batch": self.batch, "micro_batch": self.micro_batch,
                "steps": self.steps, "rows": list(self.rows()),
                "step_seconds": {f"{program} {grid}": values for (program, grid), values in self.seconds.items()}}


def main():
    options = parse_arguments()
    machine = describe_machine(1)
    if os.cpu_count() < RANKS:
        sys.exit(f"two processes of one thread want {RANKS} cores")
    with tempfile.TemporaryDirectory(prefix="garonne-bench-") as name:
        cases = [Case(model, options, pathlib.Path(name)) for model in options.models]
        measure(cases, options.repeats, os.environ | {"OMP_NUM_THREADS": "1"})
    write_figures(options.json_path, machine, grids=[case.to_json() for case in cases])


main()
