# SPDX-License-Identifier: MIT
"""What a budget costs: added time at shares of what keep-all needs, and larger micro-batches under one budget.

Started by `scripts/bench budgets`. The first table is `garonne bench budgets`. For the second the budget is what
keep-all needs for the first micro-batch; two and three times as many samples at once then fit by recomputation only.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

from programs import HERE, Runner, describe_machine, positive, write_figures

FACTORS = (1, 2, 3)


def parse_arguments():
    parser = argparse.ArgumentParser(prog="scripts/bench budgets",
                                     description="added time under budgets, for a GPT of 4 layers of width 256")
    parser.add_argument("--config", type=pathlib.Path, default=HERE / "4x256.toml", help="another run file")
    parser.add_argument("--shares", default="70,50,35", help="percent of what keep-all needs beyond the static bytes")
    parser.add_argument("--threads", type=positive, default=os.cpu_count(), help="of the process")
    parser.add_argument("--steps", type=positive, default=20, help="that a process times, after two that it does not")
    parser.add_argument("--repeats", type=positive, default=3, help="turns of each micro-batch")
    parser.add_argument("--json", type=pathlib.Path, help="where to write every figure")
    return parser.parse_args()


def planned(binary, config, environment, *keys):
    """What `garonne plan` answers, or None where nothing fits."""
    run = subprocess.run([binary, "plan", config, *keys, "--json"], env=environment, capture_output=True, text=True)
    if run.returncode == 3:
        return None
    if run.returncode != 0:
        sys.exit(run.stderr)
    return json.loads(run.stdout)


def shares_table(runner, binary, options):
    runner.announce(f"shares {options.shares}")
    run = subprocess.run([binary, "bench", "budgets", options.config, "--run.threads", str(options.threads), "--shares",
                          *options.shares.split(","), "--steps", str(options.steps), "--json"],
                         env=runner.environment, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(run.stderr)
    runner.result("done")
    rows = json.loads(run.stdout)
    print("\nbudget   plan           peak B        ms a step    added   planned")
    for row in rows:
        if not row["fits"]:
            print(f"{100 * row['share']:5.0f} %  {row['wanted']:<10} does not fit")
            continue
        print(f"{100 * row['share']:5.0f} %  {row['wanted']:<10} {row['peak_bytes']:>12} {1e3 * row['step_seconds']:>14.1f} "
              f"{100 * row['added_share']:>+7.1f} % {100 * row['planned_added']:>+7.1f} %")
    return rows


def micro_batch_table(runner, binary, options):
    text = options.config.read_text()
    smallest = int(re.search(r"^micro_batch = (\d+)", text, re.M).group(1))
    batch = int(re.search(r"^global_batch = (\d+)", text, re.M).group(1))
    keep_all = planned(binary, options.config, runner.environment, "--memory.plan", "keep-all",
                       "--memory.budget", str(1 << 40))
    budget = str(keep_all["peak_bytes"])
    cases = []
    for factor in FACTORS:
        keys = ["--train.micro_batch", str(factor * smallest), "--memory.budget", budget,
                "--run.threads", str(options.threads)]
        fits = planned(binary, options.config, runner.environment, *keys) is not None
        cases.append({"micro_batch": factor * smallest, "keys": keys, "milliseconds": [], "fits": fits})
    for _ in range(options.repeats):
        for case in cases:
            runner.announce(f"micro-batch {case['micro_batch']}")
            if not case["fits"]:
                runner.result("does not fit")
                continue
            answer = runner.json_of([binary, "bench", options.config, *case["keys"], "--steps", str(options.steps), "--json"])
            case["milliseconds"].append(1e3 * answer["step_seconds"] / batch)
            case["measured_peak_bytes"] = answer["peak_bytes"]
            runner.result(f"{case['milliseconds'][-1]:.2f} ms a sample")
    print(f"\nunder {budget} B, what keep-all needs for {smallest} samples at once")
    print("micro-batch   plan         peak B        ms a sample    of the first")
    for case in cases:
        if not case["milliseconds"]:
            print(f"{case['micro_batch']:>11}   does not fit")
            continue
        median = statistics.median(case["milliseconds"])
        # By the seconds that the turns have measured.
        case["plan"] = planned(binary, options.config, runner.environment, *case["keys"])["plan"]
        print(f"{case['micro_batch']:>11}   {case['plan']:<10} {case['measured_peak_bytes']:>12} {median:>15.3f} "
              f"{median / statistics.median(cases[0]['milliseconds']):>13.3f}")
    return [{key: value for key, value in case.items() if key != "keys"} for case in cases]


def main():
    options = parse_arguments()
    binary = os.environ["GARONNE_BINARY"]
    machine = describe_machine(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(1 + len(FACTORS) * options.repeats, dict(os.environ))
        runner.use_cache(folder)
        shares = shares_table(runner, binary, options)
        batches = micro_batch_table(runner, binary, options)
    write_figures(options.json, machine, shares=shares, micro_batches=batches)


if __name__ == "__main__":
    main()
