# SPDX-License-Identifier: MIT
"""Programs that are forked (fork_server.cpp, forked.cpp) do as programs that are started do: most other tests fork them."""
import os
import pathlib
import re
import signal
import subprocess
import time
import unittest

from support import BINARY, RunningTest, metrics, patient, program, series


def outcome(words, *arguments, **options):
    done = subprocess.run([*words, *map(str, arguments)], capture_output=True, text=True, timeout=patient(60), **options)
    return done.returncode, done.stdout, done.stderr


class ForkedTest(RunningTest):
    def test_words_files_folders_and_variables_come_through(self):
        there = self.folder / "there"
        there.mkdir()
        (there / "own.toml").write_text(self.config.read_text())
        for arguments in (("--version",), ("plan", "own.toml", "--json"), ("plan", "own.toml", "--memory.budget", "1 KiB"),
                          ("plan", "näne \"x\".toml"), ("plan", ""), (), ("train", self.config, "--no-such-key")):
            for variables in ({}, {"GARONNE_CACHE": str(there)}, {"COLUMNS": "40"}):
                options = {"cwd": there, "env": os.environ | variables, "stdin": subprocess.DEVNULL}
                with self.subTest(arguments=arguments, variables=variables):
                    forked, started = (outcome(words, *arguments, **options) for words in (program(), [BINARY]))
                    self.assertEqual(forked, started)

    def test_limits_and_masks_come_through(self):
        for limit in ("ulimit -f 0", "umask 077"):
            modes = []
            for name, words in (("forked", program()), ("started", [BINARY])):
                target = self.folder / f"{name}-{limit.split()[0]}.h5"
                shell = ["bash", "-c", f'{limit}; exec "$@"', "bash"]
                code, _, error = outcome([*shell, *words], "data", "text", self.folder / "train.txt", "--output", target)
                modes.append((code, target.exists() and target.stat().st_mode, re.sub(r"partial-\w+|" + name, "", error)))
            self.assertEqual(*modes)

    def test_ranks_train_the_same_bits(self):
        directories = [self.directory(name) for name in ("forked", "started")]
        for directory, words in zip(directories, (program(), [BINARY]), strict=True):
            code, _, error = outcome(["mpirun", "-n", "2", *words], "train", self.config, "--grid.data", 2, "--run.directory", directory)
            self.assertEqual(code, 0, error)
        self.assertEqual(*(series(directory, "loss") for directory in directories))
        self.assertTrue(self.tensor_files(directories[0], 6) == self.tensor_files(directories[1], 6))

    def forked(self, directory, words=None):
        """A training without end that has come to its first row, and the number of the fork."""
        with open(self.log_of(directory), "w") as log:
            job = subprocess.Popen([*(words or program()), "train", str(self.config), "--run.directory", str(directory), "--train.steps", "1000000"],
                                   stdout=log, stderr=subprocess.STDOUT)
        self.addCleanup(self.end, job)
        deadline = time.time() + patient(60)
        while not ((directory / "metrics.jsonl").exists() and metrics(directory)):
            self.assertIsNone(job.poll(), "it ended")
            self.assertLess(time.time(), deadline)
            time.sleep(0.05)
        said = self.said(directory)
        return job, int(said.split("TERM to process ", 1)[1].split(",")[0])

    def test_signals_pass_and_ends_come_back(self):
        directory = self.directory("stopped")
        job, fork = self.forked(directory)
        job.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(timeout=patient(60)), 75, self.said(directory))
        job, fork = self.forked(self.directory("killed"))
        os.kill(fork, signal.SIGKILL)
        self.assertEqual(job.wait(timeout=patient(60)), -signal.SIGKILL)

    def test_ignored_signals_stay_ignored(self):
        ignored = self.ignored([BINARY])
        self.assertIn(signal.SIGPIPE, ignored)  # a training outlives who reads what it prints
        self.assertEqual(self.ignored(program()), ignored)
        for words in (program(), [BINARY]):
            self.assertIn(signal.SIGHUP, self.ignored(["nohup", *words]))

    def ignored(self, words):
        """The signals that a training ignores, by what the system says of it."""
        directory = self.directory(f"ignores-{len(words)}-{words[0].rsplit('/', 1)[-1]}")
        job, fork = self.forked(directory, words)
        status = pathlib.Path(f"/proc/{fork}/status").read_text()
        job.kill()
        job.wait()
        mask = int(re.search(r"SigIgn:\s*(\w+)", status)[1], 16)
        return {number for number in signal.valid_signals() if mask >> (number - 1) & 1}

    def test_a_fork_ends_with_who_asked_for_it(self):
        job, fork = self.forked(self.directory("left"))
        job.kill()
        job.wait()
        deadline = time.time() + patient(30)
        while pathlib.Path(f"/proc/{fork}").exists():
            self.assertLess(time.time(), deadline, "it goes on")
            time.sleep(0.05)


if __name__ == "__main__":
    unittest.main()
