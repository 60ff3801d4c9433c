# SPDX-License-Identifier: MIT
"""Runs that begin with the parameters of a checkpoint: what step 0 is then, what is begun with again, what is refused."""
import array
import gzip
import json
import shutil
import unittest

from language_test import small_tokenizer
from support import SOURCE, ProgramTest, checkpoint_tensors, metrics, run, series

# So that a step changes no parameter.
STILL = ("--optimizer.warmup_steps", 0, "--optimizer.learning_rate", 0, "--optimizer.minimum_learning_rate", 0,
         "--optimizer.weight_decay", 0)
MEASURED = "ready after"


def forget_checkpoints(directory):
    """As a run is left that was killed before its first one."""
    shutil.rmtree(directory / "checkpoints")
    (directory / "checkpoints.json").unlink()


class StartingTest(ProgramTest):
    def setUp(self):
        self.source = self.directory("source")
        self.train(self.source, "--train.steps", 2, "--optimizer.learning_rate", 1e-2)

    def loss_at(self, directory, step, *options):
        return json.loads(run("eval", directory, "--step", step, "--json", *options).stdout)["validation_loss"]

    def test_step_0_is_what_the_run_began_with(self):
        begun, seeded = self.directory("begun"), self.directory("seeded")
        keys = ("--train.steps", 2, "--checkpoint.every", 1, "--checkpoint.keep", 9)
        self.train(begun, *keys, "--init-from", self.source)
        weights = self.exported(self.source)
        self.assertEqual(self.exported(begun, 0), weights)
        self.assertNotEqual(self.exported(begun, 1), weights)
        self.assertEqual(self.loss_at(begun, 0), self.loss_at(self.source, 2))
        self.train(seeded, *keys)
        self.assertNotEqual(self.exported(seeded, 0), weights)
        self.assertNotEqual(self.loss_at(begun, 0), self.loss_at(seeded, 0))
        self.assertFalse((seeded / "beginning.json").exists())
        # It is in the directory and in every checkpoint, and the latter is enough.
        checkpoint = self.source / "checkpoints" / "step-2"
        kept = json.loads((begun / "beginning.json").read_text())
        self.assertEqual((kept["format"], kept["version"]), ("garonne.beginning", 1))
        self.assertEqual((kept["given"], kept["checkpoint"], kept["step"]), (str(self.source), str(checkpoint), 2))
        whole = json.loads((checkpoint / "manifest.json").read_text())
        self.assertEqual(kept["manifest_xxh3_128"], whole["manifest_xxh3_128"])
        manifest = json.loads((begun / "checkpoints" / "step-2" / "manifest.json").read_text())
        self.assertEqual(manifest["beginning"], {key: kept[key] for key in kept if key not in ("format", "version")})
        self.assertIn(f"began with the parameters of {checkpoint} (step 2", run("checkpoint", "inspect", begun).stdout)
        (begun / "beginning.json").unlink()
        self.assertEqual(self.loss_at(begun, 0), self.loss_at(self.source, 2))
        # A run that goes on still knows it, by tensor ranks and stages too.
        self.train(begun, *keys, "--train.steps", 3)
        self.assertEqual(json.loads((begun / "beginning.json").read_text()), kept)
        cut = run("eval", begun, "--step", 0, "--json", "--grid.tensor", 2, ranks=2)
        self.assertAlmostEqual(json.loads(cut.stdout)["validation_loss"], self.loss_at(begun, 0), delta=1e-5)
        # Another checkpoint in its place, and none, are no reason to take the seed's.
        moved = self.directory("moved")
        shutil.move(self.source, moved)
        for command in (("eval", begun, "--step", 0), ("checkpoint", "export", begun, "--step", 0, "--to", "huggingface",
                                                       self.directory("no"))):
            self.assertRegex(run(*command, check=5).stderr, f"began with the parameters of {checkpoint} .*not there any more")
        shutil.copytree(seeded / "checkpoints" / "step-2", checkpoint)
        self.assertIn("another checkpoint in that place", run("eval", begun, "--step", 0, check=5).stderr)
        shutil.rmtree(checkpoint)
        shutil.copytree(moved / "checkpoints" / "step-2", checkpoint)
        self.assertEqual(self.loss_at(begun, 0), self.loss_at(moved, 2))

    def test_what_the_checkpoint_lacked_is_the_seeds(self):
        more = self.directory("more")
        self.train(more, "--train.steps", 1, "--init-from", self.source, "--model.layers", 3, "--allow-missing", "layer.2.*",
                   *STILL)
        self.assertEqual(self.exported(more, 0), self.exported(more, 1))
        self.assertEqual(self.loss_at(more, 0), self.loss_at(more, 1))

    def test_step_0_of_what_was_imported(self):
        folder, imported = self.directory("theirs"), self.directory("imported")
        run("checkpoint", "export", self.source, "--to", "huggingface", folder)
        run("checkpoint", "import", "--from", "huggingface", folder, "--output", imported)
        self.assertEqual(self.exported(imported, 0), (folder / "model.safetensors").read_bytes())

    def test_a_run_without_a_checkpoint_begins_again_as_it_began(self):
        begun, again = self.directory("begun"), self.directory("again")
        for directory in (begun, again):
            self.train(directory, "--train.steps", 2, "--init-from", self.source)
        losses = series(begun, "loss")
        forget_checkpoints(begun)
        done = self.train(begun, "--train.steps", 2).stdout
        self.assertIn("never saved a checkpoint", done)
        self.assertRegex(done, f"note: the run in {begun} began with the parameters of {self.source}/checkpoints/step-2 .*does again")
        self.assertEqual(series(begun, "loss"), losses)
        self.assertEqual(self.exported(begun), self.exported(again))
        # With another start, which is said and remembered.
        forget_checkpoints(begun)
        other = self.directory("other")
        self.train(other, "--train.steps", 1)
        done = self.train(begun, "--train.steps", 2, "--init-from", other).stdout
        self.assertRegex(done, f"note: .* began with the parameters of {self.source}/.*with others now")
        self.assertEqual(self.exported(begun, 0), self.exported(other))
        # And not at all where it is gone.
        forget_checkpoints(begun)
        shutil.rmtree(other)
        rows = metrics(begun)
        refused = self.train(begun, "--train.steps", 2, check=5).stderr
        self.assertIn("or give --init-from", refused)
        self.assertEqual(metrics(begun), rows)
        self.train(begun, "--train.steps", 2, "--init-from", self.source)

    def test_keys_that_no_shape_shows(self):
        llama = ("--model.kind", "llama", "--model.dropout", 0, "--model.kv_heads", 2)
        source = self.directory("llama")
        self.train(source, *llama, "--train.steps", 1, "--model.rope_theta", 500000, "--model.norm_epsilon", 1e-6)
        same = ("--model.rope_theta", 500000, "--model.norm_epsilon", 1e-6)
        no = self.directory("no")
        start = ("--train.steps", 1, "--init-from", source)
        for keys, key, before in ((same[2:], "model.rope_theta", "500000"), (same[:2], "model.norm_epsilon", "1e-06")):
            refused = self.train(no, *llama, *keys, *start, check=2)
            self.assertIn(key, refused.stderr)
            self.assertIn(before, refused.stderr)
            self.assertIn(f"--init-change {key}", refused.stderr)
            self.assertNotIn(MEASURED, refused.stdout)
            self.assertFalse((no / "beginning.json").exists())
        self.assertIn("model.heads", self.train(no, "--model.heads", 2, "--train.steps", 1, "--init-from", self.source,
                                                check=2).stderr)
        self.assertIn("model.kv_heads", self.train(no, *llama[:4], "--model.kv_heads", 4, *same, *start, check=2).stderr)
        self.train(self.directory("same"), *llama, *same, *start)
        # As many heads of keys as heads may be said by 0.
        full = self.directory("full")
        self.train(full, *llama[:4], "--model.kv_heads", 4, "--train.steps", 1)
        self.train(self.directory("zero"), *llama[:4], "--train.steps", 1, "--init-from", full)
        # Deliberately, and again without a word more.
        longer = self.directory("longer")
        done = self.train(longer, *llama, *same[2:], *start, "--init-change", "model.rope_theta", *STILL).stdout
        self.assertIn(f"note: model.rope_theta is 10000, and was 500000 in {source}", done)
        self.assertEqual(checkpoint_tensors(longer / "checkpoints" / "step-1")["layer.0.qkv.weight"],
                         checkpoint_tensors(source / "checkpoints" / "step-1")["layer.0.qkv.weight"])
        forget_checkpoints(longer)
        self.train(longer, *llama, *same[2:], "--train.steps", 1, *STILL)
        refused = self.train(no, *llama, *same, *start, "--init-change", "model.hidden", check=2).stderr
        self.assertIn("--init-change", refused)
        self.assertIn("model.rope_theta", refused)

    def test_another_model_is_refused_before_anything_is_measured(self):
        no = self.directory("no")
        start = ("--train.steps", 1, "--init-from", self.source)
        for keys, texts, code in (
                (("--model.kind", "llama", "--model.dropout", 0), ("model.kind", "llama", "gpt"), 2),
                (("--model.layers", 3), ("lacks layer.2.", "--allow-missing"), 5),
                (("--model.layers", 1), ("holds layer.1.", "--allow-unused"), 5),
                (("--model.hidden", 64), ("of another model", "there and"), 5),
                (("--train.precision", "float64"), ("train.precision", "float32"), 5)):
            refused = self.train(no, *keys, *start, check=code)
            for text in texts:
                self.assertIn(text, refused.stderr)
            self.assertNotIn("products", refused.stdout)
            self.assertNotIn(MEASURED, refused.stdout)
            self.assertFalse((no / "config.toml").exists())

    def test_a_damaged_newest_checkpoint_is_passed_over(self):
        self.train(self.source, "--train.steps", 3, "--checkpoint.every", 1, "--checkpoint.keep", 5, "--optimizer.learning_rate",
                   1e-2)
        whole = self.exported(self.source, 2)
        file = self.source / "checkpoints" / "step-3" / "rank_0.safetensors"
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 4
        file.write_bytes(content)
        begun = self.directory("begun")
        done = self.train(begun, "--train.steps", 1, "--init-from", self.source)
        self.assertIn("warning: skipping checkpoint 3", done.stdout + done.stderr)
        self.assertEqual(self.exported(begun, 0), whole)
        # By its own name it is what the user wants.
        self.assertIn("damaged", self.train(self.directory("no"), "--train.steps", 1, "--init-from", file.parent,
                                            check=5).stderr)


class TokenizersTest(ProgramTest):
    def tokens_of(self, name, tokenizer):
        file = self.folder / f"{name}.json"
        file.write_text(json.dumps(tokenizer, indent=len(name) % 3))
        output = self.folder / f"{name}.h5"
        run("data", "text", self.folder / "train.txt", "--output", output, "--tokenizer", file)
        return output

    def test_files_of_one_tokenizer_that_were_written_differently(self):
        tokenizer = small_tokenizer()
        # What save_pretrained() makes of it.
        again = json.loads(json.dumps(tokenizer))
        again["post_processor"] = {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}],
                                   "pair": [], "special_tokens": {}}
        again["model"] = dict(reversed(again["model"].items()))
        again["model"]["merges"] = [merge if isinstance(merge, list) else merge.split(" ") for merge in
                                    tokenizer["model"]["merges"]]
        other = json.loads(json.dumps(tokenizer))
        other["model"]["merges"] = other["model"]["merges"][::-1]
        first, second, third = (self.tokens_of(*one) for one in
                                (("first", tokenizer), ("second", again), ("third", other)))
        names = [json.loads(run("data", "inspect", path, "--json").stdout)["tokenizer"] for path in (first, second, third)]
        self.assertEqual(len(set(names)), 3)
        source = self.directory("source")
        self.train(source, "--data.path", first, "--train.steps", 1)
        keys = ("--train.steps", 1, "--init-from", source)
        self.train(self.directory("begun"), "--data.path", second, *keys)
        self.assertIn("tokenizer", self.train(self.directory("no"), "--data.path", third, *keys, check=2).stderr)
        self.train(self.directory("blend"), "--data.path", f"0.5*{first},0.5*{second}", "--train.steps", 1)
        self.train(self.directory("held"), "--data.path", first, "--data.validation", second, "--train.steps", 1)
        for more in (("--data.path", f"0.5*{first},0.5*{third}"), ("--data.path", first, "--data.validation", third)):
            self.assertIn("tokenizer", self.train(self.directory("no"), *more, "--train.steps", 1, check=2).stderr)

    def test_data_that_name_no_tokenizer(self):
        tokens = self.tokens_of("named", small_tokenizer())
        source = self.directory("source")
        self.train(source, "--data.path", tokens, "--model.vocabulary", 645, "--train.steps", 1)
        (self.folder / "nano.bin").write_bytes(array.array("H", [i * i % 645 for i in range(4000)]).tobytes())
        keys = ("--data.path", self.folder / "nano.bin", "--model.vocabulary", 645, "--train.steps", 1)
        done = self.train(self.directory("begun"), *keys, "--init-from", source).stdout
        self.assertRegex(done, "note: .*nano.bin does not say its tokenizer; .* bpe:")
        (self.folder / "nano.bin").write_bytes(array.array("H", [645] * 4000).tobytes())
        self.assertIn("645", self.train(self.directory("beyond"), *keys, "--init-from", source, check=5).stderr)

    def test_tokenizers_of_older_versions_that_a_user_could_not_give_now(self):
        """Added tokens 257 and 258 behind 256 bytes, and an expression with [[:alpha:]], of which nobody knows whether PCRE2
        means the same."""
        for name, refused, cuts in (("gaps", "added_tokens[0].id", True), ("expression", "[[:alpha:]]", False)):
            with self.subTest(name):
                tokens = self.folder / f"older-{name}.h5"
                tokens.write_bytes(gzip.decompress((SOURCE / f"tests/data/tokenizers/older-{name}.h5.gz").read_bytes()))
                keys = ("--data.path", tokens)
                source, begun = self.directory(f"{name}-source"), self.directory(f"{name}-begun")
                self.train(source, *keys, "--train.steps", 1)
                self.train(source, *keys, "--train.steps", 2)
                self.train(begun, *keys, "--train.steps", 1, "--init-from", source)
                run("eval", source, "--data", tokens)
                # Its file is still one that a user cannot give.
                own = source / "tokenizer.json"
                self.assertIn(refused, run("data", "text", self.folder / "train.txt", "--output", self.folder / "no.h5",
                                           "--tokenizer", own, check=2).stderr)
                text = ("eval", source, "--tokens", 3, "--json", "--generate")
                shown = json.loads(run(*text, "1,257", "--ids").stdout)
                self.assertEqual(shown["prompt_ids"], [1, 257])
                self.assertIn("other texts", run(*text, "the quick", "--tokenizer", "byte").stderr)
                if cuts:
                    self.assertEqual(json.loads(run(*text, "the<|user|>").stdout)["prompt"], "the<|user|>")
                else:
                    stuck = run(*text, "the quick", check=5).stderr
                    for part in (str(own), "[[:alpha:]]", "--tokenizer", "--ids"):
                        self.assertIn(part, stuck)
                target = self.directory(f"{name}-export")
                said = run("checkpoint", "export", source, "--to", "huggingface", target).stdout
                self.assertEqual((target / "tokenizer.json").read_bytes(), own.read_bytes())
                self.assertEqual("makes other ids" in said, name == "gaps")


if __name__ == "__main__":
    unittest.main()
