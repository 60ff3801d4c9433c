# SPDX-License-Identifier: MIT
"""Training that has its activations, parameters, gradients and states on a disk for part of the step: budgets, refusals,
emulated lanes, what stays behind."""
import json
import os
import pathlib
import signal
import subprocess
import time
import unittest

from offload_runs import KINDS, OffloadRuns
from support import BINARY, SOURCE, metrics, patient, run, series


class OffloadTest(OffloadRuns):
    def test_emulated_lanes_that_are_late(self):
        plain = self.directory("plain")
        self.train(plain, *self.model())
        for way in ("offload-activations", "offload-states", "recompute,offload-weights", "recompute,offload-gradients",
                    "offload-activations,offload-gradients,offload-weights,offload-states"):
            with self.subTest(way):
                keys, budget = self.only_moved(way=way)
                directory = self.directory(f"emulated-{way}")
                done = self.train(directory, *keys, "--run.device", "emulated")
                self.same_training(plain, directory)
                self.assertGreater(self.check_bytes(directory, done, budget), 0)

    def test_a_byte_less_than_the_smallest_budget_is_refused_with_it(self):
        least, without, most = self.budgets()
        self.assertLess(least, without)
        disk = ("--memory.disk", self.disk)
        for command in ("plan", "train"):
            done = run(command, self.config, *self.with_budget(least - 1), *disk, "--run.directory",
                       self.directory("less"), check=3)
            self.assertIn(str(least), done.stderr)
        self.assertFalse(self.directory("less").exists())
        shown = run("plan", self.config, *self.with_budget(least), *disk).stdout
        by_way = json.loads(run("plan", self.config, *self.with_budget(least), *disk, "--json").stdout)
        for way, bytes_ in by_way["minimum_budget_bytes_by_way"].items():
            alone = json.loads(run("plan", self.config, *self.model(), *disk, "--memory.allow", f"recompute,{way}",
                                   "--json").stdout)
            self.assertEqual(alone["minimum_budget_bytes"], bytes_)
            self.assertNotIn("minimum_budget_bytes_by_way", alone)
            self.assertIn(f"with {way} alone: {bytes_} B", shown)
            self.assertLess(least, bytes_)
            self.assertLess(bytes_, without)
        self.assertEqual(by_way["minimum_budget_bytes_without_way"].keys(), by_way["minimum_budget_bytes_by_way"].keys())
        for way, bytes_ in by_way["minimum_budget_bytes_without_way"].items():
            others = ",".join(other for other in by_way["minimum_budget_bytes_by_way"] if other != way)
            planned = json.loads(run("plan", self.config, *self.model(), *disk, "--memory.allow", f"recompute,{others}",
                                     "--json").stdout)
            self.assertEqual(planned["minimum_budget_bytes"], bytes_)
            self.assertIn(f"without {way}: {bytes_} B", shown)
            self.assertLessEqual(least, bytes_)
        for words in (f"smallest budget: {least} B", f"without the disk: {without} B", "leave the device", "GB/s",
                      "  disk ", "+ offload"):
            self.assertIn(words, shown)
        # No room there: nothing is moved.
        small = json.loads(run("plan", self.config, *self.with_budget(most), *disk, "--memory.disk_budget", 4096,
                               "--json").stdout)
        self.assertEqual(small["minimum_budget_bytes"], small["minimum_on_device_bytes"])
        # What could be had with more is said.
        done = run("plan", self.config, *self.with_budget(least), *disk, "--memory.disk_budget", 4096, check=3)
        self.assertIn(f"the smallest budget that works is {without} bytes", done.stderr)
        self.assertRegex(done.stderr, r"that is with 4\.00 KiB for each rank on the disk \(memory\.disk_budget\), and with more "
                         r"there [\d.]+ [KM]iB is enough; a smaller train\.micro_batch")

    def test_what_is_moved_is_explained(self):
        keys, _ = self.only_moved(way="offload-activations")
        run("plan", self.config, *keys, "--program", self.directory("explained") / "program")
        program = self.programs(self.directory("explained"))[0]
        copies = [one for one in program["instructions"] if one["operation"].startswith("disk-")]
        shown = run("plan", self.config, *keys, "--explain").stdout
        for lane in ("disk-write", "disk-read"):
            count = sum(one["operation"] == lane for one in copies)
            self.assertGreater(count, 0)
            self.assertRegex(shown, rf"(?m)^  {lane} +{count} +[\d.]+ MiB +[\d.]+ ms +\d+ % +[\d.]+ ms$")
        self.assertRegex(shown, r"on the disk at its peak of [\d.]+ MiB\n(  .*@disk +.*\n)+")
        without = json.loads(run("plan", self.config, *self.model("--memory.plan", "keep-all"), "--json").stdout)
        self.assertRegex(shown, rf"what each tier is worth\n.*\n  disk +{without['minimum_budget_bytes']} B .* none\n")
        costs = ("--cluster", SOURCE / "config" / "clusters" / "dgx_a100.toml", "--run.device", "cuda", "--memory.host_budget", "4 GiB",
                 "--grid.data", 2)
        least = json.loads(run("plan", self.config, *self.model(), *costs, "--json").stdout)["minimum_budget_bytes"]
        planned = json.loads(run("plan", self.config, *self.with_budget(least), *costs, "--json").stdout)
        self.assertTrue(0 < planned["least_seconds"] <= planned["seconds"])
        out = planned["lanes"]["copy-out"]
        self.assertEqual(out["bytes"], planned["copied_out_bytes"])
        self.assertGreater(out["busy_seconds"], out["waited_seconds"])

    def test_a_disk_is_no_loss(self):
        """What copies take on the device is there only where something moves: also just below what a plan takes, no
        plan is slower for a disk, and no smallest budget larger."""
        cluster = ("--cluster", SOURCE / "config" / "clusters" / "laptop.toml")
        _, without, most = self.budgets()
        plain = 0
        for way in ("auto", "recompute,offload-gradients"):
            disk = ("--memory.disk", self.disk, "--memory.allow", way)
            for budget in (without, without + 1000, (without + most) // 2, most - 1000, most):
                with self.subTest(way=way, budget=budget):
                    keys = (*self.with_budget(budget), *cluster, "--json")
                    planned = json.loads(run("plan", self.config, *keys, *disk).stdout)
                    names = [one["plan"] for one in planned["candidates"]]
                    self.assertEqual(len(names), len(set(names)))
                    self.assertLessEqual(planned["least_seconds"], planned["seconds"])
                    self.assertEqual(planned["copied_out_bytes"] > 0, planned["memory"].get("libraries", 0) > 0)
                    alone = json.loads(run("plan", self.config, *keys).stdout)
                    self.assertLessEqual(planned["seconds"], alone["seconds"])
                    if planned["copied_out_bytes"] == 0:
                        plain += 1
                        self.assertEqual(planned["peak_bytes"], alone["peak_bytes"])
        self.assertGreater(plain, 1)

    def test_programs_are_saved_and_run(self):
        keys, budget = self.only_moved()
        first = self.directory("first")
        self.train(first, *keys)
        run("check", first / "program")
        again = self.directory("again")
        self.train(again, *keys, "--run-program", first / "program")
        self.same_training(first, again)
        for other, words in ((self.with_budget(budget), ("on the tier disk", "no memory.disk")),
                             ([*keys, "--memory.disk_budget", "1 MiB"], ("has a peak of", "on the tier disk"))):
            done = self.train(self.directory("refused"), *other, "--run-program", first / "program", check=2)
            for word in words:
                self.assertIn(word, done.stderr)

    def test_what_cannot_be_is_refused(self):
        def refused(*keys, code=2, words=()):
            done = self.train(self.directory("refused"), *self.model(), *keys, check=code)
            self.assertEqual(done.stderr.count("garonne:"), 1, done.stderr)
            for word in words:
                self.assertIn(word, done.stderr)

        refused("--memory.allow", "offload-activations", words=("memory.allow", "set memory.disk"))
        refused("--memory.allow", "offload-activation", words=("did you mean offload-activations?",))
        refused("--memory.allow", "recompute,recompute", words=("twice",))
        refused("--memory.allow", "offload-activations", "--memory.disk", self.disk, "--memory.plan", "full",
                words=("memory.plan", "memory.allow leaves out"))
        refused("--memory.disk", self.disk / "nowhere", words=("memory.disk", "cannot be used"))
        refused("--memory.disk", self.disk, "--memory.disk_budget", "1000000 TiB", words=("memory.disk_budget", "free"))
        if os.access("/dev/shm", os.W_OK):
            refused("--memory.disk", "/dev/shm", code=5, words=("/dev/shm", "is in memory"))

    def test_what_is_trained_below_is_evaluated_and_exported(self):
        keys, budget = self.only_moved(way="offload-states")
        directory = self.directory("states")
        self.train(directory, *keys)
        # The disk is for training.
        shown = run("eval", directory).stdout
        self.assertIn(f"{metrics(directory)[-1]['validation_loss']:.4f}", shown)
        run("checkpoint", "export", directory, "--to", "huggingface", self.directory("exported"))
        run("check", directory / "program")
        again = self.directory("again")
        self.train(again, *keys, "--run-program", directory / "program")
        self.same_training(directory, again)
        self.assertEqual(budget, json.loads((directory / "program" / "rank_0.json").read_text())["budget_bytes"])

    def test_a_killed_run_leaves_no_file(self):
        least, _, _ = self.budgets()
        keys = [*self.with_budget(least, "--train.steps", 1000), "--memory.disk", self.disk]
        command = [BINARY, "train", self.config, "--run.directory", self.directory("killed"), *keys]
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
        try:
            for line in process.stdout:
                if line.startswith("step       2"):
                    break
            used = [os.readlink(path) for path in pathlib.Path(f"/proc/{process.pid}/fd").iterdir()]
            self.assertTrue(any(str(self.disk.resolve()) in name and "(deleted)" in name for name in used), used)
            process.send_signal(signal.SIGKILL)
            process.wait()
        finally:
            process.kill()
            process.stdout.close()
        self.assertEqual(os.listdir(self.disk), [])

    def test_a_run_that_is_ended_in_a_step_saves_the_states_below(self):
        for name, keys, ranks in (("one", (), 1), ("shards", ("--grid.data", 2, "--grid.zero", 3), 2)):
            for number in (signal.SIGTERM, signal.SIGINT):
                with self.subTest(name, number=number):
                    long = (*keys, "--train.steps", 1000, "--train.global_batch", 128)
                    options, _ = self.only_moved(*long, way="offload-states")
                    directory = self.directory(f"ended-{name}-{number}")
                    command = ["mpirun", "-n", ranks, BINARY, "train", self.config, "--run.directory", directory, *options]
                    with open(f"{directory}.log", "w+") as log:
                        job = subprocess.Popen(list(map(str, command)), stdout=log, stderr=subprocess.STDOUT,
                                               start_new_session=True)
                        self.addCleanup(lambda job=job: job.poll() is None and os.killpg(job.pid, signal.SIGKILL))
                        self.wait_for(lambda log=log: "step       2/" in pathlib.Path(log.name).read_text(), log)
                        time.sleep(0.3)  # into the step
                        job.send_signal(number)
                        self.assertEqual(job.wait(timeout=patient(60)), 1, pathlib.Path(log.name).read_text()[-3000:])
                    self.wait_for((directory / "stopped").exists, log)
                    self.wait_for(lambda directory=directory: not list(directory.glob(".parting-*")), log)
                    step = int((directory / "stopped").read_text())
                    self.assertGreaterEqual(step, 2)
                    run("checkpoint", "verify", directory / "checkpoints" / f"step-{step}")
                    whole = self.directory(f"whole-{name}-{number}")
                    self.train(whole, *options, "--train.stop_after", step, ranks=ranks, check=75)
                    self.same_tensors(whole, directory, step)
                    self.assertEqual(os.listdir(self.disk), [])

    def wait_for(self, happens, log):
        """What the run has printed is shown where it does not happen."""
        end = time.monotonic() + patient(90)
        while not happens():
            self.assertLess(time.monotonic(), end, pathlib.Path(log.name).read_text()[-3000:])
            time.sleep(0.01)

    def test_a_run_goes_on_with_and_without_the_disk(self):
        plain = self.directory("plain")
        self.train(plain, *self.model())
        least, _, _ = self.budgets()
        for first, then in ((True, False), (False, True)):
            directory = self.directory(f"changes-{first}")
            with_disk = [*self.with_budget(least), "--memory.disk", self.disk]
            self.train(directory, *(with_disk if first else self.model()), "--train.stop_after", 1, check=75)
            self.train(directory, *(with_disk if then else self.model()))
            self.assertEqual(series(plain, "loss"), series(directory, "loss"))
            self.same_tensors(plain, directory)

    def test_a_run_goes_on_on_another_grid_with_and_without_the_disk(self):
        shards = ("--grid.data", 2, "--grid.zero", 2)
        all_shards = ("--grid.data", 2, "--grid.zero", 3)
        for name, (first, way_first, ranks), (then, way_then, ranks_then) in (
                ("states", (shards, "offload-states", 2), (("--grid.pipeline", 2), "", 2)),
                ("everything", ((), "", 0), (all_shards, KINDS[-1], 2))):
            with self.subTest(name):
                # Grids add in other orders: the bits are those of the same grids one after the other.
                plain, moved = self.directory(f"{name}-plain"), self.directory(f"{name}-moved")
                for directory, moves in ((plain, False), (moved, True)):
                    for keys, way, count, stop in ((first, way_first, ranks, 1), (then, way_then, ranks_then, 0)):
                        words, budget = self.only_moved(*keys, way=way) if moves and way else (self.model(*keys), 0)
                        stops = ("--train.stop_after", stop) if stop else ()
                        done = self.train(directory, *words, *stops, ranks=count, check=75 if stop else 0)
                        if moves and way:
                            self.assertGreater(self.check_bytes(directory, done, budget), 0)
                self.same_training(plain, moved)
                self.assertEqual(os.listdir(self.disk), [])


if __name__ == "__main__":
    unittest.main()
