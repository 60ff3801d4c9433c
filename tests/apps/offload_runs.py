# SPDX-License-Identifier: MIT
"""Runs with memory.disk beside runs without: how they are started, and what they are held to."""
import json
import pathlib
import re
import shutil
import tempfile

from support import BINARY, ProgramTest, metrics, run

STEPS = 3
ALONE = ("offload-activations", "offload-gradients", "offload-weights", "offload-states")
KINDS = (*ALONE, ",".join(ALONE))
# Keys and ranks. Four micro-batches a rank: with two, gradients in shards are not at the peak, and stay.
GRIDS = {
    "alone": ({"--train.micro_batch": 8, "--train.global_batch": 32}, 0),
    "1f1b": ({"--grid.pipeline": 2, "--train.micro_batch": 8, "--train.global_batch": 32}, 2),
    **{f"zero-{zero}": ({"--grid.data": 2, "--grid.zero": zero, "--train.micro_batch": 8, "--train.global_batch": 64}, 2)
       for zero in range(4)},
    **{f"1f1b-zero-{zero}": ({"--grid.pipeline": 2, "--grid.data": 2, "--grid.zero": zero, "--train.micro_batch": 8,
                              "--train.global_batch": 64}, 4) for zero in range(4)},
}


def in_precision(precision, keys):
    """Twice the samples in bfloat16, so that values have as many bytes."""
    times = 2 if precision == "bfloat16" else 1
    return {**keys, "--train.precision": precision, "--train.micro_batch": times * keys["--train.micro_batch"],
            "--train.global_batch": times * keys["--train.global_batch"]}


class OffloadRuns(ProgramTest):
    # Values of a mebibyte and more: smaller ones stay.
    MODEL = ("--model.layers", 3, "--model.hidden", 128, "--model.sequence", 128, "--train.micro_batch", 16,
             "--train.global_batch", 32, "--train.steps", STEPS, "--evaluation.batches", 1, "--memory.budget", "2 GiB")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # The folder of temporary files may be in memory.
        cls.disk = pathlib.Path(tempfile.mkdtemp(prefix="offload-test-", dir=pathlib.Path(BINARY).resolve().parent))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.disk, ignore_errors=True)
        super().tearDownClass()

    def with_budget(self, bytes_, *keys):
        return [*self.model(*keys), "--memory.budget", bytes_]

    def model(self, *keys):
        """MODEL with other values for keys that are given again."""
        given = dict(zip(keys[::2], keys[1::2], strict=True))
        kept = dict(zip(self.MODEL[::2], self.MODEL[1::2], strict=True)) | given
        return [word for pair in kept.items() for word in pair]

    def only_moved(self, *keys, way="offload-activations"):
        """Keys of a run that has to move, however slow the disk is, and its budget."""
        may = ("--memory.disk", self.disk, "--memory.allow", way)
        least = json.loads(run("plan", self.config, *self.model(*keys), *may, "--json").stdout)["minimum_budget_bytes"]
        return [*self.with_budget(least, *keys), *may], least

    def budgets(self, *keys):
        """The smallest with the disk, the smallest without, and what keeping everything takes."""
        disk = ("--memory.disk", self.disk)
        on_disk = json.loads(run("plan", self.config, *self.model(*keys), *disk, "--json").stdout)
        plain = json.loads(run("plan", self.config, *self.model(*keys, "--memory.plan", "keep-all"), "--json").stdout)
        return on_disk["minimum_budget_bytes"], on_disk["minimum_on_device_bytes"], plain["peak_bytes"]

    def programs(self, directory):
        return [json.loads(path.read_text()) for path in sorted((directory / "program").glob("rank_*.json"))]

    def check_bytes(self, directory, done, budget):
        """As planned on the device and on the disk. How many buffers went there."""
        moved = 0
        for program in self.programs(directory):
            measured = max(one["measured_peak_bytes"] for one in program["instructions"])
            self.assertLessEqual(measured, program["peak_bytes"])
            self.assertGreaterEqual(measured, 0.99 * program["peak_bytes"])
            self.assertLessEqual(program["peak_bytes"], budget)
            moved += sum(one["operation"] == "disk-write" for one in program["instructions"])
        on_disk = re.findall(r"disk planned +(\d+) B +measured +(\d+) B", done.stdout)
        for planned, measured in on_disk:
            self.assertEqual(planned, measured)
        self.assertEqual(bool(on_disk), moved > 0, done.stdout)
        return moved

    def same_tensors(self, wanted, found, step=STEPS):
        # Not assertEqual, which would show how megabytes differ.
        self.assertTrue(self.tensor_files(wanted, step) == self.tensor_files(found, step), f"{wanted} and {found} differ")

    def same_training(self, wanted, found):
        for key in ("loss", "gradient_norm", "validation_loss"):
            mine, theirs = ([row.get(key) for row in metrics(folder)] for folder in (wanted, found))
            self.assertEqual(mine, theirs, key)
        self.assertTrue(self.tensor_files(wanted, STEPS))
        self.same_tensors(wanted, found)
