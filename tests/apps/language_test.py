# SPDX-License-Identifier: MIT
"""Language models from end to end with a tokenizer of their own: data, run directory, generated text, export."""
import array
import json
import pathlib
import re
import shutil
import subprocess
import time
import unittest

from huggingface_files import cut_into_shards, llama_config, random_llama
from support import ProgramTest, SOURCE, metrics, run, series


def small_tokenizer(kind="gpt2"):
    """One of those that the unit tests have, as tokenizer.json."""
    values = json.loads((SOURCE / "tests/data/tokenizers/small_tokenizers.json").read_text())
    whole = values["tokenizers"][kind]
    whole["model"] |= {"vocab": values["vocab"], "merges": values["merges"]}
    return whole


class Language(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tokenizer = cls.folder / "tokenizer.json"
        cls.tokenizer.write_text(json.dumps(small_tokenizer()))
        cls.tokens = cls.folder / "bpe.h5"
        run("data", "text", cls.folder / "train.txt", "--validation", cls.folder / "validation.txt", "--output",
            cls.tokens, "--tokenizer", cls.tokenizer)

    def test_the_tokenizer_travels(self):
        info = json.loads(run("data", "inspect", self.tokens, "--json").stdout)
        self.assertRegex(info["tokenizer"], "^bpe:[0-9a-f]{16}$")
        self.assertEqual(info["vocabulary"], 645)
        self.assertLess(info["tokens"], 30000)
        directory = self.directory("run")
        self.train(directory, "--data.path", self.tokens, "--train.steps", 2)
        self.assertEqual((directory / "tokenizer.json").read_text(), self.tokenizer.read_text())
        # Elsewhere, and without the data.
        moved = self.directory("moved")
        shutil.move(directory, moved)
        shown = json.loads(run("eval", moved, "--generate", "the quick", "--tokens", 12, "--json").stdout)
        self.assertEqual(shown["prompt"], "the quick")
        self.assertTrue(shown["generated"])
        target = self.directory("export")
        run("checkpoint", "export", moved, "--to", "huggingface", target)
        self.assertEqual(json.loads((target / "tokenizer.json").read_text()), small_tokenizer())
        self.assertEqual(json.loads((target / "tokenizer_config.json").read_text())["eos_token"], "<|endoftext|>")
        self.assertEqual(json.loads((target / "config.json").read_text())["eos_token_id"], 640)
        (moved / "tokenizer.json").write_text(json.dumps(small_tokenizer("llama3")))
        self.assertIn("is wanted", run("eval", moved, "--generate", "x", check=5).stderr)

    def test_a_run_keeps_its_tokenizer(self):
        directory = self.directory("run")
        self.train(directory, "--data.path", self.tokens, "--train.steps", 2)
        other = self.folder / "other.json"
        other.write_text(json.dumps(small_tokenizer("llama3")))
        tokens = self.folder / "other.h5"
        run("data", "text", self.folder / "train.txt", "--output", tokens, "--tokenizer", other)
        refused = self.train(directory, "--data.path", tokens, "--train.steps", 3, check=2).stderr
        self.assertIn("tokenizer", refused)
        refused = self.train(self.directory("second"), "--data.path", tokens, "--init-from", directory, check=2).stderr
        self.assertIn(f"garonne data text --tokenizer {directory / 'tokenizer.json'}", refused)

    def test_bytes_export_a_tokenizer_too(self):
        directory = self.directory("run")
        self.train(directory, "--train.steps", 1)
        self.assertFalse((directory / "tokenizer.json").exists())
        target = self.directory("export")
        run("checkpoint", "export", directory, "--to", "huggingface", target)
        model = json.loads((target / "tokenizer.json").read_text())["model"]
        self.assertEqual((len(model["vocab"]), model["vocab"]["a"], model["merges"]), (256, 97, []))
        # And come back as bytes, with which the same data go on.
        imported = self.directory("imported")
        run("checkpoint", "import", "--from", "huggingface", target, "--output", imported)
        self.train(self.directory("on"), "--train.steps", 1, "--init-from", imported)
        # It saw no data, and writes texts.
        shown = run("eval", imported, "--generate", "the quick", "--tokens", 3).stdout
        self.assertIn("no validation", shown)
        self.assertIn("3 tokens in", shown)
        self.assertIn("no step yet", run("report", imported, check=5).stderr)

    def test_ways_to_sample(self):
        directory = self.directory("run")
        # Long enough that it writes words, not parts of characters.
        self.train(directory, "--data.path", self.tokens, "--train.steps", 60, "--optimizer.learning_rate", 1e-2)

        def texts(*options, prompt=("--generate", "the quick")):
            shown = json.loads(run("eval", directory, *prompt, "--tokens", 20, "--json", *options).stdout)
            return shown.get("continuations", [shown["generated"]])

        greedy = texts("--temperature", 0)
        self.assertEqual(texts("--top-k", 1, "--temperature", 3), greedy)
        self.assertEqual(texts("--temperature", 0, "--seed", 9), greedy)
        (self.folder / "prompt.txt").write_text("the quick\n")
        self.assertEqual(texts("--temperature", 0, prompt=("--generate-from", self.folder / "prompt.txt")), greedy)
        self.assertEqual(texts("--temperature", 0, "--stop", greedy[0][3:6], "--stop", "never"),
                         [greedy[0][:greedy[0].index(greedy[0][3:6])]])
        several = texts("--continuations", 3)
        self.assertEqual(len(several), 3)
        self.assertGreater(len(set(several)), 1)
        self.assertEqual(texts()[0], several[0])
        self.assertNotEqual(texts("--temperature", 0, "--repetition-penalty", 20), greedy)
        self.assertEqual(texts("--temperature", 0, "--tokenizer", self.tokenizer), greedy)
        for option, value in (("--top-p", 0), ("--top-k", 0), ("--temperature", -1), ("--continuations", 0),
                              ("--temperature", "nan"), ("--top-p", "nan"), ("--repetition-penalty", "-NaN")):
            self.assertIn(option, run("eval", directory, "--generate", "x", option, value, check=2).stderr)

    def test_ids_that_stand_for_nothing(self):
        whole = small_tokenizer()
        vocabulary = whole["model"]["vocab"]
        vocabulary[next(token for token, number in vocabulary.items() if number == 639)] = 1400
        tokenizer = self.folder / "gaps.json"
        tokenizer.write_text(json.dumps(whole))
        tokens = self.folder / "gaps.h5"
        run("data", "text", self.folder / "train.txt", "--output", tokens, "--tokenizer", tokenizer)
        directory = self.directory("run")
        self.train(directory, "--data.path", tokens, "--data.validation", tokens, "--train.steps", 1)
        # A model that knows nothing yet: more than half of what it would choose is such an id.
        sampled = ("--tokens", 30, "--temperature", 3, "--json")
        text = json.loads(run("eval", directory, "--generate", "the", *sampled).stdout)
        self.assertEqual(text["generation"]["tokens"], 30)
        two = json.loads(run("eval", directory, "--generate", "the", *sampled, "--grid.pipeline", 2, ranks=2).stdout)
        self.assertEqual(two["generated"], text["generated"])
        ids = json.loads(run("eval", directory, "--generate", "640", "--ids", *sampled).stdout)["generated_ids"]
        self.assertFalse([token for token in ids if 645 <= token < 1400])
        self.assertGreater(len(set(ids)), 10)
        # A prompt of ids is not decoded.
        run("eval", directory, "--generate", "700", "--ids", "--tokens", 2)

    def test_files_of_other_programs(self):
        # The tokens of the tokens file, as nanoGPT writes them, and as Megatron does, in two parts.
        import array
        batch = json.loads(run("data", "batch", self.config, "--data.path", self.tokens, "--train.global_batch", 100,
                               "--train.micro_batch", 1, "--step", 1, "--json").stdout)
        tokens = [token for _, row in sorted(zip(batch["samples"], batch["tokens"])) for token in row]
        raw = array.array("H", tokens).tobytes()
        (self.folder / "train.bin").write_bytes(raw)
        (self.folder / "mega.bin").write_bytes(raw)
        (self.folder / "mega.idx").write_bytes(
            b"MMIDIDX\0\0" + (1).to_bytes(8, "little") + b"\x08" + (1).to_bytes(8, "little") + (2).to_bytes(8, "little") +
            len(tokens).to_bytes(4, "little") + (0).to_bytes(8, "little") + (0).to_bytes(8, "little") +
            (1).to_bytes(8, "little"))
        losses = []
        for name, path in (("nanogpt", self.folder / "train.bin"), ("megatron", self.folder / "mega")):
            directory = self.directory(name)
            self.train(directory, "--data.path", path, "--data.validation", self.folder / "train.bin",
                       "--model.vocabulary", 645, "--train.steps", 2)
            losses.append(series(directory, "loss"))
            self.assertIn("validation_loss", metrics(directory)[-1])
            self.assertIn("--tokenizer", run("eval", directory, "--generate", "x", check=2).stderr)
            run("eval", directory, "--generate", "x", "--tokens", 2, "--tokenizer", self.tokenizer)
        self.assertEqual(losses[0], losses[1])
        blend = f"0.25*{self.folder / 'train.bin'}, 0.75*{self.folder / 'mega.idx'}"
        done = self.train(self.directory("blend"), "--data.path", blend, "--model.vocabulary", 645, "--train.steps", 2)
        self.assertIn("75.0 %", done.stdout)
        self.assertIn("model.vocabulary", self.train(self.directory("none"), "--data.path", self.folder / "train.bin",
                                                     check=2).stderr)
        (self.folder / "mega.bin").write_bytes(raw[:-2])
        self.assertIn("mega.idx", self.train(self.directory("cut"), "--data.path", self.folder / "mega.idx",
                                             "--model.vocabulary", 645, check=5).stderr)

    def test_logs_say_where_and_how_far(self):
        directory = self.directory("run")
        began = time.time()
        done = self.train(directory, "--train.steps", 9, "--checkpoint.every", 4, "--log.every", 5).stdout
        self.assertTrue(done.startswith(f"run       {directory}"), done[:200])
        self.assertRegex(done, r"\nbuild  .*\nmodel  .*\ndata  .*\ngrid  .*\n(?s:.*)products  .*\nplan  ")
        steps = re.findall(r"^step +(\d+)/9 .* tok/s  mfu +[\d.]+ %  left (\d+:\d\d:\d\d)$", done, re.MULTILINE)
        self.assertEqual([int(step) for step, _ in steps], [1, 2, 3, 5, 9])
        self.assertEqual(steps[-1][1], "0:00:00")
        for step in (4, 8, 9):
            self.assertIn(f"checkpoint {directory}/checkpoints/step-{step} ", done)
        self.assertIn(f"next      garonne report {directory} · garonne eval {directory} --generate", done)
        rows = metrics(directory)
        self.assertEqual(len(rows), 9)
        times = [row["time"] for row in rows]
        self.assertEqual(times, sorted(times))
        self.assertTrue(began - 60 < times[0] <= times[-1] < time.time() + 60)
        self.assertTrue(all(row["utilisation"] > 0 for row in rows))
        self.assertLessEqual(max(map(len, done.splitlines())), 240)
        shown = subprocess.run([SOURCE / "scripts/follow", directory, "--csv", "-"], capture_output=True, text=True,
                               check=True, timeout=60).stdout.splitlines()
        self.assertEqual(len(shown), 10)
        self.assertEqual(shown[3].split(",")[0], "3")
        self.assertEqual(float(shown[3].split(",")[2]), rows[2]["loss"])

    def test_in_and_out_of_hugging_face(self):
        directory = self.directory("run")
        keys = ("--data.path", self.tokens, "--model.vocabulary", 645)
        self.train(directory, *keys, "--model.attention_dropout", 0.3, "--train.steps", 3)
        exported = self.exported(directory)
        folder = pathlib.Path(f"{directory}-export-None")
        self.assertEqual(json.loads((folder / "config.json").read_text())["attn_pdrop"], 0.3)
        imported = self.directory("imported")
        shown = run("checkpoint", "import", "--from", "huggingface", folder, "--output", imported).stdout
        self.assertIn("layers = 2", shown)
        self.assertIn("attention_dropout = 0.3", shown)
        # Byte for byte there and back, and the tokenizer with it.
        fresh = self.directory("fresh")
        done = self.train(fresh, *keys, "--train.steps", 2, "--init-from", imported, "--optimizer.warmup_steps", 0,
                          "--optimizer.learning_rate", 0, "--optimizer.minimum_learning_rate", 0,
                          "--optimizer.weight_decay", 0)
        self.assertIn("starts from the parameters of", done.stdout)
        self.assertEqual(self.exported(fresh), exported)
        self.assertEqual((imported / "tokenizer.json").read_text(), (directory / "tokenizer.json").read_text())
        # As large models come, in several files.
        sharded = self.directory("sharded")
        shutil.copytree(folder, sharded)
        cut_into_shards(sharded, 3)
        run("checkpoint", "import", "--from", "huggingface", sharded, "--output", self.directory("of-shards"))
        self.assertEqual(self.exported(self.directory("of-shards")), exported)
        self.assertEqual(self.exported(imported), exported)
        for file in folder.iterdir():
            self.assertEqual((pathlib.Path(f"{imported}-export-None") / file.name).read_bytes(), file.read_bytes(), file)
        # A branch of a run: other data, other rate, the same start.
        branch = self.directory("branch")
        self.train(branch, *keys, "--train.steps", 1, "--init-from", directory, "--optimizer.learning_rate", 1e-2)
        self.assertNotEqual(self.exported(branch), exported)
        on = self.train(branch, *keys, "--train.steps", 2, "--init-from", directory, "--optimizer.learning_rate", 1e-2)
        self.assertIn("is not looked at", on.stdout)
        # Two stages get their parts of it.
        run("train", self.config, "--run.directory", self.directory("grid"), *keys, "--grid.pipeline", 2, "--train.steps",
            2, "--init-from", imported, "--optimizer.warmup_steps", 0, "--optimizer.learning_rate", 0,
            "--optimizer.minimum_learning_rate", 0, "--optimizer.weight_decay", 0, ranks=2)
        self.assertEqual(self.exported(self.directory("grid")), exported)
        for change, text in (({"model_type": "bert"}, "model_type"), ({"n_inner": 5}, "n_inner"), ({"n_layer": 3}, "no tensor"),
                             ({"attn_pdrop": 1}, "attn_pdrop"), ({"embd_pdrop": 0.3}, "embd_pdrop = 0.3: must be resid_pdrop"),
                             ({"embd_pdrop": None, "resid_pdrop": 0.2}, "resid_pdrop = 0.2: must be embd_pdrop, 0.1"),
                             ({"n_embd": 64, "n_inner": None}, "shape"), ({"activation_function": "relu"}, "activation_function")):
            config = json.loads((folder / "config.json").read_text()) | change
            other = self.directory("other")
            shutil.copytree(folder, other, dirs_exist_ok=True)
            (other / "config.json").write_text(json.dumps(config))
            refused = run("checkpoint", "import", "--from", "huggingface", other, "--output", self.directory("no"), check=None)
            self.assertIn(refused.returncode, (2, 5))
            self.assertIn(text, refused.stderr)
            self.assertFalse(self.directory("no").exists())

    def imported_llama(self, name, tokenizer, generation=None, **changes):
        theirs = self.directory(f"theirs-{name}")
        random_llama(theirs, llama_config(vocab_size=660, **changes))
        (theirs / "tokenizer.json").write_text(json.dumps(tokenizer))
        if generation is not None:
            (theirs / "generation_config.json").write_text(json.dumps(generation))
        imported = self.directory(f"imported-{name}")
        run("checkpoint", "import", "--from", "huggingface", theirs, "--output", imported)
        return imported

    def test_what_begins_and_ends_texts_travels(self):
        # As Llama 3 has them.
        whole = small_tokenizer()
        special = whole["added_tokens"][0]
        whole["added_tokens"] = [special | {"content": "<|first|>"}] + whole["added_tokens"][1:] + [
            special | {"id": 645 + i, "content": f"<|{name}|>"} for i, name in enumerate(("begin_of_text", "end_of_text", "eot_id"))]
        of_bytes = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
        template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|begin_of_text|>", "type_id": 0}},
                                                             {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
                    "special_tokens": {"<|begin_of_text|>": {"id": "<|begin_of_text|>", "ids": [645],
                                                             "tokens": ["<|begin_of_text|>"]}}}
        whole["post_processor"] = {"type": "Sequence", "processors": [of_bytes, template]}
        names = ("bos_token", "eos_token")
        for case, changes, generation, begin, end, texts in (
                ("said", {"bos_token_id": 645, "eos_token_id": 647}, {"eos_token_id": [646, 647]}, 645, [647, 646],
                 ["<|begin_of_text|>", "<|eot_id|>"]),
                ("one", {"bos_token_id": 645, "eos_token_id": [646]}, None, 645, 646, ["<|begin_of_text|>", "<|end_of_text|>"]),
                ("silent", {}, None, 645, 646, ["<|begin_of_text|>", "<|end_of_text|>"])):
            with self.subTest(case):
                imported = self.imported_llama(case, whole, generation, **changes)
                target = self.directory(f"export-{case}")
                shown = run("checkpoint", "export", imported, "--to", "huggingface", target).stdout
                self.assertIn("note: tokenizer.json is without the TemplateProcessing", shown)
                for file in ("config.json", "generation_config.json"):
                    config = json.loads((target / file).read_text())
                    self.assertEqual((config["bos_token_id"], config["eos_token_id"]), (begin, end), file)
                config = json.loads((target / "tokenizer_config.json").read_text())
                self.assertEqual([config[name] for name in names], texts)
                self.assertEqual(json.loads((target / "tokenizer.json").read_text()), whole | {"post_processor": of_bytes})
                # There and back: all as it was, and nothing to leave out any more.
                again = self.directory(f"again-{case}")
                run("checkpoint", "import", "--from", "huggingface", target, "--output", again)
                shown = run("checkpoint", "export", again, "--to", "huggingface", self.directory(f"back-{case}")).stdout
                self.assertNotIn("note:", shown)
                for file in target.iterdir():
                    self.assertEqual((self.directory(f"back-{case}") / file.name).read_bytes(), file.read_bytes(), file)
                # A text of its own begins with what begins texts, and each of the ends ends one.
                empty = run("eval", imported, "--generate", "", "--tokens", 6, "--json").stdout
                ids = ("--ids", "--tokens", 6, "--json")
                wanted = json.loads(run("eval", imported, "--generate", 645, *ids).stdout)["generated_ids"]
                own = json.loads(run("eval", again, "--generate", 645, *ids).stdout)["generated_ids"]
                self.assertEqual(own, wanted)
                self.assertEqual(json.loads(empty)["generation"]["tokens"], len(wanted))
        refused = run("checkpoint", "import", "--from", "huggingface", self.directory("theirs-said"), "--output",
                      self.directory("imported-said"), check=2)
        self.assertIn("not empty", refused.stderr)
        # As transformers' GPT2Config has them for any vocabulary.
        outside = self.directory("theirs-outside")
        random_llama(outside, llama_config(vocab_size=660, bos_token_id=660, eos_token_id=[-1, 3, 50256]))
        warned = run("checkpoint", "import", "--from", "huggingface", outside, "--output", self.directory("outside")).stderr
        for words in ("bos_token_id = 660 is outside the vocabulary of 660", "eos_token_id = -1", "eos_token_id = 50256"):
            self.assertIn(words, warned)
        run("checkpoint", "export", self.directory("outside"), "--to", "huggingface", self.directory("outside-export"))
        config = json.loads((self.directory("outside-export") / "config.json").read_text())
        self.assertEqual((config["bos_token_id"], config["eos_token_id"]), (None, 3))
        random_llama(outside, llama_config(vocab_size=660, bos_token_id="3"))
        self.assertIn("bos_token_id", run("checkpoint", "import", "--from", "huggingface", outside, "--output",
                                          self.directory("none"), check=2).stderr)

    def test_a_prompt_begins_as_the_model_learned(self):
        whole = small_tokenizer()
        whole["added_tokens"].append(whole["added_tokens"][0] | {"id": 645, "content": "<|begin_of_text|>"})
        imported = self.imported_llama("begins", whole)
        as_text, plain, begun = (
            json.loads(run("eval", imported, "--generate", text, "--tokens", 8, "--temperature", 0, "--json", *more).stdout)["generated"]
            for text, more in (("<|begin_of_text|>the", ()), ("the", ()), ("the", ("--begin",))))
        self.assertEqual(begun, as_text)
        self.assertNotEqual(begun, plain)
        none = self.imported_llama("begins-none", small_tokenizer("qwen") | {"added_tokens": []})
        self.assertIn("--begin", run("eval", none, "--generate", "the", "--begin", check=2).stderr)
        self.assertIn("--begin", run("eval", imported, "--generate", "5", "--ids", "--begin", check=2).stderr)

    def test_each_end_of_a_model_ends_a_text(self):
        whole = small_tokenizer()
        free = self.imported_llama("free", whole)
        sampled = ("--generate", "the", "--tokens", 20, "--temperature", 2, "--json", "--ids")
        ids = json.loads(run("eval", free, *(sampled[0], "5", *sampled[2:])).stdout)["generated_ids"]
        self.assertEqual(len(ids), 20)
        ending = self.imported_llama("ending", whole, {"eos_token_id": [640, ids[7]]})
        cut = json.loads(run("eval", ending, *(sampled[0], "5", *sampled[2:])).stdout)["generated_ids"]
        self.assertEqual(cut, ids[:ids.index(ids[7]) + 1])
        shown = run("eval", ending, *(sampled[0], "5", *sampled[2:-2]), "--ids").stdout
        self.assertRegex(shown, rf"\n{len(cut)} tokens?, which the model ended in ")
        # One that the tokenizer does not have, beside others that it does not have either.
        beyond = self.imported_llama("beyond", whole, {"eos_token_id": list(range(650, 660))})
        several = run("eval", beyond, "--generate", "5", "--ids", "--tokens", 20, "--temperature", 5, "--continuations", 30, "--json")
        made = json.loads(several.stdout)["continuation_ids"]
        self.assertTrue(all(token < 645 for ids in made for token in ids[:-1]))
        self.assertFalse([ids for ids in made if 645 <= ids[-1] < 650])
        self.assertTrue([ids for ids in made if ids[-1] >= 650])

    def test_an_export_leaves_no_other_tokenizer(self):
        model = SOURCE / "tests/data/tokenizers/sentencepiece/bpe-bytes.model"
        tokens = self.folder / "pieces-export.h5"
        run("data", "text", self.folder / "train.txt", "--validation", self.folder / "validation.txt", "--output", tokens,
            "--tokenizer", model)
        pieces, of_bytes = self.directory("pieces"), self.directory("bytes")
        self.train(pieces, "--data.path", tokens, "--train.steps", 1)
        self.train(of_bytes, "--train.steps", 1)
        target, had = self.directory("export"), False
        for directory, there, gone in ((pieces, "tokenizer.model", "tokenizer.json"), (of_bytes, "tokenizer.json", "tokenizer.model"),
                                       (pieces, "tokenizer.model", "tokenizer.json")):
            said = run("checkpoint", "export", directory, "--to", "huggingface", target).stdout
            self.assertEqual(f"removed what an earlier export wrote: {gone}" in said, had)
            had = True
            self.assertTrue((target / there).exists())
            self.assertFalse((target / gone).exists())
            self.assertTrue((target / "tokenizer_config.json").exists())
        # What nobody exported stays, and is refused where it would be taken for the export's.
        other = self.directory("other")
        other.mkdir()
        shutil.copy(model, other)
        shutil.move(other / model.name, other / "tokenizer.model")
        refused = run("checkpoint", "export", of_bytes, "--to", "huggingface", other, check=2).stderr
        self.assertIn("tokenizer.model", refused)
        self.assertEqual([file.name for file in other.iterdir()], ["tokenizer.model"])

    def test_an_export_takes_no_files_of_its_user(self):
        (self.folder / "nano.bin").write_bytes(array.array("H", [i * i % 256 for i in range(4000)]).tobytes())
        nameless, of_bytes = self.directory("nameless"), self.directory("of-bytes")
        self.train(nameless, "--data.path", self.folder / "nano.bin", "--model.vocabulary", 256, "--train.steps", 1)
        self.train(of_bytes, "--train.steps", 1)
        target = self.directory("to")

        def export(source, *options, **checks):
            done = run("checkpoint", "export", source, "--to", "huggingface", target, *options, **checks)
            return done.stdout + done.stderr

        export(nameless)
        theirs = {"tokenizer.json": self.tokenizer.read_bytes(), "tokenizer_config.json": b"{}", "tokenizer.model": b"\x0a"}
        for name, content in theirs.items():
            (target / name).write_bytes(content)
        self.assertNotIn("removed", export(nameless))
        self.assertIn("replaced or taken for", export(of_bytes, check=2))
        self.assertEqual({name: (target / name).read_bytes() for name in theirs}, theirs)
        (target / "tokenizer_config.json").unlink()
        (target / "tokenizer.json").unlink()
        self.assertIn("holds a tokenizer.model", export(of_bytes, check=2))
        (target / "tokenizer.model").unlink()
        # Its own are replaced, and removed where there is none any more, as long as nobody has changed them.
        export(of_bytes)
        export(of_bytes)
        said = export(nameless)
        self.assertIn("removed what an earlier export wrote: tokenizer_config.json, tokenizer.json", said)
        self.assertFalse((target / "tokenizer.json").exists())
        export(of_bytes)
        config = target / "tokenizer_config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | {"chat_template": "mine"}))
        self.assertIn("tokenizer_config.json", export(of_bytes, check=2))
        self.assertIn("wrote: tokenizer.json\n", export(nameless))
        self.assertIn("mine", config.read_text())

    def test_a_prompt_that_is_no_tokens(self):
        theirs = (SOURCE / "tests/data/tokenizers/sentencepiece/unigram.model").read_bytes()

        def without(model, piece):
            entry = b"\x0a" + bytes([len(piece)]) + piece + b"\x15\0\0\0\0\x18"
            self.assertEqual(model.count(entry + b"\x03"), 1)
            # An unused piece in the place of a mark.
            return model.replace(entry + b"\x03", entry + b"\x05")

        for name, model in (("end", without(theirs, b"<s>")), ("neither", without(without(theirs, b"<s>"), b"</s>"))):
            tokenizer = self.folder / f"{name}.model"
            tokenizer.write_bytes(model)
            tokens = self.folder / f"{name}.h5"
            run("data", "text", self.folder / "train.txt", "--output", tokens, "--tokenizer", tokenizer)
            directory = self.directory(name)
            self.train(directory, "--data.path", tokens, "--data.validation", tokens, "--train.steps", 1)
            for ranks, grid in ((0, ()), (2, ("--grid.pipeline", 2))):
                for prompt in ("", "  "):
                    done = run("eval", directory, "--generate", prompt, "--tokens", 3, *grid, ranks=ranks,
                               check=0 if name == "end" else 2)
                    if name == "neither":
                        self.assertIn("--generate", done.stderr)
                        self.assertEqual(done.stderr.count("garonne:"), 1, done.stderr)
            run("eval", directory, "--generate", "the", "--tokens", 3)

    def test_models_of_sentencepiece_travel(self):
        model = SOURCE / "tests/data/tokenizers/sentencepiece/bpe-bytes.model"
        tokens = self.folder / "pieces.h5"
        run("data", "text", self.folder / "train.txt", "--validation", self.folder / "validation.txt", "--output", tokens,
            "--tokenizer", model)
        info = json.loads(run("data", "inspect", tokens, "--json").stdout)
        self.assertRegex(info["tokenizer"], "^sentencepiece:[0-9a-f]{16}$")
        self.assertEqual(info["vocabulary"], 556)
        directory = self.directory("run")
        keys = ("--model.kind", "llama", "--model.dropout", 0)
        self.train(directory, *keys, "--data.path", tokens, "--train.steps", 2)
        self.assertEqual((directory / "tokenizer.model").read_bytes(), model.read_bytes())
        moved = self.directory("moved")
        shutil.move(directory, moved)
        shown = json.loads(run("eval", moved, "--generate", "the quick", "--tokens", 12, "--json").stdout)
        self.assertTrue(shown["generated"])
        run("eval", moved, "--generate", "the quick", "--tokens", 2, "--tokenizer", model)
        run("eval", moved, "--generate", "", "--tokens", 2)
        weights = self.exported(moved)
        target = pathlib.Path(f"{moved}-export-None")
        self.assertEqual((target / "tokenizer.model").read_bytes(), model.read_bytes())
        self.assertFalse((target / "tokenizer.json").exists())
        config = json.loads((target / "tokenizer_config.json").read_text())
        self.assertEqual((config["bos_token"], config["eos_token"], config["unk_token"]), ("<s>", "</s>", "<unk>"))
        self.assertEqual(config["tokenizer_class"], "LlamaTokenizer")
        for name, wanted, said in (("bpe", "SentencePieceBackend", ""), ("unigram-symbols", "SentencePieceBackend", "<0x0A>"),
                                   ("bpe-bytes", "LlamaTokenizer", "leaves out a space")):
            other = self.directory(f"as-{name}")
            given = SOURCE / f"tests/data/tokenizers/sentencepiece/{name}.model"
            shown = run("checkpoint", "export", moved, "--to", "huggingface", other, "--tokenizer", given).stdout
            self.assertEqual(json.loads((other / "tokenizer_config.json").read_text())["tokenizer_class"], wanted)
            self.assertIn(said, shown)
            self.assertEqual("note:" in shown, bool(said))
        for name in ("config.json", "generation_config.json"):
            config = json.loads((target / name).read_text())
            self.assertEqual((config["bos_token_id"], config["eos_token_id"]), (1, 2))
        imported = self.directory("imported")
        run("checkpoint", "import", "--from", "huggingface", target, "--output", imported)
        self.assertEqual((imported / "tokenizer.model").read_bytes(), model.read_bytes())
        self.assertEqual(self.exported(imported), weights)
        for file in target.iterdir():
            self.assertEqual((pathlib.Path(f"{imported}-export-None") / file.name).read_bytes(), file.read_bytes(), file)
        self.train(self.directory("fresh"), *keys, "--data.path", tokens, "--train.steps", 1, "--init-from", imported)
        refused = run("data", "text", self.folder / "train.txt", "--output", self.folder / "none.h5", "--tokenizer",
                      self.folder / "train.model", check=2).stderr
        self.assertIn(".model of SentencePiece", refused)
        (self.folder / "broken.model").write_bytes(model.read_bytes()[:-7])
        refused = run("data", "text", self.folder / "train.txt", "--output", self.folder / "none.h5", "--tokenizer",
                      self.folder / "broken.model", check=2).stderr
        self.assertIn("broken.model", refused)
        # What transformers makes of such a model.
        whole = small_tokenizer()
        whole["model"]["byte_fallback"] = True
        (self.folder / "llama2.json").write_text(json.dumps(whole))
        refused = run("data", "text", self.folder / "train.txt", "--output", self.folder / "none.h5", "--tokenizer",
                      self.folder / "llama2.json", check=2).stderr
        self.assertIn(".model file", refused)

    def test_refusals(self):
        for text, tokenizer in (("neither", "gpt2"), ("model", self.config), ("model.type", self.folder / "words.json")):
            (self.folder / "words.json").write_text(json.dumps(
                small_tokenizer() | {"model": {"type": "WordLevel", "vocab": {}}}))
            with self.subTest(text):
                refused = run("data", "text", self.folder / "train.txt", "--output", self.folder / "none.h5",
                              "--tokenizer", tokenizer, check=2).stderr
                self.assertIn(text if tokenizer != self.config else "JSON", refused)
        self.assertFalse((self.folder / "none.h5").exists())


if __name__ == "__main__":
    unittest.main()
