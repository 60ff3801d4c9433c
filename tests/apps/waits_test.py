# SPDX-License-Identifier: MIT
"""Ranks that others wait for. One that was stopped, whatever it was doing, is named within a minute, and the job ends
with exit code 4; one that is only slow is named each minute, and the run goes on. All at once, since they mostly wait.
GARONNE_HELD_SECONDS is how long the slow ones take, 70 or, in test waits_long, 310."""
import os
import pathlib
import re
import signal
import socket
import subprocess
import time
import unittest

from support import BINARY, ProgramTest, patient, strikes

HELD_SECONDS = int(os.environ.get("GARONNE_HELD_SECONDS", "70"))
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
        ranks = subprocess.run(["pgrep", "-P", str(job.pid)], capture_output=True, text=True, check=True).stdout.split()
        os.kill(sorted(map(int, ranks))[rank], signal.SIGSTOP)
        where = self.folder / f"{name}.where"
        where.write_text("stopped\n")
        return job, log, where

    def test_who_is_stopped_ends_the_job_and_who_is_slow_does_not(self):
        endless = ["--train.steps", 1000000]
        begun = lambda text: "to stop" in text  # before the data are read and anything is planned
        in_a_step = lambda text: "step       7/" in text
        checkpoints = "/checkpoints/"
        stopped = {
            "start": self.stop_when("start", [*DATA, *endless, "--model.hidden", 52], 1, begun),
            "step": self.stop_when("step", [*PIPELINE, *endless], 0, in_a_step),
            "send": self.placed("send", [*PIPELINE, *endless], 1, "send", 100, "", "stop"),
            "collective": self.placed("collective", [*DATA, *endless], 0, "send", 400, "", "stop"),
            "save": self.placed("save", [*DATA, *endless], 1, "write", 2, checkpoints, "stop"),
            "data": self.placed("data", [*DATA, *endless], 1, "read", 12, "tokens.h5", "stop"),
        }
        held = {
            "slow-save": self.placed("slow-save", [*DATA, "--train.steps", 10], 1, "fsync", 1, checkpoints, "hold"),
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
                rank = {"step": 0, "collective": 0}.get(name, 1)
                said = re.search(rf"\[rank {1 - rank}/2 .*\] .*rank {rank} does not answer.*", text)
                self.assertIsNotNone(said, text[-3000:])
                if name != "start":  # before ranks know of each other
                    # Coordinates are known once the run has its grid.
                    coordinates = "" if name == "data" else r" data \d+, pipeline \d+, tensor 0"
                    self.assertRegex(said[0], rf": \[rank {rank}/2 {re.escape(socket.gethostname())}{coordinates}\]")
                if name in ("step", "send", "collective"):
                    self.assertRegex(said[0], r"step \d+, .* \(after .*\) failed")
                seconds = ended[name] - struck[name]
                print(f"stopped in {name}: over after {seconds:.0f} s: {said[0]}", flush=True)
                # The job is over some seconds after the rank was named: others get time to say what they see.
                self.assertLess(seconds, patient(66))
        for name, (job, log, where) in held.items():
            with self.subTest(name):
                code = job.wait(timeout=patient(HELD_SECONDS + 60))
                text = log.read_text()
                rank = 0 if name == "slow-file" else 1
                self.assertEqual(code, 0, text[-3000:])
                self.assertTrue(where.exists(), text[-3000:])
                lines = re.findall(rf"waiting for (\d+) s in .*: rank {rank} has not arrived, but answers", text)
                print(f"slow in {name}: named after {', '.join(lines)} s", flush=True)
                self.assertEqual(list(map(int, lines)), list(range(60, HELD_SECONDS, 60)))

    def test_a_save_may_take_longer_than_the_limit_of_waits(self):
        options = [*DATA, "--train.steps", 10, "--run.timeout", 8, "--checkpoint.saving", "synchronous"]
        job, log, where = self.placed("long-save", options, 1, "fsync", 1, "/checkpoints/", "hold", 25)
        code = job.wait(timeout=patient(120))
        text = log.read_text()
        self.assertEqual(code, 0, text[-3000:])
        self.assertTrue(where.exists(), text[-3000:])
        said = re.findall(r"\[rank 0/2 .*\] waiting for (\d+) s in the checkpoint of step 5: rank 1 has not arrived, but answers: "
                          r"on \S+ in the checkpoint of step 5", text)
        # Said when they have passed; a busy machine is a second or two late.
        late = [int(seconds) - due for seconds, due in zip(said, range(4, 25, 4), strict=True)]
        self.assertTrue(all(0 <= one < 3 for one in late), text[-3000:])
        self.assertIn("step      10/", text)


if __name__ == "__main__":
    unittest.main()
