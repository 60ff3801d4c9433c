# SPDX-License-Identifier: MIT
"""What a command writes replaces its own earlier outputs, and nothing else."""
import shutil
import unittest

from support import FieldsTest, run

RUN_FILE = """
[model]
kind = "fno"
layers = 1
hidden = 4
modes = [3, 3]
[data]
path = "{folder}/data/train"
validation = "{folder}/data/test"
[train]
steps = 2
global_batch = 2
micro_batch = 1
loss = "area-l2"
"""


class OutputsTest(FieldsTest, unittest.TestCase):
    RUN_FILE = RUN_FILE

    @classmethod
    def make_data(cls):
        run("data", "synthetic-era5", "--latitudes", 10, "--longitudes", 16, "--channels", "t2m", "--frame-hours", 24, "--years",
            1, "--frames-a-year", 8, "--output", cls.folder / "data", "--no-progress")
        cls.train_file = next((cls.folder / "data/train").glob("*.h5"))
        cls.test_file = next((cls.folder / "data/test").glob("*.h5"))
        cls.run_directory = cls.folder / "run"
        cls.train(cls.run_directory)
        cls.text = cls.folder / "notes.txt"
        cls.text.write_text("Kept for years. " * 100)
        cls.other = cls.folder / "other.h5"
        shutil.copy(cls.train_file, cls.other)

    def refused(self, path, *arguments, words=(), ranks=0):
        """Exit code 2 with the name and what to do, and the file is what it was; nothing is left beside it."""
        before = path.read_bytes() if path.is_file() else None
        names = sorted(path.parent.iterdir())
        error = run(*arguments, ranks=ranks, check=2).stderr
        self.assertIn(str(path), error)
        for word in words or ("is there already and is not", "give another name, or remove it"):
            self.assertIn(word, error)
        self.assertEqual(sum("garonne:" in line for line in error.splitlines()), 1, error)
        self.assertEqual(path.read_bytes() if path.is_file() else None, before)
        self.assertEqual(sorted(path.parent.iterdir()), names)

    def test_gradients(self):
        """Written as a checkpoint, from which a run would go on."""
        mine = self.folder / "mine"
        train = ("train", self.config, "--run.directory", mine, "--gradients")
        alias = self.folder / "alias-of-mine"
        alias.symlink_to(self.run_directory)
        for given in (mine, self.folder / "run/../mine"):
            self.assertIn("is the directory of this run", run(*train, given, check=2).stderr)
        own = run("train", self.config, "--run.directory", self.run_directory, "--gradients", alias, check=2).stderr
        self.assertIn("is the directory of this run", own)
        alias.unlink()
        alias.symlink_to(mine)  # where the run directory will come
        self.assertIn("is a link that leads nowhere", run(*train, alias, check=2).stderr)
        steps = sorted((self.run_directory / "checkpoints").iterdir())
        for ranks, grid in ((0, ()), (2, ("--grid.data", 2))):
            self.assertIn("is a run directory: it has config.toml", run(*train, self.run_directory, *grid, ranks=ranks, check=2).stderr)
        bare = self.folder / "bare-run"
        shutil.copytree(self.run_directory / "checkpoints", bare / "checkpoints")
        self.assertIn("has a checkpoint of a run: ", run(*train, bare, check=2).stderr)
        self.assertIn("is a file", run(*train, self.text, check=2).stderr)
        self.assertFalse(mine.exists())
        self.assertEqual(sorted((self.run_directory / "checkpoints").iterdir()), steps)
        # Those of an earlier start may be written again, and others beside them.
        gradients = self.folder / "gradients"
        for more in (("--train.steps", 1), ("--train.steps", 2), ("--run.directory", self.folder / "another")):
            run(*train, gradients, *more)
        self.assertEqual(sorted(path.name for path in (gradients / "checkpoints").iterdir()), ["step-1", "step-2"])

    def test_statistics(self):
        reads = ("is what this command reads",)
        for ranks in (0, 2):
            self.refused(self.train_file, "data", "statistics", self.train_file, "--output", self.train_file, words=reads,
                         ranks=ranks)
        alias = self.folder / "alias.h5"
        alias.symlink_to(self.train_file)
        self.refused(alias, "data", "statistics", self.train_file, "--output", alias, words=reads)
        self.refused(self.other, "data", "statistics", self.train_file, "--output", self.other)
        own = self.folder / "own.h5"
        for _ in range(2):
            run("data", "statistics", self.train_file, "--output", own)
        # Names that promise another format.
        for name in ("stats.nc", "stats.zarr", "stats.npy"):
            self.refused(self.folder / name, "data", "statistics", self.train_file, "--output", self.folder / name,
                         words=("ends as files of", "give another name"))
        # makani's folders.
        folder = self.folder / "stats"
        for _ in range(2):
            run("data", "statistics", self.train_file, "--output", folder)
        theirs = self.folder / "theirs"
        shutil.copytree(folder, theirs)
        (theirs / "channels.json").unlink()
        self.refused(theirs, "data", "statistics", self.train_file, "--output", theirs, words=("did not write",))

    def test_forecasts(self):
        def forecast(path, *more):
            return "forecast", self.run_directory, "--steps", 1, "--output", path, *more

        link = self.folder / "link.nc"
        link.hardlink_to(self.test_file)
        for ranks in (0, 2):
            self.refused(link, *forecast(link), words=("is what this command reads",), ranks=ranks)
        self.refused(self.other, *forecast(self.other))
        self.refused(self.folder / "x.zarr", *forecast(self.folder / "x.zarr"), words=("ends as files of Zarr", "netCDF"))
        path = self.folder / "x.nc"
        run(*forecast(path, "--from", "1,2,3"))
        self.refused(path, *forecast(path, "--from", 1), words=("is another forecast", "frames", "remove it"))
        made = path.stat().st_mtime_ns
        run(*forecast(path, "--from", "1,2,3"))
        self.assertNotEqual(path.stat().st_mtime_ns, made)

    def test_skill_and_reports(self):
        arguments = ("eval", self.run_directory, "--lead-steps", 1, "--samples", 1)
        self.refused(self.other, *arguments, "--output", self.other)
        self.refused(self.folder / "skill.json", *arguments, "--output", self.folder / "skill.json", words=("of JSON",))
        for _ in range(2):
            run(*arguments, "--output", self.folder / "skill.h5")
            run("report", self.run_directory, "--budgets", 0, "--output", self.folder / "report.html")
        self.refused(self.config, "report", self.run_directory, "--output", self.config)

    def test_tokens_and_generated_fields(self):
        tokens = self.folder / "tokens.h5"
        for _ in range(2):
            run("data", "text", self.text, "--output", tokens)
        self.refused(self.other, "data", "text", self.text, "--output", self.other)
        copy = self.folder / "copy.txt"
        copy.hardlink_to(self.text)
        self.refused(copy, "data", "text", self.text, "--output", copy, words=("ends as files of text",))
        bare = self.folder / "bare"
        bare.hardlink_to(self.text)
        self.refused(bare, "data", "text", self.text, "--output", bare, words=("is what this command reads",))
        darcy = ("data", "darcy", "--samples", 1, "--test-samples", 1, "--resolution", 9, "--output")
        for _ in range(2):
            run(*darcy, self.folder / "darcy.h5", "--test", self.folder / "held.h5")
        for ranks in (0, 2):
            self.refused(self.other, *darcy, self.other, "--test", self.folder / "held.h5", ranks=ranks)
        self.refused(self.other, *darcy, self.folder / "darcy.h5", "--test", self.other, words=("--test",))
        self.refused(tokens, *darcy, tokens, "--test", self.folder / "held.h5")

    def test_texts(self):
        plan = ("plan", self.config)
        for option, name in (("--chain", "chain.out"), ("--graph", "graph.out"), ("--sbatch", "job.sh")):
            for _ in range(2):
                run(*plan, option, self.folder / name)
            self.refused(self.config, *plan, option, self.config, words=("is what this command reads",))
            self.refused(self.text, *plan, option, self.text)
        programs = self.folder / "programs"
        for _ in range(2):
            run(*plan, "--program", programs)
        (programs / "rank_1.json").write_text("[]")
        self.refused(programs / "rank_1.json", *plan, "--program", programs)
        chain, graph = self.folder / "chain.out", self.folder / "graph.out"
        for problem in (chain, graph):
            solve = ("solve", problem, "--budget", "1GiB", "--output")
            for _ in range(2):
                run(*solve, self.folder / "answer.out")
            self.refused(problem, *solve, problem, words=("is what this command reads",))
            self.refused(self.text, *solve, self.text)
        simulate = ("simulate", "--schedule", "1f1b", "--stages", 2, "--micro-batches", 2)
        for option, name in (("--save", "schedule.out"), ("--svg", "timeline.svg")):
            for _ in range(2):
                run(*simulate, option, self.folder / name)
            self.refused(self.text, *simulate, option, self.text)
        saved = self.folder / "schedule.out"
        self.refused(saved, "simulate", "--schedule", "file", "--file", saved, "--save", saved,
                     words=("is what this command reads",))
        below = self.folder / "below"
        below.mkdir()
        self.refused(below, *simulate, "--save", below, words=("is a folder",))
        # Scripts make empty files for what is to come.
        empty = self.folder / "empty"
        empty.touch()
        run(*simulate, "--save", empty)

    def test_traces_and_exports(self):
        directory = self.folder / "traced"
        for option in ("--trace", "--prometheus"):
            self.refused(self.text, "train", self.config, "--run.directory", directory, option, self.text)
        self.assertFalse((directory / "checkpoints").exists())
        for _ in range(2):
            shutil.rmtree(directory, ignore_errors=True)
            self.train(directory, "--trace", self.folder / "trace.out", "--trace-from", 1, "--prometheus",
                       self.folder / "state.prom")
        folder = self.folder / "exported"
        for _ in range(2):
            run("checkpoint", "export", self.run_directory, "--to", "neuraloperator", folder)
        theirs = self.folder / "downloaded"
        theirs.mkdir()
        (theirs / "config.json").write_text("{}")
        self.refused(theirs, "checkpoint", "export", self.run_directory, "--to", "neuraloperator", theirs,
                     words=("config.json", "give another folder, or remove it"))
        weights = theirs / "model.safetensors"
        weights.write_bytes((folder / "model.safetensors").read_bytes().replace(b"garonne", b"someone"))
        self.refused(weights, "checkpoint", "export", self.run_directory, "--to", "neuraloperator", theirs)


if __name__ == "__main__":
    unittest.main(verbosity=2)
