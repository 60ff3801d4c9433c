# SPDX-License-Identifier: MIT
"""Bad input of every kind: one clear message, the documented exit code, nothing lost, nothing hung."""
import json
import os
import shutil
import signal
import subprocess
import unittest

from support import ProgramTest, RunningTest, metrics, patient, processes_of_ranks, run


class UsageTest(ProgramTest):
    def refused(self, *arguments, code=2, ranks=0, words=()):
        done = self.train(self.directory("never"), *arguments, ranks=ranks, check=code)
        for word in words:
            self.assertIn(word, done.stderr)
        ours = [line for line in done.stderr.splitlines() if "garonne:" in line]
        self.assertEqual(len(ours), 1, done.stderr)
        self.assertFalse(self.directory("never").exists())

    def test_unknown_option_has_a_suggestion(self):
        self.refused("--memory.bugdet", "1GiB", words=["--memory.budget"])

    def test_unknown_command_has_a_suggestion(self):
        self.assertIn("train", run("trian", check=2).stderr)

    def test_unknown_key_in_the_file_has_a_suggestion(self):
        bad = self.folder / "bad.toml"
        bad.write_text(self.config.read_text().replace("micro_batch", "micro_bach"))
        self.assertIn("train.micro_batch", run("train", bad, check=2).stderr)

    def test_wrong_type_and_unit(self):
        self.refused("--model.layers", "three", words=["model.layers", "integer"])
        self.refused("--memory.budget", "600 MegaB", words=["memory.budget"])
        self.refused("--train.precision", "float16", words=["float32, float64, bfloat16"])
        bad = self.folder / "type.toml"
        bad.write_text(self.config.read_text().replace("layers = 2", 'layers = "2"'))
        self.assertIn("line", run("train", bad, check=2).stderr)

    def test_numbers_that_are_none(self):
        for words in (("stop", "run", "--timeout"), ("plan", self.config, "--ranks", 2, "--tolerance"),
                      ("forecast", "run", "--output", "x.h5", "--noise"), ("bench", "links", "--seconds"),
                      ("bench", "budgets", self.config, "--shares"), ("solve", "x.json", "--budget", 1, "--time-limit"),
                      ("simulate", "--schedule", "1f1b", "--forward")):
            for number in ("nan", "inf", "-inf"):
                with self.subTest(words=words, number=number):
                    refused = run(*words[:-1], f"{words[-1]}={number}", check=2).stderr
                    self.assertIn(f"{words[-1]}", refused.split(";")[0])
                    self.assertIn(number, refused)
        refused = run("bench", "offload", self.config, "--link", "nan", check=2).stderr
        self.assertIn("--link: nan is no finite number", refused)

    def test_malformed_file_names_the_line(self):
        bad = self.folder / "malformed.toml"
        bad.write_text("[model]\nlayers = = 2\n")
        self.assertIn("malformed.toml:2", run("train", bad, check=2).stderr)

    def test_missing_run_file(self):
        self.assertIn("absent.toml", run("train", self.folder / "absent.toml", check=2).stderr)

    def test_grid_that_does_not_match_the_ranks(self):
        self.refused("--grid.data", 3, ranks=2, words=["mpirun -n 3"])
        self.refused("--grid.data", 2, words=["2 ranks"])

    def test_grids_of_other_sizes_than_the_ranks(self):
        for axis in ("pipeline", "tensor"):
            self.refused(f"--grid.{axis}", 2, words=[f"{axis} 2", "mpirun -n 2"])

    def test_grids_that_cannot_work_name_those_that_do(self):
        # Two layers, the embedding and the head are four blocks.
        for keys, words in (
                (("--grid.tensor", 3), ["grid.tensor = 3", "2 and 4"]),
                (("--grid.pipeline", 5), ["grid.pipeline = 5", "4 blocks", "grid.pipeline = 4"]),
                (("--grid.pipeline", 2, "--grid.schedule", "interleaved", "--grid.chunks", 3),
                 ["grid.chunks = 3", "grid.pipeline = 1", "grid.chunks = 2"]),
                (("--grid.pipeline", 3, "--grid.schedule", "zb-v"),
                 ["grid.pipeline = 3", "grid.pipeline = 2", "1f1b"]),
                (("--grid.zero", 2), ["grid.zero = 2", "grid.data = 2"])):
            refused = run("plan", self.config, *keys, check=2)
            for word in words:
                self.assertIn(word, refused.stderr)

    def test_a_plan_says_what_a_profile_may_change(self):
        hint = "with a profile the stages may be cut elsewhere"
        # Of this width nothing is measured.
        sizes = ("--model.hidden", 40, "--model.heads", 4)
        self.assertIn(hint, run("plan", self.config, *sizes, "--grid.pipeline", 2).stdout)
        self.assertNotIn(hint, run("plan", self.config, *sizes).stdout)

    def test_global_batch_that_does_not_divide(self):
        self.refused("--train.global_batch", 9, words=["train.global_batch", "8 and 10"])

    def test_keys_of_fields_say_nothing_about_texts(self):
        for key, value in (("data.history", 2), ("data.layout", "zarr"), ("train.rollout", 2), ("data.period", "1990/1999")):
            self.refused(f"--{key}", value, words=[key])

    def test_heads_that_do_not_divide(self):
        self.refused("--model.heads", 5, words=["model.heads"])

    def test_what_was_not_built(self):
        self.refused("--run.device", "cuda", words=["built without CUDA"])
        refused = run("plan", self.config, "--run.device", "cuda", check=2)
        self.assertIn("built without CUDA: configure with scripts/setup --cuda", refused.stderr)
        # A cluster file says what there is elsewhere: GPUs, which count memory in larger blocks.
        cluster = os.path.join(os.environ["GARONNE_SOURCE"], "config/clusters/perlmutter.toml")
        room = ("--cluster", cluster, "--memory.budget", "1GiB")  # also for what libraries keep
        plan = run("plan", self.config, "--run.device", "cuda", *room, "--json").stdout
        self.assertEqual(json.loads(plan)["peak_bytes"] % 512, 0)
        self.refused("--grid.transport", "nccl", "--grid.data", 2, ranks=2, words=["built without NCCL"])
        refused = run("plan", self.config, "--grid.transport", "nccl", "--grid.data", 2, check=2)
        self.assertIn("built without NCCL: configure with scripts/setup --cuda", refused.stderr)
        run("plan", self.config, "--grid.transport", "nccl", "--grid.data", 2, *room)

    def test_tf32_is_for_float32_on_gpus(self):
        words = ["train.products", "tf32", "GPUs", "ieee"]
        for device in ("cpu", "emulated", "auto"):
            self.refused("--train.products", "tf32", "--run.device", device, words=[*words, device])
        refused = run("plan", self.config, "--train.products", "tf32", check=2).stderr
        self.assertIn("train.products", refused)
        cluster = os.path.join(os.environ["GARONNE_SOURCE"], "config/clusters/dgx_h200.toml")
        planned = ("plan", self.config, "--cluster", cluster, "--memory.budget", "1GiB", "--train.products", "tf32")
        self.assertIn("float32, products in TF32", run(*planned).stdout)
        for precision in ("bfloat16", "float64"):
            refused = run(*planned, "--train.precision", precision, check=2).stderr
            self.assertIn(f"train.precision = {precision}", refused)

    def test_budget_below_the_minimum_on_two_ranks(self):
        self.refused("--memory.budget", "100kB", "--grid.data", 2, ranks=2, code=3, words=["smallest budget"])


class DataFileTest(ProgramTest):
    def refused(self, path, *words):
        for ranks in (0, 2):
            grid = ("--grid.data", max(1, ranks))
            done = self.train(self.directory("never"), "--data.path", path, *grid, ranks=ranks, check=5)
            for word in (str(path), *words):
                self.assertIn(word, done.stderr)
            self.assertEqual(done.stderr.count("garonne:"), 1, done.stderr)

    def test_missing(self):
        self.refused(self.folder / "absent.h5")

    def test_truncated(self):
        path = self.folder / "truncated.h5"
        path.write_bytes(self.data.read_bytes()[:-20000])
        self.refused(path)

    def test_foreign(self):
        path = self.folder / "foreign.h5"
        path.write_text("these are no tokens\n" * 100)
        self.refused(path, "HDF5")


class CheckpointTest(ProgramTest):
    def test_one_flipped_byte_falls_back_to_the_older_one(self):
        directory = self.directory("run")
        self.train(directory, "--train.steps", 4, "--checkpoint.every", 2)
        file = directory / "checkpoints" / "step-4" / "rank_0.safetensors"
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
        verify = run("checkpoint", "verify", directory, check=5)
        self.assertIn("rank_0.safetensors", verify.stderr)
        out = self.train(directory, "--train.steps", 6)
        self.assertIn("skipping checkpoint 4", out.stdout)
        self.assertIn("step 2 of 6", out.stdout)
        self.assertEqual([row["step"] for row in metrics(directory)], list(range(1, 7)))

    def test_no_checkpoint_that_verifies(self):
        directory = self.directory("run")
        self.train(directory, "--train.steps", 2)
        file = directory / "checkpoints" / "step-2" / "manifest.json"
        content = bytearray(file.read_bytes())
        content[len(content) // 3] ^= 1
        file.write_bytes(content)
        for ranks in (0, 2):
            done = self.train(directory, "--grid.data", max(1, ranks), ranks=ranks, check=5)
            self.assertEqual(done.stderr.count("garonne:"), 1, done.stderr)
            self.assertIn("manifest.json", done.stderr)

    def test_of_a_different_model(self):
        directory = self.directory("run")
        self.train(directory, "--train.steps", 2)
        done = self.train(directory, "--model.layers", 3, check=2)
        self.assertIn("model.layers", done.stderr)
        other = self.directory("other")
        self.train(other, "--train.steps", 2, "--model.hidden", 64)
        shutil.rmtree(directory / "checkpoints" / "step-2")
        shutil.copytree(other / "checkpoints" / "step-2", directory / "checkpoints" / "step-2")
        done = self.train(directory, check=2)
        self.assertIn("model.hidden", done.stderr)
        done = run("eval", directory, check=2)
        self.assertIn("model.hidden", done.stderr)

    def test_resume_never_wants_an_empty_directory(self):
        directory = self.directory("run")
        self.train(directory, "--train.steps", 1)
        done = self.train(directory, "--run.resume", "never", check=2)
        self.assertIn("not empty", done.stderr)

    def test_a_full_disk_while_saving_loses_nothing(self):
        directory = self.directory("run")
        self.train(directory, "--train.steps", 4, "--train.stop_after", 2, check=75)
        before = self.tensor_files(directory, 2)
        saved = len(before["rank_0.safetensors"])
        # A small file system of its own is a disk that is really full, once the checkpoint of step 3 is on it; mounting
        # one takes root. Elsewhere a limit on the size of files stands in for it: the write comes back with an error, too.
        checkpoints = directory / "checkpoints"
        kept = self.directory("kept")
        shutil.move(checkpoints, kept)
        checkpoints.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={saved * 11 // 4 // 4096 * 4096}", "garonne",
                                  str(checkpoints)], capture_output=True).returncode == 0
        shutil.copytree(kept, checkpoints, dirs_exist_ok=True)
        try:
            for ranks in (0, 2) if mounted else (0,):
                limit = "true" if mounted else f"trap '' XFSZ; ulimit -f {saved // 2048}"
                done = self.train(directory, "--train.steps", 4, "--checkpoint.every", 1, "--grid.data", max(1, ranks),
                                  ranks=ranks, check=5, before=limit)
                self.assertIn("cannot be written", done.stderr)
                self.assertEqual(before, self.tensor_files(directory, 2))
                self.assertEqual(sorted(p.name for p in checkpoints.iterdir()), ["step-2", "step-3"] if mounted else ["step-2"])
                if mounted:
                    # Beside two of them none has room, which is found before a step is taken.
                    refused = self.train(directory, "--train.steps", 4, "--grid.data", max(1, ranks), ranks=ranks, check=5)
                    self.assertRegex(refused.stderr, r"checkpoints: has .* free, and a checkpoint takes .* beside those")
                    self.assertNotRegex(refused.stdout, r"(?m)^ *step ")
                    shutil.rmtree(checkpoints / "step-3")
        finally:
            if mounted:
                subprocess.run(["umount", str(checkpoints)], check=True)
                shutil.copytree(kept, checkpoints, dirs_exist_ok=True)
        self.train(directory, "--train.steps", 4)
        self.assertEqual([row["step"] for row in metrics(directory)], [1, 2, 3, 4])


class FailureTest(RunningTest):
    def test_a_loss_that_is_not_finite_is_refused_once(self):
        for grid in ((), ("--grid.data", 2), ("--grid.data", 2, "--grid.zero", 3), ("--grid.pipeline", 2), ("--grid.tensor", 2)):
            with self.subTest(" ".join(map(str, grid))):
                directory = self.directory("-".join(map(str, grid)) + "run")
                done = self.train(directory, "--optimizer.learning_rate", 1e30, "--optimizer.warmup_steps", 0,
                                  "--optimizer.clip_norm", 0, "--train.steps", 50, *grid, ranks=2 if grid else 0, check=6)
                errors = [line for line in done.stderr.splitlines() if "is nan" in line or "is inf" in line or "is -nan" in line]
                self.assertEqual(len(errors), 1, done.stderr)
                self.assertRegex(errors[0], r"^garonne: step \d+: the (loss|gradient norm) is .*learning_rate.* or set "
                                            r"optimizer.clip_norm, .*begin anew, as there is no checkpoint")
                self.assertFalse((directory / "lock").exists())

    def test_a_killed_rank_ends_the_job_and_is_named(self):
        for grid, victim in ((("--grid.data", 2), 1), (("--grid.pipeline", 2, "--grid.data", 1), 0)):
            with self.subTest(" ".join(map(str, grid))):
                directory = self.directory(grid[0])
                job = self.started(directory, *grid, ranks=2)
                processes = processes_of_ranks(job)
                self.assertEqual(sorted(processes), [0, 1])
                os.kill(processes[victim], signal.SIGKILL)
                self.assertEqual(job.wait(timeout=patient(10)), 128 + signal.SIGKILL)
                self.assertRegex(self.said(directory), rf"process rank {victim} with PID \d+ on node \S+ exited on signal 9")

    def test_a_signal_saves_and_stops(self):
        for ranks in (0, 2):
            directory = self.directory(f"run-{ranks}")
            job = self.started(directory, "--grid.data", max(1, ranks), ranks=ranks)
            job.send_signal(signal.SIGUSR1)
            self.assertEqual(job.wait(timeout=patient(30)), 75, self.said(directory)[-3000:])
            self.assertEqual(metrics(directory)[-1]["step"],
                             max(int(p.name[5:]) for p in (directory / "checkpoints").iterdir()))


if __name__ == "__main__":
    unittest.main(verbosity=2)
