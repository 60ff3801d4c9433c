# SPDX-License-Identifier: MIT
"""Checkpoints that are written while training goes on: their bits, their memory, and writers that are slow, fail or are
left."""
import json
import os
import pathlib
import re
import signal
import subprocess
import time
import unittest

from support import BINARY, ProgramTest, metrics, patient, run, series, strikes

BESIDE = "saving    beside training"
# The text that everything about a checkpoint that is being written has in its path.
HALF_WRITTEN = "checkpoints/.partial-step-"
GRIDS = {"one rank": (0, []),
         "replicas": (2, ["--grid.data", 2]),
         "shards": (4, ["--grid.data", 4, "--grid.zero", 3]),
         "pipeline of shards": (4, ["--grid.data", 2, "--grid.pipeline", 2, "--grid.zero", 1]),
         "tensor and data": (4, ["--grid.data", 2, "--grid.tensor", 2, "--grid.zero", 1]),
         "tensor and pipeline": (4, ["--grid.tensor", 2, "--grid.pipeline", 2])}


def folders(directory):
    return sorted(path.name for path in (pathlib.Path(directory) / "checkpoints").iterdir())


def bytes_of_copy(path):
    """What a copy of the tensors of a rank's file takes, each from a multiple of 64 bytes on."""
    content = pathlib.Path(path).read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    spans = [entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"]
    return sum(-(-(end - begin) // 64) * 64 for begin, end in spans)


class AsynchronousSavingTest(ProgramTest):
    def start(self, directory, *options, ranks=0, before=()):
        launcher = ["mpirun", "-n", ranks] if ranks else []
        command = [*launcher, *before, BINARY, "train", self.config, "--run.directory", directory, *options]
        log = open(self.folder / f"{pathlib.Path(directory).name}.log", "w+")
        self.addCleanup(log.close)
        job = subprocess.Popen(list(map(str, command)), stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        self.addCleanup(lambda: job.poll() is None and os.killpg(job.pid, signal.SIGKILL))
        return job, pathlib.Path(log.name)

    def train_struck(self, directory, *options, call, number, whom, rank=0, under=HALF_WRITTEN, seconds=0, ranks=0):
        """The finished run, in which a call of a rank was struck."""
        where = self.folder / "where"
        where.unlink(missing_ok=True)
        # Without a launcher a process has no number.
        before = strikes(rank if ranks else "", call, number, under, whom, where, seconds)
        job, log = self.start(directory, *options, ranks=ranks, before=before)
        code = job.wait(timeout=patient(120))
        self.assertTrue(where.exists(), f"nothing was struck\n{log.read_text()[-3000:]}")
        return code, log.read_text()

    def test_checkpoints_have_the_bits_of_those_that_are_waited_for(self):
        options = ["--train.steps", 7, "--checkpoint.every", 2, "--checkpoint.keep", 9]
        for name, (ranks, grid) in GRIDS.items():
            for precision in ("float32", "bfloat16") if name in ("one rank", "shards") else ("float32",):
                with self.subTest(f"{name}, {precision}"):
                    said, directories = {}, {}
                    for saving in ("auto", "synchronous"):
                        directories[saving] = self.directory(f"{name}-{precision}-{saving}")
                        said[saving] = self.train(directories[saving], *options, *grid, "--train.precision", precision,
                                                  "--checkpoint.saving", saving, ranks=ranks).stdout
                    self.assertIn(BESIDE, said["auto"])
                    self.assertNotIn("saving    ", said["synchronous"])
                    one, other = directories["auto"], directories["synchronous"]
                    self.assertEqual(series(one, "loss"), series(other, "loss"))
                    self.assertEqual(folders(one), ["step-2", "step-4", "step-6", "step-7"])
                    for step in (2, 4, 6, 7):
                        self.assertEqual(self.tensor_files(one, step), self.tensor_files(other, step))
                        run("checkpoint", "verify", one / "checkpoints" / f"step-{step}")
                    for rank in range(max(1, ranks)):
                        self.check_copy(said["auto"], rank, one / f"checkpoints/step-7/rank_{rank}.safetensors")
                    # The plan is the same, to the byte.
                    self.assertEqual(series(one, "planned_peak_bytes"), series(other, "planned_peak_bytes"))
                    self.assertEqual(series(one, "peak_bytes"), series(other, "peak_bytes"))

    def check_copy(self, said, rank, file):
        planned, measured = re.search(rf"rank {rank} +copy planned +(\d+) B  measured +(\d+) B", said).groups()
        self.assertEqual(int(planned), bytes_of_copy(file))
        self.assertEqual(planned, measured)

    def test_what_the_copy_takes_is_within_the_budget(self):
        run("profile", self.config)  # so that what is planned here and there is the same
        plan = json.loads(run("plan", self.config, "--checkpoint.every", 2, "--json").stdout)
        copy = plan["saving"]["copy_bytes"]
        peak = max(plan["peak_bytes"], plan["evaluation_peak_bytes"])
        self.assertEqual((plan["saving"]["asynchronous"], plan["memory"]["saved_copy"]), (True, copy))
        options = ["--checkpoint.every", 2, "--train.steps", 5]
        for budget, beside in ((peak + copy, True), (peak + copy - 1, False)):
            with self.subTest(budget - peak - copy):
                directory = self.directory(f"{budget}")
                given = [*options, "--memory.budget", budget]
                planned = run("plan", self.config, *given)
                said = self.train(directory, *given).stdout
                for text in (planned.stdout, said):
                    self.assertEqual(BESIDE in text, beside, text)
                    self.assertEqual("saved copy" in text, beside, text)
                    if not beside:
                        self.assertRegex(text, r",\s+1 B \(1 B\) more than this plan leaves of the budget")
                answer = json.loads(run("plan", self.config, *given, "--json").stdout)
                self.assertEqual(answer["peak_bytes"], plan["peak_bytes"], "the plan is the one without a copy")

    def test_asynchronous_leaves_room_in_the_plan_or_is_refused(self):
        options = ["--checkpoint.every", 2, "--checkpoint.keep", 2, "--train.steps", 5, "--evaluation.batches", 0]
        plans = {saving: json.loads(run("plan", self.config, *options, "--checkpoint.saving", saving, "--json").stdout)
                 for saving in ("synchronous", "asynchronous")}
        copy = plans["asynchronous"]["saving"]["copy_bytes"]
        self.assertEqual(plans["synchronous"]["saving"], {"asynchronous": False, "copy_bytes": 0, "missing_bytes": 0})
        least = plans["synchronous"]["minimum_budget_bytes"]
        self.assertEqual(plans["asynchronous"]["minimum_budget_bytes"], least + copy)
        given = [*options, "--checkpoint.saving", "asynchronous", "--memory.budget"]
        for command in (["plan", self.config], ["train", self.config, "--run.directory", self.directory("small")]):
            refused = run(*command, *given, least + copy - 1, check=3).stderr
            self.assertIn(f"{copy} B", refused)
            self.assertIn("checkpoint.saving", refused)
        directory = self.directory("least")
        said = self.train(directory, *given, least + copy).stdout
        self.assertIn(BESIDE, said)
        self.assertEqual(folders(directory), ["step-4", "step-5"])
        for row in metrics(directory):
            self.assertLessEqual(row["peak_bytes"], least)

    def test_of_a_device_the_copy_is_on_the_host(self):
        emulated = ["--run.device", "emulated"]
        options = ["--checkpoint.every", 2, "--checkpoint.keep", 9, "--train.steps", 5, "--evaluation.batches", 0]
        for name in ("one rank", "shards"):
            ranks, grid = GRIDS[name]
            directories = {}
            for kind, keys in (("cpu", ["--checkpoint.saving", "synchronous"]), ("emulated", emulated)):
                directories[kind] = self.directory(f"{name}-{kind}")
                said = self.train(directories[kind], *options, *grid, *keys, ranks=ranks).stdout
            self.assertIn(BESIDE, said)
            self.assertIn("a rank in the memory of the host", said)
            for step in (2, 4, 5):
                self.assertTrue(self.tensor_files(directories["cpu"], step) == self.tensor_files(directories["emulated"], step))
            for rank in range(max(1, ranks)):
                self.check_copy(said, rank, directories["emulated"] / f"checkpoints/step-5/rank_{rank}.safetensors")
        # Asked for and without room, it is refused by both.
        small = [*options, *emulated, "--memory.host_budget", "1 KiB", "--checkpoint.saving", "asynchronous"]
        for command in (["plan", self.config], ["train", self.config, "--run.directory", self.directory("no-room")]):
            self.assertIn("checkpoint.saving", run(*command, *small, check=2).stderr)
        # It is within what the host may hold, beside what the plan has there; the device's budget has none of it.
        model = ["--model.layers", 3, "--model.hidden", 128, "--model.sequence", 128, "--train.micro_batch", 16, "--train.global_batch", 32]
        given = [*options, *model, *emulated, "--memory.allow", "offload-states", "--memory.host_budget"]
        plan = lambda *keys: json.loads(run("plan", self.config, *given, *keys, "--json").stdout)
        least = plan("256 MiB")["minimum_budget_bytes"]
        planned = plan("256 MiB", "--memory.budget", least)
        copy, held = planned["memory"]["host_saved_copy"], planned["memory"]["host"]
        self.assertGreater(held, 0)
        self.assertEqual(planned["saving"], {"asynchronous": True, "copy_bytes": copy, "missing_bytes": 0})
        self.assertNotIn("saved_copy", planned["memory"])
        for budget, missing in ((held + copy, 0), (held + copy - 1, 1)):
            keys = [budget, "--memory.budget", least]
            again = plan(*keys)
            self.assertEqual((again["memory"]["host"], again["saving"]["missing_bytes"]), (held, missing))
            self.assertEqual("host_saved_copy" in again["memory"], missing == 0)
            directory = self.directory(f"host-{missing}")
            said = self.train(directory, *given, *keys).stdout
            self.assertEqual([BESIDE in said, "\n  saved copy" in said], [missing == 0] * 2, said)
            if missing:
                self.assertIn("1 B (1 B) more than this plan leaves of the host's memory", said)

    def test_nothing_is_copied_where_only_the_end_is_saved(self):
        for options in (["--checkpoint.every", 0], ["--checkpoint.every", 6]):
            said = self.train(self.directory(options[-1]), *options, "--checkpoint.saving", "asynchronous").stdout
            self.assertNotIn("saving    ", said)
            self.assertNotIn("copy", said)

    def test_steps_go_on_while_a_file_is_made_durable(self):
        for ranks in (0, 2):
            directory = self.directory(f"slow-{ranks}")
            options = ["--train.steps", 70, "--checkpoint.every", 30, "--checkpoint.keep", 9, "--evaluation.batches", 0]
            code, said = self.train_struck(directory, *options, "--grid.data", max(1, ranks), ranks=ranks, rank=max(0, ranks - 1),
                                           call="fsync", number=1, whom="hold", seconds=4)
            self.assertEqual(code, 0, said[-3000:])
            self.assertEqual(folders(directory), ["step-30", "step-60", "step-70"])
            seconds, waited = map(float, re.search(r"step-30 \(([\d.]+) s, of which training waited ([\d.]+) s", said).groups())
            rows = {row["step"]: row for row in metrics(directory)}
            # Nobody waited until the next one was due, and then for the rest of the time.
            meanwhile = rows[60]["time"] - rows[31]["time"]
            self.assertGreaterEqual(seconds, 3.9)
            self.assertEqual([step for step in range(32, 60) if rows[step].get("checkpoint_seconds", 0) > 0], [])
            self.assertLess(rows[31]["checkpoint_seconds"], 1)
            self.assertAlmostEqual(waited + meanwhile, seconds, delta=1)
            if meanwhile < 2.5:
                self.assertGreater(rows[61]["checkpoint_seconds"], 1)
                self.assertEqual(said.count("note: the next checkpoint was due"), 1)

    def test_a_writer_that_finds_no_space_ends_the_run_as_ever(self):
        for ranks, grid in ((0, []), (4, ["--grid.data", 2, "--grid.pipeline", 2, "--grid.zero", 1])):
            said = {}
            for saving in ("auto", "synchronous"):
                for call in ("write", "fsync"):
                    with self.subTest(f"{ranks} ranks, {saving}, {call}"):
                        directory = self.directory(f"full-{ranks}-{saving}-{call}")
                        code, text = self.train_struck(
                            directory, *grid, "--train.steps", 40, "--checkpoint.every", 4, "--checkpoint.saving", saving, ranks=ranks,
                            rank=max(0, ranks - 1), call=call, number=1, whom="fail", under=HALF_WRITTEN + "8/")
                        self.assertEqual(code, 5, text[-3000:])
                        error = [line for line in text.splitlines() if "No space left on device" in line]
                        self.assertEqual(len(error), 1, text[-3000:])
                        said[saving, call] = error[0].replace(str(directory), "")
                        self.assertEqual(folders(directory), ["step-4"])
                        run("checkpoint", "verify", directory / "checkpoints/step-4")
                        last = metrics(directory)[-1]["step"]
                        self.assertLessEqual(8, last)
                        self.assertLessEqual(last, 12, "it ends before the next one is due")
            for call in ("write", "fsync"):
                self.assertEqual(said["auto", call], said["synchronous", call])

    def test_older_checkpoints_that_could_go_are_named_where_there_is_no_space(self):
        directory = self.directory("older")
        code, text = self.train_struck(directory, "--train.steps", 40, "--checkpoint.every", 2, "--checkpoint.keep", 9,
                                       call="write", number=1, whom="fail", under=HALF_WRITTEN + "8/")
        self.assertEqual(code, 5, text[-3000:])
        self.assertIn(f"Older checkpoints that could go: steps 2, 4 in {directory}/checkpoints", text)

    def test_a_step_whose_row_finds_no_space_is_saved(self):
        for ranks, grid in ((0, []), (2, ["--grid.data", 2])):
            with self.subTest(ranks):
                directory = self.directory(f"row-{ranks}")
                code, text = self.train_struck(directory, *grid, "--train.steps", 40, ranks=ranks, call="write", number=9,
                                               whom="fail", under="metrics.jsonl")
                self.assertEqual(code, 5, text[-3000:])
                self.assertIn("metrics.jsonl: cannot be written; is the disk full?", text)
                step = int(folders(directory)[-1][5:])
                self.assertGreater(step, 5)
                # Nothing is lost but the row.
                said = self.train(directory, *grid, "--train.steps", 40, "--train.stop_after", 1, ranks=ranks, check=75).stdout
                self.assertIn(f"continuing from {directory}/checkpoints/step-{step} ", said)
                self.assertIn(f"metrics.jsonl: line {step} is damaged and moved to metrics.jsonl.damaged", said)
                self.assertEqual([row["step"] for row in metrics(directory)], [*range(1, step), step + 1])

    def test_a_loss_that_is_not_finite_loses_no_checkpoint_of_a_step_before(self):
        directory = self.directory("diverged")
        options = ["--train.steps", 9, "--checkpoint.every", 1, "--optimizer.learning_rate", 1e30,
                   "--optimizer.minimum_learning_rate", 0, "--optimizer.warmup_steps", 0]
        code, said = self.train_struck(directory, *options, call="fsync", number=1, whom="hold", seconds=2)
        self.assertEqual(code, 6, said[-3000:])
        self.assertIn("step 2: the loss is ", said)
        self.assertEqual(folders(directory), ["step-1"])
        run("checkpoint", "verify", directory / "checkpoints/step-1")

    def interrupted(self, name, number, ranks, seconds, every, later=0):
        """A run whose first checkpoint is held for some seconds when it is told to stop, as it ended."""
        directory = self.directory(name)
        where = self.folder / "where"
        where.unlink(missing_ok=True)
        options = ["--train.steps", 100000, "--checkpoint.every", every, "--checkpoint.keep", 9, "--evaluation.batches", 0,
                   "--grid.data", max(1, ranks)]
        before = strikes(0 if ranks else "", "fsync", 1, HALF_WRITTEN, "hold", where, seconds)
        job, log = self.start(directory, *options, ranks=ranks, before=before)
        deadline = time.monotonic() + patient(60)
        while not where.exists():
            self.assertIsNone(job.poll(), log.read_text()[-3000:])
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        time.sleep(later)
        job.send_signal(number)
        return directory, job.wait(timeout=patient(60)), log.read_text()


    def test_a_stop_saves_the_last_step_after_what_is_being_written(self):
        for ranks in (0, 2):
            directory, code, said = self.interrupted(f"asked-{ranks}", signal.SIGUSR1, ranks, 2, every=100)
            self.assertEqual(code, 75, said[-3000:])
            step = int((directory / "stopped").read_text())
            self.assertGreater(step, 100)
            self.assertEqual(folders(directory), ["step-100", f"step-{step}"])
            for name in folders(directory):
                run("checkpoint", "verify", directory / "checkpoints" / name)
            self.assertEqual([row["step"] for row in metrics(directory)], list(range(1, step + 1)))

    # The launcher kills its ranks in the midst of the call that is held.
    def test_an_interrupt_of_the_launcher_saves_the_state_and_leaves_what_is_being_written(self):
        # In the midst of a step, and where the loop waits for the checkpoint, since the next one is due.
        for name, every, later in (("goes-on", 200, 0), ("waits", 5, 0.5)):
            with self.subTest(name):
                directory, code, said = self.interrupted(f"interrupted-{name}", signal.SIGINT, 2, 30, every, later)
                self.assertEqual(code, 1, said[-3000:])
                deadline = time.monotonic() + patient(30)
                while not (directory / "stopped").exists() or list(directory.glob(".parting-*")):
                    self.assertLess(time.monotonic(), deadline, said[-3000:])
                    time.sleep(0.05)
                step = int((directory / "stopped").read_text())
                self.assertEqual(folders(directory), [f"step-{step}"])
                run("checkpoint", "verify", directory / "checkpoints" / f"step-{step}")
                self.train(directory, "--train.steps", step + 1, "--grid.data", 2, "--evaluation.batches", 0, ranks=2)
                self.assertEqual([row["step"] for row in metrics(directory)], list(range(1, step + 2)))

    def test_checkpoints_of_every_so_many_minutes_stay(self):
        directory = self.directory("minutes")
        options = ["--checkpoint.every", 2, "--checkpoint.keep", 1, "--checkpoint.keep_minutes", 600]
        self.train(directory, *options, "--train.steps", 4, "--train.stop_after", 3, check=75)
        # All are of the first ten hours: the first of them stays.
        self.assertEqual(folders(directory), ["step-2", "step-3"])
        first = json.loads((directory / "checkpoints.json").read_text())["first_saved_at"]
        self.assertEqual(first, json.loads((directory / "checkpoints/step-2/manifest.json").read_text())["saved_at"])
        self.assertLess(abs(first - time.time()), 3600)
        self.train(directory, *options, "--train.steps", 8)
        self.assertEqual(folders(directory), ["step-2", "step-8"])


if __name__ == "__main__":
    unittest.main()
