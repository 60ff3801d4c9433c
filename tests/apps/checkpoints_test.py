# SPDX-License-Identifier: MIT
"""Checkpoints of a run: what may differ from them, cut anew, pruned, and never of what is not finite."""
import json
import re
import shutil
import subprocess
import unittest

from support import BINARY, FieldsTest, ProgramTest, run, saved_steps, series


def flip(path, position=0.5):
    content = bytearray(path.read_bytes())
    content[int(position * (len(content) - 1))] ^= 1
    path.write_bytes(content)


class OtherModelTest(ProgramTest):
    def test_only_tensors_that_are_named_may_be_missing_or_unused(self):
        directory = self.directory("run")
        keys = ["--train.steps", 8, "--train.stop_after", 2]
        self.train(directory, *keys, "--model.layers", 2, check=75)
        more = ["--train.steps", 8, "--train.stop_after", 1, "--model.layers", 3]
        self.assertIn("model.layers", self.train(directory, *more, check=2).stderr)
        refused = self.train(directory, *more, "--allow-missing", "layer.2.up*,layer.2.down*", check=5).stderr
        self.assertRegex(refused, r"lacks layer\.2\.\S+; .*--allow-missing layer\.2\.")
        done = self.train(directory, *more, "--allow-missing", "layer.2.*", check=75)
        self.assertIn("tensors begin with the values of step 0: layer.2.", done.stdout)
        self.assertEqual(series(directory, "step"), [1, 2, 3])
        # The same command again goes on, though nothing is missing any more; so does one without.
        self.train(directory, *more, "--allow-missing", "layer.2.*", check=75)
        self.train(directory, *more, check=75)
        fewer = ["--train.steps", 8, "--train.stop_after", 1, "--model.layers", 1]
        refused = self.train(directory, *fewer, "--allow-unused", "layer.2.*", check=5).stderr
        self.assertRegex(refused, r"holds layer\.1\.\S+, .*--allow-unused layer\.1\.")
        self.train(directory, *fewer, "--allow-unused", "layer.1.*,layer.2.*", check=75)
        # Another shape is no matter of names, and where those are alike all keys are to be.
        refused = self.train(directory, *fewer, "--model.hidden", 16, "--allow-missing", "*", check=2).stderr
        self.assertIn("model.hidden", refused)
        refused = self.train(directory, *more, "--model.hidden", 16, "--allow-missing", "*", check=5).stderr
        self.assertIn("of another model", refused)

    def test_patterns_that_name_nothing_are_told_and_allow_nothing(self):
        directory = self.directory("run")
        keys = ["--train.steps", 8]
        self.train(directory, *keys, "--train.stop_after", 2, check=75)
        for option, whose in (("--allow-unused", "the checkpoint"), ("--allow-missing", "the model")):
            self.assertIn("is empty", self.train(directory, *keys, option, "", check=2).stderr)
            said = self.train(directory, *keys, option, "nonsense*", "--train.stop_after", 1, check=75).stdout
            self.assertIn(f"warning: {option} nonsense*: {whose} has no such tensor", said)
            refused = self.train(directory, *keys, option, "nonsense*", "--model.dropout", 0.25, check=2).stderr
            self.assertIn("model.dropout", refused)

    def test_states_that_another_optimizer_takes_over_are_told(self):
        directory = self.directory("run")
        keys = ["--train.steps", 8, "--train.stop_after", 1]
        self.train(directory, *keys, "--optimizer.name", "adamw", check=75)
        said = self.train(directory, *keys, "--optimizer.name", "sgd", "--allow-unused", "*", check=75).stdout
        self.assertIn("warning: the checkpoint is of adamw and this run of sgd: first_moment", said)
        again = self.train(directory, *keys, "--optimizer.name", "sgd", check=75).stdout
        self.assertNotIn("the checkpoint is of", again)

    def test_a_start_from_parameters_is_as_strict(self):
        source = self.directory("source")
        self.train(source, "--train.steps", 1, "--model.layers", 2)
        keys = ["--train.steps", 1, "--init-from", source]
        self.assertIn("lacks layer.2.", self.train(self.directory("more"), *keys, "--model.layers", 3, check=5).stderr)
        more = self.train(self.directory("more"), *keys, "--model.layers", 3, "--allow-missing", "layer.2.*")
        self.assertIn("tensors begin with the values of step 0: layer.2.", more.stdout)
        self.assertIn("holds layer.1.", self.train(self.directory("fewer"), *keys, "--model.layers", 1, check=5).stderr)
        self.train(self.directory("fewer"), *keys, "--model.layers", 1, "--allow-unused", "layer.1.*")
        done = self.train(self.directory("fresh"), "--train.steps", 1, "--allow-unused", "layer.1.*")
        self.assertIn("begins without a checkpoint", done.stdout)


class ChangedKeysTest(ProgramTest):
    def stopped(self, name):
        directory = self.directory(name)
        self.train(directory, "--train.stop_after", 3, check=75)
        return directory

    def test_a_named_key_may_be_another_and_the_checkpoint_says_so(self):
        directory, other = self.stopped("changed"), self.directory("other")
        keys = ("--optimizer.learning_rate", 2e-3, "--train.global_batch", 16)
        refused = self.train(directory, *keys, check=2).stderr
        self.assertIn("was made with 8", refused)
        self.assertIn("`--change train.global_batch`", refused)
        # Each by its own name.
        self.assertIn("optimizer.learning_rate", self.train(directory, *keys, "--change", "train.global_batch", check=2).stderr)
        named = ("--change", "train.global_batch", "--change", "optimizer.learning_rate")
        self.train(directory, *keys, *named, "--train.stop_after", 2, check=75)
        self.train(other, *keys)
        self.assertEqual(series(directory, "learning_rate")[3:], series(other, "learning_rate")[3:5])
        # What is saved has them: no word is needed any more, and one does no harm.
        self.train(directory, *keys, *named, "--optimizer.clip_norm", 0.5, "--change", "optimizer.clip_norm")
        manifest = json.loads((directory / "checkpoints/step-6/manifest.json").read_text())
        self.assertEqual(manifest["changes"], [
            {"step": 3, "key": "train.global_batch", "before": "8", "after": "16"},
            {"step": 3, "key": "optimizer.learning_rate", "before": "0.001", "after": "0.002"},
            {"step": 5, "key": "optimizer.clip_norm", "before": "1", "after": "0.5"}])
        self.assertIn("optimizer.clip_norm is 0.5 from step 6 on, and was 1\n", run("checkpoint", "inspect", directory).stdout)

    def test_what_cannot_change_is_refused_by_name(self):
        directory = self.stopped("fixed")
        for key, words in (("model.layers", "--init-from"), ("train.precision", "--init-from"), ("optimizer.name", "--allow-missing"),
                           ("optimizer.learning_rat", "did you mean optimizer.learning_rate?"), ("layers", "is no key")):
            with self.subTest(key):
                self.assertIn(words, self.train(directory, "--change", key, check=2).stderr)

    def test_the_same_data_may_lie_elsewhere_and_others_may_not(self):
        directory = self.stopped("moved")
        elsewhere, other = self.folder / "elsewhere.h5", self.folder / "other.h5"
        shutil.copy(self.data, elsewhere)
        run("data", "text", self.folder / "validation.txt", "--output", other)
        refused = self.train(directory, "--data.path", other, check=2).stderr
        self.assertIn("`--change data.path`", refused)
        done = self.train(directory, "--data.path", elsewhere)
        self.assertIn(f"data.path is {elsewhere} from step 4 on, and was {self.data}", done.stdout)
        whole = self.directory("whole")
        self.train(whole)
        self.assertEqual(series(directory, "loss"), series(whole, "loss"))


class ReshardTest(ProgramTest):
    def test_a_checkpoint_that_is_cut_anew_goes_on_to_the_same_bits(self):
        directory, cut, alone = (self.directory(name) for name in ("run", "cut", "alone"))
        keys = ["--train.steps", 6, "--grid.data", 2]
        self.train(directory, *keys, "--train.stop_after", 3, ranks=2, check=75)
        self.train(alone, *keys, ranks=2)
        self.assertIn("step         3     2 files", run("checkpoint", "list", directory).stdout)
        run("checkpoint", "reshard", directory, cut, "--ranks", 5)
        self.assertEqual(json.loads(run("checkpoint", "list", cut, "--json").stdout)["files"], 5)
        run("eval", cut)
        self.train(cut, *keys, ranks=2)
        for rank in (0, 1):
            name = f"checkpoints/step-6/rank_{rank}.safetensors"
            self.assertEqual((cut / name).read_bytes(), (alone / name).read_bytes())
        self.assertIn("there already", run("checkpoint", "reshard", directory, cut, "--ranks", 2, check=5).stderr)
        many = self.directory("many")
        refused = run("checkpoint", "reshard", directory, many, "--ranks", 65536, check=2).stderr
        self.assertRegex(refused, r"--ranks = 65536: is more than the \d+ elements of the largest tensor")
        self.assertFalse(many.exists())

    def test_there_and_back_over_another_grid_is_byte_for_byte_what_was_saved(self):
        directory, cut, back = (self.directory(name) for name in ("run", "cut", "back"))
        self.train(directory, "--train.steps", 6, "--grid.pipeline", 2, "--train.stop_after", 2, ranks=2, check=75)
        whole = self.directory("whole")
        run("checkpoint", "reshard", directory, whole, "--ranks", 1)
        run("checkpoint", "reshard", directory, cut, "--ranks", 3)
        run("checkpoint", "reshard", cut, back, "--ranks", 1)
        for name in ("rank_0.safetensors", "manifest.json"):
            self.assertEqual((back / "checkpoints/step-2" / name).read_bytes(),
                             (whole / "checkpoints/step-2" / name).read_bytes())
        # Another grid goes on from it, and what of that is damaged is not cut.
        self.train(cut, "--train.steps", 6, "--grid.data", 2, "--train.stop_after", 1, ranks=2, check=75)
        self.assertEqual(series(cut, "step"), [3])
        flip(cut / "checkpoints/step-3/rank_1.safetensors")
        run("checkpoint", "reshard", cut / "checkpoints/step-3", back, "--ranks", 2, check=5)
        self.assertEqual(saved_steps(back), [2])


class PruningTest(ProgramTest):
    def test_a_start_removes_what_is_too_old_by_now(self):
        directory = self.directory("run")
        keys = ["--train.steps", 9, "--checkpoint.every", 2]
        self.train(directory, *keys, "--checkpoint.keep", 9, "--train.stop_after", 8, check=75)
        self.assertEqual(saved_steps(directory), [2, 4, 6, 8])
        flip(directory / "checkpoints/step-6/rank_0.safetensors")
        # It is killed before it saves any.
        job = subprocess.Popen([BINARY, "train", self.config, "--run.directory", directory, *map(str, keys), "--train.steps",
                                "1000000", "--checkpoint.every", "0", "--checkpoint.keep", "2"], stdout=subprocess.PIPE, text=True)
        for line in job.stdout:
            if "ready after" in line:
                break
        job.kill()
        job.wait()
        job.stdout.close()
        self.assertEqual(saved_steps(directory), [4, 6, 8], "the damaged one counts as none, and goes once 4 is counted")

    def test_damaged_checkpoints_push_no_whole_ones_out(self):
        directory = self.directory("run")
        self.train(directory, "--train.steps", 8, "--checkpoint.every", 2, "--checkpoint.keep", 9)
        self.assertEqual(saved_steps(directory), [2, 4, 6, 8])
        for step in (6, 8):
            flip(directory / "checkpoints" / f"step-{step}" / "rank_0.safetensors")
        keys = ("--train.steps", 9, "--checkpoint.every", 0)
        done = self.train(directory, *keys, "--train.stop_after", 1, check=75)
        self.assertEqual(saved_steps(directory), [4, 5, 6, 8])
        self.assertEqual(done.stdout.count("step-8 is of a later step than 5"), 1, done.stdout)
        self.train(directory, *keys)
        self.assertEqual(series(directory, "step"), list(range(1, 10)))
        # 6 and 8 are older now and still damaged: they count for none of the two.
        self.assertEqual(saved_steps(directory), [5, 6, 8, 9])

    def test_verify_looks_at_all_checkpoints(self):
        directory = self.directory("run")
        self.train(directory, "--train.steps", 4, "--checkpoint.every", 1, "--checkpoint.keep", 9)
        for step in (1, 3):
            flip(directory / f"checkpoints/step-{step}/rank_0.safetensors")
        done = run("checkpoint", "verify", directory, check=5)
        self.assertEqual(re.findall(r"step-(\d+): whole", done.stdout), ["2", "4"])
        self.assertEqual(re.findall(r"garonne: .*step-(\d+)/rank_0", done.stderr), ["1", "3"])

    def test_foreign_folders_are_left_and_what_was_trained_stays(self):
        directory = self.directory("run")
        self.train(directory, "--train.steps", 6, "--train.stop_after", 2, check=75)
        for name in ("step-900", "step--5", "step-007"):
            shutil.copytree(directory / "checkpoints" / "step-2", directory / "checkpoints" / name)
        done = self.train(directory, "--train.steps", 6, "--checkpoint.every", 2, "--checkpoint.keep", 1)
        self.assertIn("skipping checkpoint 900", done.stdout)
        for name in ("step-900", "step--5", "step-007"):
            self.assertEqual(done.stdout.count(f"{name} is "), 1, done.stdout)
        self.assertEqual(sorted(path.name for path in (directory / "checkpoints").iterdir()),
                         ["step--5", "step-007", "step-6", "step-900"])
        self.assertIn("done already", self.train(directory, "--train.steps", 6).stdout)

    # As where it was killed before the last removal.
    def test_a_run_that_is_done_removes_what_it_has_not(self):
        directory = self.directory("done")
        options = ("--train.steps", 4, "--checkpoint.every", 1)
        self.train(directory, *options, "--checkpoint.keep", 9)
        before = (directory / "metrics.jsonl").read_bytes()
        self.assertIn("done already", self.train(directory, *options, "--checkpoint.keep", 2).stdout)
        self.assertEqual(sorted(path.name for path in (directory / "checkpoints").iterdir()), ["step-3", "step-4"])
        self.assertEqual((directory / "metrics.jsonl").read_bytes(), before)


class FiniteTest(ProgramTest):
    GRIDS = ((), ("--grid.data", 2), ("--grid.data", 2, "--grid.zero", 3), ("--grid.pipeline", 2), ("--grid.tensor", 2))

    def test_what_to_do_is_told_by_the_keys_and_checkpoints_that_there_are(self):
        directory = self.directory("advice")
        wild = ("--optimizer.warmup_steps", 0, "--optimizer.learning_rate", 1e30, "--optimizer.clip_norm")
        said = self.train(directory, *wild, 0, check=6).stderr
        self.assertIn("nothing was updated. Lower optimizer.learning_rate", said)
        self.assertIn("set optimizer.clip_norm, which is 0 and clips nothing, in another run.directory: the same command would begin anew", said)
        saved = self.directory("saved")
        self.train(saved, "--train.stop_after", 1, check=75)
        changes = ("--change", "optimizer.learning_rate", "--change", "optimizer.warmup_steps")
        said = self.train(saved, *wild, 1, *changes, check=6).stderr
        self.assertIn("lower optimizer.clip_norm, in another run.directory: the same command would go on from the checkpoint of step 1", said)

    def test_weights_that_are_not_finite_are_not_saved(self):
        for grid in self.GRIDS:
            directory = self.directory("-".join(map(str, grid)) + "run")
            # The rate is more than float32 holds.
            done = self.train(directory, "--optimizer.learning_rate", 1e39, "--optimizer.minimum_learning_rate", 1e39,
                              "--optimizer.warmup_steps", 0, "--train.steps", 1, *grid, ranks=2 if grid else 0, check=6)
            errors = [line for line in done.stderr.splitlines() if "not finite" in line]
            self.assertEqual(len(errors), 1, done.stderr)
            for words in ("garonne: step 1: ", " holds values", "optimizer.learning_rate", "older ones stay"):
                self.assertIn(words, errors[0])
            self.assertEqual(list((directory / "checkpoints").iterdir()), [])
            self.assertFalse((directory / "lock").exists())


class ExportTest(FieldsTest, unittest.TestCase):
    RUN_FILE = """
[model]
kind = "fno"
layers = 1
hidden = 8
modes = [4, 4]
[data]
path = "{folder}/darcy.h5"
normalisation = "none"
[train]
steps = 1
global_batch = 2
micro_batch = 2
"""

    @classmethod
    def make_data(cls):
        run("data", "darcy", "--samples", 4, "--resolution", 17, "--output", cls.folder / "darcy.h5")

    def test_a_model_of_fields_has_no_export_and_leaves_no_folder(self):
        directory = self.folder / "run"
        self.train(directory)
        target = self.folder / "exported"
        done = run("checkpoint", "export", directory, "--to", "huggingface", target, check=2)
        self.assertIn("wants a model of text; this run's is fno", done.stderr)
        self.assertFalse(target.exists())
        self.assertIn("whole (1 file)\n", run("checkpoint", "verify", directory).stdout)
        self.assertRegex(run("checkpoint", "inspect", directory).stdout, r" tensors in 1 file, .* · 1 thread a rank\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
