# SPDX-License-Identifier: MIT
"""U-shaped Fourier operators end to end: skips over stages of a pipeline, budgets, restart, and their graph for solvers."""
import json
import re
import unittest

from support import SOURCE, KeptFieldsTest, checkpoint_tensors, run, series


class UShapedTest(KeptFieldsTest, unittest.TestCase):
    RUN_FILE = """
[model]
kind = "ufno"
levels = 2
hidden = 8
modes = [7, 6]
padding = 3
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
seed = 3
"""

    @classmethod
    def make_data(cls):
        run("data", "darcy", "--samples", 24, "--test-samples", 4, "--resolution", 33, "--stride", 2, "--output",
            cls.folder / "train.h5", "--test", cls.folder / "test.h5", "--no-progress")
        run("data", "statistics", cls.folder / "train.h5", "--pointwise", "--output", cls.folder / "statistics.h5")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.unclipped = cls.folder / "unclipped"
        cls.train(cls.unclipped, "--optimizer.clip_norm", 0)

    def same_bits(self, directory):
        for key in ("loss", "gradient_norm"):
            self.assertEqual(series(directory, key), series(self.kept, key), key)

    def plan(self, *arguments, **options):
        return json.loads(run("plan", self.config, *arguments, "--json", **options).stdout)

    def test_losses_fall_and_bytes_are_as_planned(self):
        directory = self.folder / "falls"
        self.train(directory, "--train.steps", 40, "--optimizer.learning_rate", 5e-3)
        losses = series(directory, "loss")
        self.assertLess(sum(losses[-6:]), 0.7 * sum(losses[:6]))
        self.check_bytes(directory)

    def test_a_tight_budget_gives_the_same_bits(self):
        plan = self.plan()
        least, most = plan["minimum_budget_bytes"], plan["peak_bytes"]
        self.assertLess(least, 0.8 * most)
        for budget in ((least + most) // 2, least):
            directory = self.folder / f"budget-{budget}"
            self.train(directory, "--memory.budget", budget)
            self.same_bits(directory)
            self.check_bytes(directory, budget)
        refused = self.train(self.folder / "below", "--memory.budget", least - 1, check=3)
        self.assertIn(str(least), refused.stderr)

    def same_weights(self, directory):
        """The norm of a pipeline is a sum over stages, rounded elsewhere; all else is the same."""
        self.assertEqual(series(directory, "loss"), series(self.unclipped, "loss"))
        for one, other in zip(series(directory, "gradient_norm"), series(self.unclipped, "gradient_norm"), strict=True):
            self.assertLessEqual(abs(one - other), 1e-12 * one)
        mine, wanted = (checkpoint_tensors(run / "checkpoints/step-5") for run in (directory, self.unclipped))
        self.assertEqual(mine.keys(), wanted.keys())
        for name, tensor in wanted.items():
            self.assertEqual(mine[name], tensor, name)

    def test_skips_over_stages_give_the_same_bits(self):
        # A stage for each of the seven blocks: the skip of the finest level passes three that do not use it.
        for keys in (("--grid.pipeline", 2), ("--grid.pipeline", 4), ("--grid.pipeline", 7),
                     ("--grid.pipeline", 4, "--grid.schedule", "gpipe"), ("--grid.pipeline", 4, "--memory.plan", "full"),
                     ("--grid.pipeline", 2, "--grid.schedule", "interleaved", "--grid.chunks", 3)):
            with self.subTest(keys):
                directory = self.folder / "-".join(map(str, keys))
                self.train(directory, "--optimizer.clip_norm", 0, *keys, ranks=keys[1])
                self.same_weights(directory)
                self.check_bytes(directory)

    def test_programs_hand_the_skips_on(self):
        programs = self.folder / "programs"
        run("plan", self.config, "--grid.pipeline", 7, "--program", programs)
        handed = [set(re.findall(r"hand-over\.([a-z0-9.]+)\.gelu", (programs / f"rank_{stage}.json").read_text()))
                  for stage in range(7)]
        for stage, skips in ((2, {"down.0"}), (3, {"down.0", "down.1"}), (4, {"down.0"})):
            self.assertLessEqual(skips, handed[stage], stage)
        self.assertNotIn("down.1", handed[5])

    def test_data_ranks_train_the_same(self):
        directory = self.folder / "data"
        self.train(directory, "--grid.data", 2, "--grid.zero", 3, "--train.precision", "float64", ranks=2)
        one = self.folder / "one"
        self.train(one, "--train.precision", "float64")
        for key in ("loss", "gradient_norm"):
            for a, b in zip(series(one, key), series(directory, key), strict=True):
                self.assertLessEqual(abs(a - b), 1e-9 * abs(a), key)

    def test_bfloat16_stays_near(self):
        directory = self.folder / "bfloat16"
        self.train(directory, "--train.precision", "bfloat16")
        self.check_bytes(directory)
        for one, other in zip(series(self.kept, "loss"), series(directory, "loss"), strict=True):
            self.assertLessEqual(abs(one - other), 0.02 * one)

    def test_evaluation_and_forms_of_the_model(self):
        result = json.loads(run("eval", self.kept, "--json").stdout)
        self.assertGreater(result["validation_loss"], 0)
        refused = run("checkpoint", "export", self.kept, "--to", "neuraloperator", self.folder / "package", check=2)
        self.assertIn("ufno", refused.stderr)

    def test_solvers_take_its_graph(self):
        path = self.folder / "graph.json"
        run("plan", self.config, "--graph", path)
        graph = json.loads(path.read_text())
        maker = {value: number for number, task in enumerate(graph["tasks"]) for option in task["options"]
                 for value in option["makes"]}
        # The finest skip: from before both coarser levels to after them.
        forwards = [task for task in graph["tasks"] if task["name"].startswith("forward")]
        longest = max(number - maker[value] for number, task in enumerate(forwards) for value in task["reads"] if value in maker)
        self.assertGreater(longest, 8)
        everything = json.loads(run("solve", path, "--budget", "1GiB", "--json").stdout)
        kept = everything["keep_all"]
        self.assertEqual(everything["seconds"], kept["seconds"])
        self.assertLessEqual(everything["peak_bytes"], kept["peak_bytes"])
        slower = kept["seconds"]
        for percent in (85, 70, 60):
            budget = kept["peak_bytes"] * percent // 100
            answer = json.loads(run("solve", path, "--budget", budget, "--json").stdout)
            self.assertLessEqual(answer["peak_bytes"], budget)
            self.assertGreaterEqual(answer["seconds"], answer["lower_bound_seconds"] * (1 - 1e-9))
            slower = max(slower, answer["seconds"])
        self.assertGreater(slower, kept["seconds"])

    def test_the_search_is_never_slower_than_uniform_recomputation(self):
        budgets = sorted({self.plan("--memory.plan", "uniform", "--memory.budget", "1GiB")["peak_bytes"],
                          self.plan("--memory.plan", "uniform")["minimum_budget_bytes"],
                          self.plan("--memory.plan", "full")["peak_bytes"]})
        for budget in budgets:
            uniform = self.plan("--memory.plan", "uniform", "--memory.budget", budget)
            for search in ("annealing", "auto"):
                found = self.plan("--memory.plan", search, "--memory.budget", budget)
                self.assertLessEqual(found["peak_bytes"], budget)
                self.assertLessEqual(found["seconds"], uniform["seconds"] * (1 + 1e-9), (search, budget))

    def test_the_run_file_is_planned(self):
        plan = json.loads(run("plan", SOURCE / "config/ufno_darcy.toml", "--fields", "1x36x36", "--json").stdout)
        self.assertGreater(plan["peak_bytes"], plan["minimum_budget_bytes"])

    def test_what_cannot_work_is_refused_with_what_to_do(self):
        for words, overrides in (
                (["model.levels", "17 x 17 points and padding 0", "use model.padding = 3"], ("--model.padding", 0)),
                (["model.levels", "model.padding = 7"], ("--model.levels", 3)),
                (["model.modes", "fewer modes"], ("--model.modes", "21,6")),
                (["model.layers", "ufno"], ("--model.layers", 3)),
                (["grid.tensor", "use grid.data or grid.pipeline"], ("--grid.tensor", 2)),
                (["model.levels", "fno"], ("--model.kind", "fno", "--model.levels", 3))):
            with self.subTest(overrides):
                refused = run("plan", self.config, *overrides, check=2)
                for word in words:
                    self.assertIn(word, refused.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
