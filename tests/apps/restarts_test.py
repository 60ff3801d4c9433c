# SPDX-License-Identifier: MIT
"""A state that is trained on one grid, goes through a run on another one and comes back is the same to the last bit.

The runs that only hand it on make a step that changes nothing: learning rate 0, gradients clipped to nothing, and decays of the
moments that are 1 in single precision. So what each of them read, held and saved can be compared as it is. Pairs of grids,
models, optimizers and precisions are drawn by seed: GARONNE_RESTARTS = A:B does those from A to below B."""
import os
import random
import struct
import unittest

from grid_test import GRIDS, LLAMA, keys_of, name_of
from support import ProgramTest, checkpoint_tensors, metrics

SEEDS = range(*map(int, os.environ.get("GARONNE_RESTARTS", "6:8").split(":")))
TRAINED = 2
MOST_RANKS = 4
# A decay below 1, which the limits of the keys ask for, that rounds to 1 in single precision.
NEARLY_ONE = 1 - 2**-53
NOTHING = {"learning_rate": 0, "minimum_learning_rate": 0, "clip_norm": 1e-60, "beta1": NEARLY_ONE, "beta2": NEARLY_ONE}
HAVE_BETA2 = ("adamw", "lamb", "lion")
OPTIONS = ["--model.layers", 6, "--train.global_batch", 8, "--train.micro_batch", 1, "--train.steps", 20, "--evaluation.batches", 0,
           "--checkpoint.keep", 5]


def pair_of(seed):
    """(grid, another one, is of a llama, optimizer, precision)"""
    draw = random.Random(f"restart {seed}")
    first, second = draw.sample([grid for grid in GRIDS if grid[0] * grid[1] * grid[2] <= MOST_RANKS], 2)
    llama = draw.random() < 0.3 and max(first[2], second[2]) <= 2
    return first, second, llama, draw.choice([*HAVE_BETA2, "sgd"]), ("float32", "bfloat16")[seed % 2]


class RestartsTest(ProgramTest):
    def go_on(self, directory, grid, options, steps):
        self.train(directory, *OPTIONS, *options, *keys_of(grid, self.folder), "--train.stop_after", steps,
                   ranks=grid[0] * grid[1] * grid[2], check=75)
        return directory / "checkpoints" / f"step-{metrics(directory)[-1]['step']}"

    def test_a_state_that_comes_back_from_another_grid_is_the_same_to_the_bit(self):
        for seed in SEEDS:
            first, second, llama, optimizer, precision = pair_of(seed)
            with self.subTest(seed=seed, first=name_of(first), second=name_of(second), llama=llama, optimizer=optimizer,
                              precision=precision):
                options = [*(LLAMA if llama else ()), "--optimizer.name", optimizer, "--train.precision", precision]
                nothing = []
                for key, value in NOTHING.items():
                    if key != "beta2" or optimizer in HAVE_BETA2:
                        nothing += [f"--optimizer.{key}", value, "--change", f"optimizer.{key}"]
                directory = self.directory(f"restart {seed}")
                trained = self.go_on(directory, first, options, TRAINED)
                away = self.go_on(directory, second, [*options, *nothing], 1)
                back = self.go_on(directory, first, [*options, *nothing], 1)
                self.assertEqual([path.name for path in (trained, away, back)], ["step-2", "step-3", "step-4"])
                tensors = checkpoint_tensors(trained)
                self.check_trained(tensors, precision)
                self.check_equal(checkpoint_tensors(away), tensors)
                self.check_equal(self.tensor_files(directory, 4), self.tensor_files(directory, 2))

    def check_trained(self, tensors, precision):
        """Parameters have their moments, and in bfloat16 digits that only their masters have."""
        moments = {name: values for name, (_, values) in tensors.items() if name.endswith("_moment")}
        self.assertGreaterEqual(2 * len(moments), len(tensors))
        self.assertTrue(all(any(values) for values in moments.values()), "a moment is 0")
        if precision == "bfloat16":
            _, weights = tensors["token_embedding.weight"]
            self.assertTrue(any(struct.pack("<f", weight)[:2] != b"\0\0" for weight in weights), "no masters")

    def check_equal(self, found, wanted):
        self.assertEqual(found.keys(), wanted.keys())
        # Not by assertEqual, which takes hours to show how two long lists differ.
        self.assertEqual([name for name in wanted if found[name] != wanted[name]], [], "differ")


if __name__ == "__main__":
    unittest.main()
