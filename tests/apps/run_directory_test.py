# SPDX-License-Identifier: MIT
"""Run directories: one run at a time, checkpoints that go and stay, metrics that survive damage."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import unittest

from support import BINARY, FieldsTest, ProgramTest, RunningTest, metrics, patient, run, series


def contents(directory):
    """path -> (bytes, time of the last change) of every file below."""
    return {str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_mtime_ns)
            for path in sorted(pathlib.Path(directory).rglob("*")) if path.is_file()}


def steps(directory):
    return sorted(int(path.name[5:]) for path in (directory / "checkpoints").iterdir())


def flip(path, position=0.5):
    content = bytearray(path.read_bytes())
    content[int(position * (len(content) - 1))] ^= 1
    path.write_bytes(content)


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
        self.assertEqual(steps(directory)[-1], metrics(directory)[-1]["step"])

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


class OtherModelTest(ProgramTest):
    def test_only_tensors_that_are_named_may_be_missing_or_unused(self):
        directory = self.directory("run")
        keys = ["--train.steps", 8, "--train.stop_after", 2]
        self.train(directory, *keys, "--model.layers", 2, check=75)
        more = ["--train.steps", 8, "--train.stop_after", 1, "--model.layers", 3]
        self.assertIn("model.layers", self.train(directory, *more, check=2).stderr)
        refused = self.train(directory, *more, "--allow-missing", "layer.2.up*,layer.2.down*", check=5).stderr
        self.assertRegex(refused, r"lacks layer\.2\.\S+; .*--allow-missing layer\.2\.")
        done = self.train(directory, *more, "--allow-missing", "layer.2.*", check=75)
        self.assertIn("tensors begin with the values of step 0: layer.2.", done.stdout)
        self.assertEqual(series(directory, "step"), [1, 2, 3])
        # The same command again goes on, though nothing is missing any more; so does one without.
        self.train(directory, *more, "--allow-missing", "layer.2.*", check=75)
        self.train(directory, *more, check=75)
        fewer = ["--train.steps", 8, "--train.stop_after", 1, "--model.layers", 1]
        refused = self.train(directory, *fewer, "--allow-unused", "layer.2.*", check=5).stderr
        self.assertRegex(refused, r"holds layer\.1\.\S+, .*--allow-unused layer\.1\.")
        self.train(directory, *fewer, "--allow-unused", "layer.1.*,layer.2.*", check=75)
        # Another shape is no matter of names, and where those are alike all keys are to be.
        refused = self.train(directory, *fewer, "--model.hidden", 16, "--allow-missing", "*", check=2).stderr
        self.assertIn("model.hidden", refused)
        refused = self.train(directory, *more, "--model.hidden", 16, "--allow-missing", "*", check=5).stderr
        self.assertIn("of another model", refused)

    def test_patterns_that_name_nothing_are_told_and_allow_nothing(self):
        directory = self.directory("run")
        keys = ["--train.steps", 8]
        self.train(directory, *keys, "--train.stop_after", 2, check=75)
        for option, whose in (("--allow-unused", "the checkpoint"), ("--allow-missing", "the model")):
            self.assertIn("is empty", self.train(directory, *keys, option, "", check=2).stderr)
            said = self.train(directory, *keys, option, "nonsense*", "--train.stop_after", 1, check=75).stdout
            self.assertIn(f"warning: {option} nonsense*: {whose} has no such tensor", said)
            refused = self.train(directory, *keys, option, "nonsense*", "--model.dropout", 0.25, check=2).stderr
            self.assertIn("model.dropout", refused)

    def test_states_that_another_optimizer_takes_over_are_told(self):
        directory = self.directory("run")
        keys = ["--train.steps", 8, "--train.stop_after", 1]
        self.train(directory, *keys, "--optimizer.name", "adamw", check=75)
        said = self.train(directory, *keys, "--optimizer.name", "sgd", "--allow-unused", "*", check=75).stdout
        self.assertIn("warning: the checkpoint is of adamw and this run of sgd: first_moment", said)
        again = self.train(directory, *keys, "--optimizer.name", "sgd", check=75).stdout
        self.assertNotIn("the checkpoint is of", again)

    def test_a_start_from_parameters_is_as_strict(self):
        source = self.directory("source")
        self.train(source, "--train.steps", 1, "--model.layers", 2)
        keys = ["--train.steps", 1, "--init-from", source]
        self.assertIn("lacks layer.2.", self.train(self.directory("more"), *keys, "--model.layers", 3, check=5).stderr)
        more = self.train(self.directory("more"), *keys, "--model.layers", 3, "--allow-missing", "layer.2.*")
        self.assertIn("tensors begin with the values of step 0: layer.2.", more.stdout)
        self.assertIn("holds layer.1.", self.train(self.directory("fewer"), *keys, "--model.layers", 1, check=5).stderr)
        self.train(self.directory("fewer"), *keys, "--model.layers", 1, "--allow-unused", "layer.1.*")
        done = self.train(self.directory("fresh"), "--train.steps", 1, "--allow-unused", "layer.1.*")
        self.assertIn("begins without a checkpoint", done.stdout)


class ChangedKeysTest(ProgramTest):
    def stopped(self, name):
        directory = self.directory(name)
        self.train(directory, "--train.stop_after", 3, check=75)
        return directory

    def test_a_named_key_may_be_another_and_the_checkpoint_says_so(self):
        directory, other = self.stopped("changed"), self.directory("other")
        keys = ("--optimizer.learning_rate", 2e-3, "--train.global_batch", 16)
        refused = self.train(directory, *keys, check=2).stderr
        self.assertIn("was made with 8", refused)
        self.assertIn("`--change train.global_batch`", refused)
        # Each by its own name.
        self.assertIn("optimizer.learning_rate", self.train(directory, *keys, "--change", "train.global_batch", check=2).stderr)
        named = ("--change", "train.global_batch", "--change", "optimizer.learning_rate")
        self.train(directory, *keys, *named, "--train.stop_after", 2, check=75)
        self.train(other, *keys)
        self.assertEqual(series(directory, "learning_rate")[3:], series(other, "learning_rate")[3:5])
        # What is saved has them: no word is needed any more, and one does no harm.
        self.train(directory, *keys, *named, "--optimizer.clip_norm", 0.5, "--change", "optimizer.clip_norm")
        manifest = json.loads((directory / "checkpoints/step-6/manifest.json").read_text())
        self.assertEqual(manifest["changes"], [
            {"step": 3, "key": "train.global_batch", "before": "8", "after": "16"},
            {"step": 3, "key": "optimizer.learning_rate", "before": "0.001", "after": "0.002"},
            {"step": 5, "key": "optimizer.clip_norm", "before": "1", "after": "0.5"}])
        self.assertIn("optimizer.clip_norm is 0.5 from step 6 on, and was 1\n", run("checkpoint", "inspect", directory).stdout)

    def test_what_cannot_change_is_refused_by_name(self):
        directory = self.stopped("fixed")
        for key, words in (("model.layers", "--init-from"), ("train.precision", "--init-from"), ("optimizer.name", "--allow-missing"),
                           ("optimizer.learning_rat", "did you mean optimizer.learning_rate?"), ("layers", "is no key")):
            with self.subTest(key):
                self.assertIn(words, self.train(directory, "--change", key, check=2).stderr)

    def test_the_same_data_may_lie_elsewhere_and_others_may_not(self):
        directory = self.stopped("moved")
        elsewhere, other = self.folder / "elsewhere.h5", self.folder / "other.h5"
        shutil.copy(self.data, elsewhere)
        run("data", "text", self.folder / "validation.txt", "--output", other)
        refused = self.train(directory, "--data.path", other, check=2).stderr
        self.assertIn("`--change data.path`", refused)
        done = self.train(directory, "--data.path", elsewhere)
        self.assertIn(f"data.path is {elsewhere} from step 4 on, and was {self.data}", done.stdout)
        whole = self.directory("whole")
        self.train(whole)
        self.assertEqual(series(directory, "loss"), series(whole, "loss"))


class ReshardTest(ProgramTest):
    def test_a_checkpoint_that_is_cut_anew_goes_on_to_the_same_bits(self):
        directory, cut, alone = (self.directory(name) for name in ("run", "cut", "alone"))
        keys = ["--train.steps", 6, "--grid.data", 2]
        self.train(directory, *keys, "--train.stop_after", 3, ranks=2, check=75)
        self.train(alone, *keys, ranks=2)
        self.assertIn("step         3     2 files", run("checkpoint", "list", directory).stdout)
        run("checkpoint", "reshard", directory, cut, "--ranks", 5)
        self.assertEqual(json.loads(run("checkpoint", "list", cut, "--json").stdout)["files"], 5)
        run("eval", cut)
        self.train(cut, *keys, ranks=2)
        for rank in (0, 1):
            name = f"checkpoints/step-6/rank_{rank}.safetensors"
            self.assertEqual((cut / name).read_bytes(), (alone / name).read_bytes())
        self.assertIn("there already", run("checkpoint", "reshard", directory, cut, "--ranks", 2, check=5).stderr)
        many = self.directory("many")
        refused = run("checkpoint", "reshard", directory, many, "--ranks", 65536, check=2).stderr
        self.assertRegex(refused, r"--ranks = 65536: is more than the \d+ elements of the largest tensor")
        self.assertFalse(many.exists())

    def test_there_and_back_over_another_grid_is_byte_for_byte_what_was_saved(self):
        directory, cut, back = (self.directory(name) for name in ("run", "cut", "back"))
        self.train(directory, "--train.steps", 6, "--grid.pipeline", 2, "--train.stop_after", 2, ranks=2, check=75)
        whole = self.directory("whole")
        run("checkpoint", "reshard", directory, whole, "--ranks", 1)
        run("checkpoint", "reshard", directory, cut, "--ranks", 3)
        run("checkpoint", "reshard", cut, back, "--ranks", 1)
        for name in ("rank_0.safetensors", "manifest.json"):
            self.assertEqual((back / "checkpoints/step-2" / name).read_bytes(),
                             (whole / "checkpoints/step-2" / name).read_bytes())
        # Another grid goes on from it, and what of that is damaged is not cut.
        self.train(cut, "--train.steps", 6, "--grid.data", 2, "--train.stop_after", 1, ranks=2, check=75)
        self.assertEqual(series(cut, "step"), [3])
        flip(cut / "checkpoints/step-3/rank_1.safetensors")
        run("checkpoint", "reshard", cut / "checkpoints/step-3", back, "--ranks", 2, check=5)
        self.assertEqual(steps(back), [2])


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


class PruningTest(ProgramTest):
    def test_a_start_removes_what_is_too_old_by_now(self):
        directory = self.directory("run")
        keys = ["--train.steps", 9, "--checkpoint.every", 2]
        self.train(directory, *keys, "--checkpoint.keep", 9, "--train.stop_after", 8, check=75)
        self.assertEqual(steps(directory), [2, 4, 6, 8])
        flip(directory / "checkpoints/step-6/rank_0.safetensors")
        # It is killed before it saves any.
        job = subprocess.Popen([BINARY, "train", self.config, "--run.directory", directory, *map(str, keys), "--train.steps",
                                "1000000", "--checkpoint.every", "0", "--checkpoint.keep", "2"], stdout=subprocess.PIPE, text=True)
        for line in job.stdout:
            if "ready after" in line:
                break
        job.kill()
        job.wait()
        job.stdout.close()
        self.assertEqual(steps(directory), [4, 6, 8], "the damaged one counts as none, and goes once 4 is counted")

    def test_damaged_checkpoints_push_no_whole_ones_out(self):
        directory = self.directory("run")
        self.train(directory, "--train.steps", 8, "--checkpoint.every", 2, "--checkpoint.keep", 9)
        self.assertEqual(steps(directory), [2, 4, 6, 8])
        for step in (6, 8):
            flip(directory / "checkpoints" / f"step-{step}" / "rank_0.safetensors")
        keys = ("--train.steps", 9, "--checkpoint.every", 0)
        done = self.train(directory, *keys, "--train.stop_after", 1, check=75)
        self.assertEqual(steps(directory), [4, 5, 6, 8])
        self.assertEqual(done.stdout.count("step-8 is of a later step than 5"), 1, done.stdout)
        self.train(directory, *keys)
        self.assertEqual(series(directory, "step"), list(range(1, 10)))
        # 6 and 8 are older now and still damaged: they count for none of the two.
        self.assertEqual(steps(directory), [5, 6, 8, 9])

    def test_verify_looks_at_all_checkpoints(self):
        directory = self.directory("run")
        self.train(directory, "--train.steps", 4, "--checkpoint.every", 1, "--checkpoint.keep", 9)
        for step in (1, 3):
            flip(directory / f"checkpoints/step-{step}/rank_0.safetensors")
        done = run("checkpoint", "verify", directory, check=5)
        self.assertEqual(re.findall(r"step-(\d+): whole", done.stdout), ["2", "4"])
        self.assertEqual(re.findall(r"garonne: .*step-(\d+)/rank_0", done.stderr), ["1", "3"])

    def test_foreign_folders_are_left_and_what_was_trained_stays(self):
        directory = self.directory("run")
        self.train(directory, "--train.steps", 6, "--train.stop_after", 2, check=75)
        for name in ("step-900", "step--5", "step-007"):
            shutil.copytree(directory / "checkpoints" / "step-2", directory / "checkpoints" / name)
        done = self.train(directory, "--train.steps", 6, "--checkpoint.every", 2, "--checkpoint.keep", 1)
        self.assertIn("skipping checkpoint 900", done.stdout)
        for name in ("step-900", "step--5", "step-007"):
            self.assertEqual(done.stdout.count(f"{name} is "), 1, done.stdout)
        self.assertEqual(sorted(path.name for path in (directory / "checkpoints").iterdir()),
                         ["step--5", "step-007", "step-6", "step-900"])
        self.assertIn("done already", self.train(directory, "--train.steps", 6).stdout)


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


class FiniteTest(ProgramTest):
    GRIDS = ((), ("--grid.data", 2), ("--grid.data", 2, "--grid.zero", 3), ("--grid.pipeline", 2), ("--grid.tensor", 2))

    def test_what_to_do_is_told_by_the_keys_and_checkpoints_that_there_are(self):
        directory = self.directory("advice")
        wild = ("--optimizer.warmup_steps", 0, "--optimizer.learning_rate", 1e30, "--optimizer.clip_norm")
        said = self.train(directory, *wild, 0, check=6).stderr
        self.assertIn("nothing was updated. Lower optimizer.learning_rate", said)
        self.assertIn("set optimizer.clip_norm, which is 0 and clips nothing, in another run.directory: the same command would begin anew", said)
        saved = self.directory("saved")
        self.train(saved, "--train.stop_after", 1, check=75)
        changes = ("--change", "optimizer.learning_rate", "--change", "optimizer.warmup_steps")
        said = self.train(saved, *wild, 1, *changes, check=6).stderr
        self.assertIn("lower optimizer.clip_norm, in another run.directory: the same command would go on from the checkpoint of step 1", said)

    def test_weights_that_are_not_finite_are_not_saved(self):
        for grid in self.GRIDS:
            directory = self.directory("-".join(map(str, grid)) + "run")
            # The rate is more than float32 holds.
            done = self.train(directory, "--optimizer.learning_rate", 1e39, "--optimizer.minimum_learning_rate", 1e39,
                              "--optimizer.warmup_steps", 0, "--train.steps", 1, *grid, ranks=2 if grid else 0, check=6)
            errors = [line for line in done.stderr.splitlines() if "not finite" in line]
            self.assertEqual(len(errors), 1, done.stderr)
            for words in ("garonne: step 1: ", " holds values", "optimizer.learning_rate", "older ones stay"):
                self.assertIn(words, errors[0])
            self.assertEqual(list((directory / "checkpoints").iterdir()), [])
            self.assertFalse((directory / "lock").exists())


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


class ExportTest(FieldsTest, unittest.TestCase):
    RUN_FILE = """
[model]
kind = "fno"
layers = 1
hidden = 8
modes = [4, 4]
[data]
path = "{folder}/darcy.h5"
normalisation = "none"
[train]
steps = 1
global_batch = 2
micro_batch = 2
"""

    @classmethod
    def make_data(cls):
        run("data", "darcy", "--samples", 4, "--resolution", 17, "--output", cls.folder / "darcy.h5")

    def test_a_model_of_fields_has_no_export_and_leaves_no_folder(self):
        directory = self.folder / "run"
        self.train(directory)
        target = self.folder / "exported"
        done = run("checkpoint", "export", directory, "--to", "huggingface", target, check=2)
        self.assertIn("wants a model of text; this run's is fno", done.stderr)
        self.assertFalse(target.exists())
        self.assertIn("whole (1 file)\n", run("checkpoint", "verify", directory).stdout)
        self.assertRegex(run("checkpoint", "inspect", directory).stdout, r" tensors in 1 file, .* · 1 thread a rank\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
