# SPDX-License-Identifier: MIT
"""Ranks that others wait for. One that was stopped, whatever it was doing, is named within a minute, and the job ends
with exit code 4; one that is only slow is named each minute, and the run goes on. All at once, since they mostly wait.
GARONNE_HELD_SECONDS is how long the slow ones take, 70 or, in test waits_long, 310, and GARONNE_SAVE_SECONDS a slow save, 610
there."""
import os
import pathlib
import re
import signal
import socket
import subprocess
import time
import unittest

from support import BINARY, ProgramTest, patient, ranks_of, run, strikes

HELD_SECONDS = int(os.environ.get("GARONNE_HELD_SECONDS", "70"))
SAVE_SECONDS = int(os.environ.get("GARONNE_SAVE_SECONDS", HELD_SECONDS))
OPTIONS = ["--train.global_batch", 8, "--train.micro_batch", 2, "--evaluation.batches", 0, "--checkpoint.every", 5]
DATA = ["--grid.data", 2]
PIPELINE = ["--grid.pipeline", 2]


class WaitsTest(ProgramTest):
    def start(self, name, options, before=()):
        log = open(self.folder / f"{name}.log", "w+")
        self.addCleanup(log.close)
        command = ["mpirun", "-n", 2, *before, BINARY, "train", self.config, "--run.directory", self.folder / name, *OPTIONS,
                   *options]
        job = subprocess.Popen(list(map(str, command)), stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        self.addCleanup(lambda: job.poll() is None and os.killpg(job.pid, signal.SIGKILL))
        return job, pathlib.Path(log.name)

    def placed(self, name, options, rank, call, number, under, whom, held_seconds=HELD_SECONDS):
        """Returns the job, its log, and the file that says when the rank was struck."""
        where = self.folder / f"{name}.where"
        job, log = self.start(name, options, strikes(rank, call, number, under, whom, where, held_seconds))
        return job, log, where

    def stop_when(self, name, options, rank, happens):
        """The same for a rank that is stopped from outside."""
        job, log = self.start(name, options)
        end = time.monotonic() + patient(60)
        while not happens(log.read_text()):
            self.assertIsNone(job.poll(), log.read_text()[-3000:])
            self.assertLess(time.monotonic(), end, log.read_text()[-3000:])
            time.sleep(0.002)
        os.kill(ranks_of(job)[rank], signal.SIGSTOP)
        where = self.folder / f"{name}.where"
        where.write_text("stopped\n")
        return job, log, where

    def test_who_is_stopped_ends_the_job_and_who_is_slow_does_not(self):
        endless = ["--train.steps", 1000000]
        begun = lambda text: "to stop" in text  # before the data are read and anything is planned
        in_a_step = lambda text: "step       7/" in text
        checkpoints = "/checkpoints/"
        # Of a step's 64 forwards, which come before all backwards, one in the middle: a run computes nothing before its
        # steps where another has measured.
        forwards = [*PIPELINE, "--grid.schedule", "gpipe", "--train.global_batch", 128]
        measured, log = self.start("measured", [*forwards, "--train.steps", 1])
        self.assertEqual(measured.wait(timeout=patient(100)), 0, log.read_text()[-3000:])
        # Where a slow checkpoint is still being written when the next is due, the others wait for that instead.
        unsaved = [*endless, "--checkpoint.every", 0]
        stopped = {
            "start": self.stop_when("start", [*DATA, *endless, "--model.hidden", 52], 1, begun),
            "step": self.stop_when("step", [*PIPELINE, *unsaved], 0, in_a_step),
            "forward": self.placed("forward", [*forwards, *unsaved], 0, "compute", 70, "", "stop"),
            "send": self.placed("send", [*PIPELINE, *unsaved], 1, "send", 100, "", "stop"),
            "collective": self.placed("collective", [*DATA, *unsaved], 0, "send", 400, "", "stop"),
            "save": self.placed("save", [*DATA, *endless], 1, "write", 2, checkpoints, "stop"),
            # Before the group is made, which the others wait for in a call of MPI that nothing ends.
            "group": self.placed("group", [*DATA, *endless], 1, "group", 2, "", "stop"),
            "data": self.placed("data", [*DATA, *endless], 1, "read", 12, "tokens.h5", "stop"),
            # Where nobody can be asked: the host shows who was stopped.
            "start-of-MPI": self.placed("start-of-MPI", [*DATA, *endless], 1, "start", 1, "", "stop"),
            "end-of-MPI": self.placed("end-of-MPI", [*DATA, "--train.steps", 1], 1, "end", 1, "", "stop"),
        }
        held = {
            "slow-save": self.placed("slow-save", [*DATA, "--train.steps", 10], 1, "fsync", 1, checkpoints, "hold", SAVE_SECONDS),
            "slow-instruction": self.placed("slow-instruction", [*forwards, "--train.steps", 4], 0, "compute", 70, "", "hold"),
            "slow-profile": self.placed("slow-profile", [*DATA, "--train.steps", 10, "--model.hidden", 60], 0, "compute", 500, "",
                                        "hold"),
            "slow-file": self.placed("slow-file", [*PIPELINE, "--train.steps", 10], 0, "write", 3, "metrics.jsonl", "hold"),
        }
        end = time.monotonic() + patient(150)
        running, struck, ended = dict(stopped), {}, {}
        while running and time.monotonic() < end:
            for name, (job, log, where) in list(running.items()):
                if name not in struck and where.exists():
                    struck[name] = time.monotonic()
                if job.poll() is not None:
                    ended[name] = time.monotonic()
                    del running[name]
            time.sleep(0.05)
        for name, (job, log, where) in stopped.items():
            with self.subTest(name):
                text = log.read_text()
                self.assertIn(name, struck, text[-3000:])
                self.assertEqual(job.poll(), 4, text[-3000:])
                rank = {"step": 0, "forward": 0, "collective": 0}.get(name, 1)
                of_mpi = name.endswith("-of-MPI")
                how = r"\(process \d+ of this host\) was stopped" if of_mpi else "does not answer"
                said = re.search(rf"\[rank {1 - rank}/2 .*\] .*rank {rank} {how}.*", text)
                self.assertIsNotNone(said, text[-3000:])
                if of_mpi:
                    self.assertIn(f"] the {name.replace('-', ' ')}", said[0])
                elif name != "start":  # before ranks know of each other
                    # Coordinates are known once the run has its grid.
                    known = r" data \d+, pipeline \d+, tensor 0"
                    coordinates = "" if name == "data" else known
                    if name == "group":  # the start makes some before, and as many more as it measures again
                        coordinates = f"({known})?"
                    self.assertRegex(said[0], rf": \[rank {rank}/2 {re.escape(socket.gethostname())}{coordinates}\]")
                if name in ("step", "forward", "send", "collective"):
                    self.assertRegex(said[0], r"step \d+, .* \(after .*\) failed")
                if name == "forward":  # what it makes has not come
                    self.assertRegex(said[0], r"step 1, wait layer\.0\.\w+ \(micro-batch \d+\) "
                                              r"\(after receive layer\.0\.\w+ \(micro-batch \d+\)\)")
                seconds = ended[name] - struck[name]
                print(f"stopped in {name}: over after {seconds:.0f} s: {said[0]}", flush=True)
                # The job is over some seconds after the rank was named: others get time to say what they see.
                self.assertLess(seconds, patient(66))
        for name, (job, log, where) in held.items():
            with self.subTest(name):
                seconds = SAVE_SECONDS if name == "slow-save" else HELD_SECONDS
                code = job.wait(timeout=patient(seconds + 60))
                text = log.read_text()
                rank = 1 if name == "slow-save" else 0
                self.assertEqual(code, 0, text[-3000:])
                self.assertTrue(where.exists(), text[-3000:])
                lines = re.findall(rf"waiting for (\d+) s in .*: rank {rank} has not arrived, but answers", text)
                print(f"slow in {name}: named after {', '.join(lines)} s", flush=True)
                self.assertEqual(list(map(int, lines)), list(range(60, seconds, 60)))

    def test_what_takes_longer_than_the_limit_of_waits_is_named_and_not_ended(self):
        limit, seconds = 8, 28
        options = ["--train.steps", 60, "--run.timeout", limit]
        text = (self.folder / "train.txt").read_text()
        (self.folder / "long.txt").write_text(80 * text)
        run("data", "text", self.folder / "long.txt", "--output", self.folder / "long.h5")
        # A model that no other test measures.
        first = [*DATA, *options, "--model.hidden", 44]
        # Chunk after chunk of it is read in steps.
        of_steps = [*DATA, *options, "--data.path", self.folder / "long.h5"]
        synchronous = [*DATA, *options, "--checkpoint.saving", "synchronous"]
        instruction = r"step \d+, (?:forward|forward-keep|backward|backward-input|backward-weight) \S+ \(micro-batch \d\)"
        cases = {
            # name: (options, rank, call, number, path, what the rank is in)
            "save": (synchronous, 1, "fsync", 1, "/checkpoints/", "the checkpoint of step 5"),
            "profile": (first, 0, "compute", 500, "", "measuring and planning"),
            "open": (of_steps, 1, "read", 12, "long.h5", "the start of the run"),
            "read": (of_steps, 1, "read", 110, "long.h5", r"step \d+, load micro-batch \(micro-batch \d\)"),
            "instruction": ([*DATA, *options], 1, "compute", 100, "", instruction),
            "stage": ([*PIPELINE, *options], 1, "compute", 100, "", instruction),
        }
        jobs = {name: self.placed(name, options, *strike, "hold", seconds) for name, (options, *strike, _) in cases.items()}
        for name, (job, log, where) in jobs.items():
            with self.subTest(name):
                code = job.wait(timeout=patient(150))
                text = log.read_text()
                self.assertEqual(code, 0, text[-3000:])
                self.assertTrue(where.exists(), text[-3000:])
                rank, doing = cases[name][1], cases[name][-1]
                in_what = r"step \d+, wait .*" if doing.startswith("step") else doing
                said = re.findall(rf"\[rank {1 - rank}/2 .*\] waiting for (\d+) s in {in_what}: rank {rank} has not arrived, "
                                  rf"but answers: on \S+ in {doing}", text)
                print(f"slow in {name}: named after {', '.join(said)} s", flush=True)
                # Before training ranks come to where they wait some seconds apart.
                self.assertGreater(len(said), 4, text[-3000:])
                # Said when they have passed; a busy machine is a second or two late.
                late = [int(one) - due for one, due in zip(said, range(limit // 2, seconds, limit // 2))]
                self.assertTrue(all(0 <= one < 3 for one in late), text[-3000:])
                self.assertIn("step      60/", text)


if __name__ == "__main__":
    unittest.main()
