# SPDX-License-Identifier: MIT
"""The run files of GPT-2, which are for GPUs, planned on any machine: for a GPU of a cluster file and for half of what
they take there when everything is kept."""
import json
import os
import pathlib
import unittest

from support import run

SOURCE = pathlib.Path(os.environ["GARONNE_SOURCE"])
CLUSTER = SOURCE / "config/clusters/jean_zay_h100.toml"
GPU_BYTES = 80_000_000_000

PARAMETERS = {"124m": 124.5e6, "355m": 354.9e6, "774m": 774.1e6, "1558m": 1557.7e6}


class GpuPlansTest(unittest.TestCase):
    def plan(self, name, *arguments):
        shown = run("plan", SOURCE / f"config/gpt2_{name}.toml", "--cluster", CLUSTER, "--json", *arguments)
        return json.loads(shown.stdout)

    def test_every_run_file_is_here(self):
        self.assertEqual({path.stem for path in (SOURCE / "config").glob("gpt2_*.toml")},
                         {f"gpt2_{name}" for name in PARAMETERS})

    def test_plans_fit_a_gpu(self):
        for name, parameters in PARAMETERS.items():
            with self.subTest(name):
                whole = self.plan(name, "--memory.plan", "full")
                self.assertAlmostEqual(whole["parameters"] / parameters, 1, delta=0.001)
                self.assertLess(whole["peak_bytes"], GPU_BYTES)
                self.assertEqual(whole["peak_bytes"] % 512, 0, "GPUs count memory in blocks of 512")

    def test_half_of_the_memory_is_enough(self):
        kept = self.plan("124m", "--memory.plan", "keep-all")["peak_bytes"]
        half = self.plan("124m", "--memory.plan", "greedy", "--memory.budget", kept // 2)
        self.assertLessEqual(half["peak_bytes"], kept // 2)


if __name__ == "__main__":
    unittest.main()
