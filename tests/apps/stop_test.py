# SPDX-License-Identifier: MIT
"""Stopping a run from outside: which signal to whom, what is saved, what the exit code is. The quick cases by default;
all of them with GARONNE_ALL_STOPS=1."""
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import time
import unittest

from support import BINARY, SOURCE, ProgramTest, metrics, patient, ranks_of, run, series

ALL = os.environ.get("GARONNE_ALL_STOPS") == "1"
QUICK = ["--train.global_batch", 8, "--train.micro_batch", 2]


class StopTest(ProgramTest):
    def slow(self):
        """Options of steps of some seconds, more than mpirun leaves its ranks, by a guess that is then corrected."""
        if not hasattr(StopTest, "slow_samples"):
            folder = self.folder / "guess"
            options = ["--train.global_batch", 256, "--train.micro_batch", 8, "--evaluation.batches", 0]
            self.train(folder, *options, "--train.steps", 2)
            second = metrics(folder)[1]["seconds"]
            StopTest.slow_samples = max(16, 16 * round(256 * 5.0 / second / 16))
        return ["--train.global_batch", StopTest.slow_samples, "--train.micro_batch", 8, "--evaluation.batches", 0]

    @staticmethod
    def to_go_on(directory, ranks):
        """Options that others may follow, which win."""
        return ["--run.directory", directory, "--grid.data", max(1, ranks), "--train.steps", 1000000]

    def start(self, directory, *options, ranks=0):
        launcher = ["mpirun", "-n", str(ranks)] if ranks else []
        command = [*launcher, BINARY, "train", self.config, *self.to_go_on(directory, ranks), *options]
        log = open(self.folder / f"{pathlib.Path(directory).name}.log", "w+")
        self.addCleanup(log.close)
        job = subprocess.Popen(list(map(str, command)), stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        self.addCleanup(lambda: job.poll() is None and os.killpg(job.pid, signal.SIGKILL))
        return job, log.name

    def wait_for(self, what, happens, job=None, seconds=90):
        end = time.monotonic() + patient(seconds)
        while not happens():
            self.assertTrue(job is None or job.poll() is None, f"the run ended before {what}")
            self.assertLess(time.monotonic(), end, f"no {what} within {seconds} s")
            time.sleep(0.01)

    def assert_ends(self, job, log, code, seconds=60):
        """Its log is shown where it ends otherwise or not at all."""
        try:
            ended = job.wait(timeout=patient(seconds))
        except subprocess.TimeoutExpired:
            ended = f"still running after {seconds} s"
        self.assertEqual(ended, code, pathlib.Path(log).read_text()[-3000:])

    def wait_for_text(self, job, log, text):
        self.wait_for(f"'{text}'", lambda: text in pathlib.Path(log).read_text(), job)

    def check_saved(self, directory, at_least, options=()):
        """The run says where it has stopped, that state is whole and in place, and the run goes on from it."""
        directory = pathlib.Path(directory)
        self.wait_for("a word where the run has stopped", (directory / "stopped").exists, seconds=60)
        step = int((directory / "stopped").read_text())
        self.assertGreaterEqual(step, at_least)
        self.wait_for("an end of saving", lambda: not list(directory.glob(".parting-*")), seconds=30)
        run("checkpoint", "verify", directory / "checkpoints" / f"step-{step}")
        self.assertEqual([row["step"] for row in metrics(directory)], list(range(1, step + 1)))
        self.assertEqual([path.name for path in (directory / "checkpoints").iterdir() if "partial" in path.name], [])
        self.assertFalse((directory / "stop").exists())
        return step

    def check_same_bits(self, directory, step, *options, ranks=0):
        """What was saved are the bits of a run that was made to end there."""
        whole = self.folder / f"{pathlib.Path(directory).name}-whole"
        self.train(whole, *self.to_go_on(whole, ranks), *options, "--train.stop_after", step, ranks=ranks, check=75)
        for rank in range(max(1, ranks)):
            name = f"checkpoints/step-{step}/rank_{rank}.safetensors"
            self.assertEqual((pathlib.Path(directory) / name).read_bytes(), (whole / name).read_bytes(), f"rank {rank}")

    def stop(self, name, number, options, ranks=0, after="step       2/", code=75, at_least=2):
        directory = self.folder / name
        job, log = self.start(directory, *options, ranks=ranks)
        self.wait_for_text(job, log, after)
        time.sleep(0.3)  # into the step
        job.send_signal(number)
        self.assert_ends(job, log, code, 120)
        return directory, self.check_saved(directory, at_least)

    def test_no_thread_that_computes_receives_requests(self):
        """Kernels may have other things in the register of the stack, below which a handler's frame is written."""
        requests = [signal.SIGHUP, signal.SIGINT, signal.SIGUSR1, signal.SIGTERM]
        for ranks in (0, 2):
            receivers = []
            for threads in (1, 3):
                job, log = self.start(self.folder / f"receivers-{ranks}-{threads}", *QUICK, "--run.threads", threads, ranks=ranks)
                self.wait_for_text(job, log, "step       2/")
                processes = ranks_of(job) if ranks else [job.pid]
                self.assertEqual(len(processes), max(1, ranks))
                for process in processes:
                    receivers.append(0)
                    for task in pathlib.Path(f"/proc/{process}/task").iterdir():
                        status = (task / "status").read_text()
                        blocked = int(re.search(r"SigBlk:\s*(\w+)", status)[1], 16)
                        receives = [number for number in requests if not blocked >> (number - 1) & 1]
                        receivers[-1] += receives != []
                        self.assertFalse(receives and int(task.name) == process, f"rank of {ranks}, {threads} threads: {receives}")
                job.send_signal(signal.SIGUSR1)
                self.assert_ends(job, log, 75)
            # With more threads that compute there are as many: those of MPI and the one that is for it.
            self.assertEqual(len(set(receivers)), 1, f"{ranks} ranks: {receivers}")
            self.assertGreater(receivers[0], 0)
            if not ranks:
                self.assertEqual(receivers[0], 1)

    # An interrupt of mpirun leaves its ranks a second, and ends with 1 whatever they do.
    def test_interrupting_mpirun_in_a_long_step_saves_the_state_before_it(self):
        for attempt in range(5):
            options = self.slow()
            directory, step = self.stop(f"long-{attempt}", signal.SIGINT, options, ranks=2, after="step       1/", code=1, at_least=1)
            if min(series(directory, "seconds")) > 2.2:
                break
            StopTest.slow_samples *= 2  # the guess was too short for what is to be shown
        if ALL:
            self.check_same_bits(directory, step, *options, ranks=2)

    def test_interrupting_mpirun_in_short_steps_saves(self):
        directory, step = self.stop("short", signal.SIGINT, QUICK, ranks=2, code=1)
        self.check_same_bits(directory, step, *QUICK, ranks=2)
        self.train(directory, *self.to_go_on(directory, 2), *QUICK, "--train.stop_after", 1, ranks=2, check=75)
        self.assertEqual(series(directory, "step"), list(range(1, step + 2)))

    def test_interrupting_mpirun_where_the_last_step_is_saved_already(self):
        """With a checkpoint after each step, most of which are in place when the request comes."""
        self.stop("each", signal.SIGINT, [*QUICK, "--checkpoint.every", 1, "--checkpoint.saving", "synchronous", "--checkpoint.keep", 2],
                  ranks=2, code=1)

    def test_an_interrupt_alone_saves(self):
        self.stop("alone", signal.SIGINT, QUICK)

    def test_an_interrupt_alone_saves_where_nobody_reads_what_is_printed(self):
        """As of `garonne train ... 2>&1 | tee log`, whose tee dies of the same Ctrl-C."""
        directory = self.folder / "piped"
        command = [BINARY, "train", self.config, *self.to_go_on(directory, 0), *QUICK, "--log.every", 1]
        job = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        self.addCleanup(lambda: job.poll() is None and os.killpg(job.pid, signal.SIGKILL))
        for line in job.stdout:
            if line.startswith("step       2/"):
                break
        job.stdout.close()
        step = metrics(directory)[-1]["step"]
        self.wait_for("steps that nobody hears of", lambda: metrics(directory)[-1]["step"] > step + 3, job)
        job.send_signal(signal.SIGINT)
        self.assertEqual(job.wait(timeout=patient(60)), 75)
        self.check_saved(directory, step + 3)
        # Commands that write nothing but what they print end with their reader.
        helped = subprocess.run(["bash", "-c", f"{shlex.quote(BINARY)} plan --help | head -1; echo ${{PIPESTATUS[0]}}"], capture_output=True,
                                text=True, check=True)
        self.assertEqual(helped.stderr, "")
        self.assertIn(helped.stdout.split()[-1], ("0", "141"))

    def test_a_stop_on_request_saves_before_it_validates(self):
        for name, every, validates in (("seldom", 1000000, False), ("always", 1, True)):
            with self.subTest(name):
                options = [*QUICK, "--evaluation.every", every, "--evaluation.batches", 2]
                directory, step = self.stop(f"validates-{name}", signal.SIGUSR1, options)
                log = (self.folder / f"validates-{name}.log").read_text()
                checkpoint, loss = (log.find(f"step {step:>7}  {word}") for word in ("checkpoint", "validation loss"))
                self.assertGreater(checkpoint, 0, log)
                self.assertEqual(loss > checkpoint, validates, log[-2000:])
                # The rows are those of a run that nobody stopped.
                self.train(directory, *self.to_go_on(directory, 0), *options, "--train.stop_after", 2, check=75)
                whole = self.folder / f"validates-{name}-whole"
                self.train(whole, *self.to_go_on(whole, 0), *options, "--train.stop_after", step + 2, check=75)
                for key in ("step", "loss", "gradient_norm", "validation_loss"):
                    values = [[row.get(key) for row in metrics(folder)] for folder in (directory, whole)]
                    self.assertEqual(*values, key)

    def test_a_validation_under_way_waits_for_the_state_to_be_saved(self):
        """It is begun again behind that, so that the rows are those of a run that nobody stopped."""
        text, tokens = self.folder / "long.txt", self.folder / "long.h5"
        text.write_text("what is validated on for some time\n" * 100_000)
        run("data", "text", text, "--output", tokens)
        options = [*QUICK, "--data.validation", tokens, "--evaluation.every", 2]
        guess, directory = self.folder / "validating-guess", self.folder / "validating"
        self.train(guess, *self.to_go_on(guess, 0), *options, "--evaluation.batches", 64, "--train.steps", 2)
        seconds = metrics(guess)[1]["validation_seconds"]
        options += ["--evaluation.batches", min(50_000, max(64, round(64 * 10 / seconds)))]
        job, log = self.start(directory, *options)
        self.wait_for_text(job, log, "step       2/")
        time.sleep(1)
        self.assertNotIn("validation loss", pathlib.Path(log).read_text())
        job.send_signal(signal.SIGUSR1)
        begun = time.monotonic()
        self.wait_for("a checkpoint", (directory / "checkpoints" / "step-2" / "manifest.json").exists, job)
        self.assertNotIn("validation loss", pathlib.Path(log).read_text())
        self.assertLess(time.monotonic() - begun, patient(8))
        self.assert_ends(job, log, 75, 120)
        self.assertEqual(self.check_saved(directory, 2), 2)
        self.assertIsNotNone(metrics(directory)[1].get("validation_loss"))

    # As of a terminal that is closed.
    def test_a_hangup_alone_saves_and_under_nohup_does_nothing(self):
        self.stop("hung-up", signal.SIGHUP, QUICK)
        directory = self.folder / "nohup"
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            job, log = self.start(directory, *QUICK)
        finally:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
        self.wait_for_text(job, log, "step       2/")
        job.send_signal(signal.SIGHUP)
        step = metrics(directory)[-1]["step"]
        self.wait_for("more steps", lambda: metrics(directory)[-1]["step"] > step + 3, job)
        self.assertFalse((directory / "stopped").exists())
        job.send_signal(signal.SIGTERM)
        self.assert_ends(job, log, 75)

    def test_a_second_interrupt_alone_ends_at_once(self):
        job, log = self.start(self.folder / "twice-interrupted", *self.slow())
        self.wait_for_text(job, log, "ready after")
        for _ in range(2):
            job.send_signal(signal.SIGINT)
            time.sleep(0.1)  # far less than the step that the first one waits for; signals at once would be one
        self.assert_ends(job, log, -signal.SIGINT)
        self.assertFalse((self.folder / "twice-interrupted" / "stopped").exists())

    @unittest.skipUnless(ALL, "many runs")
    def test_every_grid_saves_what_it_holds(self):
        for name, grid in (("zero", ["--grid.zero", 3, "--grid.data", 2]), ("pipeline", ["--grid.data", 1, "--grid.pipeline", 2])):
            with self.subTest(name):
                directory, step = self.stop(name, signal.SIGTERM, [*QUICK, *grid], ranks=2, code=1)
                self.check_same_bits(directory, step, *QUICK, *grid, ranks=2)

    @unittest.skipUnless(ALL, "many runs")
    def test_one_rank_that_is_told_to_end_ends_all_after_the_step(self):
        directory = self.folder / "one-rank"
        job, log = self.start(directory, *QUICK, ranks=2)
        self.wait_for_text(job, log, "step       2/")
        os.kill(ranks_of(job)[-1], signal.SIGTERM)
        self.assert_ends(job, log, 75)
        self.check_saved(directory, 2)

    def test_a_request_before_training_says_so_and_leaves_no_lock(self):
        for ranks, ask in ((2, "signal"), (0, "signal"), (0, "stop")):
            with self.subTest(f"{ranks} {ask}"):
                directory = self.folder / f"early-{ranks}-{ask}" / "deep"
                # Of this width nothing is measured yet, which takes its time.
                job, log = self.start(directory, *QUICK, "--model.hidden", 4 * (13 + 2 * ranks + len(ask)), ranks=ranks)
                self.wait_for("lock", (directory / "lock").exists, job)
                if ask == "signal":
                    job.send_signal(signal.SIGUSR1)
                else:
                    run("stop", directory)
                self.assert_ends(job, log, 75)
                self.assertFalse((directory / "lock").exists())
                self.assertFalse((directory / "stop").exists())
                if "step       1/" not in pathlib.Path(log).read_text():
                    self.assertIn("stopped before training began", pathlib.Path(log).read_text())
                    # Nothing is left, or a run directory in which nothing has happened.
                    if (directory / "checkpoints").exists():
                        self.assertEqual(list((directory / "checkpoints").iterdir()), [])
                        self.assertEqual([row for row in directory.glob("metrics.jsonl") if "step" in row.read_text()], [])
                    else:
                        self.assertFalse(directory.parent.exists())
                    self.assertNotIn("warning", self.train(directory, *QUICK, "--train.steps", 1).stdout)

    def test_garonne_stop(self):
        directory = self.folder / "asked"
        refused = run("stop", self.folder / "nowhere", check=5)
        self.assertIn("is no run directory", refused.stderr)
        job, log = self.start(directory, *QUICK, ranks=2)
        self.wait_for_text(job, log, "step       2/")
        asked = run("stop", directory, "--wait", "--timeout", 60)
        self.assert_ends(job, log, 75)
        step = self.check_saved(directory, 2)
        self.assertIn(f"stopped after step {step}", asked.stdout)
        # A request that is left over stops no later run.
        (directory / "stop").write_text("stop\n")
        self.train(directory, *self.to_go_on(directory, 2), *QUICK, "--train.stop_after", 3, ranks=2, check=75)
        self.assertEqual(self.check_saved(directory, step + 3), step + 3)

    def test_garonne_stop_where_no_run_works(self):
        directory = self.folder / "over"
        self.train(directory, *QUICK, "--train.steps", 2)
        refused = run("stop", directory, check=5)
        self.assertIn("no run works there", refused.stderr)
        self.assertFalse((directory / "stop").exists())
        # Killed, with its lock left.
        job, log = self.start(directory, *QUICK)
        self.wait_for_text(job, log, "step       4/")
        job.kill()
        job.wait()
        refused = run("stop", directory, "--wait", check=5)
        self.assertRegex(refused.stderr, rf"no run works there.*process {job.pid} on .* has ended")
        self.assertFalse((directory / "stop").exists())
        # On another machine, where nobody can tell: a request that nobody hears is withdrawn.
        lock = json.loads((directory / "lock").read_text()) | {"host": "node07", "boot": "another"}
        (directory / "lock").write_text(json.dumps(lock))
        self.assertIn("no run stopped", run("stop", directory, "--wait", "--timeout", 1, check=5).stderr)
        self.assertFalse((directory / "stop").exists())
        # It ends with the request unread.
        command = [BINARY, "stop", str(directory), "--wait"]
        waiting = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.addCleanup(lambda: waiting.poll() is None and waiting.kill())
        self.wait_for("request", (directory / "stop").exists)
        (directory / "lock").unlink()
        output, _ = waiting.communicate(timeout=patient(60))
        self.assertIn("the run has ended", output)
        self.assertEqual(waiting.returncode, 0)
        self.assertFalse((directory / "stop").exists())

    def test_a_rank_that_was_stopped_is_named(self):
        job, log = self.start(self.folder / "stuck", *QUICK, "--run.timeout", 4, ranks=2)
        self.wait_for_text(job, log, "step       2/")
        stopped = ranks_of(job)[-1]
        os.kill(stopped, signal.SIGSTOP)
        self.assert_ends(job, log, 4)
        text = pathlib.Path(log).read_text()
        self.assertRegex(text, r"\[rank \d/2 .*\] waiting for [23] s in step \d+, .*: rank \d has not arrived")
        self.assertRegex(text, r"rank \d has not arrived within 4 s \(run.timeout\)")

    def test_a_job_that_was_suspended_longer_than_the_limit_goes_on(self):
        """As by scontrol suspend, which reaches one process after the other, so that one waits for another by then."""
        directory = self.folder / "suspended"
        job, log = self.start(directory, *QUICK, "--run.timeout", 6, ranks=2)
        self.wait_for_text(job, log, "step       2/")
        ranks = ranks_of(job)
        self.assertEqual(len(ranks), 2)
        for rank, number, pause in ((0, signal.SIGSTOP, 1), (1, signal.SIGSTOP, 8), (1, signal.SIGCONT, 0.6), (0, signal.SIGCONT, 0)):
            os.kill(ranks[rank], number)
            time.sleep(pause)
        step = metrics(directory)[-1]["step"]
        self.wait_for("more steps", lambda: metrics(directory)[-1]["step"] > step + 3, job)
        job.send_signal(signal.SIGUSR1)
        self.assert_ends(job, log, 75)
        self.check_saved(directory, step + 3)

    def test_the_batch_script_runs_any_grid(self):
        environment = {**os.environ, "SLURM_NTASKS": "2", "LAUNCHER": "mpirun", "GARONNE": BINARY, "SLURM_SUBMIT_DIR": str(SOURCE)}
        for name, options in (("pipe", ["--grid.data", "1", "--grid.pipeline", "2"]), *([("data", [])] if ALL else [])):
            with self.subTest(name):
                command = ["bash", SOURCE / "slurm/train.sbatch", self.config, "--run.directory", self.folder / name, "--train.steps", "2", *options]
                done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment, timeout=patient(100), check=False)
                self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr[-2000:])
                self.assertIn("pipeline 2" if name == "pipe" else "data 2", done.stdout)

    def test_a_written_batch_script_saves_when_it_is_warned_and_queues_itself_again(self):
        folder = self.folder / "written job"  # a blank in its name
        folder.mkdir()
        queue = folder / "scontrol"
        queue.write_text('#!/bin/sh\necho "$@" >>"$(dirname "$0")/queued"\n')
        queue.chmod(0o755)
        directory, script = folder / "run", folder / "job.sbatch"
        done = run("plan", self.config, *QUICK, *self.to_go_on(directory, 2), "--sbatch", script, "--launcher", "mpirun")
        self.assertIn(f"job: sbatch {shlex.quote(str(script))}", done.stdout)
        environment = {**os.environ, "SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_JOB_ID": "17", "SLURM_SUBMIT_DIR": str(folder),
                       "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
        log = open(folder / "log", "w+")
        self.addCleanup(log.close)
        job = subprocess.Popen(["bash", str(script), "--checkpoint.keep", "3"], stdout=log, stderr=subprocess.STDOUT, env=environment,
                               start_new_session=True)
        self.addCleanup(lambda: job.poll() is None and os.killpg(job.pid, signal.SIGKILL))
        self.wait_for_text(job, log.name, "step       2/")
        job.send_signal(signal.SIGUSR1)
        self.assert_ends(job, log.name, 75, 120)
        self.check_saved(directory, 2)
        self.assertEqual((folder / "queued").read_text(), "requeue 17\n")
        self.assertIn("keep = 3", (directory / "config.toml").read_text())
        for options, words in ((["--launcher", "srun"], "--sbatch"), (["--sbatch", script, "--time-limit", "soon"], "--time-limit"),
                               (["--sbatch", script, "--sweep", "batch"], "not for a sweep")):
            self.assertIn(words, run("plan", self.config, *options, check=2).stderr)

    def batch_script_under_srun(self, name, srun, number=signal.SIGUSR1):
        """slurm/train.sbatch where srun and scontrol are those that are given; its exit code, log and what was queued again."""
        folder = self.folder / name
        folder.mkdir()
        for program, text in (("srun", srun), ("scontrol", '#!/bin/sh\necho "$@" >>"$(dirname "$0")/queued"\n')):
            (folder / program).write_text(text)
            (folder / program).chmod(0o755)
        environment = {**os.environ, "SLURM_NTASKS": "1", "SLURM_JOB_ID": "17", "SLURM_SUBMIT_DIR": str(SOURCE), "GARONNE": BINARY,
                       "LAUNCHER": "srun", "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
        log = open(folder / "log", "w+")
        self.addCleanup(log.close)
        job = subprocess.Popen(list(map(str, ["bash", SOURCE / "slurm/train.sbatch", self.config, *QUICK, *self.to_go_on(folder / "run", 1)])),
                               stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True)
        self.addCleanup(lambda: job.poll() is None and os.killpg(job.pid, signal.SIGKILL))
        self.wait_for_text(job, log.name, "step       2/")
        job.send_signal(number)
        code = job.wait(timeout=patient(120))
        queued = folder / "queued"
        return code, pathlib.Path(log.name).read_text(), queued.read_text() if queued.exists() else ""

    # What srun does to the others when a rank has left with code 75: it tells them to end, whatever they are at.
    SRUN = """#!/usr/bin/env python3
import pathlib, signal, subprocess, sys, time
words = sys.argv[1:]
while words[0].startswith("-"):
    words.pop(0)
rank = subprocess.Popen(words)
signal.signal(signal.SIGUSR1, lambda *_: rank.send_signal(signal.SIGUSR1))
stopped = pathlib.Path(words[words.index("--run.directory") + 1]) / "stopped"
while rank.poll() is None:
    if stopped.exists() and END:
        rank.send_signal(signal.SIGTERM)
    time.sleep(0.001)
code = rank.returncode if rank.returncode >= 0 else 128 - rank.returncode
sys.exit(TURN)
"""

    def test_a_rank_that_is_told_to_end_when_all_is_saved_ends_as_the_others(self):
        code, log, queued = self.batch_script_under_srun("late-term", self.SRUN.replace("END", "True").replace("TURN", "code"))
        self.assertEqual((code, queued), (75, "requeue 17\n"), log[-3000:])
        self.assertNotIn("the launcher ended with", log)
        self.check_saved(self.folder / "late-term/run", 2)

    def test_a_launcher_that_tells_of_a_signal_after_the_run_has_stopped(self):
        srun = self.SRUN.replace("END", "False").replace("TURN", "143 if code == 75 else code")
        code, log, queued = self.batch_script_under_srun("srun-143", srun)
        self.assertEqual((code, queued), (75, "requeue 17\n"), log[-3000:])
        # One that ended otherwise is not queued again.
        kills = self.SRUN.replace("END", "False").replace("TURN", "143").replace("rank.send_signal(signal.SIGUSR1)", "rank.kill()")
        code, log, queued = self.batch_script_under_srun("killed", kills)
        self.assertEqual((code, queued), (143, ""), log[-3000:])

    def test_of_options_given_twice_the_last_counts(self):
        self.train(self.folder / "twice", *QUICK, "--train.steps", 3, "--train.steps", 1)
        self.assertEqual(len(metrics(self.folder / "twice")), 1)
        text = self.config.read_text().replace("steps = 6\n", "steps = 6\nsteps = 7\n")
        (self.folder / "twice.toml").write_text(text)
        self.assertIn("steps", run("plan", self.folder / "twice.toml", check=2).stderr)

    @unittest.skipUnless(ALL, "many runs")
    def test_every_signal_in_every_phase(self):
        """Ctrl-C, TERM and USR1; alone and under mpirun; short and long steps; before, during and after training."""
        for ranks in (0, 2):
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
                code = 1 if ranks and number != signal.SIGUSR1 else 75
                for kind, options in (("short", QUICK), ("long", self.slow())):
                    name = f"{ranks}-{signal.Signals(number).name}-{kind}"
                    with self.subTest(name, phase="during"):
                        first = 2 if kind == "short" else 1
                        directory, step = self.stop(f"{name}-during", number, options, ranks, f"step {first:>7}/", code, first)
                        self.check_same_bits(directory, step, *options, ranks=ranks)
                    with self.subTest(name, phase="before"):
                        job, log = self.start(self.folder / f"{name}-before", *options, ranks=ranks)
                        self.wait_for_text(job, log, "to stop")
                        job.send_signal(number)
                        self.assert_ends(job, log, code)
                    with self.subTest(name, phase="after"):
                        directory = self.folder / f"{name}-after"
                        job, log = self.start(directory, *options, "--train.steps", 2, ranks=ranks)
                        self.wait_for_text(job, log, "step       2/")
                        job.send_signal(number)
                        self.assertIn(job.wait(timeout=patient(60)), (0, code))
                        self.wait_for("the last checkpoint", (directory / "checkpoints/step-2/manifest.json").exists)
                        run("checkpoint", "verify", directory / "checkpoints/step-2")


if __name__ == "__main__":
    unittest.main()
