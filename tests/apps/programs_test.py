# SPDX-License-Identifier: MIT
"""Saved Programs are carried out, with the bits of the run that planned them, or refused by name."""
import copy
import json
import unittest

from support import ProgramTest, metrics, run


def losses(directory):
    return [(row["step"], row["loss"], row["gradient_norm"]) for row in metrics(directory)]


class RunProgramTest(ProgramTest):
    # Options, ranks: one device, a budget that recomputes, each axis, shards of everything.
    GRIDS = {
        "alone": ((), 0),
        "recomputing": (("--memory.plan", "full"), 0),
        "data": (("--grid.data", 2, "--grid.zero", 1), 2),
        "shards": (("--grid.data", 2, "--grid.zero", 3, "--grid.bucket", "8 KiB"), 2),
        "pipeline": (("--grid.pipeline", 2), 2),
        "tensor": (("--grid.tensor", 2), 2),
        "all": (("--grid.data", 2, "--grid.pipeline", 2, "--grid.zero", 1), 4),
    }

    def planned(self, name):
        """A folder of Programs that `garonne plan` has written for a grid."""
        options, _ = self.GRIDS[name]
        folder = self.directory(f"programs-{name}")
        run("plan", self.config, *options, "--program", folder)
        return folder

    def refused(self, *options, words, ranks=0):
        done = self.train(self.directory("refused"), *options, ranks=ranks, check=2)
        self.assertEqual(done.stderr.count("garonne:"), 1, done.stderr)
        for word in ("--run-program", *words):
            self.assertIn(word, done.stderr)
        self.assertFalse(self.directory("refused").exists())

    def test_what_was_planned_elsewhere_and_what_was_run_before_runs_with_the_same_bits(self):
        for name, (options, ranks) in self.GRIDS.items():
            with self.subTest(name):
                plain = self.directory(f"plain-{name}")
                self.train(plain, *options, ranks=ranks)
                wanted = losses(plain)
                weights = self.tensor_files(plain, 6)
                for source in (self.planned(name), plain / "program"):
                    again = self.directory(f"again-{name}-{source.name}")
                    self.train(again, *options, "--run-program", source, ranks=ranks)
                    self.assertEqual(losses(again), wanted)
                    self.assertEqual(self.tensor_files(again, 6), weights)
                    # What was run is what was read.
                    mine, theirs = (json.loads((folder / "rank_0.json").read_text())
                                    for folder in (again / "program", source))
                    for instruction in mine["instructions"] + theirs["instructions"]:
                        for key in [key for key in instruction if key.startswith("measured")]:
                            del instruction[key]
                    for key in ("instructions", "buffers", "pieces", "model"):
                        self.assertEqual(mine[key], theirs[key], key)

    def test_a_program_that_does_not_fit_is_refused(self):
        folder = self.planned("alone")
        for options, words in (
                (("--model.hidden", 64), ("another model",)),
                (("--train.micro_batch", 4), ("another model",)),
                (("--train.precision", "bfloat16"), ("another model",)),
                (("--optimizer.weight_decays", "qkv=0.5"), ("another model",)),
                (("--train.global_batch", 16), ("has 4 micro-batches", "make 8")),
                (("--memory.budget", "300 kB"), ("has a peak of", "300000 B"))):
            self.refused(*options, "--run-program", folder, words=(*words, "rank_0.json"))
        self.refused("--grid.data", 2, "--run-program", folder, words=("micro-batches",), ranks=2)
        self.refused("--grid.data", 2, "--train.global_batch", 16, "--run-program", folder,
                     words=("grid.data = 1",), ranks=2)
        self.refused("--grid.data", 2, "--run-program", self.planned("shards"), ranks=2, words=("grid.zero",))

    def test_files_that_are_missing_or_none(self):
        empty = self.directory("empty")
        empty.mkdir()
        done = self.train(self.directory("run"), "--run-program", empty, check=5)
        self.assertIn("rank_0.json", done.stderr)
        (empty / "rank_0.json").write_text("{}")
        self.assertIn("format", self.train(self.directory("run"), "--run-program", empty, check=2).stderr)
        old = json.loads((self.planned("alone") / "rank_0.json").read_text())
        old["version"] = 1
        (empty / "rank_0.json").write_text(json.dumps(old))
        self.assertIn("version", self.train(self.directory("run"), "--run-program", empty, check=2).stderr)

    def test_a_changed_program_is_refused_with_its_instruction(self):
        good = json.loads((self.planned("recomputing") / "rank_0.json").read_text())
        folder = self.directory("changed")
        folder.mkdir()

        def changed(change, where="instruction"):
            program = copy.deepcopy(good)
            change(program)
            (folder / "rank_0.json").write_text(json.dumps(program))
            self.refused("--memory.plan", "full", "--run-program", folder, words=(f"illegal Program: {where}",))

        instructions = good["instructions"]
        of = {operation: next(i for i, one in enumerate(instructions) if one["operation"] == operation)
              for operation in ("forward", "backward", "update", "sum-squares", "load", "emit-loss")}

        def edit(operation, *path, value):
            def change(program):
                place = program["instructions"][of[operation]]
                for step in path[:-1]:
                    place = place[step]
                place[path[-1]] = value
            return change

        changed(lambda program: program["instructions"].pop(of["forward"]))
        changed(lambda program: program["instructions"].pop(of["update"]))
        changed(edit("forward", "node_index", value=10000))
        changed(edit("forward", "node_index", value=instructions[of["forward"]]["node_index"] + 1))
        changed(edit("forward", "arguments", "inputs", value=[]))
        changed(lambda program: next(one for one in program["instructions"] if one["operation"] == "forward-keep"
                                     and "record" in one["arguments"])["arguments"].pop("record"))
        changed(edit("backward", "micro_batch", value=99))
        changed(edit("backward", "arguments", "placements", value=[]))
        changed(edit("backward", "arguments", "parameter_gradients", value=[]))
        changed(edit("update", "arguments", "pieces", value=[0, 0]))
        changed(edit("update", "arguments", "inputs", value=[]))
        changed(edit("sum-squares", "arguments", "pieces", value=[]))
        changed(edit("load", "arguments", "loaded", 0, "value", value=1000))
        changed(edit("emit-loss", "frees", value=[0]))
        changed(lambda program: program["pieces"][0].update(parameter=1))
        # Of the whole step, which is no instruction's.
        changed(lambda program: program["pieces"][0].update(trained=program["pieces"][1]["trained"]), "what is trained: ")


    def test_a_stage_that_loads_too_little_is_refused(self):
        pipeline = ("--grid.pipeline", 3, "--model.layers", 4, "--memory.plan", "full")
        folder = self.directory("stages")
        run("plan", self.config, *pipeline, "--ranks", 3, "--program", folder)
        path = folder / "rank_1.json"
        program = json.loads(path.read_text())
        loads = [i for i, one in enumerate(program["instructions"]) if one["operation"] == "load"]
        self.assertEqual([program["instructions"][i]["micro_batch"] for i in loads], [0, 1, 2, 3])
        # Between the ends nothing is made by them, so that the Program is legal without.
        program["instructions"][loads[2]]["micro_batch"] = 1
        path.write_text(json.dumps(program))
        self.refused(*pipeline, "--run-program", folder, words=("rank_1.json", "loads micro-batch 1 2 times"), ranks=3)


class CheckTest(ProgramTest):
    def test_what_is_written_is_legal_alone_and_together(self):
        for name, options, ranks, words in (
                ("alone", (), 0, "the rank is alone"),
                ("pipeline", ("--grid.pipeline", 2, "--grid.data", 2), 0, "2 stages of a pipeline meet; 4 ranks"),
                ("trained", ("--grid.tensor", 2), 2, "the 2 ranks of the grid meet")):
            folder = self.directory(name)
            if ranks:
                self.train(folder, *options, ranks=ranks)
                # A run directory will do as well as the folder in it.
                self.assertEqual(run("check", folder).stdout, run("check", folder / "program").stdout)
            else:
                run("plan", self.config, *options, "--program", folder)
            done = run("check", folder)
            self.assertIn("rank 0     legal", done.stdout)
            self.assertIn(words, done.stdout)

    def test_programs_of_every_schedule_are_legal(self):
        small = ("--model.layers", 6, "--train.micro_batch", 1)
        folders = {}
        for schedule in ("1f1b", "gpipe", "interleaved", "chimera", "zb-h1", "zb-v", "dualpipev"):
            with self.subTest(schedule):
                folder = folders[schedule] = self.directory(schedule)
                run("plan", self.config, *small, "--grid.pipeline", 2, "--grid.schedule", schedule, "--program", folder)
                self.assertEqual(run("check", folder).stdout.count(" legal "), 2)
        # A node that misses a micro-batch of its direction.
        folder = folders["chimera"]
        program = json.loads((folder / "rank_0.json").read_text())
        lists = program["instructions"]
        backward = max(i for i, one in enumerate(lists) if one["operation"].startswith("backward"))
        del lists[backward]
        (folder / "rank_0.json").write_text(json.dumps(program))
        self.assertIn("illegal Program", run("check", folder, check=2).stderr)

    def test_the_rank_the_instruction_and_the_rule_are_named(self):
        folder = self.directory("run")
        self.train(folder, "--grid.data", 2, ranks=2)
        path = folder / "program" / "rank_1.json"
        program = json.loads(path.read_text())
        wait = next(i for i, one in enumerate(program["instructions"]) if one["operation"] == "wait")
        program["instructions"][wait].update(operation="norm", completes=-1, frees=[])
        path.write_text(json.dumps(program))
        done = run("check", folder / "program", check=2)
        self.assertEqual(done.stderr.count("garonne:"), 1, done.stderr)
        for word in ("rank_1.json", "instruction", "asynchronous"):
            self.assertIn(word, done.stderr)

    def test_what_buffers_hold_is_followed_without_the_model(self):
        folder = self.directory("contents")
        run("plan", self.config, "--memory.plan", "full", "--program", folder)
        path = folder / "rank_0.json"
        program = json.loads(path.read_text())
        # In the first micro-batch it reads them in the other order.
        place, changed = next((i, one) for i, one in enumerate(program["instructions"])
                              if one["operation"].startswith("forward") and one.get("micro_batch") == 1
                              and len(set(one["arguments"]["inputs"])) == 2)
        changed["arguments"]["inputs"].reverse()
        path.write_text(json.dumps(program))
        done = run("check", folder, check=2)
        for word in ("rank_0.json", f"instruction {place},", "is not its input"):
            self.assertIn(word, done.stderr)

    def test_a_step_is_a_whole_one(self):
        folder = self.directory("whole")
        self.train(folder, "--grid.data", 2, ranks=2)
        folder = folder / "program"
        files = [folder / "rank_0.json", folder / "rank_1.json"]
        texts = [path.read_text() for path in files]

        def leave_out(found):
            """Instructions, and the waits for them, on both ranks."""
            for path, text in zip(files, texts):
                program = json.loads(text)
                instructions = program["instructions"]
                gone = {i for i, one in enumerate(instructions) if found(one)}
                self.assertTrue(gone)
                gone |= {i for i, one in enumerate(instructions) if one.get("completes", -1) in gone}
                frees = []
                kept = []
                for i, one in enumerate(instructions):
                    if i in gone:
                        frees += [b for b in one["frees"] if not program["buffers"][b]["name"].endswith(".staging")]
                        continue
                    one["frees"] += frees
                    frees = []
                    if one.get("completes", -1) >= 0:
                        one["completes"] -= sum(1 for g in gone if g < one["completes"])
                    kept.append(one)
                program["instructions"] = kept
                path.write_text(json.dumps(program))

        def meets(group):
            return lambda one: one["operation"] == "all-reduce" and one["channel"]["group"] == group

        last_loss = max(one["micro_batch"] for one in json.loads(texts[0])["instructions"]
                        if one["operation"] == "emit-loss")
        of_all = "not those of all ranks"
        of_losses = "losses are in the sums of the step"
        for found, words, words_of_run in (
                (meets("world"), of_all, of_all),
                (meets("data"), "is not summed over the data group", "is of a grid with grid.data = 1"),
                (lambda one: one["operation"] == "emit-loss" and one["micro_batch"] == last_loss, of_losses, of_losses)):
            leave_out(found)
            self.assertIn(words, run("check", folder, check=2).stderr)
            done = run("train", self.config, "--run.directory", self.directory("not-run"), "--grid.data", 2,
                       "--run-program", folder, check=2, ranks=2)
            self.assertIn(words_of_run, done.stderr)
        for path, text in zip(files, texts):
            program = json.loads(text)
            program["pieces"][0]["counted"] = False
            path.write_text(json.dumps(program))
        self.assertIn("nobody counts the squares of", run("check", folder, check=2).stderr)

    def test_every_tier_has_its_budget(self):
        folder = self.directory("tiers")
        run("plan", self.config, "--program", folder)
        path = folder / "rank_0.json"
        program = json.loads(path.read_text())
        made = {b: i for i, one in enumerate(program["instructions"]) for b in one["writes"]}
        moved = max((b["id"] for b in program["buffers"] if b["kind"] == "value"), key=lambda b: made[b])
        program["buffers"][moved]["tier"] = "host"
        size = program["buffers"][moved]["bytes"]
        for budget, words in ((0, (f"instruction {made[moved]}", "on the tier host", "budget is 0 B")),
                              (size - 1, (f"holds {size} B", f"{size - 1} B")), (size, ())):
            program["host_budget_bytes"] = budget
            path.write_text(json.dumps(program))
            done = run("check", folder, check=2 if words else 0)
            for word in words:
                self.assertIn(word, done.stderr)
        # The run has no such tier.
        done = run("train", self.config, "--run.directory", self.directory("not-run"), "--run-program", folder, check=2)
        self.assertIn("on the tier host, and this run has no memory.host_budget", done.stderr)

    def test_the_bytes_that_a_program_states_are_those_it_has(self):
        folder = self.directory("stated")
        run("plan", self.config, "--grid.pipeline", 2, "--program", folder)
        good = {path: path.read_text() for path in sorted(folder.iterdir())}
        path = folder / "rank_1.json"
        peak = json.loads(good[path])["peak_bytes"]
        smallest = next(one for one in json.loads(good[path])["buffers"] if one["bytes"] % 512)
        for change, words in (
                ({"peak_bytes": 1}, (f"the peak is {peak} B", "states 1 B")),
                ({"peak_bytes": peak + 64}, (f"the peak is {peak} B", f"states {peak + 64} B")),
                ({"granularity": {"device": 512}},
                 (smallest["name"], f"has {smallest['bytes']} B on the tier device", "multiples of 512 B")),
                # Where nothing is, nothing is counted.
                ({"granularity": {"host": 512}}, ())):
            path.write_text(json.dumps({**json.loads(good[path]), **change}))
            done = run("check", folder, check=2 if words else 0)
            for word in words and ("rank_1.json", "illegal Program: instruction", *words):
                self.assertIn(word, done.stderr)

    def test_nothing_to_check(self):
        self.assertIn("rank_<n>.json", run("check", self.folder, check=5).stderr)
        self.assertIn("cannot be read", run("check", self.folder / "none", check=5).stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
