# SPDX-License-Identifier: MIT
"""In what sums travel between ranks (grid.tensor_wire, grid.gradient_wire): losses, bits, bytes, and what plans say of them; on
some grids, or with GARONNE_ALL_WIRES=1 on all."""
import json
import os
import unittest

from support import ProgramTest, check_peaks_of_ranks, metrics, run, series

ALL = os.environ.get("GARONNE_ALL_WIRES") == "1"
STEPS = 100
BFLOAT16 = ("--train.precision", "bfloat16", "--evaluation.batches", 0)
SUMS = ("all-reduce", "reduce-scatter")
# Options, ranks.
TENSOR = {
    "2": (("--grid.tensor", 2), 2),
    "2, sequence parallel": (("--grid.tensor", 2, "--grid.sequence_parallel", "true"), 2),
    "4": (("--grid.tensor", 4), 4),
    "4, sequence parallel": (("--grid.tensor", 4, "--grid.sequence_parallel", "true"), 4),
}
DATA = {
    "2": (("--grid.data", 2), 2),
    "2, small buckets": (("--grid.data", 2, "--grid.bucket", "2 KiB"), 2),
    "2, zero 1": (("--grid.data", 2, "--grid.zero", 1), 2),
    "2, zero 2": (("--grid.data", 2, "--grid.zero", 2), 2),
    "2, zero 3": (("--grid.data", 2, "--grid.zero", 3), 2),
    "4": (("--grid.data", 4), 4),
    "2 of tensor ranks": (("--grid.data", 2, "--grid.tensor", 2, "--grid.sequence_parallel", "true"), 4),
    "2 of pipelines": (("--grid.data", 2, "--grid.pipeline", 2), 4),
}
# Of each axis, with and without what changes its collectives.
QUICK_TENSOR = TENSOR if ALL else {name: TENSOR[name] for name in ("2, sequence parallel", "4")}
QUICK_DATA = DATA if ALL else {name: DATA[name] for name in ("2", "2, zero 2", "2, zero 3", "2 of tensor ranks")}


def of_nodes(instruction):
    return "exchanged" in instruction["arguments"]


class WireTest(ProgramTest):
    def trained(self, name, *options, ranks=0):
        directory = self.directory(name)
        self.train(directory, *options, ranks=ranks)
        return directory

    def program(self, *options):
        """The Program of rank 0, as planned on one machine or another."""
        folder = self.directory(f"plan {options}")
        run("plan", self.config, *options, "--program", folder)
        return json.loads((folder / "rank_0.json").read_text())

    @staticmethod
    def exchanged_bytes(directory):
        """What is staged, and made, for sums of nodes."""
        program = json.loads((directory / "program/rank_0.json").read_text())
        return sum(buffer["bytes"] for buffer in program["buffers"] if buffer["kind"] == "communication"
                   and buffer["name"].split("#")[0].endswith((".staging", ".exchanged")) and "gradient" not in buffer["name"])

    def sums(self, *options):
        return [one for one in self.program(*options)["instructions"] if one["operation"] in SUMS]

    def test_sums_over_tensor_ranks_come_to_the_same_bits_in_half_the_bytes(self):
        options = (*BFLOAT16, "--train.steps", STEPS)
        one = series(self.trained("one", *options), "loss")
        self.assertLess(one[-1], 0.9 * one[0], "it learns")
        for name, (grid, ranks) in QUICK_TENSOR.items():
            with self.subTest(name):
                narrow = self.trained(name, *options, *grid, ranks=ranks)
                wide = self.trained(f"{name} wide", *options, *grid, "--grid.tensor_wire", "float32", ranks=ranks)
                self.assertLessEqual(abs(series(narrow, "loss")[-1] - one[-1]), 0.01 * one[-1])
                # What a rank brings is rounded to bfloat16 before either, and the sum once behind both.
                for key in ("loss", "gradient_norm"):
                    self.assertEqual(series(narrow, key), series(wide, key))
                check_peaks_of_ranks(self, narrow, ranks)
                check_peaks_of_ranks(self, wide, ranks)
                self.assertLessEqual(metrics(narrow)[-1]["planned_peak_bytes"], metrics(wide)[-1]["planned_peak_bytes"])
                self.assertLess(self.exchanged_bytes(narrow), 0.6 * self.exchanged_bytes(wide))

    def test_sums_of_gradients_come_to_the_same_loss(self):
        options = (*BFLOAT16, "--train.steps", STEPS)
        one = series(self.trained("one", *options), "loss")
        for name, (grid, ranks) in QUICK_DATA.items():
            with self.subTest(name):
                narrow = self.trained(name, *options, *grid, "--grid.gradient_wire", "compute", ranks=ranks)
                self.assertLessEqual(abs(series(narrow, "loss")[-1] - one[-1]), 0.01 * one[-1])
                check_peaks_of_ranks(self, narrow, ranks)
        # Which is no other way to say the same.
        wide = self.trained("wide", *options, *DATA["2"][0], ranks=2)
        self.assertNotEqual(series(wide, "loss"), series(self.directory("2"), "loss"))

    def test_how_gradients_are_cut_changes_no_bit(self):
        options = (*BFLOAT16, "--grid.data", 2, "--grid.gradient_wire", "compute")
        losses = [series(self.trained(f"bucket {bucket}", *options, "--grid.bucket", bucket, ranks=2), "loss")
                  for bucket in ("2 KiB", "4 MiB")]
        self.assertEqual(*losses)

    def test_recomputation_and_restarts_change_no_bit(self):
        for name, (grid, ranks) in (("tensor", TENSOR["2, sequence parallel"]), ("data", DATA["2"]), ("shards", DATA["2, zero 2"]),
                                    ("both", DATA["2 of tensor ranks"])):
            with self.subTest(name):
                options = (*BFLOAT16, *grid, "--grid.gradient_wire", "compute", "--memory.plan")
                kept = self.trained(f"{name} kept", *options, "keep-all", ranks=ranks)
                full = self.trained(f"{name} full", *options, "full", ranks=ranks)
                self.assertEqual(series(full, "loss"), series(kept, "loss"))
                self.assertEqual(self.tensor_files(full, 6), self.tensor_files(kept, 6))
                parts = self.directory(f"{name} parts")
                self.train(parts, *options, "keep-all", "--train.stop_after", 3, ranks=ranks, check=75)
                self.train(parts, *options, "keep-all", ranks=ranks)
                self.assertEqual(series(parts, "loss"), series(kept, "loss"))
                self.assertEqual(self.tensor_files(parts, 6), self.tensor_files(kept, 6))

    def test_other_precisions_do_not_change(self):
        grid, ranks = DATA["2 of tensor ranks"]
        for precision in ("float32", "float64"):
            with self.subTest(precision):
                options = ("--train.precision", precision, *grid)
                wires = [("--grid.tensor_wire", tensor, "--grid.gradient_wire", gradient)
                         for tensor, gradient in (("float32", "float32"), ("compute", "compute"))]
                programs = [self.program(*options, *wire) for wire in wires]
                self.assertEqual(*programs)
                self.assertFalse([one for one in programs[0]["instructions"] if "wire" in one.get("channel", {})])
                losses = [series(self.trained(f"{precision} {wire}", *options, *wire, ranks=ranks), "loss") for wire in wires]
                self.assertEqual(*losses)

    def test_plans_charge_what_travels(self):
        grid, _ = DATA["2 of tensor ranks"]
        options = (*BFLOAT16, *grid, "--memory.plan", "full")
        wide = self.sums(*options, "--grid.tensor_wire", "float32")
        for keys, of_which in ((("--grid.tensor_wire", "compute"), of_nodes),
                               (("--grid.tensor_wire", "float32", "--grid.gradient_wire", "compute"),
                                lambda one: not of_nodes(one) and one["channel"]["group"] != "world")):
            narrow = self.sums(*options, *keys)
            self.assertEqual(len(narrow), len(wide))
            self.assertTrue(any(map(of_which, narrow)) and not all(map(of_which, narrow)))
            for here, there in zip(narrow, wide, strict=True):
                self.assertNotIn("wire", there["channel"])
                if of_which(here):
                    self.assertEqual(here["channel"]["wire"], "bfloat16")
                    self.assertEqual(2 * here["channel"]["bytes"], there["channel"]["bytes"])
                    self.assertLess(here["seconds"], there["seconds"])
                else:
                    self.assertEqual(here["channel"], there["channel"])
                    self.assertEqual(here["seconds"], there["seconds"])

    def test_programs_of_another_wire_are_refused_and_older_ones_run(self):
        options = (*BFLOAT16, *DATA["2 of tensor ranks"][0])
        older = self.directory("older")
        run("plan", self.config, *options, "--grid.tensor_wire", "float32", "--program", older)
        self.assertNotIn('"wire"', (older / "rank_0.json").read_text())
        run("check", older)
        train = lambda name, *keys, check=0: self.train(self.directory(name), *options, *keys, "--run-program", older, ranks=4,
                                                        check=check)
        self.assertIn("grid.tensor_wire", train("refused", check=2).stderr)
        refused = train("refused", "--grid.tensor_wire", "float32", "--grid.gradient_wire", "compute", check=2)
        self.assertIn("grid.gradient_wire", refused.stderr)
        train("runs", "--grid.tensor_wire", "float32")
        self.assertEqual(series(self.directory("runs"), "loss"), series(self.trained("planned", *options, ranks=4), "loss"))


if __name__ == "__main__":
    unittest.main()
