# SPDX-License-Identifier: MIT
"""What is evaluated: files by their weights, samples spread over all of a file, which part of it; tokenizers that fit; and
what commands say of files that are not what they want."""
import array
import gzip
import json
import pathlib
import random
import re
import unittest

from language_test import small_tokenizer
from support import ProgramTest, metrics, run

LEARNS = ("--train.steps", 30, "--optimizer.learning_rate", 1e-2, "--model.dropout", 0)


def write_tokens(path, tokens):
    """As nanoGPT does."""
    path.write_bytes(array.array("H", tokens).tobytes())
    return path


class Evaluation(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # What the model learns, and what it has never seen; both of more samples than a validation reads.
        text = list((cls.folder / "train.txt").read_bytes())
        numbers = random.Random(1)
        cls.known = write_tokens(cls.folder / "known.bin", text[:16001])
        cls.strange = write_tokens(cls.folder / "strange.bin", [numbers.randrange(256) for _ in range(9601)])
        cls.trained = cls.folder / "trained"
        run("train", cls.config, "--run.directory", cls.trained, *LEARNS)

    def evaluated(self, *options, **how):
        return json.loads(run("eval", self.trained, "--json", *options, **how).stdout)

    def loss(self, *options, **how):
        return self.evaluated(*options, **how)["validation_loss"]

    def test_weights_of_a_blend_decide(self):
        alone = {path: self.loss("--data", path, "--batches", 0) for path in (self.known, self.strange)}
        self.assertGreater(alone[self.strange], alone[self.known] + 1)
        for weight in (0.01, 0.5, 0.9):
            blend = f"{weight}*{self.known}, {1 - weight}*{self.strange}"
            expected = weight * alone[self.known] + (1 - weight) * alone[self.strange]
            whole = self.evaluated("--data", blend, "--batches", 0)
            self.assertAlmostEqual(whole["validation_loss"], expected, places=12)
            sources = whole["validation_data"]
            self.assertEqual([source["path"] for source in sources], [str(self.known), str(self.strange)])
            self.assertEqual([source["samples"] for source in sources], [500, 300])
            self.assertEqual([source["evaluated"] for source in sources], [500, 300])
            self.assertEqual([source["loss"] for source in sources], [alone[self.known], alone[self.strange]])
            self.assertAlmostEqual(sources[0]["weight"], weight)
            self.assertEqual(whole["validation_tokens"], 800 * 32)
            # The order of the files has no say, and few samples are near all of them.
            turned = f"{1 - weight}*{self.strange}, {weight}*{self.known}"
            self.assertAlmostEqual(self.loss("--data", turned, "--batches", 0), expected, places=12)
            self.assertAlmostEqual(self.loss("--data", blend, "--batches", 20), expected, delta=0.3)
        shown = run("eval", self.trained, "--data", f"1*{self.known}, 3*{self.strange}", "--batches", 8).stdout
        self.assertRegex(shown, rf"\n4 of 500 samples of {re.escape(str(self.known))} \(its tokens\), whose loss is "
                                r"[\d.]+ and weighs 0.25\n")
        self.assertRegex(shown, rf"\n12 of 300 samples of {re.escape(str(self.strange))} .* weighs 0.75\n")

    def test_training_says_what_eval_says_on_every_grid(self):
        blend = f"0.2*{self.known}, 0.8*{self.strange}"
        losses = []
        for ranks, grid in ((0, ()), (3, ("--grid.data", 3, "--train.global_batch", 12)), (2, ("--grid.pipeline", 2))):
            directory = self.directory(f"{ranks}-{len(grid)}")
            self.train(directory, *grid, "--data.validation", blend, "--train.steps", 1, "--model.dropout", 0,
                       "--optimizer.warmup_steps", 0, "--optimizer.learning_rate", 0,
                       "--optimizer.minimum_learning_rate", 0, "--evaluation.batches", 7, ranks=ranks)
            losses.append(metrics(directory)[-1]["validation_loss"])
            said = json.loads(run("eval", directory, "--json").stdout)
            self.assertEqual([source["evaluated"] for source in said["validation_data"]], [2, 12])
            self.assertAlmostEqual(said["validation_loss"], losses[-1], places=12)
        self.assertEqual(losses[0], losses[1])
        self.assertAlmostEqual(losses[0], losses[2], places=12)
        wanted = self.loss("--data", blend, "--batches", 7)
        self.assertEqual(self.loss("--data", blend, "--batches", 7, ranks=3), wanted)
        self.assertAlmostEqual(self.loss("--data", blend, "--batches", 7, "--grid.pipeline", 2, ranks=2), wanted, places=12)

    def test_samples_are_spread_over_the_whole_file(self):
        known, strange = (array.array("H", path.read_bytes()).tolist()[:9600] for path in (self.known, self.strange))
        mixed = write_tokens(self.folder / "mixed.bin", known + strange + [0])
        ends = [self.loss("--data", write_tokens(self.folder / "half.bin", half + [0])) for half in (known, strange)]
        said = self.evaluated("--data", mixed)
        self.assertAlmostEqual(said["validation_loss"], sum(ends) / 2, delta=0.1)
        self.assertEqual((said["validation_data"][0]["evaluated"], said["validation_data"][0]["samples"]), (4, 600))

    def test_the_validation_part_of_a_file(self):
        own = self.loss("--batches", 0)
        other = self.evaluated("--data", self.data, "--batches", 0)
        self.assertEqual(other["validation_loss"], own)
        self.assertEqual(other["validation_data"][0]["part"], "validation")
        training = self.evaluated("--data", self.data, "--batches", 0, "--part", "training")
        self.assertNotEqual(training["validation_loss"], own)
        self.assertEqual(training["validation_data"][0]["part"], "tokens")
        named = self.directory("named")
        self.train(named, "--data.validation", self.data, "--train.steps", 1)
        usual = self.directory("usual")
        self.train(usual, "--train.steps", 1)
        self.assertEqual(metrics(named)[-1]["validation_loss"], metrics(usual)[-1]["validation_loss"])
        self.assertIn("holds no validation tokens",
                      run("eval", self.trained, "--data", self.known, "--part", "validation", check=2).stderr)
        self.assertIn("--data", run("eval", self.trained, "--part", "training", check=2).stderr)

    def test_an_imported_model_is_evaluated(self):
        target, imported = self.directory("export"), self.directory("imported")
        done = run("checkpoint", "export", self.trained, "--to", "huggingface", target).stdout
        for name in ("model.safetensors", "config.json", "tokenizer_config.json", "tokenizer.json"):
            self.assertIn(name, done)
            self.assertTrue((target / name).exists())
        run("checkpoint", "import", "--from", "huggingface", target, "--output", imported)
        # The micro-batches of a run file's default, which an import has.
        said = json.loads(run("eval", imported, "--data", self.data, "--batches", 0, "--json").stdout)
        self.assertAlmostEqual(said["validation_loss"], self.loss("--batches", 0), delta=0.02)
        self.assertIn("needed", run("eval", imported, check=2).stderr)
        run("eval", imported, "--data", self.data, "--generate", "the ", "--tokens", 2)

    def test_tokenizers_fit_the_model(self):
        larger = self.folder / "larger.json"
        larger.write_text(json.dumps(small_tokenizer()))
        for command in (("eval", self.trained, "--generate", "the quick"),
                        ("checkpoint", "export", self.trained, "--to", "huggingface", self.directory("no"))):
            refused = run(*command, "--tokenizer", larger, check=2).stderr
            for word in ("--tokenizer", str(larger), "645", "256"):
                self.assertIn(word, refused)
        self.assertFalse(self.directory("no").exists())
        tokens = self.folder / "larger.h5"
        run("data", "text", self.folder / "train.txt", "--output", tokens, "--tokenizer", larger)
        directory = self.directory("larger")
        self.train(directory, "--data.path", tokens, "--train.steps", 1)
        other = run("eval", directory, "--generate", "x", "--tokens", 1, "--tokenizer", "byte").stderr
        self.assertRegex(other, r"warning: --tokenizer byte is byte.* bpe:[0-9a-f]{16}")
        own = run("eval", directory, "--generate", "x", "--tokens", 1, "--tokenizer", larger).stderr
        self.assertNotIn("warning", own)
        # Another file of the same ids.
        spread = self.folder / "spread.json"
        spread.write_text(json.dumps(small_tokenizer(), indent=4))
        same = run("eval", directory, "--generate", "x", "--tokens", 1, "--tokenizer", spread).stderr
        self.assertNotIn("warning", same)
        elsewhere = self.folder / "spread.h5"
        run("data", "text", self.folder / "train.txt", "--output", elsewhere, "--tokenizer", spread)
        scored = [json.loads(run("eval", directory, "--data", data, "--batches", 0, "--json").stdout)["validation_loss"]
                  for data in (tokens, elsewhere)]
        self.assertEqual(scored[0], scored[1])
        self.assertIn("byte", run("eval", directory, "--data", self.data, check=2).stderr)
        # Files that name no tokenizer.
        bare = self.directory("bare")
        self.train(bare, "--data.path", self.known, "--model.vocabulary", 256, "--train.steps", 1)
        target = self.directory("bare-export")
        done = run("checkpoint", "export", bare, "--to", "huggingface", target).stdout
        self.assertIn("no tokenizer", done)
        self.assertFalse((target / "tokenizer.json").exists())

    def test_options_of_texts(self):
        self.assertIn("--stop", run("eval", self.trained, "--generate", "x", "--stop", "", check=2).stderr)
        for option, *value in (("--tokens", 5), ("--temperature", 0.3), ("--top-k", 2), ("--stop", "x"), ("--seed", 2), ("--ids",),
                              ("--tokenizer", "byte")):
            refused = run("eval", self.trained, option, *value, check=2).stderr
            self.assertIn(option, refused)
            self.assertIn("--generate", refused)

    def test_a_text_without_a_validation(self):
        directory, data = self.directory("without-data"), self.folder / "there-for-a-while.bin"
        data.write_bytes(pathlib.Path(self.known).read_bytes())
        self.train(directory, "--data.path", data, "--model.vocabulary", 256, "--train.steps", 1)
        write = ("eval", directory, "--ids", "--generate", "5 6", "--tokens", 4, "--json")
        before = json.loads(run(*write).stdout)
        data.unlink()
        run(*write, check=5)
        for ranks, grid in ((0, ()), (2, ("--grid.pipeline", 2))):
            alone = json.loads(run(*write, "--no-validation", *grid, ranks=ranks).stdout)
            self.assertIsNone(alone["validation_loss"])
            self.assertEqual(alone["generated_ids"], before["generated_ids"])
        self.assertIn("step 1: no validation\n", run(*write[:-1], "--no-validation").stdout)
        for option in (("--data", self.known), ("--batches", 1)):
            self.assertIn(option[0], run(*write, "--no-validation", *option, check=2).stderr)
        self.assertIn("--generate", run("eval", directory, "--no-validation", check=2).stderr)

    def test_ids_in_the_place_of_texts(self):
        greedy = ("--tokens", 6, "--temperature", 0)
        bare = self.directory("bare-ids")
        self.train(bare, "--data.path", self.known, "--model.vocabulary", 256, "--train.steps", 1)
        self.assertIn("--ids", run("eval", bare, "--generate", "the ", check=2).stderr)
        # Bytes are their own ids.
        prompt = list(b"the quick")
        text = json.loads(run("eval", self.trained, "--generate", "the quick", *greedy, "--json").stdout)
        for written in (" ".join(map(str, prompt)), ",".join(map(str, prompt)), ", ".join(map(str, prompt)) + "\n"):
            ids = json.loads(run("eval", self.trained, "--ids", "--generate", written, *greedy, "--json").stdout)
            self.assertEqual(ids["prompt_ids"], prompt)
            self.assertEqual(bytes(ids["generated_ids"]).decode(), text["generated"])
            self.assertNotIn("generated", ids)
        file = self.folder / "ids.txt"
        file.write_text(" ".join(map(str, prompt)))
        shown = run("eval", self.trained, "--ids", "--generate-from", file, *greedy).stdout
        self.assertIn(" ".join(map(str, prompt + ids["generated_ids"])) + "\n", shown)
        # Where that of the run is gone or damaged.
        lost = self.directory("lost-tokenizer")
        tokenizer, tokens = self.folder / "lost.json", self.folder / "lost.h5"
        tokenizer.write_text(json.dumps(small_tokenizer()))
        run("data", "text", self.folder / "train.txt", "--output", tokens, "--tokenizer", tokenizer)
        self.train(lost, "--data.path", tokens, "--train.steps", 1)
        of_ids = ("eval", lost, "--ids", "--generate", "5 6", *greedy, "--json")
        before = json.loads(run(*of_ids).stdout)["generated_ids"]
        for content in ("{", None):
            (lost / "tokenizer.json").unlink() if content is None else (lost / "tokenizer.json").write_text(content)
            self.assertEqual(json.loads(run(*of_ids).stdout)["generated_ids"], before)
            run("eval", lost, "--generate", "the ", check=5)
        # Without any tokenizer, several, and the same by several ranks.
        several = ("eval", bare, "--ids", "--generate", "5 6", "--tokens", 4, "--continuations", 3, "--json")
        alone = json.loads(run(*several).stdout)
        self.assertEqual([len(one) for one in alone["continuation_ids"]], [4, 4, 4])
        self.assertEqual(json.loads(run(*several, ranks=2).stdout)["continuation_ids"], alone["continuation_ids"])
        for wrong, word in (("the", "the"), ("5 -6", "-6"), ("5 6x", "6x"), ("", "one id"), ("5 4294967296", "4294967296"),
                            ("5 256", "vocabulary of 256")):
            self.assertIn(word, run("eval", bare, "--ids", "--generate", wrong, check=2).stderr)
        self.assertIn("--stop", run("eval", bare, "--ids", "--generate", "5", "--stop", "x", check=2).stderr)
        # Before the validation.
        beyond = run("eval", self.trained, "--ids", "--generate", "5 256", "--batches", 0, check=2)
        self.assertIn("--generate: the prompt has the token 256, ", beyond.stderr)
        file.write_text("5 300")
        beyond = run("eval", self.trained, "--ids", "--generate-from", file, check=2)
        self.assertIn("--generate-from: the prompt has the token 300, ", beyond.stderr)
        self.assertNotIn("validation loss", beyond.stdout)

    def test_a_bad_token_ends_a_run_with_its_state_saved(self):
        tokens = array.array("H", self.known.read_bytes()).tolist()[:3201]
        tokens[1000] = 300
        bad = write_tokens(self.folder / "bad.bin", tokens)
        keys = ("--data.path", bad, "--model.vocabulary", 256, "--train.steps", 60, "--evaluation.batches", 0)
        steps = set()
        for ranks, grid in ((0, ()), (0, ("--run.device", "emulated")), (2, ("--grid.data", 2)),
                            (2, ("--grid.data", 2, "--grid.zero", 3)), (2, ("--grid.pipeline", 2)),
                            (2, ("--grid.tensor", 2))):
            with self.subTest(ranks=ranks, grid=grid):
                directory = self.directory(f"{ranks}-{'-'.join(map(str, grid))}")
                done = self.train(directory, *keys, *grid, ranks=ranks, check=5)
                ours = [line for line in done.stderr.splitlines() if "garonne:" in line]
                self.assertEqual(len(ours), 1, done.stderr)
                saved = [int(folder.name.split("-")[1]) for folder in (directory / "checkpoints").iterdir()]
                self.assertEqual(len(saved), 1)
                for word in (str(bad), "300", f"checkpoint of step {saved[0]} is saved", f"Step {saved[0] + 1} was not made"):
                    self.assertIn(word, ours[0])
                steps.add(saved[0])
                run("checkpoint", "verify", directory)
                # Again: nothing is lost, and nothing is gained.
                again = self.train(directory, *keys, *grid, ranks=ranks, check=5).stderr
                self.assertIn(f"Step {saved[0] + 1} was not made", again)
        self.assertEqual(len(steps), 1, steps)

    def test_a_validation_that_cannot_be_read_loses_no_step(self):
        tokens = array.array("H", self.known.read_bytes()).tolist()
        tokens[2000] = 300
        bad = write_tokens(self.folder / "bad-validation.bin", tokens)
        keys = ("--data.path", self.known, "--data.validation", bad, "--model.vocabulary", 256, "--train.steps", 4,
                "--evaluation.every", 2, "--evaluation.batches", 1000000)
        for ranks, grid in ((0, ()), (0, ("--run.device", "emulated")), (2, ("--grid.data", 2, "--grid.zero", 3)),
                            (2, ("--grid.pipeline", 2))):
            with self.subTest(ranks=ranks, grid=grid):
                directory = self.directory(f"validation-{ranks}-{'-'.join(map(str, grid))}")
                done = self.train(directory, *keys, *grid, ranks=ranks, check=5)
                ours = [line for line in done.stderr.splitlines() if "garonne:" in line]
                self.assertEqual(len(ours), 1, done.stderr)
                for word in (str(bad), "300", "validation after step 2 was not made", "checkpoint of step 2 is saved"):
                    self.assertIn(word, ours[0])
                run("checkpoint", "verify", directory)
                self.assertEqual([row["step"] for row in metrics(directory)], [1, 2])
                again = self.train(directory, *keys, *grid, "--evaluation.batches", 0, ranks=ranks).stdout
                self.assertNotIn("lacks", again)
                self.assertEqual([row["step"] for row in metrics(directory)], [1, 2, 3, 4])

    def test_what_is_no_text_and_no_tokens(self):
        text = self.folder / "train.txt"
        for command in (("data", "inspect", text), ("train", self.config, "--data.path", text),
                        ("eval", self.trained, "--data", text)):
            self.assertIn("garonne data text", run(*command, check=5).stderr)
        packed = self.folder / "text.gz"
        packed.write_bytes(gzip.compress(text.read_bytes()))
        wide = self.folder / "utf-16.txt"
        wide.write_text("the quick brown fox", encoding="utf-16")
        table = self.folder / "table.parquet"
        table.write_bytes(b"PAR1\x15\x04\x15\x10" + bytes(100) + b"PAR1")
        for path, word in ((self.data, "data.path"), (packed, "unpack"), (wide, "UTF-8"), (table, "Parquet")):
            refused = run("data", "text", path, "--output", self.folder / "none.h5", check=5).stderr
            self.assertIn(word, refused)
            self.assertFalse((self.folder / "none.h5").exists())

    def test_a_replaced_file_is_named(self):
        output = self.folder / "twice.h5"
        convert = ("data", "text", self.folder / "validation.txt", "--output", output)
        self.assertNotIn("replaced", run(*convert).stdout)
        larger = self.folder / "replacing.json"
        larger.write_text(json.dumps(small_tokenizer()))
        self.assertRegex(run(*convert, "--tokenizer", larger).stdout, "replaced    a file of 4000 tokens of the tokenizer byte\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
