# SPDX-License-Identifier: MIT
"""Run directories: one run at a time, starts and ends of runs, metrics that survive damage."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import unittest

from support import BINARY, ProgramTest, RunningTest, metrics, patient, run, saved_steps, series


def contents(directory):
    """path -> (bytes, time of the last change) of every file below."""
    return {str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_mtime_ns)
            for path in sorted(pathlib.Path(directory).rglob("*")) if path.is_file()}


class LockTest(RunningTest):
    def test_a_second_run_is_refused_and_the_first_undisturbed(self):
        directory = self.directory("run")
        # What is read is not removed meanwhile.
        first = self.started(directory, "--checkpoint.every", 5, "--checkpoint.keep", 1000)
        for ranks in (0, 2):
            second = self.train(directory, "--grid.data", max(1, ranks), "--train.steps", 3, ranks=ranks, check=5)
            self.assertEqual(second.stderr.count("garonne:"), 1, second.stderr)
            for words in ("another run works in this directory", f"process {first.pid} on ", "run.directory"):
                self.assertIn(words, second.stderr)
        # Readers are not held off.
        deadline = time.time() + patient(60)
        while time.time() < deadline and not list((directory / "checkpoints").glob("step-*")):
            time.sleep(0.05)
        run("eval", directory)
        first.send_signal(signal.SIGTERM)
        self.assertEqual(first.wait(60), 75)
        self.assertFalse((directory / "lock").exists())
        self.assertEqual(series(directory, "step"), list(range(1, len(metrics(directory)) + 1)))
        self.assertEqual(saved_steps(directory)[-1], metrics(directory)[-1]["step"])

    def test_a_run_that_lost_its_lock_writes_and_removes_no_checkpoint(self):
        """After a pause in which another start took the directory over."""
        for saving in ("asynchronous", "synchronous"):
            with self.subTest(saving):
                directory = self.directory(saving)
                job = self.started(directory, "--checkpoint.saving", saving, "--checkpoint.every", 1, "--checkpoint.keep", 2)
                deadline = time.time() + patient(60)
                while time.time() < deadline and len(metrics(directory)) < 10:
                    time.sleep(0.01)
                job.send_signal(signal.SIGSTOP)
                other = json.loads((directory / "lock").read_text()) | {"host": "node07", "token": "another"}
                (directory / "lock").unlink()
                (directory / "lock").write_text(json.dumps(other))
                (directory / "checkpoints/.partial-step-9000").mkdir()
                before = sorted(path.name for path in (directory / "checkpoints").glob("step-*"))
                job.send_signal(signal.SIGCONT)
                self.assertEqual(job.wait(patient(60)), 5, self.said(directory))
                self.assertIn("this run lost its lock to", self.said(directory))
                self.assertEqual(sorted(path.name for path in (directory / "checkpoints").glob("step-*")), before)
                self.assertTrue((directory / "checkpoints/.partial-step-9000").exists())
                self.assertEqual(json.loads((directory / "lock").read_text()), other)

    def test_the_holder_is_named_with_its_job(self):
        directory = self.directory("run")
        os.environ["SLURM_JOB_ID"] = "4711"
        try:
            self.started(directory)
        finally:
            del os.environ["SLURM_JOB_ID"]
        self.assertIn("job 4711", self.train(directory, check=5).stderr)

    def test_a_killed_run_leaves_a_lock_that_the_next_start_takes_over(self):
        for ranks in (0, 2):
            directory = self.directory(f"run-{ranks}")
            job = self.started(directory, "--grid.data", max(1, ranks), "--checkpoint.every", 2, ranks=ranks)
            deadline = time.time() + patient(60)
            while time.time() < deadline and not list((directory / "checkpoints").glob("step-*")):
                time.sleep(0.05)
            holder = json.loads((directory / "lock").read_text())["process"]
            os.kill(holder, signal.SIGKILL)
            job.wait(timeout=patient(30))
            self.assertTrue((directory / "lock").exists())
            done = self.train(directory, "--train.steps", 1000000, "--train.stop_after", 1, check=75)
            self.assertIn(f"the lock of process {holder} on ", done.stdout)
            self.assertIn("is taken over", done.stdout)
            self.assertFalse((directory / "lock").exists())

    def test_refused_runs_leave_no_lock_and_no_folder(self):
        directory = self.directory("run")
        self.train(directory / "deep", "--memory.budget", "100kB", check=3)
        self.assertFalse(directory.exists())
        self.train(directory, "--train.steps", 2)
        self.train(directory, "--train.seed", 9, check=2)
        self.train(directory, "--run.resume", "never", check=2)
        self.assertFalse((directory / "lock").exists())
        # A lock that a killed start left does not make a directory used.
        fresh = self.directory("fresh")
        fresh.mkdir()
        lock = {"format": "garonne.lock", "process": 999999999, "token": "x",
                "boot": pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
                "process_namespace": os.readlink("/proc/self/ns/pid")}
        (fresh / "lock").write_text(json.dumps(lock))
        self.train(fresh, "--run.resume", "never", "--train.steps", 1)


class MissingRowsTest(ProgramTest):
    def test_rows_that_are_not_there_are_told(self):
        directory = self.directory("run")
        keys = ["--train.steps", 8, "--checkpoint.every", 2]
        self.train(directory, *keys, "--train.stop_after", 4, check=75)
        rows = directory / "metrics.jsonl"
        rows.unlink()
        said = run("report", directory, "--budgets", 0, check=5).stderr
        self.assertIn("is not there, though the run has a checkpoint of step 4", said)
        self.assertIn("metrics.jsonl lacks 4 rows of the steps up to 4", self.train(directory, *keys, "--train.stop_after", 2,
                                                                                   check=75).stdout)
        self.assertEqual(series(directory, "step"), [5, 6])
        self.assertIn("lacks 4 rows of the steps up to 6", self.train(directory, *keys).stdout)
        run("report", directory, "--budgets", 0)
        page = (directory / "report.html").read_text(encoding="utf-8")
        self.assertEqual(json.loads(re.search(r'id="data"[^>]*>(.*?)</script>', page, re.DOTALL)[1])["time"]["missing_steps"], 4)

    def test_a_file_that_is_removed_meanwhile_is_begun_anew(self):
        directory = self.directory("run")
        job = subprocess.Popen([BINARY, "train", self.config, "--run.directory", directory, "--train.steps", "1000000"],
                               stdout=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (job.stdout.close(), job.poll() is None and job.kill()))
        rows = directory / "metrics.jsonl"
        for line in job.stdout:
            if "step       3/" in line:
                rows.unlink()
            if "metrics.jsonl was removed while the run went on" in line:
                break
        job.send_signal(signal.SIGTERM)
        rest = job.stdout.read()
        self.assertEqual(job.wait(timeout=patient(60)), 75, rest)
        last = int((directory / "stopped").read_text())
        self.assertEqual(series(directory, "step"), list(range(metrics(directory)[0]["step"], last + 1)))


class DoneTest(ProgramTest):
    def test_a_run_that_is_done_is_found_done_on_a_read_only_disk(self):
        directory = self.directory("run")
        self.train(directory, "--train.steps", 2)
        before = contents(directory)
        mount = f"mount --bind '{directory}' '{directory}' && mount -o remount,bind,ro '{directory}'"
        if subprocess.run(["unshare", "-rm", "bash", "-c", mount], capture_output=True).returncode != 0:
            self.skipTest("nothing can be mounted here")

        def read_only(*options):
            command = " ".join(map(str, [BINARY, "train", self.config, "--run.directory", directory, *options]))
            return subprocess.run(["unshare", "-rm", "bash", "-c", f"{mount} && exec {command}"], capture_output=True, text=True,
                                  timeout=patient(60))
        done = read_only("--train.steps", 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("step 2 of 2 is done already", done.stdout)
        more = read_only("--train.steps", 3)
        self.assertEqual(more.returncode, 5, more.stderr)
        self.assertIn("the lock of the run directory cannot be written: Read-only file system", more.stderr)
        self.assertEqual(contents(directory), before)

    def test_a_folder_that_goes_under_a_run_is_named(self):
        directory = self.directory("run")
        job = subprocess.Popen([BINARY, "train", self.config, "--run.directory", directory, "--train.steps", "1000000"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: job.poll() is None and job.kill())
        for line in job.stdout:
            if "step       3/" in line:
                break
        directory.rename(self.directory("renamed"))
        said = job.communicate(timeout=patient(60))[1]
        self.assertEqual(job.returncode, 5, said)
        self.assertIn("has gone while the run worked in it", said)


class MetricsTest(ProgramTest):
    def test_a_damaged_line_costs_no_other(self):
        directory = self.directory("run")
        self.train(directory, "--train.steps", 8)
        path = directory / "metrics.jsonl"
        lines = path.read_bytes().splitlines(keepends=True)
        damaged = lines[2][:20] + b"\x00" + lines[2][21:]
        path.write_bytes(b"".join(lines[:2] + [damaged] + lines[3:]))
        done = self.train(directory, "--train.steps", 10)
        self.assertIn("line 3 is damaged", done.stdout)
        self.assertEqual(series(directory, "step"), [1, 2, 4, 5, 6, 7, 8, 9, 10])
        self.assertEqual(path.read_bytes().splitlines(keepends=True)[:7], lines[:2] + lines[3:])
        self.assertEqual((directory / "metrics.jsonl.damaged").read_bytes(), damaged)
        self.assertNotIn("warning", self.train(directory, "--train.steps", 11).stdout)

    def test_a_line_that_was_cut_short_goes_without_a_word(self):
        directory = self.directory("run")
        self.train(directory, "--train.steps", 2)
        with open(directory / "metrics.jsonl", "a") as file:
            file.write('{"step":3,"lo')
        self.assertNotIn("warning", self.train(directory, "--train.steps", 4).stdout)
        self.assertEqual(series(directory, "step"), [1, 2, 3, 4])


class StartTest(RunningTest):
    def test_lost_checkpoints_are_no_reason_to_start_anew(self):
        directory = self.directory("run")
        self.train(directory, "--train.steps", 4)
        checkpoints = directory / "checkpoints"
        shutil.rmtree(checkpoints)
        for make in (lambda: None, checkpoints.mkdir):
            make()
            before = contents(directory)
            for ranks in (0, 2):
                done = self.train(directory, "--train.steps", 8, "--grid.data", max(1, ranks), ranks=ranks, check=5)
                self.assertEqual(done.stderr.count("garonne:"), 1, done.stderr)
                for words in (str(checkpoints), "Is a disk not mounted?", "run.directory"):
                    self.assertIn(words, done.stderr)
            self.assertEqual(contents(directory), before)

    def test_a_run_killed_before_its_first_checkpoint_starts_again(self):
        directory = self.directory("run")
        job = self.started(directory)
        job.kill()
        job.wait()
        came_to = metrics(directory)[-1]["step"]
        done = self.train(directory, "--train.steps", 3)
        self.assertIn(f"came to step {came_to} and never saved a checkpoint", done.stdout)
        self.assertEqual(series(directory, "step"), [1, 2, 3])

    def test_a_start_that_does_nothing_writes_nothing(self):
        directory = self.directory("run")
        self.train(directory, "--train.steps", 4)
        before = contents(directory)
        for ranks in (0, 2):
            for count in (4, 3):
                done = self.train(directory, "--train.steps", count, "--grid.data", max(1, ranks), ranks=ranks)
                self.assertIn(f"step 4 of {count} is done already", done.stdout)
        self.assertEqual(contents(directory), before)

    def test_names_that_are_no_utf8_are_refused_at_once(self):
        directory = self.folder / "u\udcff"
        done = self.train(directory, check=2)
        self.assertIn("run.directory", done.stderr)
        self.assertIn("UTF-8", done.stderr)
        self.assertNotIn("json", done.stderr)
        self.assertFalse(directory.exists())
        data = self.folder / "data\udcff.h5"
        shutil.copy(self.data, data)
        self.assertIn("data.path", self.train(self.directory("run"), "--data.path", data, check=2).stderr)


class PeakTest(ProgramTest):
    def test_planned_and_measured_are_of_the_rank_with_the_largest_plan(self):
        # The last stage has the head, whose logits over a wide vocabulary are the largest tensors.
        keys = ("--model.vocabulary", 4096, "--grid.pipeline", 2, "--grid.data", 1)
        directory = self.directory("run")
        self.train(directory, *keys, "--train.steps", 2, ranks=2)
        programs = [json.loads((directory / "program" / f"rank_{rank}.json").read_text()) for rank in (0, 1)]
        largest = max(programs, key=lambda program: program["peak_bytes"])
        self.assertGreater(programs[1]["peak_bytes"], programs[0]["peak_bytes"], "not what this is to show")
        measured = max(instruction["measured_peak_bytes"] for instruction in largest["instructions"])
        for row in metrics(directory):
            self.assertEqual(row["planned_peak_bytes"], largest["peak_bytes"])
            self.assertLessEqual(row["peak_bytes"], row["planned_peak_bytes"])
            self.assertGreaterEqual(row["peak_bytes"], 0.99 * row["planned_peak_bytes"])
        self.assertEqual(metrics(directory)[-1]["peak_bytes"], measured)
        answer = json.loads(run("bench", self.config, *keys, "--steps", 1, "--json", ranks=2).stdout)
        self.assertEqual(answer["planned_peak_bytes"], largest["peak_bytes"])
        self.assertGreaterEqual(answer["peak_bytes"], 0.99 * answer["planned_peak_bytes"])
        self.assertLessEqual(answer["peak_bytes"], answer["planned_peak_bytes"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
