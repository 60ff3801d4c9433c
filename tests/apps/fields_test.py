# SPDX-License-Identifier: MIT
"""Neural operators end to end: made data, statistics, training within budgets and on grids, restart, evaluation."""
import json
import math
import unittest

from support import KeptFieldsTest, check_peaks_of_ranks, checkpoint_tensors, metrics, run, series

DARCY = """
[model]
kind = "fno"
layers = 3
hidden = 12
modes = [7, 6]
padding = 2
[data]
path = "{folder}/train.h5"
validation = "{folder}/test.h5"
normalisation = "pointwise"
statistics = "{folder}/statistics.h5"
[train]
steps = 5
global_batch = 8
micro_batch = 2
loss = "relative-l2"
decode = true
precision = "float64"
seed = 3
"""

SPHERE = """
[model]
kind = "sfno"
layers = 3
hidden = 8
scale_factor = 2
[data]
path = "{folder}/sphere/train"
validation = "{folder}/sphere/test"
[train]
steps = 5
rollout = 2
global_batch = 4
micro_batch = 1
loss = "area-l2"
precision = "float64"
seed = 3
"""


class Fields(KeptFieldsTest):
    """What both families of models are held to."""

    def test_losses_fall_and_bytes_are_as_planned(self):
        directory = self.folder / "falls"
        self.train(directory, "--train.steps", 40, "--optimizer.learning_rate", 5e-3)
        losses = series(directory, "loss")
        self.assertLess(sum(losses[-6:]), 0.9 * sum(losses[:6]))
        self.check_bytes(directory)
        self.assertNotIn("tokens_per_second", metrics(self.kept)[0])
        self.assertGreater(metrics(self.kept)[0]["samples_per_second"], 0)

    def test_a_tight_budget_gives_the_same_bits(self):
        plan = json.loads(run("plan", self.config, "--json").stdout)
        least, most = plan["minimum_budget_bytes"], plan["peak_bytes"]
        for budget in (max(least, int(0.4 * most)), least):
            directory = self.folder / f"budget-{budget}"
            self.train(directory, "--memory.budget", budget)
            for key in ("loss", "gradient_norm"):
                self.assertEqual(series(directory, key), series(self.kept, key))
            self.check_bytes(directory, budget)
        refused = self.train(self.folder / "below", "--memory.budget", least - 1, check=3)
        self.assertIn(str(least), refused.stderr)

    def compare(self, directory, tolerance=1e-9, keys=("loss", "gradient_norm"), kept=None):
        for key in keys:
            for one, other in zip(series(kept or self.kept, key), series(directory, key), strict=True):
                self.assertLessEqual(abs(one - other), tolerance * abs(one), key)

    def test_data_and_pipeline_ranks_train_the_same(self):
        for data, pipeline, zero in ((2, 1, 0), (2, 1, 3), (1, 2, 0), (2, 2, 1)):
            directory = self.folder / f"grid-{data}-{pipeline}-{zero}"
            self.train(directory, "--grid.data", data, "--grid.pipeline", pipeline, "--grid.zero", zero,
                       ranks=data * pipeline)
            self.compare(directory)
            self.check_bytes(directory)

    def test_tensor_ranks_train_the_same(self):
        ten = ("--train.steps", 10, "--gradients")
        one = self.folder / "ten"
        self.train(one, *ten, one / "gradients")
        wanted = checkpoint_tensors(one / "gradients/checkpoints/step-1")
        norm = math.hypot(*(math.hypot(*values) for _, values in wanted.values()))
        validation = metrics(one)[-1]["validation_loss"]
        for data, pipeline, tensor, zero in ((1, 1, 2, 0), (1, 1, 3, 0), (1, 1, 4, 0), (2, 1, 2, 3), (1, 2, 2, 0)):
            with self.subTest(f"data {data} pipeline {pipeline} tensor {tensor}"):
                directory = self.folder / f"grid-{data}-{pipeline}-{tensor}-{zero}"
                self.train(directory, *ten, directory / "gradients", "--grid.data", data, "--grid.pipeline", pipeline,
                           "--grid.tensor", tensor, "--grid.zero", zero, ranks=data * pipeline * tensor)
                self.compare(directory, kept=one)
                self.assertLessEqual(abs(metrics(directory)[-1]["validation_loss"] - validation), 1e-9 * validation)
                for name, (_, mine) in checkpoint_tensors(directory / "gradients/checkpoints/step-1").items():
                    # Before a norm a bias has no gradient but what rounding leaves.
                    allowed = max(1e-12 * math.hypot(*wanted[name][1]), 1e-15 * norm)
                    self.assertLessEqual(math.dist(mine, wanted[name][1]), allowed, name)
                check_peaks_of_ranks(self, directory, data * pipeline * tensor)
        # What a cut run saved is whole for one rank.
        result = json.loads(run("eval", directory, "--json").stdout)
        self.assertLessEqual(abs(result["validation_loss"] - validation), 1e-9 * validation)

    def test_tensor_ranks_train_for_slopes_the_same(self):
        slopes = ("--train.loss", "h1")
        one = self.folder / "slopes"
        self.train(one, *slopes)
        directory = self.folder / "slopes-3"
        self.train(directory, *slopes, "--grid.tensor", 3, ranks=3)
        self.compare(directory, kept=one)
        check_peaks_of_ranks(self, directory, 3)

    def test_a_cut_run_within_a_tight_budget(self):
        arguments = ("--grid.tensor", 2)
        run("profile", self.config, *arguments)
        plan = json.loads(run("plan", self.config, *arguments, "--json").stdout)
        least, most = plan["minimum_budget_bytes"], plan["peak_bytes"]
        self.assertLess(least, most)
        directory = self.folder / "cut-tight"
        self.train(directory, *arguments, "--memory.budget", least, ranks=2)
        self.compare(directory)
        self.check_bytes(directory, least)
        check_peaks_of_ranks(self, directory, 2)

    def test_evaluation(self):
        result = json.loads(run("eval", self.kept, "--json").stdout)
        self.assertAlmostEqual(result["validation_loss"], metrics(self.kept)[-1]["validation_loss"], places=12)

    def test_what_has_no_meaning_is_refused(self):
        refused = run("plan", self.config, "--grid.tensor", 40, check=2)
        self.assertIn("grid.tensor", refused.stderr)
        self.assertIn("the nearest that work", refused.stderr)
        refused = run("data", "batch", self.config, "--step", 3, check=2)
        self.assertIn("prints tokens, of models of text", refused.stderr)
        for option in (("--generate", "once"), ("--no-validation",)):
            refused = run("eval", self.kept, *option, check=2)
            self.assertIn(f"{option[0]}", refused.stderr)
            self.assertNotIn("ask for a text", refused.stderr)

    def nodes(self):
        """Of a micro-batch on its way to the loss."""
        path = self.folder / "graph.json"
        run("plan", self.config, "--graph", path)
        return sum(task["name"].startswith("forward") for task in json.loads(path.read_text())["tasks"])

    def test_other_precisions(self):
        # In bfloat16 every node rounds what it makes and has rounded weights, by at most 2^-8 of each number: at random,
        # with a deviation of 2^-8 / sqrt(3). One after another their squares add up, of gradients also on the way back. Of
        # float32 sums over many points add a little to 2^-24.
        on_the_way = 2 * self.nodes()
        for precision, of_loss, of_norm in (("float32", 1e-5, 1e-5),
                                            ("bfloat16", 2**-8 * math.sqrt(on_the_way / 3),
                                             2**-8 * math.sqrt(2 * on_the_way / 3))):
            directory = self.folder / precision
            self.train(directory, "--train.precision", precision)
            self.check_bytes(directory)
            self.compare(directory, of_loss, ("loss",))
            self.compare(directory, of_norm, ("gradient_norm",))


class DarcyTest(Fields, unittest.TestCase):
    RUN_FILE = DARCY

    @classmethod
    def make_data(cls):
        run("data", "darcy", "--samples", 24, "--test-samples", 4, "--resolution", 33, "--stride", 2, "--output",
            cls.folder / "train.h5", "--test", cls.folder / "test.h5", "--no-progress")
        run("data", "statistics", cls.folder / "train.h5", "--pointwise", "--output", cls.folder / "statistics.h5")

    def test_a_profile_is_of_its_model(self):
        def products(*arguments):
            shown = run("profile", self.config, *arguments).stdout
            return {line.split()[2] for line in shown.splitlines() if line.startswith(("forward ", "input-", "weight-"))}
        wide = products("--model.hidden", 16)
        kept = products()
        self.assertTrue(wide and kept)
        self.assertFalse([shape for shape in kept if "x16" in shape], kept)
        self.assertEqual(products("--model.hidden", 16), wide)

    def test_statistics_are_asked_for(self):
        refused = self.train(self.folder / "none", "--data.statistics", "", check=2)
        self.assertIn("garonne data statistics", refused.stderr)

    def test_bytes_where_a_spectral_layer_is_the_peak(self):
        # All modes, so that spectra are larger than fields; its backward adds to a gradient in place.
        directory = self.folder / "all-modes"
        self.train(directory, "--model.layers", 1, "--model.hidden", 24, "--model.modes", "19,19", "--train.micro_batch", 8,
                   "--train.steps", 2)
        self.check_bytes(directory)


class SphereTest(Fields, unittest.TestCase):
    RUN_FILE = SPHERE

    @classmethod
    def make_data(cls):
        run("data", "shallow-water", "--latitudes", 18, "--longitudes", 32, "--trajectories", 6, "--test-trajectories", 2,
            "--trajectory-length", 3, "--output", cls.folder / "sphere", "--no-progress")


if __name__ == "__main__":
    unittest.main(verbosity=2)
