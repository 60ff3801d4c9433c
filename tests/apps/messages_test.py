# SPDX-License-Identifier: MIT
"""Messages between stages that each tensor rank sends a part of (grid.messages): bits, bytes, plans and refusals."""
import json
import pathlib
import unittest

from support import SOURCE, ProgramTest, check_peaks_of_ranks, metrics, run, series

GRID = ("--grid.pipeline", 2, "--grid.tensor", 2)
SMALL = ("--model.layers", 4, "--train.global_batch", 8, "--train.micro_batch", 2)
CLUSTER = SOURCE / "config/clusters/dgx_a100.toml"
# Where a device has a quarter of the rate between nodes.
SLOW_CLUSTER = SOURCE / "config/clusters/jean_zay_a100.toml"
# Stages on nodes of their own, of eight devices each.
OVER_NODES = ("--model.heads", 8, "--grid.pipeline", 2, "--grid.tensor", 8, "--cluster", CLUSTER, "--memory.budget", "2GiB")


def programs_in(folder):
    return [json.loads(path.read_text()) for path in sorted(pathlib.Path(folder).glob("*.json"))]


def sent_bytes(programs):
    return [sum(one["channel"]["bytes"] for one in program["instructions"] if one["operation"] == "send") for program in programs]


def gathers(programs):
    return sum(one["operation"] == "all-gather" and "value" in one["arguments"]
               for program in programs for one in program["instructions"])


class MessagesTest(ProgramTest):
    def saved(self, name, *arguments):
        folder = self.folder / name
        run("plan", self.config, *SMALL, *arguments, "--program", folder)
        run("check", folder)
        found = programs_in(folder)
        self.assertGreater(len(found), 0)
        return found

    def test_training_is_the_same_to_the_bit(self):
        for name, arguments in {
            "float32": (),
            "bfloat16, interleaved": ("--train.precision", "bfloat16", "--grid.schedule", "interleaved", "--grid.chunks", 2),
            "both directions, everything run again": ("--grid.schedule", "chimera", "--memory.plan", "full"),
            "passes that overlap": ("--grid.schedule", "dualpipev"),
        }.items():
            with self.subTest(name):
                found = []
                for form in ("whole", "scattered"):
                    directory = self.directory(f"{name} {form}")
                    run("train", self.config, *SMALL, *GRID, *arguments, "--train.steps", 3, "--evaluation.every", 3,
                        "--evaluation.batches", 1, "--run.directory", directory, "--grid.messages", form, ranks=4)
                    check_peaks_of_ranks(self, directory, 4)
                    validated = [row["validation_loss"] for row in metrics(directory) if "validation_loss" in row]
                    self.assertEqual(len(validated), 1)
                    found.append((series(directory, "loss"), series(directory, "gradient_norm"), validated,
                                  self.tensor_files(directory, 3)))
                self.assertEqual(found[0], found[1])

    def test_a_part_goes_from_each_tensor_rank(self):
        whole = self.saved("whole", *GRID, "--grid.messages", "whole")
        scattered = self.saved("scattered", *GRID, "--grid.messages", "scattered")
        self.assertEqual([2 * sent for sent in sent_bytes(scattered)], sent_bytes(whole))
        self.assertEqual((gathers(whole), gathers(scattered) > 0), (0, True))
        self.assertEqual([one["peak_bytes"] for one in scattered], [one["peak_bytes"] for one in whole])

    def test_auto_is_by_the_nodes(self):
        self.assertEqual(gathers(self.saved("one node", *GRID)), 0)
        self.assertGreater(gathers(self.saved("two nodes", *OVER_NODES)), 0)
        # Rows that are cut already are no tensor rank's alone.
        self.assertEqual(gathers(self.saved("rows", *OVER_NODES, "--grid.sequence_parallel", "true")), 0)

    def test_plans_over_nodes_are_faster(self):
        large = ("--model.layers", 8, "--model.hidden", 2048, "--model.heads", 16, "--model.sequence", 1024,
                 "--train.global_batch", 8, "--train.micro_batch", 1, "--train.precision", "bfloat16", "--grid.pipeline", 2,
                 "--grid.tensor", 8, "--cluster", SLOW_CLUSTER, "--memory.budget", "20GiB", "--memory.plan", "keep-all")
        seconds = {form: json.loads(run("plan", self.config, *large, "--grid.messages", form, "--json").stdout)["seconds"]
                   for form in ("whole", "scattered", "auto")}
        print(seconds)
        self.assertLess(seconds["scattered"], 0.95 * seconds["whole"])
        self.assertEqual(seconds["auto"], seconds["scattered"])

    def test_programs_with_other_parts_are_refused(self):
        folder = self.folder / "changed"
        self.saved("changed", *GRID, "--grid.messages", "scattered")
        path = sorted(folder.glob("*.json"))[0]
        program = json.loads(path.read_text())
        sends = [one for one in program["instructions"] if one["operation"] == "send"]
        part = sends[0]["arguments"]["part"]
        _, offset, elements = part
        part[1] = elements if offset == 0 else 0
        path.write_text(json.dumps(program))
        refused = run("check", folder, check=2)
        self.assertIn("part", refused.stdout + refused.stderr)


if __name__ == "__main__":
    unittest.main()
