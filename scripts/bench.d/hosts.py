# SPDX-License-Identifier: MIT
"""Plan against reality: step times of grids over emulated hosts, as `garonne plan` predicts them and as they are.

Started by `scripts/bench --hosts`. scripts/emulated-hosts makes two or more hosts with links of a given rate; for each
rate `garonne bench links` measures the links as the planner knows them. Then, in each of some turns, the nodes of every
grid are profiled on all cores at once, as in a step, the grid is planned from those two, and run: a machine that becomes
faster or slower does so to both. Printed are predicted and measured seconds, and of every two grids at one rate that
differ by more than 5 % whether the plan picks the faster, also of those alone that differ so in every turn. With --against
another build of the program runs in turn with this one, and its seconds are printed beside: what a change of plans is worth.
"""
import argparse
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from programs import HERE, describe_machine, list_of, positive, write_figures

HOSTS_SCRIPT = HERE.parent / "emulated-hosts"
SKIPPED = 77
WITHIN = 0.15
DIFFERENT = 0.05

# By the number of ranks, one a host.
GRIDS = {
    2: {
        "data": {"data": 2},
        "zero-1": {"data": 2, "zero": 1},
        "zero-3": {"data": 2, "zero": 3},
        "1f1b": {"pipeline": 2, "schedule": "1f1b"},
        "gpipe": {"pipeline": 2, "schedule": "gpipe"},
        "interleaved": {"pipeline": 2, "schedule": "interleaved", "chunks": 2},
        "tensor": {"tensor": 2},
        "tensor-sequence": {"tensor": 2, "sequence_parallel": "true"},
    },
    4: {
        "data": {"data": 4},
        "zero-1": {"data": 4, "zero": 1},
        "1f1b": {"pipeline": 4, "schedule": "1f1b"},
        "gpipe": {"pipeline": 4, "schedule": "gpipe"},
        "data-1f1b": {"data": 2, "pipeline": 2, "schedule": "1f1b"},
        "data-tensor": {"data": 2, "tensor": 2},
    },
}
BATCHES = {"0.8m": (16, 2), "10m": (8, 1)}


def parse_arguments():
    known = sorted({name for grids in GRIDS.values() for name in grids})
    parser = argparse.ArgumentParser(prog="scripts/bench --hosts", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=tuple(BATCHES), default="0.8m")
    parser.add_argument("--ranks", type=int, choices=tuple(GRIDS), default=2)
    parser.add_argument("--host-count", type=positive, help="default: one for each rank")
    parser.add_argument("--rates", type=lambda text: text.split(","), default=["1gbit", "300mbit", "100mbit"],
                        help="of a host's link, such as 100mbit, 1gbit, or unlimited; default: three of them")
    parser.add_argument("--only", type=list_of(known), dest="grids", help=f"of {', '.join(known)}; default: all for the ranks")
    parser.add_argument("--steps", type=positive, default=12, help="timed steps of a turn")
    parser.add_argument("--repeats", type=positive, default=3, help="turns")
    parser.add_argument("--against", type=pathlib.Path, metavar="BINARY", help="another build, to be run in turn with this one")
    parser.add_argument("--json", dest="json_path")
    return parser.parse_args()


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.ranks = options.ranks
        self.grids = {name: keys for name, keys in GRIDS[options.ranks].items() if not options.grids or name in options.grids}
        self.environment = os.environ | {"OMP_NUM_THREADS": "1", "GARONNE_CACHE": str(folder / "cache")}

    def call(self, command, **more):
        command = [str(word) for word in command]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, **more)
        if done.returncode != 0:
            sys.exit(f"\n{' '.join(command)}\nended with code {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def hosts(self, *words):
        return self.call([HOSTS_SCRIPT, *words])

    def keys(self, grid):
        batch, micro_batch = BATCHES[self.options.model]
        keys = ["--run.threads", 1, "--train.precision", "float32", "--train.global_batch", batch, "--train.micro_batch",
                micro_batch, "--memory.budget", "2GiB"]
        for key, value in self.grids[grid].items():
            keys += [f"--grid.{key}", value]
        return keys

    def garonne(self, command, grid, *more, binary=None):
        return [binary or os.environ["GARONNE_BINARY"], command, HERE / f"{self.options.model}.toml", *self.keys(grid), *more]

    def profile(self, grid):
        """With as many processes as there are ranks, each with a cache of its own; the first one's counts."""
        others = []
        for rank in range(1, self.ranks):
            command = " ".join(map(str, self.garonne("profile", grid, "--again")))
            others.append(subprocess.Popen(
                ["bash", "-c", f"while true; do {command} >/dev/null || exit; done"], start_new_session=True,
                env=self.environment | {"GARONNE_CACHE": str(self.folder / f"cache-{rank}")}))
        try:
            self.call(self.garonne("profile", grid, "--again"))
        finally:
            for other in others:
                os.killpg(other.pid, 9)
                other.wait()

    def links(self, rate):
        cluster = self.folder / f"links-{rate}.toml"
        answer = self.hosts("run", self.ranks, os.environ["GARONNE_BINARY"], "bench", "links", "--output", cluster,
                            "--threads", 1, "--largest", 1 << 22, "--json")
        links = json.loads(answer.splitlines()[-1])
        return cluster, links["across_hosts"] or links["one_host"]

    def predicted(self, grid, cluster, binary=None):
        plan = json.loads(self.call(self.garonne("plan", grid, "--cluster", cluster, "--json", binary=binary)))
        if plan["seconds"] is None:
            sys.exit(f"{grid}: the plan has no seconds, so the profile lacks nodes of it")
        return plan["seconds"]

    def measured(self, grid, binary=None):
        answer = self.hosts("run", self.ranks,
                            *self.garonne("bench", grid, "--steps", self.options.steps, "--json", binary=binary))
        return json.loads(answer.splitlines()[-1])["step_seconds"]


def say(text):
    print(text, file=sys.stderr, flush=True)


def run(bench, rates):
    rows, links = [], {}
    for rate in rates:
        bench.hosts("rate", rate)
        say(f"{rate}: measuring links")
        cluster, links[rate] = bench.links(rate)
        together = links[rate]["together"]
        say(f"{rate}: {1e6 * together['latency_seconds']:.0f} µs, {together['bytes_per_second'] / 1e6:.1f} MB/s, samples off "
            f"by {100 * together['median_error']:.0f} % (median)")
        predictions = {grid: [] for grid in bench.grids}
        seconds = {grid: [] for grid in bench.grids}
        against = {grid: [] for grid in bench.grids}
        other = bench.options.against
        # Turns go through all grids, so that a machine that slows down wrongs nobody.
        for turn in range(bench.options.repeats):
            for grid in bench.grids:
                bench.profile(grid)
                predictions[grid].append(bench.predicted(grid, cluster))
                if other and turn % 2 == 0:
                    against[grid].append(bench.measured(grid, other))
                seconds[grid].append(bench.measured(grid))
                if other and turn % 2 == 1:
                    against[grid].append(bench.measured(grid, other))
                say(f"{rate} {grid}: predicted {1e3 * predictions[grid][-1]:.1f} ms, measured {1e3 * seconds[grid][-1]:.1f} ms, "
                    f"turn {turn + 1} of {bench.options.repeats}")
        for grid in bench.grids:
            rows.append({"rate": rate, "grid": grid, "predicted": statistics.median(predictions[grid]),
                         "predictions": predictions[grid], "measured": statistics.median(seconds[grid]), "turns": seconds[grid]})
            if other:
                rows[-1]["against"] = {"predicted": bench.predicted(grid, cluster, other),
                                       "measured": statistics.median(against[grid]), "turns": against[grid]}
    return rows, links


def error_of(row):
    """Of the turns' in the middle."""
    return statistics.median(predicted / measured for predicted, measured in zip(row["predictions"], row["turns"])) - 1


def compare(rows):
    """Prints the table; returns how many are within the bound, and how many pairs that differ are picked right: of the
    turns in the middle, and of those that differ in every turn."""
    print(f"{'link':<12}{'grid':<18}{'predicted ms':>13}{'measured ms':>13}{'error':>9}{'spread':>9}")
    for row in rows:
        spread = (max(row["turns"]) - min(row["turns"])) / row["measured"]
        print(f"{row['rate']:<12}{row['grid']:<18}{1e3 * row['predicted']:>13.1f}{1e3 * row['measured']:>13.1f}"
              f"{100 * error_of(row):>+8.1f}%{100 * spread:>8.0f}%")
    errors = [error_of(row) for row in rows]
    within = sum(abs(error) <= WITHIN for error in errors)
    print(f"\n{within} of {len(rows)} predictions are within {100 * WITHIN:.0f} %; mean error {100 * statistics.mean(errors):+.1f} %, "
          f"largest {100 * max(errors, key=abs):+.1f} %")
    picked = {"in the middle of its turns": [0, 0], "in every turn": [0, 0]}
    wrong = []
    for one, other in itertools.combinations(rows, 2):
        if one["rate"] != other["rate"]:
            continue
        fast, slow = sorted((one, other), key=lambda row: row["measured"])
        ratios = [slower / faster for slower, faster in zip(slow["turns"], fast["turns"])]
        right = statistics.median(b / a for a, b in zip(fast["predictions"], slow["predictions"])) > 1
        middle = statistics.median(ratios)
        for ratio, counts in zip((middle, min(ratios)), picked.values()):
            if ratio > 1 + DIFFERENT:
                counts[0] += right
                counts[1] += 1
        if middle > 1 + DIFFERENT and not right:
            turns = ", ".join(f"{100 * (ratio - 1):+.0f}" for ratio in ratios)
            wrong.append(f"{one['rate']}: {fast['grid']} is faster than {slow['grid']} (by {turns} %)")
    for what, (right, pairs) in picked.items():
        print(f"of {pairs} pairs of grids that differ by more than {100 * DIFFERENT:.0f} % {what} the plan picks the faster in {right}")
    for line in wrong:
        print(f"  not so: {line}")
    return within, picked


def compare_builds(rows):
    """Prints what the other build took, turn by turn beside this one."""
    print(f"\n{'link':<12}{'grid':<18}{'other ms':>13}{'this ms':>13}{'predicted':>11}{'measured':>11}{'of turns':>20}")
    for row in rows:
        other = row["against"]
        ratios = [this / that for this, that in zip(row["turns"], other["turns"])]
        print(f"{row['rate']:<12}{row['grid']:<18}{1e3 * other['measured']:>13.1f}{1e3 * row['measured']:>13.1f}"
              f"{100 * (row['predicted'] / other['predicted'] - 1):>+10.1f}%{100 * (statistics.median(ratios) - 1):>+10.1f}%"
              f"{100 * (min(ratios) - 1):>+11.1f}%{100 * (max(ratios) - 1):>+7.1f}%")


def main():
    options = parse_arguments()
    checked = subprocess.run([HOSTS_SCRIPT, "check"], capture_output=True, text=True)
    if checked.returncode != 0:
        print(checked.stdout.strip() or checked.stderr.strip())
        return checked.returncode
    binary = os.environ["GARONNE_BINARY"]
    if not os.access(binary, os.X_OK):
        sys.exit(f"error: {binary} is not built; run scripts/setup first")
    machine = describe_machine(1)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="garonne-hosts-") as name:
        bench = Bench(options, pathlib.Path(name))
        hosts = options.host_count or options.ranks
        bench.hosts("up", hosts)
        try:
            rows, links = run(bench, options.rates)
        finally:
            bench.hosts("down")
    print(f"{options.model} float32, {options.ranks} ranks of one thread on {hosts} hosts, "
          f"{time.monotonic() - started:.0f} s")
    within, picked = compare(rows)
    if options.against:
        compare_builds(rows)
    write_figures(options.json_path, machine,
                  hosts={"model": options.model, "ranks": options.ranks, "hosts": hosts, "links": links, "rows": rows,
                         "within": within, "pairs": {what: {"picked": right, "of": pairs} for what, (right, pairs) in picked.items()}})
    return 0


sys.exit(main())
