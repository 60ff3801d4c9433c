# SPDX-License-Identifier: MIT
"""Training on the emulated device with what it does not use for a while in memory of the host: bits, bytes, budgets, refusals,
restarts. GARONNE_OFFLOAD=long: all kinds x recomputation x grids x ZeRO x number types x three seeds; GARONNE_OFFLOAD=seeds: all
kinds together with twenty seeds, of training and of delays."""
import concurrent.futures
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import unittest

from offload_runs import GRIDS, KINDS, in_precision
from support import BINARY, ProgramTest, metrics, run, series

STEPS = 3
LONG = os.environ.get("GARONNE_OFFLOAD") == "long"
SEEDS = os.environ.get("GARONNE_OFFLOAD") == "seeds"
EVERYTHING = KINDS[-1]
# Policies that move what forward passes leave, and nothing that lasts.
OF_CHAINS = ("pofo", "offload-greedy", "offload-greedy-star")


class OffloadHostTest(ProgramTest):
    # Values of a mebibyte and more: smaller ones stay.
    MODEL = {"--model.layers": 3, "--model.hidden": 128, "--model.sequence": 128, "--train.micro_batch": 16,
             "--train.global_batch": 32, "--train.steps": STEPS, "--evaluation.batches": 1, "--memory.budget": "512 MiB"}
    EMULATED = {"--run.device": "emulated", "--memory.host_budget": "256 MiB"}

    def words(self, *keys):
        """MODEL with other values for keys that are given again."""
        kept = dict(self.MODEL)
        for some in keys:
            kept |= some
        return [word for pair in kept.items() for word in pair]

    def plan(self, *keys, check=0):
        done = run("plan", self.config, *self.words(*keys), "--json", check=check)
        return json.loads(done.stdout) if check == 0 else done

    def least(self, *keys):
        """These keys with the smallest budget of the device."""
        return {**{key: value for some in keys for key, value in some.items()},
                "--memory.budget": self.plan(*keys)["minimum_budget_bytes"]}

    def check_bytes(self, directory, done, budget):
        """As planned on the device, to the byte on the host. Whether anything went there."""
        moved = 0
        for path in sorted((directory / "program").glob("rank_*.json")):
            program = json.loads(path.read_text())
            measured = max(one["measured_peak_bytes"] for one in program["instructions"])
            self.assertLessEqual(measured, program["peak_bytes"])
            self.assertGreaterEqual(measured, 0.99 * program["peak_bytes"])
            self.assertLessEqual(program["peak_bytes"], budget)
            moved += sum(one["operation"] == "copy-out" for one in program["instructions"])
            self.assertFalse(any(one["operation"].startswith("disk") for one in program["instructions"]))
        on_host = re.findall(r"host planned +(\d+) B +measured +(\d+) B", done.stdout)
        for planned, measured in on_host:
            self.assertEqual(planned, measured)
        self.assertEqual(bool(on_host), moved > 0, done.stdout)
        return moved

    def same_training(self, wanted, found, step=STEPS):
        for key in ("loss", "gradient_norm", "validation_loss"):
            mine, theirs = ([row.get(key) for row in metrics(folder)] for folder in (wanted, found))
            self.assertEqual(mine, theirs, key)
        # Not assertEqual, which would show how megabytes differ.
        self.assertTrue(self.tensor_files(wanted, step))
        self.assertTrue(self.tensor_files(wanted, step) == self.tensor_files(found, step), "states differ")

    def compare(self, name, keys, ranks, kinds, recomputes):
        """With the smallest budget of each way, which has to move, against the processor that keeps everything."""
        plain = self.directory(f"{name}-plain")
        self.train(plain, *self.words(keys), ranks=ranks)
        for kind, recompute in itertools.product(kinds, recomputes):
            with self.subTest(name, kind=kind, recompute=recompute):
                allow = {"--memory.allow": f"{kind},recompute" if recompute else kind}
                small = self.least(keys, self.EMULATED, allow)
                directory = self.directory(f"{name}-{kind}-{recompute}")
                done = self.train(directory, *self.words(small), ranks=ranks)
                self.same_training(plain, directory)
                self.assertGreater(self.check_bytes(directory, done, small["--memory.budget"]), 0)

    def with_seeds(self, seeds, grids, kinds):
        """As compare(). What is planned does not depend on the seed: the first one's Programs are the others', too."""
        steps = 2  # the second has what the first has left
        ways = [kind + again for kind, again in itertools.product(kinds, ("", ",recompute"))]
        for precision, name in itertools.product(("float32", "bfloat16"), grids):
            keys, ranks = {**in_precision(precision, GRIDS[name][0]), "--train.steps": steps}, GRIDS[name][1]
            start = time.monotonic()
            small = {way: self.least(keys, self.EMULATED, {"--memory.allow": way}) for way in ways}
            programs = {}
            moved = dict.fromkeys(ways, 0)
            for seed in seeds:
                seeded = {**keys, "--train.seed": seed}
                plain = self.directory(f"{precision}-{name}-{seed}")
                self.train(plain, *self.words(seeded), ranks=ranks)
                directories = {way: self.directory(f"{precision}-{name}-{way}-{seed}") for way in ways}
                # Delays are most of a run: two go on at one time.
                with concurrent.futures.ThreadPoolExecutor(2) as pool:
                    runs = {way: pool.submit(self.train, directories[way], *self.words(small[way], seeded),
                                             *programs.get(way, ()), ranks=ranks) for way in ways}
                for way in ways:
                    with self.subTest(name, precision=precision, seed=seed, allow=way):
                        done = runs[way].result()
                        self.same_training(plain, directories[way], steps)
                        moved[way] += self.check_bytes(directories[way], done, small[way]["--memory.budget"])
                        if way not in programs:
                            kept = self.directory(f"{precision}-{name}-{way}-program")
                            shutil.copytree(directories[way] / "program", kept)
                            programs[way] = ("--run-program", kept)
                        shutil.rmtree(directories[way])
                shutil.rmtree(plain)
            # With one or the other: what a kind is at the peak differs.
            for kind in kinds:
                with self.subTest(name, precision=precision, moved=kind):
                    self.assertGreater(moved[kind] + moved[f"{kind},recompute"], 0)
            print(f"{precision} {name}: {len(seeds)} seeds, {time.monotonic() - start:.0f} s", flush=True)

    @unittest.skipIf(LONG or SEEDS, "part of what takes longer")
    def test_bits_and_bytes_are_those_of_the_plan(self):
        both = ("offload-activations,offload-states",)
        pages = ("offload-gradients,offload-weights", EVERYTHING)
        self.compare("alone", {}, 0, both, (True, False))
        shards = {"--grid.data": 2, "--grid.zero": 3, "--train.precision": "bfloat16"}
        self.compare("shards", shards, 2, (*both, EVERYTHING), (False,))
        self.compare("pipeline", {"--grid.pipeline": 2}, 2, ("offload-activations",), (False,))
        self.compare("pages", {}, 0, pages, (False,))
        self.compare("states", {"--train.precision": "bfloat16", "--train.micro_batch": 32}, 0, ("offload-states",), (False,))

    def with_policy(self, policy, name, keys, ranks):
        """A policy's smallest budget trains as the processor does that keeps everything; a byte less is refused with it."""
        plain = self.directory(f"{policy}-{name}-plain")
        self.train(plain, *self.words(keys), ranks=ranks)
        small = self.least(keys, self.EMULATED, {"--memory.plan": policy})
        directory = self.directory(f"{policy}-{name}")
        done = self.train(directory, *self.words(small), ranks=ranks)
        self.same_training(plain, directory)
        self.assertGreater(self.check_bytes(directory, done, small["--memory.budget"]), 0)
        program = json.loads((directory / "program" / "rank_0.json").read_text())
        self.assertTrue(program["name"].startswith(policy))
        less = self.plan(small, {"--memory.budget": small["--memory.budget"] - 1}, check=3)
        self.assertIn(str(small["--memory.budget"]), less.stderr)
        if policy in OF_CHAINS:
            return program
        updates = [one["operation"] for one in program["instructions"] if one["operation"].startswith("update")]
        if policy == "zero-offload":
            self.assertIn("update-host", updates)
        states = [one for one in program["buffers"] if one["kind"] in ("optimizer-state", "master-parameter") and one.get("live_at_start")]
        large = [one for one in states if one["bytes"] >= 1 << 16]
        self.assertTrue(large)
        self.assertTrue(all(one.get("tier") == "host" for one in large))
        return program

    # Validations between checkpoints, and neither after most steps.
    OFTEN = {"--train.steps": 7, "--checkpoint.every": 4, "--evaluation.every": 3, "--checkpoint.keep": 9}

    def left(self, directory):
        """Of the Programs of a run: how many instructions are of the previous step."""
        return [sum(one.get("of_previous_step", False) for one in json.loads(path.read_text())["instructions"])
                for path in sorted((directory / "program").glob("rank_*.json"))]

    def beside_next_step(self, name, keys, ranks):
        keys = {**keys, **self.OFTEN}
        plain = self.directory(f"{name}-plain")
        self.train(plain, *self.words(keys), ranks=ranks)
        small = self.least(keys, self.EMULATED, {"--memory.allow": "offload-states"})

        def same(directory, keys=("loss", "gradient_norm", "validation_loss")):
            for key in keys:
                self.assertEqual([row.get(key) for row in metrics(plain)], [row.get(key) for row in metrics(directory)], key)
            for step in (4, 7):
                self.assertTrue(self.tensor_files(plain, step))
                self.assertTrue(self.tensor_files(plain, step) == self.tensor_files(directory, step), f"states of step {step} differ")

        beside = self.directory(f"{name}-beside")
        done = self.train(beside, *self.words(small), ranks=ranks)
        # A stage with room for all it has needs no host.
        left = self.left(beside)
        self.assertTrue(any(left) if "--grid.pipeline" in keys else all(left), left)
        self.assertIn("updates beside the next step", done.stdout)
        same(beside)
        self.check_bytes(beside, done, small["--memory.budget"])
        run("check", beside / "program")
        within = self.directory(f"{name}-within")
        self.train(within, *self.words(small, {"--memory.host_updates": "within-step"}), ranks=ranks)
        self.assertFalse(any(self.left(within)))
        same(within)
        # Between steps that leave something, and on another device.
        stopped = self.directory(f"{name}-stopped")
        self.train(stopped, *self.words(small), "--train.stop_after", 2, ranks=ranks, check=75)
        self.train(stopped, *self.words(small), "--train.stop_after", 3, ranks=ranks, check=75)
        self.train(stopped, *self.words(keys), ranks=ranks)
        same(stopped, ("loss", "gradient_norm"))  # it is also validated where it stops

    @unittest.skipIf(LONG or SEEDS, "part of what takes longer")
    def test_updates_go_on_beside_the_next_step(self):
        self.beside_next_step("alone", {}, 0)
        self.beside_next_step("shards", {"--grid.data": 2, "--grid.zero": 2, "--grid.bucket": "256 KiB", "--train.precision": "bfloat16"}, 2)
        self.beside_next_step("pipeline", {"--grid.pipeline": 2, "--train.precision": "bfloat16"}, 2)

    @unittest.skipUnless(LONG, "minutes")
    def test_updates_go_on_beside_the_next_step_on_all_grids(self):
        for zero, precision in itertools.product(range(4), ("float32", "bfloat16")):
            keys = {"--grid.data": 2, "--grid.zero": zero, "--grid.bucket": "256 KiB", "--train.precision": precision}
            self.beside_next_step(f"beside-zero{zero}-{precision}", keys, 2)

    def test_a_step_whose_updates_are_left_is_not_lost(self):
        keys = {**self.least(self.EMULATED, {"--memory.allow": "offload-states"}), "--train.steps": 12, "--checkpoint.every": 5}
        whole = self.directory("left-whole")
        self.train(whole, *self.words(keys))
        self.assertTrue(all(self.left(whole)))
        # Asked to stop in any of its steps: the loop saves, behind what was left.
        directory = self.directory("left-asked")
        job = self.started_run(directory, keys)
        job.send_signal(signal.SIGTERM)
        self.assertIn(job.wait(timeout=120), (0, 75))
        saved = [int(path.name.removeprefix("step-")) for path in (directory / "checkpoints").glob("step-*")]
        self.assertEqual(max(saved), metrics(directory)[-1]["step"])
        self.train(directory, *self.words(keys))
        self.assertEqual(series(whole, "loss"), series(directory, "loss"))
        self.assertTrue(self.tensor_files(whole, 12) == self.tensor_files(directory, 12))

    def started_run(self, directory, keys):
        """One that has made its third step."""
        job = subprocess.Popen([BINARY, "train", str(self.config), "--run.directory", str(directory), *map(str, self.words(keys))],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(job.stdout.close)
        for line in job.stdout:
            if re.match(r"step +3/", line):
                break
        return job

    @unittest.skipIf(LONG or SEEDS, "part of what takes longer")
    def test_policies_have_the_bits_of_plain_training(self):
        self.with_policy("zero-offload", "alone", {}, 0)
        self.with_policy("zero-offload", "shards", {"--grid.data": 2, "--grid.zero": 2, "--train.precision": "bfloat16"}, 2)
        again = self.with_policy("zero-infinity", "shards", {"--grid.data": 2, "--grid.zero": 3}, 2)
        self.assertTrue(any(one.get("recompute") for one in again["instructions"]))
        self.with_policy("pofo", "shards", {"--grid.data": 2, "--grid.zero": 3, "--train.precision": "bfloat16", "--train.micro_batch": 32,
                                            "--train.global_batch": 64}, 2)
        kept = self.with_policy("offload-greedy", "pipeline", {"--grid.pipeline": 2}, 2)
        self.assertFalse(any(one.get("recompute") for one in kept["instructions"]))

    @unittest.skipUnless(LONG, "minutes")
    def test_policies_on_all_grids(self):
        for policy, zero, precision in itertools.product(("zero-offload", "zero-infinity", *OF_CHAINS), range(4), ("float32", "bfloat16")):
            with self.subTest(policy, zero=zero, precision=precision):
                # Inputs of blocks have a mebibyte in both.
                samples = 32 if precision == "bfloat16" else 16
                keys = {"--grid.data": 2, "--grid.zero": zero, "--train.precision": precision, "--train.micro_batch": samples,
                        "--train.global_batch": 2 * samples}
                self.with_policy(policy, f"zero{zero}-{precision}", keys, 2)
        for policy in ("zero-offload", "zero-infinity", *OF_CHAINS):
            self.with_policy(policy, "pipeline", {"--grid.pipeline": 2}, 2)

    @unittest.skipUnless(LONG, "minutes")
    def test_the_whole_product(self):
        self.with_seeds(range(1, 4), GRIDS, KINDS)

    @unittest.skipUnless(SEEDS, "minutes")
    def test_all_kinds_together_with_twenty_seeds(self):
        self.with_seeds(range(1, 21), ("alone", "zero-3", "1f1b", "1f1b-zero-3"), (EVERYTHING,))

    def test_a_byte_less_than_the_smallest_budget_is_refused_with_it(self):
        small = self.least(self.EMULATED)
        least = small["--memory.budget"]
        planned = self.plan(small)
        self.assertLess(least, planned["minimum_on_device_bytes"])
        self.assertGreater(planned["memory"]["host"], 0)
        shown = run("plan", self.config, *self.words(small), "--explain").stdout
        for words in (f"smallest budget: {least} B", "without the host: ", "leave the device", "\nhost  ", "  host ", "+ offload"):
            self.assertIn(words, shown)
        for command in ("plan", "train"):
            done = run(command, self.config, *self.words(small, {"--memory.budget": least - 1}), "--run.directory",
                       self.directory("less"), check=3)
            self.assertIn(str(least), done.stderr)
        self.assertFalse(self.directory("less").exists())
        # What is on the host is within its budget, and with a byte less another plan is.
        keys = self.least(self.EMULATED, {"--memory.allow": "offload-activations"})
        held = self.plan(keys)["memory"]["host"]
        keys["--memory.host_budget"] = held
        self.assertLessEqual(self.plan(keys)["memory"]["host"], held)
        nothing = self.plan(self.EMULATED, {"--memory.host_budget": 4096})
        self.assertEqual(nothing["minimum_budget_bytes"], nothing["minimum_on_device_bytes"])

    def test_what_cannot_be_is_refused(self):
        def refused(keys, *words, code=2):
            for command in ("plan", "train"):
                done = run(command, self.config, *self.words(keys), "--run.directory", self.directory("refused"), check=code)
                self.assertEqual(done.stderr.count("garonne:"), 1, done.stderr)
                for word in words:
                    self.assertIn(word, done.stderr)

        refused({"--memory.host_budget": "256 MiB"}, "memory.host_budget", "whose memory is the host's")
        refused({"--memory.host_budget": "auto", "--run.device": "cpu"}, "memory.host_budget", "auto")
        refused({"--memory.allow": "offload-states", "--run.device": "emulated"}, "memory.allow", "memory.host_budget")
        refused({**self.EMULATED, "--memory.host_budget": "1000000 TiB"}, "memory.host_budget", "each rank of this node")
        refused({**self.EMULATED, "--memory.host_budget": "much"}, "memory.host_budget", "must be bytes")
        refused({"--memory.plan": "zero-offload"}, "memory.plan", "zero-offload", "memory.host_budget")
        refused({"--memory.host_updates": "within-step"}, "memory.host_updates", "memory.host_budget")
        refused({"--memory.plan": "zero-infinity"}, "memory.plan", "zero-infinity", "memory.disk")
        for policy in OF_CHAINS:
            refused({"--memory.plan": policy}, "memory.plan", policy, "memory.disk", "memory.host_budget")
        refused({**self.EMULATED, "--memory.plan": "pofo", "--memory.allow": "offload-activations"}, "memory.plan", "recompute",
                "memory.allow")
        refused({**self.EMULATED, "--memory.plan": "zero-infinity", "--memory.allow": "offload-states"}, "memory.plan", "recompute",
                "memory.allow")
        refused({**self.EMULATED, "--memory.plan": "zero-offload", "--memory.host_budget": "1 MiB"}, "memory.host_budget",
                "zero-offload", "has there")

    def test_what_is_free_is_shared(self):
        auto = {**self.EMULATED, "--memory.host_budget": "auto"}
        of_a_rank = []
        for grid in ({}, {"--grid.data": 2}):
            shown = run("plan", self.config, *self.words(auto, grid)).stdout
            number, unit = re.search(r"\nhost +([\d.]+) (MiB|GiB) a rank", shown).groups()
            of_a_rank.append(float(number) * {"MiB": 1, "GiB": 1024}[unit])
        self.assertLess(of_a_rank[1], of_a_rank[0])

    def test_programs_are_saved_and_run_and_what_is_trained_is_used(self):
        keys = self.least(self.EMULATED, {"--memory.allow": "offload-activations,offload-states"})
        first = self.directory("first")
        self.train(first, *self.words(keys))
        run("check", first / "program")
        again = self.directory("again")
        self.train(again, *self.words(keys), "--run-program", first / "program")
        self.same_training(first, again)
        for other, words in (({"--memory.host_budget": 0, "--memory.allow": "auto"}, ("on the tier host", "no memory.host_budget")),
                             ({"--memory.host_budget": "1 MiB"}, ("has a peak of", "on the tier host"))):
            done = self.train(self.directory("refused"), *self.words(keys, other), "--run-program", first / "program", check=2)
            for word in words:
                self.assertIn(word, done.stderr)
        self.assertIn(f"{metrics(first)[-1]['validation_loss']:.4f}", run("eval", first).stdout)
        run("checkpoint", "export", first, "--to", "huggingface", self.directory("exported"))
        report = pathlib.Path(self.directory("report.html"))
        run("report", first, "--output", report)
        self.assertIn('"host"', report.read_text())

    def test_a_run_goes_on_with_and_without_the_host(self):
        plain = self.directory("plain")
        self.train(plain, *self.words())
        below = self.least(self.EMULATED)
        for first, then in ((below, {}), ({}, below), (below, {"--run.device": "emulated"})):
            directory = self.directory(f"changes-{len(first)}-{len(then)}")
            self.train(directory, *self.words(first), "--train.stop_after", 1, check=75)
            self.train(directory, *self.words(then))
            self.assertEqual(series(plain, "loss"), series(directory, "loss"))
            self.assertTrue(self.tensor_files(plain, STEPS) == self.tensor_files(directory, STEPS))

    def test_a_run_goes_on_on_another_grid_with_and_without_the_host(self):
        shards = {"--grid.data": 2, "--grid.zero": 2}
        below = {"--memory.allow": "offload-states"}
        all_shards = {"--grid.data": 2, "--grid.zero": 3}
        below_all = {"--memory.allow": EVERYTHING}
        for name, (first, may_first, ranks), (then, may_then, ranks_then) in (
                ("states", (shards, below, 2), ({"--grid.pipeline": 2}, {}, 2)),
                ("everything", ({}, {}, 0), (all_shards, below_all, 2))):
            with self.subTest(name):
                # Grids add in other orders: the bits are those of the same grids one after the other.
                plain, moved = self.directory(f"{name}-plain"), self.directory(f"{name}-moved")
                for directory, moves in ((plain, False), (moved, True)):
                    for keys, may, count, stop in ((first, may_first, ranks, 1), (then, may_then, ranks_then, 0)):
                        keys = self.least(keys, self.EMULATED, may) if moves and may else keys
                        stops = ("--train.stop_after", stop) if stop else ()
                        done = self.train(directory, *self.words(keys), *stops, ranks=count, check=75 if stop else 0)
                        if moves and may:
                            self.assertGreater(self.check_bytes(directory, done, keys["--memory.budget"]), 0)
                self.same_training(plain, moved)


if __name__ == "__main__":
    unittest.main()
