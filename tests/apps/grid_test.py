# SPDX-License-Identifier: MIT
"""Grids of data, pipeline and tensor ranks, with ZeRO: the same training as on one rank, bytes as planned.

A subset runs by default, in float32 and bfloat16 a grid of each axis; all grids with GARONNE_ALL_GRIDS=1 (test grid_all,
label long). GARONNE_GRIDS=12:20 takes those of the list alone. What was found is printed as a table."""
import json
import math
import os
import unittest

from support import SOURCE, ProgramTest, check_peaks_of_ranks, checkpoint_tensors, metrics, run, series

ALL = os.environ.get("GARONNE_ALL_GRIDS") == "1"

# (data, pipeline, tensor, further keys); the first fourteen are the quick ones.
GRIDS = [
    (1, 2, 1, {}),
    (1, 2, 1, {"schedule": "gpipe"}),
    (1, 2, 1, {"schedule": "interleaved", "chunks": 2}),
    (1, 2, 1, {"schedule": "zb-v"}),
    (1, 1, 2, {}),
    (1, 1, 2, {"sequence_parallel": "true"}),
    (2, 1, 1, {"zero": 1}),
    (2, 1, 1, {"zero": 2}),
    (2, 1, 1, {"zero": 3}),
    (2, 2, 1, {"zero": 1}),
    (1, 2, 2, {}),
    (2, 2, 2, {"zero": 3, "sequence_parallel": "true"}),
    (1, 2, 1, {"schedule": "chimera"}),
    (1, 2, 1, {"schedule": "file"}),
    (1, 2, 1, {"schedule": "zb-h1"}),
    (1, 2, 1, {"schedule": "zb-h2"}),
    (1, 2, 1, {"schedule": "dualpipev"}),
    (1, 3, 1, {}),
    (1, 4, 1, {}),
    (1, 4, 1, {"schedule": "zb-h1"}),
    (1, 4, 1, {"schedule": "chimera"}),
    (1, 4, 1, {"schedule": "zb-v"}),
    (1, 4, 1, {"schedule": "dualpipev"}),
    (1, 2, 1, {"schedule": "interleaved", "chunks": 3, "group_size": 4}),
    (2, 2, 1, {"schedule": "chimera", "zero": 1}),
    (1, 2, 2, {"schedule": "chimera", "sequence_parallel": "true"}),
    (2, 2, 2, {"schedule": "chimera", "zero": 3, "sequence_parallel": "true"}),
    (1, 2, 2, {"schedule": "dualpipev", "sequence_parallel": "true"}),
    (2, 2, 2, {"schedule": "dualpipev", "zero": 2}),
    (2, 1, 1, {}),
    (4, 1, 1, {}),
    (4, 1, 1, {"zero": 1}),
    (4, 1, 1, {"zero": 2}),
    (4, 1, 1, {"zero": 3}),
    (1, 1, 4, {}),
    (1, 1, 4, {"sequence_parallel": "true"}),
    (2, 2, 1, {}),
    (2, 2, 1, {"zero": 2}),
    (2, 2, 1, {"zero": 3}),
    (2, 2, 1, {"zero": 3, "schedule": "gpipe"}),
    (2, 1, 2, {"zero": 2}),
    (2, 1, 2, {"zero": 3, "sequence_parallel": "true"}),
    (1, 2, 2, {"sequence_parallel": "true"}),
    (1, 2, 2, {"schedule": "interleaved", "chunks": 2}),
    (2, 2, 2, {}),
    (2, 2, 2, {"zero": 2}),
    (1, 4, 2, {}),
    (2, 4, 1, {"zero": 1}),
    (1, 2, 4, {"sequence_parallel": "true"}),
]
QUICK = 14
# Of each axis one, for the precisions that are quick, too.
QUICK_OF_AXES = [(1, 2, 1, {}), (1, 1, 2, {"sequence_parallel": "true"}), (2, 1, 1, {"zero": 3})]
STEPS = 10
LOW_PRECISION_STEPS = 50 if ALL else 20
MICRO_BATCHES = 8
# In place of the model of the run file; of two queries for each key.
LLAMA = ("--model.kind", "llama", "--model.kv_heads", 2, "--model.dropout", 0)


def name_of(grid):
    data, pipeline, tensor, keys = grid
    return f"data {data} pipeline {pipeline} tensor {tensor} " + " ".join(f"{k} {v}" for k, v in keys.items())


def keys_of(grid, folder):
    """Command-line keys; a schedule of our own is written into the folder."""
    data, pipeline, tensor, keys = grid
    arguments = ["--grid.data", data, "--grid.pipeline", pipeline, "--grid.tensor", tensor]
    for key, value in keys.items():
        arguments += [f"--grid.{key}", value]
    if keys.get("schedule") == "file":
        path = folder / "schedule.json"
        path.write_text(json.dumps(own_schedule(MICRO_BATCHES // data)))
        arguments += ["--grid.schedule_file", path]
    return arguments


def own_schedule(micro_batches):
    """Two stages; the first one runs two micro-batches ahead, the second puts the weights of each micro-batch off
    until after the next input gradient."""
    first = [["forward", 0, 0], ["forward", 0, 1]]
    second = []
    for m in range(micro_batches):
        first += [["forward", 0, m + 2]] if m + 2 < micro_batches else []
        first += [["backward", 0, m]]
        second += [["forward", 0, m], ["backward-input", 0, m]]
        second += [["backward-weight", 0, m - 1]] if m > 0 else []
    second += [["backward-weight", 0, micro_batches - 1]]
    return {"format": "garonne.pipeline-schedule", "version": 1, "name": "two ahead", "stages": 2,
            "micro_batches": micro_batches, "order": [first, second]}


def parts_of(name, shape, values):
    """A tensor in the parts that are compared by themselves: the fused queries, keys and values.

    The gradient of the keys' bias is exactly zero, since it moves all scores of a row alike: what is computed is
    rounding only, and is left out."""
    if not name.endswith((".qkv.weight", ".qkv.bias")):
        return {name: values}
    if len(shape) == 4:
        return parts_of_groups(name, shape, values)
    third = len(values) // 3
    parts = {f"{name}[{what}]": values[k * third : (k + 1) * third] for k, what in enumerate("query key value".split())}
    if name.endswith(".bias"):
        del parts[f"{name}[key]"]
    return parts


def parts_of_groups(name, shape, values):
    """Of each group of heads the queries, then the keys and the values that they share: (groups, queries of a group + 2,
    width of a head, width of the model)."""
    groups, members, head, width = shape
    parts = {f"{name}[{what}]": [] for what in "query key value".split()}
    for member in range(groups * members):
        last = member % members - (members - 2)
        what = "query" if last < 0 else ("key", "value")[last]
        parts[f"{name}[{what}]"] += values[member * head * width : (member + 1) * head * width]
    return parts


def norm(values):
    return math.sqrt(math.fsum(value * value for value in values))


def differences(mine, wanted):
    """name -> norm of the difference over the norm of what is wanted."""
    assert mine.keys() == wanted.keys(), mine.keys() ^ wanted.keys()
    found = {}
    for name, (shape, values) in wanted.items():
        assert mine[name][0] == shape, name
        here = parts_of(name, shape, mine[name][1])
        for part, there in parts_of(name, shape, values).items():
            found[part] = norm(a - b for a, b in zip(here[part], there, strict=True)) / norm(there)
    return found


class GridComparison(ProgramTest):
    """Trainings on grids beside one on one rank, and a table of what was found."""

    def setUp(self):
        self.table = []

    def tearDown(self):
        if not self.table:
            return
        print(f"\n{self.id().split('.')[-1]}: largest differences relative to one rank; peaks measured over predicted")
        print(f"{'grid':<64} {'gradients':>10} {'losses':>10} {'peaks':>17}")
        for row in self.table:
            print(row)

    def add_row(self, grid, gradients, losses, peaks):
        gradients = f"{gradients:.1e}" if gradients is not None else ""
        self.table.append(f"{name_of(grid):<64} {gradients:>10} {losses:>10.1e} "
                          f"{100 * min(peaks):>7.2f}-{100 * max(peaks):.2f} %")

    def compare(self, grids, precision, gradient_tolerance, loss_tolerance, norm_tolerance, *more):
        arguments = ("--train.precision", precision, "--train.steps", STEPS, "--model.layers", 6,
                     "--train.global_batch", 16, "--train.micro_batch", 2, *more)
        one = self.directory("one")
        self.train(one, *arguments, "--gradients", one / "gradients")
        gradients = checkpoint_tensors(one / "gradients/checkpoints/step-1")
        for grid in grids:
            data, pipeline, tensor, _ = grid
            with self.subTest(name_of(grid)):
                directory = self.directory(name_of(grid))
                self.train(directory, *arguments, *keys_of(grid, self.folder), "--gradients", directory / "gradients",
                           ranks=data * pipeline * tensor)
                found = differences(checkpoint_tensors(directory / "gradients/checkpoints/step-1"), gradients)
                losses = [abs(mine - wanted) / wanted
                          for mine, wanted in zip(series(directory, "loss"), series(one, "loss"), strict=True)]
                shares = check_peaks_of_ranks(self, directory, data * pipeline * tensor)
                self.add_row(grid, max(found.values()), max(losses), shares)
                for name, difference in found.items():
                    self.assertLessEqual(difference, gradient_tolerance, name)
                for key, tolerance in (("loss", loss_tolerance), ("gradient_norm", norm_tolerance)):
                    for mine, wanted in zip(series(directory, key), series(one, key), strict=True):
                        self.assertLessEqual(abs(mine - wanted), tolerance * abs(wanted), key)
                self.assertLessEqual(abs(metrics(directory)[-1]["validation_loss"] - metrics(one)[-1]["validation_loss"]),
                                     loss_tolerance * metrics(one)[-1]["validation_loss"])

    def compare_last_losses(self, grids, *more):
        """In bfloat16."""
        arguments = ("--train.precision", "bfloat16", "--train.steps", LOW_PRECISION_STEPS, "--model.layers", 6,
                     "--train.global_batch", 16, "--train.micro_batch", 2, "--evaluation.batches", 0, *more)
        one = self.directory("one")
        self.train(one, *arguments)
        for grid in grids:
            data, pipeline, tensor, _ = grid
            with self.subTest(name_of(grid)):
                directory = self.directory(name_of(grid))
                self.train(directory, *arguments, *keys_of(grid, self.folder), ranks=data * pipeline * tensor)
                mine, wanted = series(directory, "loss")[-1], series(one, "loss")[-1]
                self.add_row(grid, None, abs(mine - wanted) / wanted,
                             check_peaks_of_ranks(self, directory, data * pipeline * tensor))
                self.assertLessEqual(abs(mine - wanted), 0.01 * wanted)


class GridsTest(GridComparison):
    def grids(self, quick):
        if "GARONNE_GRIDS" in os.environ:
            first, last = map(int, os.environ["GARONNE_GRIDS"].split(":"))
            return GRIDS[first:last]
        return GRIDS if ALL else quick

    def test_float64(self):
        self.compare(self.grids(GRIDS[:QUICK]), "float64", 1e-12, 1e-9, 1e-9)

    def test_dropout_of_attention(self):
        quick = [*QUICK_OF_AXES, (2, 2, 2, {"zero": 3, "sequence_parallel": "true"}), (1, 2, 1, {"schedule": "chimera"})]
        self.compare(self.grids(quick), "float64", 1e-12, 1e-9, 1e-9, "--model.attention_dropout", 0.2)

    def test_float32(self):
        self.compare(self.grids(QUICK_OF_AXES), "float32", 1e-5, 1e-4, 1e-3)

    def test_bfloat16_comes_to_the_same_loss(self):
        self.compare_last_losses(self.grids(QUICK_OF_AXES))


class BudgetTest(ProgramTest):
    def check_tight(self, grid, *model):
        data, pipeline, tensor, _ = grid
        ranks = data * pipeline * tensor
        arguments = ("--train.precision", "float64", "--model.layers", 6, "--train.global_batch", 16,
                     "--train.micro_batch", 2, "--train.steps", 3, *model, *keys_of(grid, self.folder), "--memory.budget")
        free = self.directory(f"{name_of(grid)} free")
        self.train(free, *arguments, "64MiB", ranks=ranks)
        plan = json.loads(run("plan", self.config, *arguments, "64MiB", "--json").stdout)
        self.assertEqual(len(plan.get("stages", [0])), pipeline)
        least, most = plan["minimum_budget_bytes"], plan["peak_bytes"]
        self.assertLess(least, most)
        budget = (least + most) // 2
        tight = self.directory(f"{name_of(grid)} tight")
        self.train(tight, *arguments, budget, ranks=ranks)
        for mine, wanted in zip(series(tight, "loss"), series(free, "loss"), strict=True):
            self.assertLessEqual(abs(mine - wanted), 1e-13 * wanted)
        for row in metrics(tight):
            self.assertLessEqual(row["peak_bytes"], budget)
        check_peaks_of_ranks(self, tight, ranks)
        refused = run("train", self.config, *arguments, least - 1, "--run.directory",
                      self.directory(f"{name_of(grid)} below"), ranks=ranks, check=3)
        self.assertIn(str(least), refused.stderr)

    def test_ranks_keep_within_a_tight_budget(self):
        grids = [(1, 2, 1, {}), (2, 1, 1, {"zero": 3}), (1, 2, 1, {"schedule": "chimera"}), (2, 2, 1, {"zero": 2}),
                 (1, 2, 2, {"sequence_parallel": "true", "schedule": "zb-v"}), (2, 2, 2, {"zero": 3})]
        for grid in grids if ALL else grids[:2]:
            with self.subTest(name_of(grid)):
                self.check_tight(grid)

    def test_ranks_of_a_llama_do(self):
        grids = [(1, 2, 1, {"schedule": "zb-v"}), (2, 1, 1, {"zero": 3}), (2, 2, 2, {"zero": 3, "sequence_parallel": "true"})]
        for grid in grids if ALL else grids[:2]:
            with self.subTest(name_of(grid)):
                self.check_tight(grid, *LLAMA)


class CheckpointTest(ProgramTest):
    def test_any_grid_reads_what_any_grid_wrote(self):
        arguments = ("--train.precision", "float64", "--model.layers", 4, "--train.global_batch", 8)
        whole = self.directory("whole")
        self.train(whole, *arguments, "--train.steps", 4)
        grids = [(1, 2, 1, {}), (1, 1, 2, {}), (2, 1, 1, {"zero": 3}), (2, 2, 1, {"zero": 1})]
        for grid in grids if ALL else grids[:3]:
            data, pipeline, tensor, _ = grid
            ranks = data * pipeline * tensor
            for there, here in ((grid, None), (None, grid)):
                with self.subTest(f"{name_of(grid)} {'to' if here is None else 'from'} one rank"):
                    directory = self.directory(f"{name_of(grid)} {here is None}")
                    for number, use in enumerate((there, here)):
                        more = keys_of(use, self.folder) if use else []
                        stop = ["--train.stop_after", 2] if number == 0 else []
                        self.train(directory, *arguments, "--train.steps", 4, *more, *stop, ranks=ranks if use else 0,
                                   check=75 if number == 0 else 0)
                    for mine, wanted in zip(series(directory, "loss"), series(whole, "loss"), strict=True):
                        self.assertLessEqual(abs(mine - wanted), 1e-9 * abs(wanted))

    def test_restart_on_a_grid_is_bit_for_bit(self):
        for model, grid in [("gpt", (1, 2, 1, {})), ("gpt", (2, 1, 1, {"zero": 2})), ("gpt", (1, 1, 2, {})),
                            ("llama", (1, 2, 1, {})), ("llama", (2, 1, 1, {"zero": 3}))]:
            data, pipeline, tensor, _ = grid
            ranks = data * pipeline * tensor
            with self.subTest(name_of(grid), model=model):
                keys = (*(LLAMA if model == "llama" else ()), *keys_of(grid, self.folder))
                whole, parts = (self.directory(f"{model} {name_of(grid)} {what}") for what in ("whole", "parts"))
                self.train(whole, *keys, ranks=ranks)
                self.train(parts, *keys, "--train.stop_after", 3, ranks=ranks, check=75)
                self.train(parts, *keys, ranks=ranks)
                self.assertEqual(series(whole, "loss"), series(parts, "loss"))
                self.assertEqual(self.tensor_files(whole, 6), self.tensor_files(parts, 6))


class EvaluationTest(ProgramTest):
    def test_one_rank_evaluates_what_any_grid_trained(self):
        for grid in [(1, 2, 1, {}), (2, 1, 1, {"zero": 3}), (1, 1, 2, {"sequence_parallel": "true"})]:
            data, pipeline, tensor, _ = grid
            with self.subTest(name_of(grid)):
                directory = self.directory(name_of(grid))
                self.train(directory, *keys_of(grid, self.folder), ranks=data * pipeline * tensor)
                evaluated = json.loads(run("eval", directory, "--json").stdout)
                self.assertAlmostEqual(evaluated["validation_loss"], metrics(directory)[-1]["validation_loss"], 5)


class OverlapTest(ProgramTest):
    """What a schedule lets overlap does so where there are tensor ranks, and plan and train say how it runs."""

    def setUp(self):
        super().setUp()
        self.saved, self.plain = self.folder / "saved.json", self.folder / "plain.json"
        run("simulate", "--schedule", "dualpipev", "--stages", 2, "--micro-batches", 8, "--save", self.saved)
        schedule = json.loads(self.saved.read_text())
        self.assertTrue(any(schedule.pop("overlaps")))
        self.plain.write_text(json.dumps(schedule))
        self.arguments = ("--model.layers", 4, "--train.global_batch", 16, "--train.micro_batch", 2)

    def grid(self, pipeline, tensor, name, file=None):
        return ("--grid.pipeline", pipeline, "--grid.tensor", tensor, "--grid.schedule", name,
                *(("--grid.schedule_file", file) if file else ()))

    def notes(self, text):
        whole = text.replace("\n  ", " ").splitlines()
        return [line for line in whole if line.startswith("note: ") and "overlap" in line]

    def test_it_is_said_where_the_schedule_has_overlaps(self):
        for pipeline, name, file in ((2, "dualpipev", None), (2, "file", self.saved), (2, "file", self.plain),
                                     (2, "zb-v", None), (1, "dualpipev", None)):
            with self.subTest(pipeline=pipeline, name=name, file=file):
                grid = (*self.arguments, "--train.steps", 1, *self.grid(pipeline, 1, name, file))
                said = [f"note: passes that {file or name} lets overlap run one after the other: what could overlap "
                        "is communication over tensor ranks, and grid.tensor is 1"]
                expected = said if pipeline == 2 and (name, file) in (("dualpipev", None), ("file", self.saved)) else []
                planned = run("plan", self.config, *grid).stdout
                trained = run("train", self.config, *grid, "--run.directory", self.directory(f"{name} {pipeline}"),
                              "--evaluation.batches", 0, ranks=pipeline if pipeline > 1 else 0).stdout
                for shown in (planned, trained):
                    self.assertEqual(self.notes(shown), expected)

    def test_over_tensor_ranks_training_is_the_same_to_the_bit(self):
        arguments = (*self.arguments, "--train.steps", 3, "--evaluation.batches", 0)
        for sequence_parallel in ("false", "true"):
            with self.subTest(sequence_parallel=sequence_parallel):
                found = []
                for file in (self.saved, self.plain):
                    directory = self.directory(f"{file.stem} {sequence_parallel}")
                    shown = run("train", self.config, "--run.directory", directory, *arguments,
                                *self.grid(2, 2, "file", file), "--grid.sequence_parallel", sequence_parallel, ranks=4).stdout
                    check_peaks_of_ranks(self, directory, 4)
                    found.append((series(directory, "loss"), series(directory, "gradient_norm"),
                                  self.tensor_files(directory, 3)))
                    self.assertEqual(self.notes(shown), [
                        f"note: of two passes that {file} lets overlap one computes while the other communicates over its "
                        "tensor ranks"] if file == self.saved else [])
                self.assertEqual(found[0], found[1])

    def test_the_leaner_of_the_two_is_enough(self):
        def plan(how, file, budget, *more):
            return run("plan", self.config, *self.arguments, *self.grid(2, 2, "file", file), "--memory.plan", how,
                       "--memory.budget", budget, *more).stdout

        def peak(how, file, budget="64MiB"):
            return json.loads(plan(how, file, budget, "--json"))["peak_bytes"]

        for how, overlapping_is_leaner in (("keep-all", True), ("full", False)):
            with self.subTest(how):
                together, in_turn = peak(how, self.saved), peak(how, self.plain)
                self.assertEqual(together < in_turn, overlapping_is_leaner)
                least = min(together, in_turn)
                shown = plan(how, self.saved, least)
                self.assertIn(f"smallest budget: {least} B", shown)
                self.assertEqual(peak(how, self.saved, least), least)
                said = "; those of stage 0 run one after the other: memory.budget has no room for both"
                self.assertEqual([note.endswith(said) for note in self.notes(shown)], [not overlapping_is_leaner])

    def test_a_device_that_waits_for_collectives_runs_them_in_turn(self):
        cluster = self.folder / "waits.toml"
        text = (SOURCE / "config/clusters/dgx_a100.toml").read_text()
        self.assertNotIn("[software]", text)
        cluster.write_text(text + "\n[software]\noverlap_collectives = false\n")
        shown, seconds = {}, {}
        for file in (self.saved, self.plain):
            arguments = (*self.arguments, *self.grid(2, 2, "file", file), "--cluster", cluster, "--memory.budget", "2GiB")
            shown[file] = run("plan", self.config, *arguments).stdout
            seconds[file] = json.loads(run("plan", self.config, *arguments, "--json").stdout)["seconds"]
        self.assertEqual(seconds[self.saved], seconds[self.plain])
        self.assertEqual(self.notes(shown[self.saved]), [
            f"note: passes that {self.saved} lets overlap run one after the other: software.overlap_collectives of the cluster "
            "is false"])

    def test_what_given_programs_do_is_said(self):
        folder = self.folder / "given"
        run("plan", self.config, *self.arguments, *self.grid(2, 2, "file", self.plain), "--program", folder)
        shown = run("train", self.config, *self.arguments, *self.grid(2, 2, "file", self.saved), "--train.steps", 1,
                    "--evaluation.batches", 0, "--run.directory", self.directory("given"), "--run-program", folder,
                    ranks=4).stdout
        self.assertEqual(self.notes(shown), [
            f"note: passes that {self.saved} lets overlap run one after the other: so their Programs have it"])


class RefusalTest(ProgramTest):
    def refused(self, ranks, *arguments):
        return run("train", self.config, "--run.directory", self.directory("no"), *arguments, ranks=ranks, check=2).stderr

    def test_what_cannot_work_is_refused_with_what_does(self):
        self.assertIn("heads", self.refused(3, "--grid.tensor", 3))
        self.assertIn("blocks", self.refused(8, "--grid.pipeline", 8))
        self.assertIn("blocks", self.refused(2, "--grid.pipeline", 2, "--grid.schedule", "interleaved", "--grid.chunks", 4))
        self.assertIn("grid.schedule", self.refused(2, "--grid.pipeline", 2, "--grid.schedule", "1f2b"))
        self.assertIn("grid.schedule = varuna", self.refused(2, "--grid.pipeline", 2, "--grid.schedule", "varuna"))
        missing = self.refused(2, "--grid.pipeline", 2, "--grid.schedule", "file", "--grid.schedule_file", "nowhere.json")
        self.assertIn("grid.schedule_file = nowhere.json", missing)
        path = self.folder / "other.json"
        path.write_text(json.dumps(own_schedule(3)))
        other = self.refused(2, "--grid.pipeline", 2, "--grid.schedule", "file", "--grid.schedule_file", path)
        self.assertIn("train.global_batch", other)
        schedule = own_schedule(4)
        schedule["order"] = [[[work, chunk, 3 - m] if work.startswith("backward") else [work, chunk, m]
                              for work, chunk, m in sorted(order, key=lambda one: one[0].startswith("backward"))]
                             for order in schedule["order"]]
        path.write_text(json.dumps(schedule))
        order = self.refused(2, "--grid.pipeline", 2, "--grid.schedule", "file", "--grid.schedule_file", path)
        self.assertIn("order of micro-batches", order)
        self.assertIn("direction", self.refused(2, "--grid.pipeline", 2, "--grid.schedule", "chimera",
                                                "--train.global_batch", 2))
        self.assertIn("even", self.refused(3, "--grid.pipeline", 3, "--grid.schedule", "chimera"))
        self.assertIn("grid.group_size", self.refused(2, "--grid.pipeline", 2, "--grid.group_size", 4))
        self.assertIn("grid.zero", self.refused(2, "--grid.data", 2, "--grid.zero", 4))
        odd = self.refused(2, "--grid.tensor", 2, "--grid.sequence_parallel", "true", "--model.sequence", 7,
                           "--train.micro_batch", 1)
        self.assertIn("of train.micro_batch the nearest that does is 2", odd)


if __name__ == "__main__":
    unittest.main(verbosity=2)
