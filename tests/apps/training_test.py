# SPDX-License-Identifier: MIT
"""Training end to end: memory as planned, plans and grids that agree, restarts bit for bit."""
import json
import math
import unittest

from support import ProgramTest, metrics, run, safetensors, series


class MemoryTest(ProgramTest):
    def test_measured_peak_is_the_predicted_one(self):
        for precision in ("float32", "bfloat16"):
            for plan in ("keep-all", "full"):
                for micro_batch in (8, 4, 2):  # 1, 2 and 4 micro-batches
                    directory = self.directory(f"{precision}-{plan}-{micro_batch}")
                    self.train(directory, "--memory.plan", plan, "--train.precision", precision,
                               "--train.micro_batch", micro_batch, "--train.steps", 2)
                    for row in metrics(directory):
                        self.assertLessEqual(row["peak_bytes"], row["planned_peak_bytes"])
                        self.assertGreaterEqual(row["peak_bytes"], 0.99 * row["planned_peak_bytes"])
                    program = json.loads((directory / "program" / "rank_0.json").read_text())
                    for instruction in program["instructions"]:
                        self.assertLessEqual(instruction["measured_peak_bytes"], program["peak_bytes"])

    def test_recomputation_changes_no_bit(self):
        for precision in ("float32", "float64", "bfloat16"):
            kept = self.directory(precision + "-kept")
            recomputed = self.directory(precision + "-recomputed")
            for directory, plan in ((kept, "keep-all"), (recomputed, "full")):
                self.train(directory, "--memory.plan", plan, "--train.precision", precision)
            for key in ("loss", "gradient_norm"):
                self.assertEqual(series(kept, key), series(recomputed, key))
            self.assertEqual(self.tensor_files(kept, 6), self.tensor_files(recomputed, 6))
            self.assertLess(metrics(recomputed)[0]["peak_bytes"], metrics(kept)[0]["peak_bytes"])

    def test_attention_is_dropped_in_training_alone(self):
        dropped = ("--model.dropout", 0, "--model.attention_dropout", 0.3)
        kept, recomputed, plain = (self.directory(name) for name in ("kept", "recomputed", "plain"))
        self.train(kept, *dropped, "--memory.plan", "keep-all")
        self.train(recomputed, *dropped, "--memory.plan", "full")
        self.assertEqual(series(kept, "loss"), series(recomputed, "loss"))
        self.assertEqual(self.tensor_files(kept, 6), self.tensor_files(recomputed, 6))
        self.train(plain, "--model.dropout", 0, "--train.steps", 1)
        self.assertNotEqual(series(plain, "loss")[0], series(kept, "loss")[0])
        for row in metrics(kept) + metrics(recomputed):
            self.assertLessEqual(row["peak_bytes"], row["planned_peak_bytes"])
            self.assertGreaterEqual(row["peak_bytes"], 0.99 * row["planned_peak_bytes"])
        # The same weights, evaluated by a run without it.
        losses = []
        for name, probability in (("with", 0.3), ("without", 0)):
            directory = self.directory(name)
            self.train(directory, "--model.dropout", 0, "--model.attention_dropout", probability, "--init-from", kept,
                       "--optimizer.learning_rate", 0, "--optimizer.minimum_learning_rate", 0, "--optimizer.weight_decay", 0,
                       "--train.steps", 1)
            losses.append(json.loads(run("eval", directory, "--json").stdout)["validation_loss"])
        self.assertAlmostEqual(losses[0], losses[1], delta=1e-6)

    def test_long_sequences_have_no_room_for_all_scores(self):
        sequence = 8192
        # A matrix of scores; a sequence has two of them.
        scores = sequence * sequence * 4
        keys = ("--model.layers", 1, "--model.sequence", sequence, "--model.hidden", 16, "--model.heads", 2,
                "--train.micro_batch", 1, "--train.global_batch", 1, "--train.steps", 1, "--evaluation.batches", 0,
                "--memory.plan", "keep-all", "--memory.budget", "4 GiB")
        models = {"dropped": ("--model.attention_dropout", 0.1), "plain": (),
                  "llama": ("--model.kind", "llama", "--model.kv_heads", 1, "--model.dropout", 0)}
        for name, model in models.items():
            with self.subTest(name):
                directory = self.directory(name)
                self.train(directory, *keys, *model)
                program = json.loads((directory / "program" / "rank_0.json").read_text())
                # What passes keep for others is in it, too.
                self.assertLess(program["peak_bytes"], scores / 2)
                seen = 0
                for instruction in program["instructions"]:
                    self.assertLessEqual(instruction["measured_peak_bytes"], program["peak_bytes"])
                    if instruction.get("transient_bytes"):
                        self.assertLess(instruction["transient_bytes"], scores / 2)
                        seen += 1
                self.assertGreater(seen, 0)

    def test_smallest_budget_works_and_one_byte_less_does_not(self):
        plan = json.loads(run("plan", self.config, "--json").stdout)
        least = plan["minimum_budget_bytes"]
        directory = self.directory("least")
        self.train(directory, "--memory.budget", least, "--train.steps", 1)
        self.assertLessEqual(metrics(directory)[0]["peak_bytes"], least)
        for arguments in (("plan", self.config), ("train", self.config, "--run.directory", self.directory("below"))):
            refused = run(*arguments, "--memory.budget", least - 1, check=3)
            self.assertIn(str(least), refused.stderr)
        self.assertFalse(self.directory("below").exists())


class GridTest(ProgramTest):
    def test_one_rank_and_two_ranks_train_alike(self):
        one, two = self.directory("one"), self.directory("two")
        arguments = ("--train.precision", "float64", "--train.steps", 20)
        self.train(one, *arguments)
        self.train(two, *arguments, "--grid.data", 2, ranks=2)
        for first, second in zip(series(one, "loss"), series(two, "loss"), strict=True):
            self.assertLessEqual(abs(first - second), 1e-9 * abs(first))
        self.assertAlmostEqual(metrics(one)[-1]["validation_loss"], metrics(two)[-1]["validation_loss"], places=9)
        for row in metrics(two):
            self.assertLessEqual(row["peak_bytes"], row["planned_peak_bytes"])
            self.assertGreaterEqual(row["peak_bytes"], 0.99 * row["planned_peak_bytes"])

    def test_buckets_change_no_bit(self):
        wide, narrow = self.directory("wide"), self.directory("narrow")
        self.train(wide, "--grid.data", 2, ranks=2)
        self.train(narrow, "--grid.data", 2, "--grid.bucket", "1kB", ranks=2)
        self.assertEqual(series(wide, "loss"), series(narrow, "loss"))

    def test_four_ranks(self):
        one, four = self.directory("one"), self.directory("four")
        self.train(one, "--train.precision", "float64")
        self.train(four, "--train.precision", "float64", "--grid.data", 4, ranks=4)
        for first, second in zip(series(one, "loss"), series(four, "loss"), strict=True):
            self.assertLessEqual(abs(first - second), 1e-9 * abs(first))

    def test_tensor_ranks_train_as_one_does(self):
        precision = ("--train.precision", "float64", "--model.dropout", 0.1)
        one = self.directory("one")
        self.train(one, *precision)
        for data, parallel in ((1, "false"), (1, "true"), (2, "true")):
            cut = self.directory(f"cut-{data}-{parallel}")
            self.train(cut, *precision, "--grid.data", data, "--grid.tensor", 2,
                       "--grid.sequence_parallel", parallel, ranks=2 * data)
            for key in ("loss", "gradient_norm"):
                for first, second in zip(series(one, key), series(cut, key), strict=True):
                    self.assertLessEqual(abs(first - second), 1e-9 * abs(first))
            self.assertAlmostEqual(metrics(one)[-1]["validation_loss"], metrics(cut)[-1]["validation_loss"], places=9)
            for row in metrics(cut):
                self.assertLessEqual(row["peak_bytes"], row["planned_peak_bytes"])
                self.assertGreaterEqual(row["peak_bytes"], 0.99 * row["planned_peak_bytes"])


class RestartTest(ProgramTest):
    def test_a_restart_on_another_tensor_axis(self):
        precision = ("--train.precision", "float64", "--model.dropout", 0.1, "--train.steps", 6)
        through = self.directory("through")
        self.train(through, *precision)
        for before, after in ((2, 1), (1, 2)):
            stopped = self.directory(f"stopped-{before}-{after}")
            self.train(stopped, *precision, "--train.stop_after", 3, "--grid.tensor", before, ranks=before, check=75)
            self.train(stopped, *precision, "--grid.tensor", after, ranks=after)
            for first, second in zip(series(through, "loss"), series(stopped, "loss"), strict=True):
                self.assertLessEqual(abs(first - second), 1e-9 * abs(first))

    def check_restart(self, ranks):
        grid = ("--grid.data", max(1, ranks), "--train.steps", 40)
        through, stopped = self.directory("through"), self.directory("stopped")
        self.train(through, *grid, "--checkpoint.every", 20, ranks=ranks)
        done = self.train(stopped, *grid, "--train.stop_after", 20, ranks=ranks, check=75)
        self.assertIn("stopped on request", done.stdout)
        self.assertEqual(self.tensor_files(through, 20), self.tensor_files(stopped, 20))
        done = self.train(stopped, *grid, ranks=ranks)
        self.assertIn("continuing from", done.stdout)
        self.assertEqual(series(through, "loss"), series(stopped, "loss"))
        self.assertEqual(series(through, "step"), list(range(1, 41)))
        self.assertEqual(series(stopped, "step"), list(range(1, 41)))
        self.assertEqual(self.tensor_files(through, 40), self.tensor_files(stopped, 40))

    def test_on_one_rank(self):
        self.check_restart(0)

    def test_on_two_ranks(self):
        self.check_restart(2)

    def test_another_grid_reads_the_checkpoint(self):
        directory, alone = self.directory("run"), self.directory("alone")
        arguments = ("--train.precision", "float64", "--train.steps", 8)
        self.train(alone, *arguments)
        self.train(directory, *arguments, "--grid.data", 2, "--train.stop_after", 4, ranks=2, check=75)
        self.train(directory, *arguments, "--grid.data", 1)
        for first, second in zip(series(alone, "loss"), series(directory, "loss"), strict=True):
            self.assertLessEqual(abs(first - second), 1e-9 * abs(first))

    def test_a_finished_run_says_so(self):
        directory = self.directory("run")
        self.train(directory)
        before = (directory / "metrics.jsonl").read_bytes()
        self.assertIn("done already", self.train(directory).stdout)
        self.assertEqual(before, (directory / "metrics.jsonl").read_bytes())


class CommandsTest(ProgramTest):
    def test_a_whole_run_and_what_can_be_asked_of_it(self):
        directory = self.directory("run")
        out = self.train(directory, "--train.steps", 30, "--evaluation.every", 10, "--checkpoint.every", 10).stdout
        for words in ("plan beside measurement", "validation loss", "memory of a rank", "tok/s"):
            self.assertIn(words, out)
        losses = series(directory, "loss")
        self.assertLess(losses[-1], losses[0] - 0.5)
        self.assertTrue(all(math.isfinite(loss) for loss in losses))
        self.assertEqual(sorted(p.name for p in (directory / "checkpoints").iterdir()), ["step-20", "step-30"])
        answer = json.loads(run("eval", directory, "--json", "--generate", "the ", "--tokens", 20).stdout)
        shared = json.loads(run("eval", directory, "--json", "--generate", "the ", "--tokens", 20, ranks=3).stdout)
        for one in (answer, shared):
            self.assertGreater(one["generation"].pop("tokens_per_second"), 0)
        self.assertEqual(shared, answer)
        self.assertEqual(answer["step"], 30)
        self.assertAlmostEqual(answer["validation_loss"], metrics(directory)[-1]["validation_loss"], places=5)
        self.assertLessEqual(answer["peak_bytes"], answer["planned_peak_bytes"])
        self.assertEqual(json.loads(run("eval", directory, "--json", "--step", 20).stdout)["step"], 20)
        run("eval", directory, "--step", 10, check=5)
        initial = json.loads(run("eval", directory, "--json", "--step", 0).stdout)
        self.assertGreater(initial["validation_loss"], answer["validation_loss"])
        self.assertIn("qkv", run("checkpoint", "inspect", directory).stdout)
        self.assertEqual(run("checkpoint", "verify", directory).stdout.count("whole ("), 2)
        self.assertNotEqual(self.exported(directory), self.exported(directory, 0))

    def test_plan_for_other_ranks_and_its_program(self):
        folder = self.directory("program")
        answer = json.loads(run("plan", self.config, "--grid.data", 4, "--json", "--program", folder).stdout)
        self.assertEqual(answer["ranks"], 4)
        self.assertEqual(answer["micro_batches"], 1)
        self.assertGreater(answer["memory"]["parameters"], 0)
        program = json.loads((folder / "rank_0.json").read_text())
        self.assertEqual(program["format"], "garonne.program")
        self.assertEqual(program["ranks"], [0, 1, 2, 3])
        self.assertEqual(program["peak_bytes"], answer["peak_bytes"])

    def test_batches_are_those_of_any_grid(self):
        first = json.loads(run("data", "batch", self.config, "--step", 5, "--json").stdout)
        second = json.loads(run("data", "batch", self.config, "--step", 5, "--json", "--grid.data", 2).stdout)
        self.assertEqual(first, second)
        self.assertEqual(len(first["samples"]), 8)
        self.assertEqual(first["tokens"][0][1:], first["targets"][0][:-1])

    def test_named_parameters_take_no_weight_decay(self):
        rate, decay = 1e-2, 0.25
        keys = ("--train.steps", 1, "--optimizer.warmup_steps", 0, "--optimizer.learning_rate", rate,
                "--optimizer.schedule", "constant", "--optimizer.weight_decay", decay)
        trained = []
        for name, parts in (("all", "none"), ("some", "qkv, layer.1.up"), ("pipeline", "qkv, layer.1.up")):
            directory = self.directory(name)
            if name == "pipeline":
                run("train", self.config, "--run.directory", directory, *keys, "--optimizer.no_decay", parts,
                    "--grid.pipeline", 2, ranks=2)
            else:
                self.train(directory, *keys, *(() if parts == "none" else ("--optimizer.no_decay", parts)))
            self.exported(directory)
            trained.append(safetensors(f"{directory}-export-None/model.safetensors"))
        self.exported(self.directory("all"), 0)
        initial = safetensors(f"{self.directory('all')}-export-0/model.safetensors")
        for name, start in initial.items():
            spared = name.endswith("c_attn.weight") or name == "transformer.h.1.mlp.c_fc.weight"
            for some in trained[1:]:
                for before, with_decay, without in zip(start, trained[0][name], some[name]):
                    self.assertAlmostEqual(without - with_decay, rate * decay * before if spared else 0, delta=2e-6, msg=name)
        listed = json.loads(run("plan", self.config, "--optimizer.no_decay", "qkv", "--json").stdout)["weights"]
        decays = {weight["name"]: weight["decays"] for weight in listed}
        self.assertEqual((decays["layer.0.qkv.weight"], decays["layer.0.up.weight"], decays["final_norm.weight"]),
                         (False, True, False))
        self.assertEqual({weight["name"]: weight["shape"] for weight in listed}["position_embedding.weight"], [32, 32])
        refused = run("plan", self.config, "--optimizer.no_decay", "embeding", check=2).stderr
        self.assertIn("token_embedding", refused)

    def test_profile_makes_the_plan_know_seconds(self):
        run("profile", self.config)
        self.assertGreater(json.loads(run("plan", self.config, "--json").stdout)["seconds"], 0)

    def test_a_model_is_measured_once(self):
        first, again = (self.train(self.directory(name), "--model.hidden", 24) for name in ("first", "again"))
        self.assertIn("profile: measuring ", first.stderr)
        self.assertNotIn("profile", again.stderr)

    def test_help_and_version(self):
        self.assertIn("--memory.budget", run("train", "--help").stdout)
        self.assertIn("garonne", run("--version").stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
