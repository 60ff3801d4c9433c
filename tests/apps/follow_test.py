# SPDX-License-Identifier: MIT
"""scripts/follow: lines that are no rows, readers that leave, and how it ends with a run (tests/peer/follow_test.py has what it
hands to other programs)."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from support import BINARY, SOURCE, ProgramTest, patient

FOLLOW = [sys.executable, str(SOURCE / "scripts/follow")]


class RowsTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.run_directory = pathlib.Path(temporary.name)

    def write(self, *lines):
        (self.run_directory / "metrics.jsonl").write_text("".join(line + "\n" for line in lines))

    def once(self, *options):
        return subprocess.run([*FOLLOW, self.run_directory, "--csv", "-", *options], capture_output=True, text=True,
                              timeout=patient(60))

    def test_lines_that_are_no_rows_are_named_and_passed_over(self):
        self.write('{"step": 1, "loss": 2.5}', "[]", '{"loss": 1}', "{", '{"step": "x"}', '{"step": 2, "loss": 2.25}')
        done = self.once("--once")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([line.split(",")[0] for line in done.stdout.splitlines()], ["step", "1", "2"])
        self.assertEqual(done.stderr.count("has a line that is no row"), 4)

    def test_a_reader_may_leave(self):
        self.write(*(json.dumps({"step": step, "loss": 1.0}) for step in range(1, 20000)))
        command = " ".join(f"'{word}'" for word in [*FOLLOW, self.run_directory, "--csv", "-", "--once"])
        done = subprocess.run(["bash", "-c", f"set -o pipefail; {command} | head -2"], capture_output=True, text=True,
                              timeout=patient(60))
        self.assertEqual((done.stdout.count("\n"), done.stderr, done.returncode), (2, "", 0))

    def test_what_has_ended_is_not_waited_for(self):
        self.write('{"step": 1, "loss": 2.5}')
        self.assertIn("works no more; its last row is of step 1", self.once().stderr)
        (self.run_directory / "stopped").write_text("1\n")
        self.assertIn("was stopped after step 1", self.once().stderr)
        # A lock of somebody who gives no sign of life.
        (self.run_directory / "lock").write_text("{}")
        long_ago = time.time() - 600
        os.utime(self.run_directory / "lock", (long_ago, long_ago))
        self.assertIn("was stopped after step 1", self.once().stderr)


class EndTest(ProgramTest):
    def test_it_ends_with_a_run_that_is_stopped_or_killed(self):
        for kind, code, said in ((signal.SIGTERM, 75, "was stopped after step "), (signal.SIGKILL, -9, "works no more")):
            with self.subTest(kind.name):
                directory = self.directory(kind.name)
                directory.mkdir()
                follower = subprocess.Popen([*FOLLOW, directory, "--csv", directory / "rows.csv", "--every", "0.1"],
                                            stderr=subprocess.PIPE, text=True)
                self.addCleanup(lambda one=follower: one.poll() is None and one.kill())
                job = subprocess.Popen([BINARY, "train", self.config, "--run.directory", directory, "--train.steps", "1000000"],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                self.addCleanup(lambda one=job: one.poll() is None and one.kill())
                end = time.monotonic() + patient(60)
                while not (directory / "rows.csv").exists() or (directory / "rows.csv").read_text().count("\n") < 4:
                    self.assertIsNone(job.poll())
                    self.assertIsNone(follower.poll())
                    self.assertLess(time.monotonic(), end)
                    time.sleep(0.05)
                job.send_signal(kind)
                self.assertEqual(job.wait(timeout=patient(60)), code)
                _, errors = follower.communicate(timeout=patient(60))
                self.assertEqual(follower.returncode, 0, errors)
                self.assertIn(said, errors)
                rows = (directory / "metrics.jsonl").read_bytes()
                self.assertEqual((directory / "rows.csv").read_text().count("\n") - 1, rows.count(b"\n"))


if __name__ == "__main__":
    unittest.main()
