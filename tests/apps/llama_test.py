# SPDX-License-Identifier: MIT
"""Llama end to end: the same training on every grid and plan, restarts to the bit, text, and Hugging Face's layout."""
import json
import pathlib
import shutil
import unittest

from huggingface_files import cut_into_shards, llama_config, llama_loss, random_llama, read_safetensors
from support import ProgramTest, check_peaks_of_ranks, metrics, run, series

SIZES = {"layers": 4, "hidden": 48, "heads": 4, "kv_heads": 2, "inner": 80, "sequence": 32, "dropout": 0}
MODEL = ["--model.kind", "llama", *(word for key, value in SIZES.items() for word in (f"--model.{key}", value))]
SHORT = ("--train.steps", 4, "--train.global_batch", 8, "--train.micro_batch", 2)
GRIDS = [
    (2, 1, 1, ("--grid.zero", 3)),
    (1, 2, 1, ()),
    (1, 1, 2, ("--grid.sequence_parallel", "true")),
]


class LlamaTest(ProgramTest):
    def train_llama(self, directory, *overrides, **options):
        return self.train(directory, *MODEL, *SHORT, *overrides, **options)

    def test_grids_train_the_same_model(self):
        for tied in ("false", "true"):
            keys = ("--train.precision", "float64", "--model.tied_embeddings", tied)
            one = self.directory(f"one-{tied}")
            self.train_llama(one, *keys)
            for data, pipeline, tensor, more in GRIDS:
                with self.subTest(data=data, pipeline=pipeline, tensor=tensor, tied=tied):
                    ranks = data * pipeline * tensor
                    directory = self.directory(f"{data}-{pipeline}-{tensor}-{tied}")
                    self.train_llama(directory, *keys, "--grid.data", data, "--grid.pipeline", pipeline, "--grid.tensor",
                                     tensor, *more, ranks=ranks)
                    check_peaks_of_ranks(self, directory, ranks)
                    for key in ("loss", "gradient_norm"):
                        for mine, wanted in zip(series(directory, key), series(one, key), strict=True):
                            self.assertLessEqual(abs(mine - wanted), 1e-9 * abs(wanted), key)
                    self.assertAlmostEqual(metrics(directory)[-1]["validation_loss"], metrics(one)[-1]["validation_loss"],
                                           delta=1e-9)

    def test_plans_and_restarts_change_no_bit(self):
        for precision in ("float32", "bfloat16"):
            keys = ("--train.precision", precision)
            kept = self.directory(f"kept-{precision}")
            self.train_llama(kept, *keys, "--memory.plan", "keep-all")
            plan = json.loads(run("plan", self.config, *MODEL, *SHORT, *keys, "--json").stdout)
            least = plan["minimum_budget_bytes"]
            tight = self.directory(f"tight-{precision}")
            self.train_llama(tight, *keys, "--memory.budget", least)
            self.assertTrue(all(row["peak_bytes"] <= least for row in metrics(tight)))
            self.assertEqual(self.exported(tight), self.exported(kept))
            refused = self.train_llama(self.directory(f"below-{precision}"), *keys, "--memory.budget", least - 1, check=3)
            self.assertIn(str(least), refused.stderr)
            halves = self.directory(f"halves-{precision}")
            self.train_llama(halves, *keys, "--train.stop_after", 2, check=75)
            self.train_llama(halves, *keys)
            self.assertEqual(series(halves, "loss"), series(kept, "loss"))
            self.assertEqual(self.exported(halves), self.exported(kept))

    def test_text_and_hugging_faces_layout(self):
        directory = self.directory("export")
        said = self.train_llama(directory).stdout
        self.assertIn("4 heads, 2 of keys and values, inner width 80", said)
        text = run("eval", directory, "--generate", "the ", "--tokens", 12).stdout
        self.assertIn("the ", text)
        target = self.folder / "llama-export"
        run("checkpoint", "export", directory, "--to", "huggingface", target)
        config = json.loads((target / "config.json").read_text())
        self.assertEqual((config["model_type"], config["num_key_value_heads"], config["intermediate_size"],
                          config["tie_word_embeddings"]), ("llama", 2, 80, False))
        content = (target / "model.safetensors").read_bytes()
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        shapes = {name: tensor["shape"] for name, tensor in header.items() if name != "__metadata__"}
        vocabulary = config["vocab_size"]
        self.assertEqual(len(shapes), 4 * 9 + 3)
        self.assertEqual(shapes["model.embed_tokens.weight"], [vocabulary, 48])
        self.assertEqual(shapes["lm_head.weight"], [vocabulary, 48])
        self.assertEqual([shapes[f"model.layers.3.self_attn.{part}_proj.weight"] for part in "qkvo"],
                         [[48, 48], [24, 48], [24, 48], [48, 48]])
        self.assertEqual([shapes[f"model.layers.0.mlp.{part}_proj.weight"] for part in ("gate", "up", "down")],
                         [[80, 48], [80, 48], [48, 80]])

    def test_there_and_back_again(self):
        for tied in ("false", "true"):
            directory = self.directory(f"run-{tied}")
            self.train_llama(directory, "--model.tied_embeddings", tied, "--model.rope_theta", 500, "--train.steps", 2)
            weights = self.exported(directory)
            folder = pathlib.Path(f"{directory}-export-None")
            for shards in (1, 3):
                with self.subTest(tied=tied, shards=shards):
                    if shards > 1:
                        cut_into_shards(folder, shards)
                    imported = self.directory(f"imported-{tied}-{shards}")
                    shown = run("checkpoint", "import", "--from", "huggingface", folder, "--output", imported).stdout
                    for line in ('kind = "llama"', "kv_heads = 2", "inner = 80", "rope_theta = 500",
                                 f"tied_embeddings = {tied}"):
                        self.assertIn(line, shown)
                    self.assertEqual(self.exported(imported), weights)
                    again = pathlib.Path(f"{imported}-export-None")
                    for file in ("config.json", "generation_config.json"):
                        self.assertEqual((again / file).read_bytes(), (folder / file).read_bytes(), file)

    def loss_of_imported(self, folder, config, name):
        """The loss of the first step from it, and the sample that it is of."""
        imported = self.directory(f"imported-{name}")
        run("checkpoint", "import", "--from", "huggingface", folder, "--output", imported)
        keys = []
        for ours, theirs in (("layers", "num_hidden_layers"), ("hidden", "hidden_size"), ("heads", "num_attention_heads"),
                             ("kv_heads", "num_key_value_heads"), ("inner", "intermediate_size"),
                             ("sequence", "max_position_embeddings"), ("norm_epsilon", "rms_norm_eps")):
            keys += [f"--model.{ours}", config[theirs]]
        keys += ["--model.kind", "llama", "--model.dropout", 0, "--model.rope_theta", 500, "--train.global_batch", 1,
                 "--model.tied_embeddings", str(config["tie_word_embeddings"]).lower(), "--train.micro_batch", 1]
        batch = json.loads(run("data", "batch", self.config, *keys, "--step", 1, "--json").stdout)
        directory = self.directory(f"started-{name}")
        self.train(directory, *keys, "--train.steps", 1, "--init-from", imported)
        return series(directory, "loss")[0], batch, imported

    def test_imported_ones_compute_what_theirs_do(self):
        for name, dtype, changes in (
                ("plain", "F32", {}), ("tied", "F16", {"tie_word_embeddings": True}), ("single", "BF16", {"num_key_value_heads": 1}),
                ("new", "F32", {"rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}})):
            with self.subTest(name):
                folder = self.directory(f"theirs-{name}")
                config = llama_config(**changes)
                weights = random_llama(folder, config, dtype)
                loss, batch, imported = self.loss_of_imported(folder, config, name)
                wanted = llama_loss(config | {"rope_theta": 500.0}, weights, batch["tokens"][0], batch["targets"][0])
                self.assertAlmostEqual(loss, wanted, delta=2e-6 * wanted)
                # The numbers of the file, whatever its type.
                self.exported(imported)
                tensors = read_safetensors(f"{imported}-export-None/model.safetensors")
                _, shape, content = tensors["model.layers.1.self_attn.k_proj.weight"]
                rows = memoryview(content).cast("f", shape).tolist()
                self.assertEqual(rows, weights["model.layers.1.self_attn.k_proj.weight"])

    def test_other_models_are_refused(self):
        folder = self.directory("theirs")
        random_llama(folder, llama_config())
        for change, texts in (
                ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, ["rope_scaling.rope_type", "llama3"]),
                ({"rope_scaling": {"type": "linear", "factor": 2.0}}, ["rope_scaling.type", "linear"]),
                ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, ["rope_parameters.rope_type", "yarn"]),
                ({"attention_bias": True}, ["attention_bias", "no biases"]), ({"mlp_bias": True}, ["mlp_bias"]),
                ({"head_dim": 8}, ["head_dim", "4"]), ({"sliding_window": 4}, ["sliding_window"]),
                ({"rope_theta": 0}, ["rope_theta", "1"]), ({"rms_norm_eps": 2.0}, ["rms_norm_eps"]),
                ({"max_position_embeddings": 2**30 + 1}, ["max_position_embeddings"]),
                ({"hidden_act": "gelu"}, ["hidden_act", "silu"]), ({"num_key_value_heads": 3}, ["num_key_value_heads"]),
                ({"model_type": "qwen2"}, ["model_type", "biases"]), ({"model_type": "bert"}, ["known are gpt2"]),
                ({"num_hidden_layers": 3}, ["no tensor model.layers.2"]), ({"num_hidden_layers": 1}, ["none of a Llama"]),
                ({"intermediate_size": 20}, ["shape", "[24, 16]"]),
                ({"tie_word_embeddings": True}, ["head of its own"]), ({"hidden_size": None}, ["hidden_size"])):
            with self.subTest(change):
                other = self.directory("other")
                shutil.copytree(folder, other, dirs_exist_ok=True)
                (other / "config.json").write_text(json.dumps(llama_config() | change))
                refused = run("checkpoint", "import", "--from", "huggingface", other, "--output", self.directory("no"),
                              check=None)
                self.assertIn(refused.returncode, (2, 5))
                for text in texts:
                    self.assertIn(text, refused.stderr)
                self.assertFalse(self.directory("no").exists())

    def test_weights_need_no_tokenizer(self):
        folder, imported = self.directory("odd-tokenizer"), self.directory("imported-odd-tokenizer")
        random_llama(folder, llama_config())
        (folder / "tokenizer.json").write_text(json.dumps({"model": {"type": "WordPiece", "vocab": {"a": 0}}}))
        done = run("checkpoint", "import", "--from", "huggingface", folder, "--output", imported)
        for words in ("warning: the model is imported without its tokenizer: ", "tokenizer.json", "WordPiece", "--ids"):
            self.assertIn(words, done.stderr)
        ids = ("eval", imported, "--ids", "--generate", "5 6", "--tokens", 4, "--temperature", 0, "--json")
        plain = self.directory("imported-plain")
        (folder / "tokenizer.json").unlink()
        self.assertNotIn("tokenizer", run("checkpoint", "import", "--from", "huggingface", folder, "--output", plain).stderr)
        self.assertEqual(run(*ids).stdout.count("generated_ids"), 1)
        self.assertEqual(self.exported(imported), self.exported(plain))

    def test_defaults_of_mistral(self):
        """Those of transformers' MistralConfig: a window of 4,096 and 8 heads of keys where the file says nothing."""
        mistral = llama_config() | {"model_type": "mistral"}
        folder = self.directory("mistral")
        random_llama(folder, mistral)
        without_heads = {key: value for key, value in mistral.items() if key != "num_key_value_heads"}
        long = {"max_position_embeddings": 8192}
        for config, words in (
                (mistral, ()), (mistral | {"sliding_window": None} | long, ()), (mistral | {"sliding_window": 8192} | long, ()),
                (mistral | long, ("max_position_embeddings = 8192", "window of 4096")),
                (mistral | {"sliding_window": 4096, "use_sliding_window": False} | long, ("sliding_window = 4096",)),
                (without_heads, ("num_attention_heads", "8")),
                # Llamas have no window, whatever their files say that they do not use.
                (llama_config() | {"sliding_window": 4096, "use_sliding_window": False} | long, ())):
            with self.subTest(config):
                (folder / "config.json").write_text(json.dumps(config))
                output = self.directory("imported-mistral")
                shutil.rmtree(output, ignore_errors=True)
                done = run("checkpoint", "import", "--from", "huggingface", folder, "--output", output, check=None)
                self.assertEqual(done.returncode != 0, bool(words), done.stderr)
                for word in words:
                    self.assertIn(word, done.stderr)

    def test_what_does_not_fit_is_named(self):
        for keys, named in ((("--model.kv_heads", 3), "model.kv_heads"), (("--model.heads", 16, "--model.kv_heads", 16),
                                                                         "model.heads"),
                            (("--grid.tensor", 4), "grid.tensor"), (("--model.dropout", 0.1), "model.dropout"),
                            (("--model.attention_dropout", 0.1), "model.attention_dropout")):
            with self.subTest(named):
                refused = run("plan", self.config, *MODEL, *keys, check=2).stderr
                self.assertIn(named, refused)


if __name__ == "__main__":
    unittest.main()
