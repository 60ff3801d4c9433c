# SPDX-License-Identifier: MIT
"""What checkpoints cost training: written while it goes on, beside waited for.

Started by `scripts/bench saving`. Runs of few steps with as few between checkpoints; what a checkpoint costs is then held
against so many steps as there are between two of them in earnest. It costs what training waits for it and what steps take
longer while it is written: so many of them as the writing falls into, by the difference of medians.
"""
import argparse
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile

from programs import HERE, Runner, describe_machine, list_of, positive, write_figures

MODELS = ("0.8m", "10m", "124m")
WAYS = ("synchronous", "asynchronous")
STEP = re.compile(r"step +(\d+)/")
SAVED = re.compile(r"step +(\d+)  checkpoint .* \(([\d.]+) s\b")


def parse_arguments():
    parser = argparse.ArgumentParser(prog="scripts/bench saving",
                                     description="what checkpoints cost training, both ways of checkpoint.saving: what it "
                                                 "waits for them, and what steps take longer while one is written, which is "
                                                 "the median of those steps less that of the others, as often as a checkpoint "
                                                 "has such steps (below 0: less than what steps differ by). The share is of the time of "
                                                 "--every steps without any")
    parser.add_argument("--models", type=list_of(MODELS), default=["10m"], help=f"of {', '.join(MODELS)}; comma-separated [10m]")
    parser.add_argument("--threads", type=positive, default=os.cpu_count(), help="of the process")
    parser.add_argument("--saves", type=positive, default=4, help="checkpoints that are timed")
    parser.add_argument("--between", type=positive, default=10, help="steps from one to the next in these runs")
    parser.add_argument("--every", type=positive, default=100, help="steps that a checkpoint is held against")
    parser.add_argument("--folder", type=pathlib.Path, help="where the runs write, as on the file system of real ones [a temporary one]")
    parser.add_argument("--json", type=pathlib.Path, help="where to write every figure")
    return parser.parse_args()


def make_tokens(binary, folder, environment):
    words = [bytes(random.Random(seed).choices(range(97, 123), k=1 + seed % 9)).decode() for seed in range(500)]
    (folder / "text").write_text(" ".join(random.Random(1).choices(words, k=100000)))
    subprocess.run([binary, "data", "text", folder / "text", "--output", folder / "tokens.h5"], env=environment, check=True,
                   capture_output=True)
    return folder / "tokens.h5"


def read_saves(text):
    """Of what a run says: (step that was saved, step after which it was in place, seconds from one to the other) of each
    checkpoint."""
    found, done = [], 0
    for line in text.splitlines():
        if step := STEP.match(line):
            done = int(step[1])
        elif saved := SAVED.match(line):
            found.append((int(saved[1]), done, float(saved[2])))
    return found


def costs_of(rows, saves):
    """What one of these checkpoints costs on average, by the rows of the steps that come after them. `step_seconds` is the median
    of steps in which nothing was written, None where there are none."""
    writing, alone = [], []
    for row in rows:
        (writing if any(step < row["step"] <= done for step, done, _ in saves) else alone).append(row["seconds"])
    median = statistics.median(alone) if alone else None
    steps = len(writing) / len(saves)
    return {"step_seconds": median, "steps_while_writing": steps,
            "step_seconds_while_writing": statistics.median(writing) if writing else None,
            # Below 0 where steps differ by more than writing slows them.
            "slowed_seconds": steps * (statistics.median(writing) - median) if alone and writing else 0.0,
            "waited_seconds": sum(row.get("checkpoint_seconds", 0) for row in rows) / len(saves),
            "written_seconds": statistics.mean(seconds for _, _, seconds in saves)}


def train(runner, binary, model, way, tokens, folder, options):
    runner.announce(f"{model} {way}")
    directory = folder / f"{model}-{way}"
    # The first checkpoint touches its memory for the first time, and the last one is waited for: neither is counted.
    steps = (options.saves + 2) * options.between
    command = [binary, "train", HERE / f"{model}.toml", "--run.directory", directory, "--data.path", tokens, "--memory.budget", 1 << 40,
               "--run.threads", options.threads, "--evaluation.batches", 0, "--evaluation.every", 0, "--train.steps", steps,
               "--checkpoint.every", options.between, "--checkpoint.keep", 1, "--checkpoint.saving", way, "--log.every", 1]
    run = subprocess.run(list(map(str, command)), env=runner.environment, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"\n{' '.join(map(str, command))}\nended with code {run.returncode}:\n{run.stdout}{run.stderr}")
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    timed = range(2 * options.between, steps, options.between)
    saves = [save for save in read_saves(run.stdout) if save[0] in timed]
    figures = {"model": model, "saving": way, **costs_of([row for row in rows if row["step"] > timed[0]], saves)}
    if figures["step_seconds"] is None:
        sys.exit(f"\n{model} was writing in each of its steps: --between {2 * options.between} leaves some to compare with")
    figures |= {"share_of_time": (figures["waited_seconds"] + figures["slowed_seconds"]) / (options.every * figures["step_seconds"]),
                "bytes": sum(file.stat().st_size for file in directory.glob(f"checkpoints/step-{steps}/*"))}
    runner.result(f"{1e3 * (figures['waited_seconds'] + figures['slowed_seconds']):.0f} ms a checkpoint")
    return figures


def main():
    options = parse_arguments()
    binary = os.environ["GARONNE_BINARY"]
    machine = describe_machine(options.threads)
    every = []
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = pathlib.Path(name)
        runner = Runner(len(options.models) * len(WAYS), dict(os.environ))
        runner.use_cache(folder / "cache")
        tokens = make_tokens(binary, folder, runner.environment)
        for model in options.models:
            for way in WAYS:
                every.append(train(runner, binary, model, way, tokens, folder, options))
    title = f"of {options.every} steps"
    print(f"\nmodel  saving        checkpoint   written in s   a step ms   while writing ms   steps slower by ms   waited ms   {title}")
    for row in every:
        writing = row["step_seconds_while_writing"]
        meanwhile = "" if writing is None else f"{1e3 * writing:.1f}"
        slowed = "" if writing is None else f"{row['steps_while_writing']:.1f} {1e3 * row['slowed_seconds']:>12.1f}"
        print(f"{row['model']:<6} {row['saving']:<13} {row['bytes'] / 1e6:>7.1f} MB {row['written_seconds']:>14.2f} "
              f"{1e3 * row['step_seconds']:>11.1f} {meanwhile:>18} {slowed:>20} {1e3 * row['waited_seconds']:>11.1f} "
              f"{100 * row['share_of_time']:>{len(title)}.2f} %")
    write_figures(options.json, machine, saving=every)


if __name__ == "__main__":
    main()
