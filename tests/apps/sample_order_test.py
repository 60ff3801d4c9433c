# SPDX-License-Identifier: MIT
"""Which samples a step reads is the same on every grid, also where a run goes on on another one.

Each sample is one token of its own, again and again. The gradient of an embedding that is not the output's reaches the rows of
tokens that were read and no others, so the rows that a step changes name its samples."""
import os
import unittest

from grid_test import keys_of, name_of
from support import ProgramTest, checkpoint_tensors, run

ALL = os.environ.get("GARONNE_ALL_ORDERS") == "1"
# Of the order, 128 Ki tokens are a block: two blocks of samples, of which the second is not full.
SEQUENCE = 1024
SAMPLES = 132
BATCH = 8
# Into the second epoch.
STEPS = 18
GRIDS = [
    (2, 1, 1, {"zero": 3}),
    (1, 2, 1, {"schedule": "zb-h1"}),
    (1, 1, 2, {"sequence_parallel": "true"}),
    (2, 2, 1, {"zero": 1}),
]
# Of more layers, or of more ranks.
FURTHER = [
    (1, 2, 1, {"schedule": "zb-v"}),
    (1, 2, 1, {"schedule": "interleaved", "chunks": 2}),
    (1, 2, 2, {"schedule": "chimera"}),
    (1, 4, 1, {}),
    (4, 1, 1, {"zero": 2}),
    (4, 2, 1, {"zero": 3}),
    (2, 2, 2, {"zero": 2, "sequence_parallel": "true"}),
]
ONE_RANK = (1, 1, 1, {})
OPTIONS = ["--model.kind", "llama", "--model.tied_embeddings", "false", "--model.dropout", 0, "--model.hidden", 8, "--model.heads", 2,
           "--model.kv_heads", 2, "--model.layers", 4 if ALL else 2, "--model.sequence", SEQUENCE, "--train.precision", "float64",
           "--train.micro_batch", 1, "--optimizer.name", "sgd", "--optimizer.beta1", 0, "--optimizer.weight_decay", 0,
           "--optimizer.warmup_steps", 0, "--evaluation.batches", 0, "--checkpoint.every", 1, "--checkpoint.keep", 1000]


class SampleOrderTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.samples = cls.folder / "samples.h5"
        (cls.folder / "samples.txt").write_bytes(b"".join(bytes([token]) * SEQUENCE for token in range(SAMPLES)) + b"\0")
        run("data", "text", cls.folder / "samples.txt", "--output", cls.samples)

    def start(self, directory, grid, *options, stop_after=0):
        data, pipeline, tensor, _ = grid
        self.train(directory, *OPTIONS, "--data.path", self.samples, *keys_of(grid, self.folder), "--train.stop_after", stop_after,
                   *options, ranks=data * pipeline * tensor, check=75 if stop_after else 0)

    @staticmethod
    def rows_after(directory, step):
        tensors = checkpoint_tensors(directory / "checkpoints" / f"step-{step}")
        (tokens, hidden), values = tensors["token_embedding.weight"]
        return [values[token * hidden : (token + 1) * hidden] for token in range(tokens)]

    def samples_of_steps(self, directory):
        """Of each step, in ascending order."""
        rows, found = self.initial, []
        for step in range(1, len(list((directory / "checkpoints").glob("step-*"))) + 1):
            after = self.rows_after(directory, step)
            found.append([token for token, row in enumerate(after) if row != rows[token]])
            rows = after
        return found

    def test_steps_read_the_same_samples_on_every_grid(self):
        still = self.directory("nothing changes")
        self.start(still, ONE_RANK, "--train.global_batch", 1, "--train.steps", 1, "--optimizer.learning_rate", 0,
                   "--optimizer.minimum_learning_rate", 0)
        self.initial = self.rows_after(still, 1)
        alone = self.directory("one sample a step")
        self.start(alone, ONE_RANK, "--train.global_batch", 1, "--train.steps", BATCH * STEPS)
        found = self.samples_of_steps(alone)
        self.assertEqual([len(samples) for samples in found], [1] * BATCH * STEPS)
        order = [sample for (sample,) in found]
        self.assertEqual(sorted(order[:SAMPLES]), list(range(SAMPLES)))
        self.assertNotEqual(order[:SAMPLES], sorted(order[:SAMPLES]))
        self.assertNotEqual(order[SAMPLES:], order[: len(order) - SAMPLES])
        wanted = [sorted(set(order[k : k + BATCH])) for k in range(0, len(order), BATCH)]

        with self.subTest("each grid goes on where another one stopped"):
            directory = self.directory("one after the other")
            for number, grid in enumerate(GRIDS):
                self.start(directory, grid, "--train.global_batch", BATCH, "--train.steps", STEPS,
                           stop_after=5 if number + 1 < len(GRIDS) else 0)
            self.assertEqual(self.samples_of_steps(directory), wanted)
        for grid in GRIDS + FURTHER if ALL else ():
            with self.subTest(grid=name_of(grid)):
                directory = self.directory(name_of(grid))
                self.start(directory, grid, "--train.global_batch", BATCH, "--train.steps", STEPS)
                self.assertEqual(self.samples_of_steps(directory), wanted)


if __name__ == "__main__":
    unittest.main()
