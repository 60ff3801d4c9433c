# SPDX-License-Identifier: MIT
"""Optimizers, of those that are not of each element by itself one of each kind, or with GARONNE_ALL_OPTIMIZERS=1 all: the same
training on grids as on one rank, bytes as planned, restarts bit for bit, checkpoints for any grid, states below the device; and
the keys of the large-batch recipe."""
import itertools
import json
import os

from grid_test import LLAMA
from offload_runs import OffloadRuns
from support import ProgramTest, check_peaks_of_ranks, metrics, run, series

OPTIMIZERS = {
    "adamw": ("--optimizer.learning_rate", 3e-3),
    "adafactor": ("--optimizer.learning_rate", 3e-2, "--optimizer.smallest_scale", 1e-2),
    "lamb": ("--optimizer.learning_rate", 1e-2),
    "lars": ("--optimizer.learning_rate", 1, "--optimizer.trust_coefficient", 1e-2, "--optimizer.decay", "l2"),
    "lion": ("--optimizer.learning_rate", 1e-3),
    "sgd": ("--optimizer.learning_rate", 1e-1),
}
# With sums of whole parameters once before an update, and twice with states of another shape. Other tests train with AdamW.
if os.environ.get("GARONNE_ALL_OPTIMIZERS") != "1":
    OPTIMIZERS = {name: OPTIMIZERS[name] for name in ("adafactor", "lamb")}
# Keys, ranks.
GRIDS = {
    "data": (("--grid.data", 2), 2),
    "zero1": (("--grid.data", 2, "--grid.zero", 1), 2),
    "zero2": (("--grid.data", 2, "--grid.zero", 2), 2),
    "zero3": (("--grid.data", 2, "--grid.zero", 3, "--grid.bucket", "8 KiB"), 2),
    "tensor": (("--grid.tensor", 2, "--grid.sequence_parallel", "true"), 2),
    "pipeline": (("--grid.pipeline", 2), 2),
    "zb-v": (("--grid.pipeline", 2, "--grid.schedule", "zb-v"), 2),
    "all": (("--grid.data", 2, "--grid.tensor", 2, "--grid.zero", 3), 4),
}
# Rounds of sums of whole parameters before an update, of those that take them.
ROUNDS = {"adafactor": 2, "lamb": 1, "lars": 1}
# Of those whose updates are of each element by itself.
FEW = ("zero1", "zero3", "tensor", "pipeline", "zb-v")


def keys_of(optimizer):
    return ("--optimizer.name", optimizer, *OPTIMIZERS[optimizer], "--optimizer.warmup_steps", 2)


def adapts(optimizer):
    return optimizer in ROUNDS


class OptimizersTest(ProgramTest):
    def check_alike(self, one, directory, ranks):
        for key in ("loss", "gradient_norm"):
            for mine, wanted in zip(series(directory, key), series(one, key), strict=True):
                self.assertLessEqual(abs(mine - wanted), 1e-9 * abs(wanted), key)
        self.assertAlmostEqual(metrics(directory)[-1]["validation_loss"], metrics(one)[-1]["validation_loss"], 9)
        check_peaks_of_ranks(self, directory, ranks)

    def test_grids_train_alike_in_the_bytes_that_were_planned(self):
        for optimizer in OPTIMIZERS:
            keys = (*keys_of(optimizer), "--train.precision", "float64", "--model.layers", 4, "--train.global_batch", 16)
            one = self.directory(optimizer)
            self.train(one, *keys)
            losses = series(one, "loss")
            self.assertLess(losses[-1], losses[0])
            for name in GRIDS if adapts(optimizer) else FEW:
                with self.subTest(optimizer, grid=name):
                    grid, ranks = GRIDS[name]
                    directory = self.directory(f"{optimizer} {name}")
                    self.train(directory, *keys, *grid, ranks=ranks)
                    self.check_alike(one, directory, ranks)

    def test_llamas_of_every_optimizer_do_too(self):
        for optimizer, name in zip(OPTIMIZERS, itertools.cycle(("zero3", "tensor", "pipeline"))):
            with self.subTest(optimizer, grid=name):
                grid, ranks = GRIDS[name]
                keys = (*keys_of(optimizer), *LLAMA, "--train.precision", "float64", "--model.layers", 4)
                one, directory = self.directory(f"{optimizer} one"), self.directory(f"{optimizer} {name}")
                self.train(one, *keys)
                self.train(directory, *keys, *grid, ranks=ranks)
                self.check_alike(one, directory, ranks)

    def test_restarts_are_bit_for_bit_and_fit_other_grids(self):
        for optimizer in OPTIMIZERS:
            for name in ("zero2", "tensor") if adapts(optimizer) else ("zero2",):
                grid, ranks = GRIDS[name]
                keys = (*keys_of(optimizer), "--train.precision", "bfloat16" if name == "zero2" else "float64")
                with self.subTest(optimizer, grid=name):
                    whole, parts = (self.directory(f"{optimizer} {name} {what}") for what in ("whole", "parts"))
                    self.train(whole, *keys, *grid, ranks=ranks)
                    self.train(parts, *keys, *grid, "--train.stop_after", 3, ranks=ranks, check=75)
                    self.train(parts, *keys, *grid, ranks=ranks)
                    self.assertEqual(series(whole, "loss"), series(parts, "loss"))
                    self.assertTrue(self.tensor_files(whole, 6) == self.tensor_files(parts, 6), "states differ")
                    other = self.directory(f"{optimizer} {name} other")
                    self.train(other, *keys, *grid, "--train.stop_after", 3, ranks=ranks, check=75)
                    self.train(other, *keys)
                    for mine, wanted in zip(series(other, "loss"), series(whole, "loss"), strict=True):
                        self.assertLessEqual(abs(mine - wanted), (1e-2 if name == "zero2" else 1e-9) * abs(wanted))

    def test_a_tight_budget_holds_and_changes_no_bit(self):
        for optimizer in OPTIMIZERS:
            for name in ("zero3", "tensor") if adapts(optimizer) else ("zero3",):
                with self.subTest(optimizer, grid=name):
                    grid, ranks = GRIDS[name]
                    keys = (*keys_of(optimizer), "--model.layers", 6, *grid)
                    free = self.directory(f"{optimizer} {name} free")
                    self.train(free, *keys, ranks=ranks)
                    plan = json.loads(run("plan", self.config, *keys, "--json").stdout)
                    least, most = plan["minimum_budget_bytes"], plan["peak_bytes"]
                    self.assertLess(least, most)
                    for budget in (least, (least + most) // 2):
                        tight = self.directory(f"{optimizer} {name} {budget}")
                        self.train(tight, *keys, "--memory.budget", budget, ranks=ranks)
                        self.assertEqual(series(tight, "loss"), series(free, "loss"))
                        for row in metrics(tight):
                            self.assertLessEqual(row["peak_bytes"], budget)
                        check_peaks_of_ranks(self, tight, ranks)
                    self.train(self.directory("less"), *keys, "--memory.budget", least - 1, ranks=ranks, check=3)

    def test_programs_are_checked_and_run_again_with_the_same_bits(self):
        for optimizer, rounds, name in (("lamb", 1, "zero3"), ("lamb", 1, "tensor"), ("adafactor", 2, "zero3"),
                                        ("adafactor", 2, "tensor")):
            with self.subTest(optimizer, grid=name):
                grid, ranks = GRIDS[name]
                plain, again = (self.directory(f"{optimizer} {name} {what}") for what in ("plain", "again"))
                self.train(plain, *keys_of(optimizer), *grid, ranks=ranks)
                programs = sorted((plain / "program").glob("rank_*.json"))
                self.assertEqual(run("check", plain / "program").stdout.count(" legal "), ranks)
                operations = [one["operation"] for one in json.loads(programs[1].read_text())["instructions"]]
                self.assertEqual(operations.count("sum-tensors"), rounds * operations.count("update"))
                self.train(again, *keys_of(optimizer), *grid, "--run-program", plain / "program", ranks=ranks)
                self.assertEqual(series(again, "loss"), series(plain, "loss"))
                self.assertTrue(self.tensor_files(again, 6) == self.tensor_files(plain, 6), "states differ")
                # Of an optimizer with as many states and no sums.
                refused = self.train(self.directory("no"), *grid, "--run-program", plain / "program", ranks=ranks, check=2)
                self.assertIn("adamw takes 0", refused.stderr)

    def test_late_lanes_change_no_bit(self):
        for optimizer in OPTIMIZERS:
            plain, late = self.directory(f"{optimizer} plain"), self.directory(f"{optimizer} late")
            grid, ranks = GRIDS["zero1"]
            self.train(plain, *keys_of(optimizer), *grid, ranks=ranks)
            self.train(late, *keys_of(optimizer), *grid, "--run.device", "emulated", ranks=ranks)
            self.assertEqual(series(late, "loss"), series(plain, "loss"))
            self.assertTrue(self.tensor_files(late, 6) == self.tensor_files(plain, 6), "states differ")

    def test_rates_of_another_batch(self):
        plain, scaled, root = (self.directory(name) for name in ("plain", "scaled", "root"))
        keys = ("--train.global_batch", 16, "--optimizer.minimum_learning_rate", 0)
        self.train(plain, *keys, "--optimizer.learning_rate", 1 / 128)
        self.train(scaled, *keys, "--optimizer.learning_rate", 1 / 512, "--optimizer.base_batch", 4)
        self.train(root, *keys, "--optimizer.learning_rate", 1 / 256, "--optimizer.base_batch", 4, "--optimizer.batch_scaling",
                   "root")
        for other in (scaled, root):
            for key in ("loss", "learning_rate"):
                self.assertEqual(series(other, key), series(plain, key))

    def test_weight_decays_of_some_parameters(self):
        def tensors(name, *keys):
            directory = self.directory(name)
            self.train(directory, *keys, "--optimizer.learning_rate", 1e-2)
            return self.exported(directory)

        with_all = tensors("all", "--optimizer.weight_decay", 0.5)
        self.assertEqual(tensors("groups", "--optimizer.weight_decay", 0.1, "--optimizer.weight_decays",
                                 "norm=0, embedding=0.5, weight=0.5, bias=0"), with_all)
        self.assertEqual(tensors("none", "--optimizer.weight_decays", "embedding=0,qkv=0"),
                         tensors("named", "--optimizer.no_decay", "embedding,qkv"))
        self.assertNotEqual(tensors("some", "--optimizer.weight_decays", "qkv=0.5"),
                            tensors("others", "--optimizer.weight_decays", "up=0.5"))

    def test_keys_that_mean_nothing_are_refused_by_name(self):
        for keys, words in (
                (("--optimizer.trust_limit", 5), ("optimizer.trust_limit", "adamw")),
                (("--optimizer.trust_coefficient", 1, "--optimizer.name", "lamb"), ("optimizer.trust_coefficient", "lamb")),
                (("--optimizer.beta2", 0.9, "--optimizer.name", "sgd"), ("optimizer.beta2", "sgd")),
                (("--optimizer.beta1", 0.8, "--optimizer.name", "adafactor"), ("optimizer.beta1", "adafactor")),
                (("--optimizer.update_limit", 2), ("optimizer.update_limit", "adamw")),
                (("--optimizer.batch_scaling", "root"), ("optimizer.batch_scaling", "optimizer.base_batch")),
                (("--optimizer.weight_decays", "qvk=1"), ("optimizer.weight_decays", "did you mean qkv?")),
        ):
            with self.subTest(keys):
                refused = self.train(self.directory("refused"), *keys, check=2)
                for word in words:
                    self.assertIn(word, refused.stderr)


class BelowTheDeviceTest(OffloadRuns):
    def test_states_on_the_disk_have_the_bits_of_those_on_the_device(self):
        for optimizer in OPTIMIZERS:
            for name in ("alone", "zero1"):
                with self.subTest(optimizer, grid=name):
                    grid, ranks = GRIDS.get(name, ((), 0))
                    # What adafactor keeps is little: masters go there, too.
                    precision = "bfloat16" if optimizer == "adafactor" else "float32"
                    keys = (*keys_of(optimizer), *grid, "--train.precision", precision)
                    plain = self.directory(f"{optimizer} {name} plain")
                    self.train(plain, *self.model(*keys), ranks=ranks)
                    small, budget = self.only_moved(*keys, way="offload-states")
                    moved = self.directory(f"{optimizer} {name} moved")
                    done = self.train(moved, *small, ranks=ranks)
                    self.same_training(plain, moved)
                    self.assertGreater(self.check_bytes(moved, done, budget), 0)

    def test_updates_on_the_host_have_the_bits_of_those_on_the_device(self):
        host = ("--run.device", "emulated", "--memory.host_budget", "256 MiB", "--memory.allow", "offload-states")
        for optimizer in OPTIMIZERS:
            with self.subTest(optimizer):
                precision = "bfloat16" if optimizer == "adafactor" else "float32"
                keys = (*keys_of(optimizer), "--train.micro_batch", 32, "--train.precision", precision)
                plain, moved = self.directory(f"{optimizer} plain"), self.directory(f"{optimizer} host")
                self.train(plain, *self.model(*keys))
                least = json.loads(run("plan", self.config, *self.model(*keys), *host, "--json").stdout)["minimum_budget_bytes"]
                self.train(moved, *self.with_budget(least, *keys), *host)
                self.same_training(plain, moved)
                operations = [one["operation"] for one in self.programs(moved)[0]["instructions"]]
                self.assertIn("update-host", operations)
                self.assertEqual(operations.count("sum-tensors"), ROUNDS.get(optimizer, 0) * operations.count("update"))


if __name__ == "__main__":
    import unittest

    unittest.main(verbosity=2)
