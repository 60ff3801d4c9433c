# SPDX-License-Identifier: MIT
"""A run whose ranks are killed again and again, at any moment or inside a call that changes its checkpoints, and is
started again each time: every start succeeds, at most an interval of saving is lost and the one under way, and the
weights at the end are those of a run left alone. GARONNE_KILLS is how often, GARONNE_KILL_SEED when and where; where each struck is printed."""
import collections
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import time
import unittest

from support import BINARY, ProgramTest, metrics, patient, run, strikes

KILLS = int(os.environ.get("GARONNE_KILLS", "10"))
SEED = int(os.environ.get("GARONNE_KILL_SEED", "1"))
EVERY = 3
RANKS = 2
STEPS = 150
OPTIONS = ["--grid.data", RANKS, "--grid.zero", 1, "--train.steps", STEPS, "--train.global_batch", 8, "--train.micro_batch", 2,
           "--evaluation.batches", 0, "--checkpoint.every", EVERY, "--checkpoint.keep", 2]
# Of one saving and what it removes, by rank: how often each call is made, at most.
CALLS = {0: {"write": 5, "fsync": 5, "rename": 4, "unlink": 5}, 1: {"write": 2, "fsync": 1}}


class KillsTest(ProgramTest):
    def setUp(self):
        self.random = random.Random(SEED)
        self.struck = collections.Counter()
        self.last = 0  # step whose numbers are in the run's metrics
        self.saving = "asynchronous"  # of the run; every second one waits for its checkpoints

    def start(self, directory, log, before=()):
        command = ["mpirun", "-n", RANKS, *before, BINARY, "train", self.config, "--run.directory", directory, *OPTIONS,
                   "--checkpoint.saving", self.saving]
        job = subprocess.Popen(list(map(str, command)), stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        self.addCleanup(lambda: job.poll() is None and os.killpg(job.pid, signal.SIGKILL))
        return job

    def check_start(self, text):
        """Where the run goes on, if this start came so far, is at most an interval behind where it was, and one more where
        the checkpoint of its end was being written beside training."""
        went_on = re.search(r"continuing from .* \(step (\d+) of", text)
        if went_on or "step " in text.partition("ready after")[2]:
            lost = self.last - int(went_on[1] if went_on else 0)
            self.assertLessEqual(lost, EVERY if self.saving == "synchronous" else 2 * EVERY, text[-3000:])

    def note_last(self, directory):
        try:
            lines = (directory / "metrics.jsonl").read_text().splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            try:
                self.last = json.loads(line)["step"]
            except (json.JSONDecodeError, KeyError):
                pass  # cut short by the kill, or no line of a step

    def kill_in_a_call(self, directory, log):
        rank = self.random.choice((0, 0, 0, 1))
        call = self.random.choice(sorted(CALLS[rank]))
        number = self.random.randint(1, 3 * CALLS[rank][call])
        whom = self.random.choice(("one", "all"))
        where = self.folder / "where"
        where.unlink(missing_ok=True)
        job = self.start(directory, log, strikes(rank, call, number, f"{directory}/checkpoints", whom, where))
        code = job.wait(timeout=patient(120))
        if not where.exists():
            return code, None
        return code, (call, f"rank {rank}, {whom}: {where.read_text().strip().replace(str(directory), '')}")

    def kill_at_any_moment(self, directory, log):
        job = self.start(directory, log)
        whom = self.random.choice(("one", "all"))
        after = self.random.uniform(0.05, 2.5)
        try:
            return job.wait(timeout=after), None
        except subprocess.TimeoutExpired:
            pass
        ranks = [int(rank) for rank in subprocess.run(["pgrep", "-P", str(job.pid)], capture_output=True, text=True, check=False).stdout.split()]
        doomed = [*ranks, job.pid] if whom == "all" or not ranks else [self.random.choice(ranks)]
        for process in doomed:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return job.wait(timeout=patient(120)), ("moment", f"{whom}: {after:.2f} s after the start")

    def check_end(self, directory, whole):
        self.assertEqual([row["step"] for row in metrics(directory)], list(range(1, STEPS + 1)))
        self.assertEqual([row["loss"] for row in metrics(directory)], [row["loss"] for row in metrics(whole)])
        last = f"checkpoints/step-{STEPS}"
        run("checkpoint", "verify", directory / last)
        for rank in range(RANKS):
            name = f"{last}/rank_{rank}.safetensors"
            self.assertEqual((directory / name).read_bytes(), (whole / name).read_bytes(), name)
        self.assertEqual(sorted(path.name for path in (directory / "checkpoints").iterdir()),
                         sorted(path.name for path in (whole / "checkpoints").iterdir()))

    def test_a_run_that_is_killed_again_and_again_ends_as_one_left_alone(self):
        whole = self.folder / "whole"
        run("train", self.config, "--run.directory", whole, *OPTIONS, ranks=RANKS)
        began, kills, ended = time.monotonic(), 0, 0
        directory = self.folder / "killed-0"
        while kills < KILLS or self.last < STEPS:
            log_path = self.folder / "log"
            with open(log_path, "w") as log:
                if kills == KILLS:
                    code, struck = self.start(directory, log).wait(timeout=patient(120)), None
                else:
                    kind = self.kill_in_a_call if self.random.random() < 0.5 else self.kill_at_any_moment
                    code, struck = kind(directory, log)
            text = log_path.read_text(errors="replace")
            self.check_start(text)
            self.note_last(directory)
            if struck:
                kills += 1
                self.struck[struck[0]] += 1
                print(f"{kills}\t{time.monotonic() - began:.0f} s\tstep {self.last}\t{struck[0]}\t{struck[1]}", flush=True)
                continue
            self.assertEqual(code, 0, text[-3000:])
            self.check_end(directory, whole)
            ended += 1
            if kills < KILLS:
                directory, self.last = self.folder / f"killed-{ended}", 0
                self.saving = "synchronous" if ended % 2 else "asynchronous"
        print(f"{kills} kills, {ended} runs to the end; {', '.join(f'{count} {name}' for name, count in sorted(self.struck.items()))}")
        inside = kills - self.struck["moment"]
        self.assertGreaterEqual(inside, 0.3 * kills)
        if kills >= 200:
            self.assertLessEqual({"write", "fsync", "rename", "unlink"}, set(self.struck))


if __name__ == "__main__":
    unittest.main()
