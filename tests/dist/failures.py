#!/usr/bin/env python3
"""How a job dies: every failure ends all ranks within seconds, with the right code and one message.

Usage: failures.py PROGRAM DEVICE_PROGRAM MPIRUN [FLAGS OF MPIRUN ...]
"""

import os
import subprocess
import sys
import time

program, device_program, *launcher = sys.argv[1:]
failures = []


def run(name, command, code, count_of, environment=None, seconds=30.0):
    """Runs the command; `count_of` says how often each text has to be in its standard error."""
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               text=True, env=environment or os.environ)
    try:
        _, errors = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.terminate()  # mpirun ends its ranks
        _, errors = process.communicate()
    took = time.monotonic() - start
    problems = []
    if took > seconds:
        problems.append(f"took {took:.1f} s")
    if process.returncode != code:
        problems.append(f"exit code {process.returncode}, expected {code}")
    for text, count in count_of.items():
        if errors.count(text) != count:
            problems.append(f"{text!r} is there {errors.count(text)} times, expected {count}")
    print(f"{'FAILED' if problems else 'ok':6} {name} ({took:.1f} s) {'; '.join(problems)}")
    if problems:
        print(errors)
        failures.append(name)


def ranks(count, mode):
    return [*launcher, "-n", str(count), program, mode]


def alone(**changes):
    """The environment of a shell in which no launcher ran, with changes."""
    prefixes = ("OMPI_COMM_", "PMI_", "PMIX_", "SLURM_", "PALS_", "MV2_", "FLUX_", "JSM_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(prefixes)}
    return kept | changes


for count in (2, 3):
    last = f"[rank {count - 1}/{count} "
    run(f"one of {count} ranks throws", ranks(count, "throw"), 6,
        {last: 1, f"data {count - 1}] the loss is not finite": 1, "[rank 0/": 0})
    run(f"one of {count} ranks is killed", ranks(count, "kill"), 137, {"signal 9": 1})
run("one rank throws what is no error of ours", ranks(2, "throw-other"), 1,
    {"[rank 1/2 ": 1, "no error of ours": 1})
run("the cause speaks, not the rank that only sees its consequence", ranks(2, "late-cause"), 6,
    {"[rank 0/2 ": 1, "the cause": 1, "connection": 0})
run("an agreed error", ranks(3, "disagree"), 5, {"data.h5": 1, "on rank 1": 1, "MPI_ABORT": 0})
run("all is well", ranks(3, "finish"), 0, {"[rank": 0})
run("stopped on request", ranks(2, "requeue"), 75, {"[rank": 0, "MPI_ABORT": 0})
# Limits of two seconds: for ranks that wait for each other, and not for one that works for nine. Of more than eight ranks
# some hear of nobody, the last of ten among them.
for count in (2, 10):
    run(f"{count} ranks wait for each other", ranks(count, "wait-in-a-circle"), 4,
        {"its own work failed: all ranks wait for each other within 2 s (run.timeout)": 1}, seconds=30)
    run(f"one of {count} works for longer than the limit", ranks(count, "last-is-busy"), 0,
        {"(run.timeout)": 0, f" waiting for 2 s in its own work: rank {count - 1} has not arrived, but answers: on ": 1},
        seconds=30)
    run(f"one of {count} is stopped", ranks(count, "last-is-stopped"), 4,
        {f" waiting for 1 s in its own work: rank {count - 1} has not arrived, and has not answered yet": 1, "but answer": 0},
        seconds=30)
    run(f"all but one of {count} do", ranks(count, "all-but-last-are-busy"), 0, {"(run.timeout)": 0}, seconds=30)
# As where a node hangs that has as many ranks as hear of others.
run("a node of eight ranks is stopped", ranks(16, "first-half-is-stopped"), 4,
    {"its own work failed: ranks 0, 1, 2, 3, 4, 5, 6, 7 have not arrived within 2 s (run.timeout)": 1}, seconds=60)
# A step of Slurm whose processes each believe to be alone; a batch script, where nobody launched any.
run("several processes of a Slurm step that MPI knows nothing of", [program, "finish"], 4,
    {"started 4 processes (SLURM_STEP_NUM_TASKS), but MPI knows of 1": 1, "srun --mpi=pmix": 1},
    alone(SLURM_PROCID="2", SLURM_NTASKS="4", SLURM_STEP_NUM_TASKS="4"))
run("alone in a batch script of four tasks", [program, "finish"], 0, {"garonne": 0},
    alone(SLURM_PROCID="0", SLURM_NTASKS="4", SLURM_JOB_ID="7", SLURM_STEP_NUM_TASKS="1"))
run("alone, without a launcher", [program, "finish"], 0, {"garonne": 0}, alone())
run("alone, and fails", [program, "throw"], 6, {"the loss is not finite": 1}, alone())
run("several processes that MPI knows nothing of", [program, "finish"], 4,
    {"started 4 processes (PMI_RANK), but MPI knows of 1": 1}, alone(PMI_RANK="2", PMI_SIZE="4"))

# On devices: limits of five seconds, and a second's grace for a host that does not ask.
late = "all-reduce in data (ranks 0, 1) failed: not complete after 5 s (run.timeout)"
for mode, code, count_of in (
        ("finish", 0, {"[rank": 0}),
        ("throw", 6, {"[rank 1/2 ": 1, "the loss is not finite": 1}),
        ("silent", 4, {"[rank 0/2 ": 1, late: 1}),
        ("held", 4, {"[rank 0/2 ": 1, late: 1}),
        ("device-waits", 4, {"[rank 0/2 ": 1, late: 1}),
        ("held-abort", 4, {"[rank 0/2 ": 1, late: 1})):
    run(f"NCCL, {mode}", [*launcher, "-n", "2", device_program, mode], code, count_of, seconds=60)
# Ranks that look who is missing, where only a device waits: after a second, and after half a minute without an answer.
for mode in ("busy", "computes", "replays"):
    run(f"NCCL, one {mode}", [*launcher, "-n", "2", device_program, mode], 0,
        {" waiting for 1 s in its own work: rank 1 has not arrived, but answers: on ": 1, "failed": 0})
run("NCCL, one is stopped", [*launcher, "-n", "2", device_program, "stopped"], 4,
    {"its own work failed: rank 1 does not answer: the process was stopped": 1}, seconds=60)
for mode in ("connect", "connect-held-abort"):
    run(f"NCCL, {mode}", [*launcher, "-n", "2", device_program, mode], 4,
        {"[rank 0/2 ": 1, " in data (ranks 0, 1) failed: not ": 1, "after 5 s (run.timeout)": 1},
        seconds=60)
run("NCCL that does not start", [*launcher, "-n", "1", device_program, "start"], 4,
    {"start of NCCL for data failed: not there after 5 s (run.timeout)": 1}, seconds=60)

sys.exit(1 if failures else 0)
