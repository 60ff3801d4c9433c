# SPDX-License-Identifier: MIT
"""Times Garonne on a GPU beside eager PyTorch, torch.compile and PyTorch that runs blocks again, at equal budgets.

Started by `scripts/bench --cuda`. The most that another program has allocated on the device is Garonne's budget, so each
pair has the same bytes. One process after the other on the same GPU; ratios are those of neighbours in time.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

try:
    import tomllib
except ImportError:
    import tomli as tomllib

from programs import HERE, Refused, Runner, keep_figures, list_of, positive, spread, write_figures

WAYS = {"gpt": ("eager", "compile", "checkpoint"), "fno": ("eager", "compile"), "sfno": ("eager", "checkpoint")}
LIBRARY = {"gpt": "PyTorch", "fno": "neuraloperator", "sfno": "torch-harmonics"}
DOES_NOT_FIT = 3


@dataclasses.dataclass(frozen=True)
class Model:
    """Keys of [model]; `points` and the channels are those of made-up fields."""
    name: str
    keys: dict
    batch: int
    micro_batch: int
    precision: str
    steps: int

    @property
    def kind(self):
        return self.keys["kind"]


def gpt(name, steps, micro_batch=None, batch=None):
    file = tomllib.loads((HERE / f"{name}.toml").read_text())
    return Model(name, file["model"], batch or file["train"]["global_batch"], micro_batch or file["train"]["micro_batch"],
                 "bfloat16", steps)


def models():
    """By name: GPTs, and operators of sizes that people train."""
    return {model.name: model for model in (
        gpt("0.8m", 50), gpt("10m", 50), gpt("gpt2", 20),
        Model("fno", {"kind": "fno", "layers": 4, "hidden": 64, "modes": [32, 32], "points": [128, 128]}, 16, 16, "float32",
              30),
        Model("sfno", {"kind": "sfno", "layers": 4, "hidden": 256, "scale_factor": 3, "points": [128, 256]}, 4, 4, "float32",
              20))}


def parse_arguments():
    names = list(models())
    parser = argparse.ArgumentParser(prog="scripts/bench --cuda", description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=list_of(names), default=names, help="of %s; comma-separated" % ", ".join(names))
    parser.add_argument("--ways", type=list_of(WAYS["gpt"]), default=list(WAYS["gpt"]),
                        help="of eager, compile, checkpoint (runs blocks again); comma-separated")
    parser.add_argument("--repeats", type=positive, default=3, help="turns of each pair of programs")
    parser.add_argument("--steps", type=positive, help="that a process times (default: by the model's size)")
    parser.add_argument("--json", type=pathlib.Path, help="where to write every figure")
    return parser.parse_args()


def gpu_or_end():
    """{name, driver}; a benchmark of a GPU where there is none is refused."""
    try:
        asked = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
                               capture_output=True, text=True, timeout=60, check=False)
        lines = asked.stdout.splitlines() if asked.returncode == 0 else []
    except (OSError, subprocess.TimeoutExpired):
        lines = []
    if not lines:
        print("error: scripts/bench --cuda wants a GPU, and nvidia-smi shows none; scripts/bench alone compares on "
              "processors", file=sys.stderr)
        sys.exit(2)
    name, driver = (word.strip() for word in lines[0].split(","))
    return {"device": name, "driver": driver}


class Case:
    def __init__(self, model, options, folder):
        import same_model
        self.model, self.options, self.folder = model, options, folder / model.name
        self.tools = same_model
        self.steps = options.steps or model.steps
        self.ways = [way for way in options.ways if way in WAYS[model.kind]]
        self.figures = {way: {"theirs": [], "ours": []} for way in self.ways}
        self.does_not_fit = {}

    def processes(self):
        return 1 + len(self.ways) * (1 + 2 * self.options.repeats)

    def prepare(self, runner):
        """The same model, or nothing is timed; then the file that is run and the bytes that each way takes."""
        self.folder.mkdir()
        runner.announce(f"{self.model.name}: is it the same model")
        # The library computes spectra in float32, so all are compared in that.
        self.same = self.tools.compare(self.model.keys, self.folder / "same", device="cuda")
        there = self.same["loss_of_the_other_on_the_device"]
        other = "" if abs(there / self.same["loss"] - 1) < 1e-3 else f"; {there:.6f} in the other program on this device"
        runner.result(f"{self.same['parameters']} parameters, loss {self.same['loss']:.6f}{other}")
        self.run_file = self.tools.run_file(self.model.keys, self.folder, self.data(), batch=self.model.batch,
                                            micro_batch=self.model.micro_batch, precision=self.model.precision)
        runner.use_cache(self.folder / "cache")
        for way in self.ways:
            runner.announce(f"{self.model.name}: bytes of {way}")
            answer = runner.json_of(self.theirs(way, steps=2))
            self.figures[way]["budget_bytes"] = answer["peak_bytes"]
            runner.result(f"{answer['peak_bytes'] / 2**20:.0f} MiB")

    def data(self):
        found = self.folder / "same"
        if self.model.kind == "gpt":
            return {"path": str(found / "tokens.h5")}
        if self.model.kind == "fno":
            return {"path": str(found / "darcy.h5"), "normalisation": "none"}
        return {"path": str(found / "sphere" / "train"), "normalisation": "channel"}

    def shape(self):
        if self.model.kind == "gpt":
            return {}
        channels = 1 if self.model.kind == "fno" else 3
        return {"inputs": channels, "targets": channels, "points": self.model.keys["points"], "grid": "legendre-gauss"}

    def theirs(self, way, steps):
        return [sys.executable, HERE / "cuda_peer.py", "--way", way, "--precision", self.model.precision, "--model",
                json.dumps(self.model.keys), "--shape", json.dumps(self.shape()), "--global-batch", str(self.model.batch),
                "--micro-batch", str(self.model.micro_batch), "--steps", str(steps)]

    def ours(self, way):
        return [os.environ["GARONNE_BINARY"], "bench", self.run_file, "--run.device", "cuda", "--memory.budget",
                str(self.figures[way]["budget_bytes"]), "--steps", str(self.steps), "--json"]

    def repeat(self, runner, number):
        for way in self.ways:
            turn = f"{self.model.name}: {way}, turn {number} of {self.options.repeats}"
            # Who begins takes turns, too: a GPU that was idle is faster than one that is warm.
            order = ("theirs", "ours") if number % 2 else ("ours", "theirs")
            for who in order:
                runner.announce(f"{turn}, {LIBRARY[self.model.kind] if who == 'theirs' else 'garonne'}")
                if way in self.does_not_fit and who == "ours":
                    runner.result("does not fit")
                    continue
                answer = runner.json_of(self.theirs(way, self.steps)) if who == "theirs" else self.measure_ours(runner, way)
                if answer is None:
                    runner.result("does not fit")
                    continue
                self.figures[way][who].append(answer)
                runner.result(f"{self.speed(answer):.1f} {self.unit}")

    def measure_ours(self, runner, way):
        """None where no plan is as small as what the other program takes; the message has the smallest that is."""
        command = self.ours(way)
        run = subprocess.run(command, env=runner.environment, capture_output=True, text=True, check=False)
        if run.returncode == DOES_NOT_FIT:
            self.does_not_fit[way] = run.stderr.strip()
            return None
        if run.returncode == Refused.CODE:
            raise Refused(command, run.stderr)
        if run.returncode != 0:
            sys.exit(f"\n{' '.join(map(str, command))}\nended with code {run.returncode}:\n{run.stdout}{run.stderr}")
        return json.loads(run.stdout.splitlines()[-1])

    @property
    def unit(self):
        return "tokens/s" if self.model.kind == "gpt" else "samples/s"

    def speed(self, answer):
        return answer["samples_per_second"] * self.model.keys.get("sequence", 1)

    def ratios(self, way):
        """Ours over theirs, of each turn."""
        pairs = zip(self.figures[way]["ours"], self.figures[way]["theirs"])
        return [self.speed(ours) / self.speed(theirs) for ours, theirs in pairs]

    def print_table(self):
        model = self.model
        print(f"\n{model.name} {model.precision}: {self.same['parameters']} parameters, {model.batch // model.micro_batch} x "
              f"{model.micro_batch} samples a step, beside {LIBRARY[model.kind]}")
        print(f"{'':<12}{'budget, MiB':>12}{'theirs, ' + self.unit:>20}{'ours':>12}{'ours, MiB':>12}{'ratio':>8}  "
              f"spread of turns: theirs, ours, ratio")
        for way in self.ways:
            figures = self.figures[way]
            theirs = [self.speed(answer) for answer in figures["theirs"]]
            line = f"{way:<12}{figures['budget_bytes'] / 2**20:>12.0f}{statistics.median(theirs):>20.1f}"
            if not figures["ours"]:
                print(f"{line}  does not fit: {self.does_not_fit[way]}")
                continue
            ours = [self.speed(answer) for answer in figures["ours"]]
            peak = max(answer["peak_bytes"] for answer in figures["ours"])
            ratios = self.ratios(way)
            print(f"{line}{statistics.median(ours):>12.1f}{peak / 2**20:>12.0f}{statistics.median(ratios):>8.2f}  "
                  f"{', '.join(f'{100 * spread(values):.0f} %' for values in (theirs, ours, ratios))}")
            if peak > figures["budget_bytes"]:
                sys.exit(f"garonne took {peak} B of a budget of {figures['budget_bytes']} B")

    def to_json(self):
        return {"model": dataclasses.asdict(self.model), "same": self.same, "figures": self.figures,
                "does_not_fit": self.does_not_fit,
                "ratios": {way: statistics.median(self.ratios(way)) for way in self.ways if self.ratios(way)}}


def main():
    options = parse_arguments()
    machine = gpu_or_end()
    print(f"{machine['device']}, driver {machine['driver']}; one process after the other; a budget is the most that the "
          "other program has allocated on the device", flush=True)
    with tempfile.TemporaryDirectory(prefix="garonne-bench-") as name:
        os.environ["GARONNE_CACHE"] = str(pathlib.Path(name) / "cache")
        cases = [Case(models()[model], options, pathlib.Path(name)) for model in options.models]
        runner = Runner(sum(case.processes() for case in cases), dict(os.environ))
        timed, refused = [], {}
        for case in cases:
            before = runner.done
            try:
                case.prepare(runner)
                for number in range(1, options.repeats + 1):
                    case.repeat(runner, number)
            except Refused as error:
                runner.result("refused")
                runner.done = before + case.processes()
                refused[case.model.name] = error.reason
                print(f"\n{case.model.name} is left out, since this program refuses it: {error.reason}", flush=True)
            else:
                timed.append(case)
            # What comes after it may end badly.
            figures = {"cases": [one.to_json() for one in timed], "refused": refused}
            keep_figures(options.json, machine, **figures)
            if case in timed:
                case.print_table()
            sys.stdout.flush()
        write_figures(options.json, machine, **figures)
        if not timed:
            sys.exit(Refused.CODE)


if __name__ == "__main__":
    main()
