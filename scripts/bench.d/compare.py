# SPDX-License-Identifier: MIT
"""Times Garonne and eager PyTorch on the same models, in turn, and prints the ratios of the medians.

Started by scripts/bench, which says what the options are.
"""
import argparse
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

try:
    import tomllib
except ImportError:
    import tomli as tomllib

from programs import HERE, describe_machine, list_of, measure, positive, spread, write_figures

MODELS = ("0.8m", "10m", "124m")
PRECISIONS = ("float32", "bfloat16")
PEERS = ("pytorch", "pytorch-onednn")
STEPS = {"0.8m": 20, "10m": 8, "124m": 4}

# What is compared: key of the figures, title, how it is printed, which ratio is better for Garonne.
ROWS = (
    ("tokens_per_second", "tokens/s", lambda v: f"{v:.0f}", "higher"),
    ("peak_bytes", "peak live tensors, MiB", lambda v: f"{v / 2**20:.1f}", "lower"),
    ("resident_bytes", "resident, MiB", lambda v: f"{v / 2**20:.0f}", "lower"),
    ("seconds_to_first_step", "start of process to first step, s", lambda v: f"{v:.2f}", "lower"),
    ("seconds_to_first_result", "start of process to end of first step, s", lambda v: f"{v:.2f}", "lower"),
)


def parse_arguments():
    parser = argparse.ArgumentParser(prog="scripts/bench", add_help=False)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--models", type=list_of(MODELS))
    parser.add_argument("--precisions", type=list_of(PRECISIONS))
    parser.add_argument("--peers", type=list_of(PEERS), default=list(PEERS))
    parser.add_argument("--threads", type=positive, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=positive, default=3)
    parser.add_argument("--steps", type=positive)
    parser.add_argument("--json", dest="json_path")
    options = parser.parse_args()
    options.models = options.models or (["0.8m", "10m"] if options.quick else list(MODELS))
    options.precisions = options.precisions or (["float32"] if options.quick else list(PRECISIONS))
    return options


class Case:
    """One model in one precision, and the figures of every program on it."""

    def __init__(self, model, precision, options, folder):
        self.model, self.precision, self.options, self.folder = model, precision, options, folder
        self.run_file = HERE / f"{model}.toml"
        self.keys = tomllib.loads(self.run_file.read_text())
        self.steps = options.steps or STEPS[model]
        # In bfloat16 PyTorch's own linear layers go to oneDNN already.
        self.peers = [p for p in options.peers if p == "pytorch" or precision == "float32"]
        self.figures = {name: {} for name in ["garonne", *self.peers]}

    @property
    def title(self):
        return f"{self.model} {self.precision}"

    def processes(self):
        return 1 + len(self.peers) + self.options.repeats * (2 + len(self.peers))

    def add(self, program, figures):
        for key, value in figures.items():
            self.figures[program].setdefault(key, []).append(value)

    def garonne(self, command, *more):
        return [os.environ["GARONNE_BINARY"], command, self.run_file, "--train.precision", self.precision,
                "--run.threads", str(self.options.threads), *more]

    def pytorch(self, peer, measure):
        model, train = self.keys["model"], self.keys["train"]
        sizes = {name: model[name] for name in ("layers", "hidden", "heads", "sequence", "vocabulary")}
        sizes |= {"global-batch": train["global_batch"], "micro-batch": train["micro_batch"], "steps": self.steps,
                  "threads": self.options.threads}
        command = [sys.executable, HERE / "eager_pytorch.py", "--precision", self.precision, "--measure", measure,
                   "--linear", "onednn" if peer == "pytorch-onednn" else "default"]
        return command + [word for name, value in sizes.items() for word in (f"--{name}", str(value))]

    def prepare(self, runner):
        """What is done once: Garonne measures its nodes and caches that; PyTorch's memory is traced."""
        runner.use_cache(self.folder / f"cache-{self.model}-{self.precision}")
        runner.announce(f"{self.title}: garonne measures its nodes, once for a machine")
        start = time.monotonic()
        runner.json_of(self.garonne("bench", "--steps", "1", "--json"))
        self.figures["garonne"]["seconds_of_first_measurement"] = [time.monotonic() - start]
        runner.result(f"{time.monotonic() - start:.1f} s")
        for peer in self.peers:
            runner.announce(f"{self.title}: bytes of {peer}")
            figures = runner.json_of(self.pytorch(peer, "memory"))
            self.add(peer, {"peak_bytes": figures["peak_bytes"]})
            runner.result(f"{figures['peak_bytes'] / 2**20:.1f} MiB")

    def repeat(self, runner, number):
        turn = f"turn {number} of {self.options.repeats}"
        runner.announce(f"{self.title}: garonne, {turn}")
        figures = runner.json_of(self.garonne("bench", "--steps", str(self.steps), "--json"))
        self.add("garonne", figures)
        runner.result(f"{figures['tokens_per_second']:.0f} tokens/s")

        runner.announce(f"{self.title}: start of garonne, {turn}")
        with tempfile.TemporaryDirectory(dir=self.folder) as run_directory:
            marks = runner.seconds_until(
                self.garonne("train", "--data.path", str(self.folder / "tokens.h5"), "--run.directory", run_directory),
                ("ready after", "step "))
        self.add("garonne", {"seconds_to_first_step": marks["ready after"], "seconds_to_first_result": marks["step "]})
        runner.result(f"{marks['ready after']:.2f} s, {marks['step ']:.2f} s")

        for peer in self.peers:
            runner.announce(f"{self.title}: {peer}, {turn}")
            figures = runner.json_of(self.pytorch(peer, "time"))
            self.add(peer, figures)
            runner.result(f"{figures['tokens_per_second']:.0f} tokens/s")

    def median(self, program, key):
        values = self.figures[program].get(key)
        return statistics.median(values) if values else None

    def print_table(self):
        model, train = self.keys["model"], self.keys["train"]
        micro_batches = train["global_batch"] // train["micro_batch"]
        print(f"\n{self.title}: {model['layers']} layers, hidden {model['hidden']}, {model['heads']} heads, sequence "
              f"{model['sequence']}, vocabulary {model['vocabulary']}, {micro_batches} x {train['micro_batch']} samples "
              f"a step, {self.options.threads} threads")
        header = f"{'':<42}{'garonne':>10}"
        for peer in self.peers:
            header += f"{peer:>16}{'ratio':>8}"
        print(header)
        for key, title, text, better in ROWS:
            ours = self.median("garonne", key)
            line = f"{title:<42}{text(ours):>10}"
            for peer in self.peers:
                theirs = self.median(peer, key)
                line += f"{text(theirs):>16}{ours / theirs:>8.2f}"
            print(f"{line}   {better} is better")
            if key == "tokens_per_second" and self.options.repeats > 1:
                # What other programs of the machine disturb, they only make slower.
                best = {name: max(figures[key]) for name, figures in self.figures.items()}
                line = f"{title + ', best turn':<42}{text(best['garonne']):>10}"
                for peer in self.peers:
                    line += f"{text(best[peer]):>16}{best['garonne'] / best[peer]:>8.2f}"
                print(line)
        spreads = ", ".join(f"{name} {100 * spread(figures['tokens_per_second']):.0f} %"
                            for name, figures in self.figures.items())
        print(f"spread of tokens/s over the turns: {spreads}")
        share = self.median("garonne", "roof_share")
        print(f"garonne: {100 * share:.0f} % of the fastest matrix product measured here; "
              f"peak {100 * self.median('garonne', 'peak_bytes') / self.median('garonne', 'planned_peak_bytes'):.2f} % "
              f"of the planned; measuring costs once {self.median('garonne', 'seconds_of_first_measurement'):.1f} s")
        imported = self.median(self.peers[0], "resident_after_import")
        print(f"{self.peers[0]}: {imported / 2**20:.0f} MiB are resident after `import torch`, of a wheel that loads "
              "CUDA's libraries too")

    def to_json(self):
        medians = {name: {key: self.median(name, key) for key in figures} for name, figures in self.figures.items()}
        ratios = {peer: {key: medians["garonne"][key] / medians[peer][key] for key, *_ in ROWS} for peer in self.peers}
        return {"model": self.model, "precision": self.precision, "keys": self.keys, "steps": self.steps,
                "medians": medians, "ratios": ratios, "figures": self.figures}


def make_tokens(folder):
    """A small tokens file for `garonne train`; which tokens does not matter here."""
    letters = random.Random(1)
    text = folder / "text.txt"
    text.write_text("".join(letters.choice("abcdefgh \n") for _ in range(1 << 17)))
    subprocess.run([os.environ["GARONNE_BINARY"], "data", "text", text, "--output", folder / "tokens.h5"], check=True,
                   stdout=subprocess.DEVNULL)


def main():
    options = parse_arguments()
    machine = describe_machine(options.threads)
    with tempfile.TemporaryDirectory(prefix="garonne-bench-") as name:
        folder = pathlib.Path(name)
        make_tokens(folder)
        cases = [Case(model, precision, options, folder) for model in options.models for precision in options.precisions]
        measure(cases, options.repeats, os.environ | {"OMP_NUM_THREADS": str(options.threads)})
    write_figures(options.json_path, machine, cases=[case.to_json() for case in cases])


main()
