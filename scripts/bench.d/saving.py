# SPDX-License-Identifier: MIT
"""What training waits for its checkpoints: written while it goes on, beside waited for.

Started by `scripts/bench saving`. Runs of few steps with as few between checkpoints; what a checkpoint costs is then held
against so many steps as there are between two of them in earnest.
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
SAVED = re.compile(r"step +(\d+)  checkpoint .* \(([\d.]+) s(?:, of which training waited ([\d.]+) s)?\)")


def parse_arguments():
    parser = argparse.ArgumentParser(prog="scripts/bench saving",
                                     description="what training waits for checkpoints, both ways of checkpoint.saving")
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


def train(runner, binary, model, way, tokens, folder, options):
    runner.announce(f"{model} {way}")
    directory = folder / f"{model}-{way}"
    # The first checkpoint touches its memory for the first time, and the last one is waited for: neither is counted.
    steps = (options.saves + 2) * options.between
    command = [binary, "train", HERE / f"{model}.toml", "--run.directory", directory, "--data.path", tokens, "--memory.budget", 1 << 40,
               "--run.threads", options.threads, "--evaluation.batches", 0, "--evaluation.every", 0, "--train.steps", steps,
               "--checkpoint.every", options.between, "--checkpoint.keep", 1, "--checkpoint.saving", way]
    run = subprocess.run(list(map(str, command)), env=runner.environment, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"\n{' '.join(map(str, command))}\nended with code {run.returncode}:\n{run.stdout}{run.stderr}")
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    saved = {int(step): float(seconds) for step, seconds, _ in SAVED.findall(run.stdout)}
    timed = range(2 * options.between, steps, options.between)
    counted = [row for row in rows if timed[0] < row["step"] <= timed[-1] + options.between]
    step_seconds = statistics.median(row["seconds"] for row in counted)
    waited = sum(row.get("checkpoint_seconds", 0) for row in counted) / len(timed)
    meanwhile, alone = [], []
    for row in counted:
        ends = row["time"]
        begun = max(step for step in timed if step < row["step"])
        # From its beginning on, which is the end of its step, as far as rows know.
        written = rows[begun - 1]["time"] + saved[begun]
        (meanwhile if way == "asynchronous" and ends - row["seconds"] < written else alone).append(row["seconds"])
    figures = {"model": model, "saving": way, "step_seconds": step_seconds, "waited_seconds": waited,
               "share_of_time": waited / (options.every * statistics.median(alone or meanwhile)),
               "written_seconds": statistics.mean(saved[step] for step in timed),
               "meanwhile_step_seconds": statistics.mean(meanwhile) if meanwhile else None,
               "bytes": sum(file.stat().st_size for file in directory.glob(f"checkpoints/step-{steps}/*"))}
    runner.result(f"{1e3 * waited:.0f} ms a checkpoint")
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
    print(f"\nmodel  saving        checkpoint    a step ms   meanwhile ms   written in s   training waits ms   {title}")
    for row in every:
        meanwhile = "" if row["meanwhile_step_seconds"] is None else f"{1e3 * row['meanwhile_step_seconds']:.1f}"
        print(f"{row['model']:<6} {row['saving']:<13} {row['bytes'] / 1e6:>7.1f} MB {1e3 * row['step_seconds']:>12.1f} {meanwhile:>14} "
              f"{row['written_seconds']:>14.2f} {1e3 * row['waited_seconds']:>19.1f} {100 * row['share_of_time']:>{len(title)}.2f} %")
    write_figures(options.json, machine, saving=every)


if __name__ == "__main__":
    main()
