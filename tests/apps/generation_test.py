# SPDX-License-Identifier: MIT
"""Losses, texts and exports of a trained model on grids other than its own: one rank, tensor ranks, stages, both."""
import json
import re
import shutil
import unittest

from support import ProgramTest, run

MODELS = {
    "gpt": ["--model.dropout", 0],
    "llama": ["--model.kind", "llama", "--model.kv_heads", 2, "--model.inner", 48, "--model.dropout", 0],
}
GRIDS = (("--grid.tensor", 2), ("--grid.pipeline", 2), ("--grid.tensor", 2, "--grid.pipeline", 2), ("--grid.data", 2),
         ("--grid.pipeline", 2, "--grid.data", 2))


def ranks_of(grid):
    ranks = 1
    for size in grid[1::2]:
        ranks *= size
    return ranks


class Generation(ProgramTest):
    # Long enough that the likeliest tokens are far ahead of the others.
    def trained(self, kind):
        directory = self.folder / f"trained-{kind}"
        if not directory.exists():
            self.train(directory, *MODELS[kind], "--train.steps", 80, "--optimizer.learning_rate", 1e-2)
        return directory

    def shown(self, directory, *options, ranks=0):
        return json.loads(run("eval", directory, "--json", *options, ranks=ranks).stdout)

    def test_grids_say_the_same(self):
        # Within the 32 tokens of the context, and beyond them.
        text = ("--generate", "the quick brown", "--tokens", 40, "--temperature", 0)
        several = ("--generate", "a lazy ", "--tokens", 9, "--continuations", 3, "--temperature", 0.5)
        for kind in MODELS:
            directory = self.trained(kind)
            greedy = self.shown(directory, *text)
            sampled = self.shown(directory, *several)
            self.assertEqual(greedy["generation"]["tokens"], 40)
            self.assertEqual(sampled["generation"]["tokens"], 27)
            self.assertGreater(greedy["generation"]["kept_bytes"], 0)
            self.assertGreater(greedy["generation"]["tokens_per_second"], 0)
            self.assertLessEqual(greedy["generation"]["peak_bytes"], greedy["generation"]["planned_peak_bytes"])
            self.assertGreater(len(set(sampled["continuations"])), 1)
            for grid in GRIDS:
                with self.subTest(kind=kind, grid=grid):
                    here = self.shown(directory, *text, *grid, ranks=ranks_of(grid))
                    self.assertEqual(here["generated"], greedy["generated"])
                    self.assertAlmostEqual(here["validation_loss"], greedy["validation_loss"], delta=1e-5)
                    self.assertEqual(here["validation_tokens"], greedy["validation_tokens"])
                    self.assertLessEqual(here["peak_bytes"], here["planned_peak_bytes"])
                    self.assertLessEqual(here["generation"]["peak_bytes"], here["generation"]["planned_peak_bytes"])
                    if "--grid.data" not in grid:
                        self.assertLess(here["planned_peak_bytes"], greedy["planned_peak_bytes"])
                        self.assertLess(here["generation"]["kept_bytes"], greedy["generation"]["kept_bytes"])
                    self.assertEqual(self.shown(directory, *several, *grid, ranks=ranks_of(grid))["continuations"],
                                     sampled["continuations"])
            # Without a grid the ranks share samples and continuations.
            here = self.shown(directory, *several, ranks=2)
            self.assertEqual(here["continuations"], sampled["continuations"])
            self.assertAlmostEqual(here["validation_loss"], greedy["validation_loss"], delta=1e-9)

    def test_prompt_from_the_standard_input_of_a_grid(self):
        directory = self.trained("gpt")
        alone = self.shown(directory, "--generate", "the ", "--tokens", 8, "--temperature", 0)
        shown = run("eval", directory, "--json", "--generate-from", "-", "--tokens", 8, "--temperature", 0,
                    "--grid.pipeline", 2, ranks=2, before="exec < <(echo 'the ')").stdout
        self.assertEqual(json.loads(shown)["generated"], alone["generated"])
        self.assertEqual(json.loads(shown)["prompt"], "the ")

    def with_key(self, directory, name, key, value):
        other = self.directory(name)
        shutil.copytree(directory, other)
        config = other / "config.toml"
        text, count = re.subn(rf"(?m)^{key} = .*$", f"{key} = {value}", config.read_text(), count=1)
        self.assertEqual(count, 1)
        config.write_text(text)
        return other

    def with_budget(self, directory, name, budget):
        return self.with_key(directory, name, "budget", budget)

    # Whose lanes are late, and which spoils what was not written or is freed.
    def test_an_emulated_device_says_the_same(self):
        text = ("--generate", "the quick brown", "--tokens", 24, "--temperature", 0.7, "--continuations", 2)
        for kind in MODELS:
            directory = self.trained(kind)
            emulated = self.with_key(directory, f"emulated-{kind}", "device", '"emulated"')
            wanted, here = self.shown(directory, *text), self.shown(emulated, *text)
            for key in ("generated", "continuations", "validation_loss"):
                self.assertEqual(here[key], wanted[key])
            for key in ("kept_bytes", "peak_bytes", "planned_peak_bytes"):
                self.assertEqual(here["generation"][key], wanted["generation"][key])
            self.assertGreater(here["generation"]["kept_bytes"], 0)
            cut = self.shown(emulated, *text, "--grid.pipeline", 2, ranks=2)
            self.assertEqual(cut["continuations"], wanted["continuations"])

    def test_budgets(self):
        for kind in MODELS:
            directory = self.trained(kind)
            text = ("--generate", "the quick", "--tokens", 20, "--temperature", 0)
            lines = run("eval", directory, *text).stdout
            self.assertRegex(lines, r"text: keys and values of 28 positions are kept in [\d.]+ KiB\n")
            self.assertRegex(lines, r"\n20 tokens in [\d.]+ s, [\d.]+ tok/s \(peak .* planned\)\n")
            wanted = self.shown(directory, *text)
            planned = wanted["generation"]["planned_peak_bytes"]
            tight = self.with_budget(directory, f"tight-{kind}", planned - 1)
            # The validation takes more than either.
            self.assertGreater(wanted["planned_peak_bytes"], planned)
            self.assertIn("memory.budget", run("eval", tight, *text, check=3).stderr)
            # Without it what keeps keys and values needs less than a pass over the whole text.
            alone = (*text, "--no-validation")
            refused = run("eval", tight, *alone, check=3).stderr
            self.assertIn(f"the smallest budget that works is {planned} bytes", refused)
            exact = self.with_budget(directory, f"exact-{kind}", planned)
            self.assertEqual(self.shown(exact, *alone)["generated"], wanted["generated"])
            # Parameters of half a model and little more: one rank refuses, two have room.
            half = self.shown(directory, *text, "--grid.pipeline", 2, ranks=2)["planned_peak_bytes"]
            small = self.with_budget(directory, f"small-{kind}", half)
            run("eval", small, *text, check=3)
            here = self.shown(small, *text, "--grid.pipeline", 2, ranks=2)
            self.assertEqual(here["generated"], wanted["generated"])
            # The export needs no such room.
            parameters = self.with_budget(directory, f"none-{kind}", 100_000)
            self.assertIn("--grid.tensor", run("eval", parameters, check=3).stderr)
            self.assertEqual(self.exported(parameters), self.exported(directory))
            self.assertEqual(self.exported(parameters, 0), self.exported(directory, 0))
            self.assertNotEqual(self.exported(directory, 0), self.exported(directory))

    def test_what_does_not_fit_is_computed_again(self):
        # Few more tokens than the prompt has, whose pass is then the larger part of either way.
        text = ("--generate", "the quick brown fox jumps", "--tokens", 5, "--temperature", 0, "--no-validation")
        for kind in MODELS:
            with self.subTest(kind):
                directory = self.trained(kind)
                wanted = self.shown(directory, *text)
                planned = wanted["generation"]["planned_peak_bytes"]
                self.assertGreater(wanted["generation"]["kept_bytes"], 0)
                tight = self.with_budget(directory, f"tight-{kind}", planned - 1)
                said = run("eval", tight, *text).stdout
                self.assertRegex(said, r"text: each token is a pass over the whole text: keys and values of 29 positions would "
                                       r"take the peak to [\d.]+ [KM]iB, and the budget is ")
                here = self.shown(tight, *text)
                self.assertEqual(here["generated"], wanted["generated"])
                self.assertEqual(here["generation"]["kept_bytes"], 0)
                self.assertLess(here["generation"]["planned_peak_bytes"], planned)

    def test_refusals(self):
        directory = self.trained("gpt")
        for text, ranks, grid in (("mpirun -n 2", 0, ("--grid.tensor", 2)), ("mpirun -n 4", 2, ("--grid.tensor", 4)),
                                  ("model.heads", 3, ("--grid.tensor", 3)),
                                  ("mpirun -n 4", 2, ("--grid.data", 2, "--grid.pipeline", 2))):
            with self.subTest(grid=grid):
                self.assertIn(text, run("eval", directory, *grid, ranks=ranks, check=2).stderr)


if __name__ == "__main__":
    unittest.main()
