# SPDX-License-Identifier: MIT
"""Llama end to end: the same training on every grid and plan, restarts to the bit, text, and Hugging Face's layout."""
import json
import unittest

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

    def test_what_does_not_fit_is_named(self):
        for keys, named in ((("--model.kv_heads", 3), "model.kv_heads"), (("--model.heads", 16, "--model.kv_heads", 16),
                                                                         "model.heads"),
                            (("--grid.tensor", 4), "grid.tensor"), (("--model.dropout", 0.1), "model.dropout")):
            with self.subTest(named):
                refused = run("plan", self.config, *MODEL, *keys, check=2).stderr
                self.assertIn(named, refused)


if __name__ == "__main__":
    unittest.main()
