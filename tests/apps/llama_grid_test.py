# SPDX-License-Identifier: MIT
"""Llama on grids: the same losses, norms and gradients of every tensor as on one rank, bytes as planned.

Some grids by default, all with GARONNE_ALL_GRIDS=1 (test llama_grid_all, label long)."""
import unittest

from grid_test import ALL, LLAMA, QUICK_OF_AXES, GridComparison

# (data, pipeline, tensor, further keys); the first six are the quick ones.
GRIDS = [
    (2, 1, 1, {"zero": 3}),
    (1, 2, 1, {}),
    (1, 2, 1, {"schedule": "zb-v"}),
    (1, 2, 1, {"schedule": "chimera"}),
    (1, 1, 2, {}),
    (2, 2, 2, {"zero": 3, "sequence_parallel": "true"}),
    (2, 1, 1, {}),
    (2, 1, 1, {"zero": 1}),
    (2, 1, 1, {"zero": 2}),
    (1, 2, 1, {"schedule": "gpipe"}),
    (1, 2, 1, {"schedule": "interleaved", "chunks": 2}),
    (1, 2, 1, {"schedule": "zb-h1"}),
    (1, 2, 1, {"schedule": "zb-h2"}),
    (1, 2, 1, {"schedule": "dualpipev"}),
    (1, 1, 2, {"sequence_parallel": "true"}),
    (1, 4, 1, {"schedule": "zb-v"}),
    (2, 2, 1, {"schedule": "chimera", "zero": 1}),
    (1, 2, 2, {"schedule": "chimera", "sequence_parallel": "true"}),
    (2, 2, 2, {"zero": 3}),
    (2, 2, 2, {"schedule": "zb-v", "zero": 2}),
]
QUICK = 6
# Each rank has a head of its own to read keys and values from.
OF_FOUR_HEADS = (1, 1, 4, {"sequence_parallel": "true"})


class LlamaGridsTest(GridComparison):
    def grids(self, quick):
        return GRIDS if ALL else quick

    def test_float64(self):
        self.compare(self.grids(GRIDS[:QUICK]), "float64", 1e-12, 1e-9, 1e-9, *LLAMA)

    def test_as_many_heads_of_keys_as_tensor_ranks(self):
        self.compare([OF_FOUR_HEADS], "float64", 1e-12, 1e-9, 1e-9, *LLAMA, "--model.kv_heads", 4)

    def test_float32(self):
        self.compare(self.grids(QUICK_OF_AXES[:1]), "float32", 1e-5, 1e-4, 1e-3, *LLAMA)

    def test_bfloat16_comes_to_the_same_loss(self):
        self.compare_last_losses(self.grids(QUICK_OF_AXES[1:]), *LLAMA)


if __name__ == "__main__":
    unittest.main(verbosity=2)
