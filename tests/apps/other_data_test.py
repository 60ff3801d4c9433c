# SPDX-License-Identifier: MIT
"""Data beside those that a run was trained on: other grids, other sets, other working directories, missing values."""
import array
import json
import os
import shutil
import struct
import unittest

from support import SOURCE, FieldsTest, ProgramTest, run

LATITUDES, LONGITUDES, FRAMES = 9, 16, 12

RUN_FILE = """
[model]
kind = "fno"
layers = 1
hidden = 4
modes = [3, 3]
[data]
path = "data/train"
validation = "data/test"
statistics = "statistics.h5"
[train]
steps = 8
global_batch = 2
micro_batch = 1
loss = "area-l2"
"""


def patch(path, before, after):
    content = path.read_bytes()
    assert content.count(before) == 1, content.count(before)
    path.write_bytes(content.replace(before, after))


def floats(values):
    return struct.pack(f"<{len(values)}f", *values)


def shift_longitudes(path):
    """From 0 … 337.5 to −180 … 157.5."""
    step = 360 / LONGITUDES
    patch(path, floats([i * step for i in range(LONGITUDES)]), floats([i * step - 180 for i in range(LONGITUDES)]))


class OtherData(FieldsTest, unittest.TestCase):
    RUN_FILE = RUN_FILE

    @classmethod
    def make_data(cls):
        cls.addClassCleanup(os.chdir, os.getcwd())
        os.chdir(cls.folder)
        run("data", "synthetic-era5", "--latitudes", LATITUDES, "--longitudes", LONGITUDES, "--channels", "t2m",
            "--frame-hours", 24, "--years", 1, "--test-years", 1, "--frames-a-year", FRAMES, "--output", "data", "--no-progress")
        run("data", "statistics", "data/train", "--pointwise", "--output", "statistics.h5")
        cls.run_directory = cls.folder / "run"
        cls.train(cls.run_directory)

    def setUp(self):
        os.chdir(self.folder)

    def copy(self, name, change=None):
        """A copy of the data; `change` is called with each test file."""
        copied = self.folder / name
        shutil.copytree(self.folder / "data", copied)
        for path in (copied / "test").glob("*.h5"):
            if change:
                change(path)
        return copied

    def test_another_grid_is_refused(self):
        other = self.copy("shifted", shift_longitudes) / "test"
        words = ("longitude number 0 is -180", "and 0 in", str(other))
        for arguments in (("train", self.config, "--run.directory", "no", "--data.validation", other),
                          ("eval", self.run_directory, "--data", other),
                          ("forecast", self.run_directory, "--data", other, "--steps", 1, "--output", "no.nc")):
            with self.subTest(arguments[0]):
                refused = run(*arguments, check=2).stderr
                for word in words + (("--data",) if arguments[0] != "train" else ("data.validation",)):
                    self.assertIn(word, refused)
        # Statistics of each point are of the grid that they were made from.
        pointwise = ("--data.normalisation", "pointwise", "--data.path", other, "--data.validation", "")
        refused = run("train", self.config, "--run.directory", "no", *pointwise, check=5).stderr
        for word in ("statistics.h5", "longitude number 0 is 0", "-180"):
            self.assertIn(word, refused)
        # What is trained already: the same paths, whose files are others now.
        shutil.copytree(self.folder / "data", self.folder / "changed")
        changed = ("--data.path", "changed/train", "--data.validation", "")
        self.train("run-changed", *changed, "--train.steps", 4)
        for path in (self.folder / "changed/train").glob("*.h5"):
            shift_longitudes(path)
        for arguments in (("train", self.config, "--run.directory", "run-changed", *changed), ("eval", "run-changed"),
                          ("forecast", "run-changed", "--steps", 1, "--output", "no.nc")):
            with self.subTest(arguments):
                refused = run(*arguments, check=2).stderr
                for word in ("data.path", "longitude number 0 is -180", "run-changed/checkpoints/step-4"):
                    self.assertIn(word, refused)
        self.assertFalse((self.folder / "no").exists())
        # Another region may be what a new run is for.
        begun = self.train("new", *changed, "--init-from", "run-changed", "--train.steps", 1).stdout
        self.assertRegex(begun, "note: changed/train has another grid: longitude number 0 is -180.*run-changed/checkpoints/step-4")

    def test_other_statistics_at_the_same_path(self):
        shutil.copy("statistics.h5", "own.h5")
        own = ("--data.statistics", "own.h5")
        self.train("normalised", *own, "--train.steps", 4)
        self.assertNotIn("statistics", run("eval", "normalised").stderr)
        run("data", "statistics", "data/test", "--pointwise", "--output", "own.h5")
        refused = run("train", self.config, "--run.directory", "normalised", *own, check=2).stderr
        for word in ("data.statistics", "own.h5", "holds other data", "--change data.statistics"):
            self.assertIn(word, refused)
        for command in (("eval", "normalised"), ("forecast", "normalised", "--steps", 1, "--output", "normalised.nc")):
            self.assertIn("warning: the statistics of own.h5 are others", run(*command).stderr)
        # A run that is done is still found done.
        self.assertIn("is done already", self.train("normalised", *own, "--train.steps", 4).stdout)
        self.train("normalised", *own, "--change", "data.statistics")

    def test_another_set_is_evaluated(self):
        def skill(*arguments):
            shown = run("eval", self.run_directory, "--lead-steps", 2, "--json", "--output", "skill.h5", *arguments).stdout
            return json.loads(shown)

        usual, same, training = skill(), skill("--data", "data/test"), skill("--data", "data/train")
        self.assertEqual(usual["validation_loss"], same["validation_loss"])
        self.assertEqual(usual["skill"]["rmse"], same["skill"]["rmse"])
        self.assertNotEqual(usual["validation_loss"], training["validation_loss"])
        self.assertEqual(training["skill"]["data"], "data/train")
        self.assertNotEqual(usual["skill"]["rmse"], training["skill"]["rmse"])

    def test_from_another_folder(self):
        there = self.folder / "elsewhere"
        there.mkdir()
        first = run("eval", self.run_directory, "--lead-steps", 1, "--json", "--output", "skill.h5").stdout
        os.chdir(there)
        second = run("eval", self.run_directory, "--lead-steps", 1, "--json", "--output", "skill.h5").stdout
        self.assertEqual(json.loads(first)["validation_loss"], json.loads(second)["validation_loss"])
        run("forecast", self.run_directory, "--steps", 1, "--output", "x.nc")
        run("report", self.run_directory, "--budgets", 0)
        # All of it moved: the folder in which it was started is there no more.
        old, moved = self.folder / "old", self.folder / "moved"
        old.mkdir()
        for name in ("data", "run"):
            shutil.copytree(self.folder / name, old / name)
        shutil.copy(self.folder / "statistics.h5", old)
        (old / "run/started_in").write_text(f"{old}\n")
        old.rename(moved)
        os.chdir(moved)
        run("eval", "run", "--lead-steps", 1)

    def test_a_forecast_from_other_data_needs_no_validation_data(self):
        kept = self.copy("kept")
        directory = self.folder / "run-kept"
        self.train(directory, "--data.validation", kept / "test", "--train.steps", 2)
        shutil.rmtree(kept)
        forecast = ("forecast", directory, "--steps", 1, "--output", "kept.nc")
        self.assertIn("kept", run(*forecast, check=5).stderr)
        run(*forecast, "--data", "data/test")
        run("eval", directory, "--lead-steps", 1, "--data", "data/test", "--output", "kept.h5")

    def test_a_missing_value_ends_a_run_with_its_state_saved(self):
        poked = self.copy("poked")
        path = next((poked / "train").glob("*.h5"))
        content = bytearray(path.read_bytes())
        values = FRAMES * LATITUDES * LONGITUDES
        at = content.index(struct.pack("<Q", 4 * values))
        place = struct.unpack_from("<Q", content, at - 8)[0]
        fields = array.array("f", bytes(content[place:place + 4 * values]))
        fields[5 * LATITUDES * LONGITUDES + 7] = float("nan")
        content[place:place + 4 * values] = fields.tobytes()
        path.write_bytes(content)
        data = ("--data.path", "poked/train")
        steps = set()
        for ranks, grid in ((0, ()), (2, ("--grid.data", 2)), (2, ("--run.device", "cpu", "--grid.pipeline", 2,
                                                                   "--model.layers", 2))):
            with self.subTest(ranks=ranks, grid=grid):
                directory = self.folder / f"run-poked-{ranks}-{len(grid)}"
                done = self.train(directory, *data, *grid, ranks=ranks, check=5)
                ours = [line for line in done.stderr.splitlines() if "garonne:" in line]
                self.assertEqual(len(ours), 1, done.stderr)
                for word in (str(path.relative_to(self.folder)), "frame 5", 'data.missing = "mask"',
                             "data inspect poked/train --full"):
                    self.assertIn(word, ours[0])
                saved = sorted(int(folder.name.split("-")[1]) for folder in (directory / "checkpoints").iterdir())
                self.assertEqual(len(saved), 1)
                steps.add(saved[0])
                self.assertIn(f"the checkpoint of step {saved[0]} is saved", ours[0])
                self.assertIn(f"Step {saved[0] + 1} was not made", ours[0])
                gone_on = self.train(directory, *data, *grid, "--data.missing", "mask", ranks=ranks).stdout
                self.assertIn(f"(step {saved[0]} of 8)", gone_on)
        self.assertEqual(len(steps), 1)
        # One missing value in training takes no score from the channel.
        skill = json.loads(run("eval", directory, "--lead-steps", 1, "--json", "--output", "poked.h5").stdout)["skill"]
        for source in skill["rmse"]:
            self.assertIsNotNone(source[0][0])


class OtherTokens(ProgramTest):
    def test_other_tokens_at_the_same_path(self):
        data, directory = self.folder / "own-tokens.h5", self.directory("swapped")
        text = (self.folder / "validation.txt").read_text()

        def make(content, validation="validation.txt"):
            (self.folder / "text.txt").write_text(content)
            run("data", "text", self.folder / "text.txt", "--validation", self.folder / validation, "--output", data)

        make(2 * text)
        path = ("--data.path", data)
        self.train(directory, *path, "--train.steps", 2)
        self.train(directory, *path, "--train.steps", 3)
        make(2 * text + "Something was appended.")
        refused = self.train(directory, *path, "--train.steps", 4, check=2).stderr
        for word in ("data.path", str(data), "holds other data than up to step 3", "--change data.path"):
            self.assertIn(word, refused)
        changed = self.train(directory, *path, "--train.steps", 4, "--change", "data.path").stdout
        self.assertRegex(changed, r"note: data.path is .*\(contents [0-9a-f]{16}\) from step 4 on, and was .*\(contents")
        manifest = json.loads((directory / "checkpoints/step-4/manifest.json").read_text())
        self.assertEqual([(change["step"], change["key"]) for change in manifest["changes"]], [(3, "data.path")])
        # From now on these are the data of the run.
        self.assertNotIn("contents", self.train(directory, *path, "--train.steps", 5).stdout)
        # Validation data of their own are refused by their own key.
        own = self.folder / "own.h5"
        run("data", "text", self.folder / "validation.txt", "--output", own)
        self.train(self.folder / "own", "--data.validation", own, "--train.steps", 2)
        run("data", "text", self.folder / "text.txt", "--output", own)
        self.assertIn("data.validation", self.train(self.folder / "own", "--data.validation", own, "--train.steps", 4, check=2).stderr)
        self.train(self.folder / "own", "--data.validation", own, "--train.steps", 4, "--change", "data.validation")

    def test_another_set_of_tokens_is_evaluated(self):
        directory = self.directory("run")
        self.train(directory)
        other = self.folder / "other.h5"
        run("data", "text", self.folder / "validation.txt", "--output", other)

        def loss(*arguments):
            return json.loads(run("eval", directory, "--json", *arguments).stdout)["validation_loss"]

        # The validation part of the run's own file is that text.
        self.assertEqual(loss("--data", other), loss())
        self.assertEqual(loss("--data", self.data), loss())
        self.assertNotEqual(loss("--data", self.data, "--part", "training"), loss())
        wide = self.folder / "wide.h5"
        tokenizer = SOURCE / "tests/data/tokenizers/sentencepiece/bpe.model"
        run("data", "text", self.folder / "validation.txt", "--output", wide, "--tokenizer", tokenizer)
        refused = run("eval", directory, "--data", wide, check=2).stderr
        for word in ("--data", str(wide), "vocabulary"):
            self.assertIn(word, refused)
        self.assertIn("absent.h5", run("eval", directory, "--data", "absent.h5", check=5).stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
