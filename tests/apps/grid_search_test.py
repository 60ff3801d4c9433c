# SPDX-License-Identifier: MIT
"""`garonne plan` without a grid: the ten best of a number of ranks, on clusters from files."""
import json
import math
import os
import re
import time
import unittest

from support import SOURCE, ProgramTest, run

CLUSTER = """
name = "two small nodes"
source = "made up"
devices_per_node = 4
nodes = 2
[device]
memory = "64 MiB"
bytes_per_second = 20e9
[device.flops]
float32 = 1e11
[link.inside_node]
latency_seconds = 1e-6
bytes_per_second = 5e9
[link.between_nodes]
latency_seconds = 5e-6
bytes_per_second = 0.5e9
"""

# All 96 layers under the label long.
LAYERS = int(os.environ.get("GARONNE_LAYERS", 24))
LARGE = f"""
[model]
layers = {LAYERS}
hidden = 12288
heads = 96
sequence = 2048
vocabulary = 51200
[train]
global_batch = 4096
precision = "bfloat16"
[evaluation]
batches = 0
"""


class GridSearchTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cluster = cls.folder / "cluster.toml"
        cls.cluster.write_text(CLUSTER)

    def search(self, *arguments, config=None):
        return json.loads(run("plan", config or self.config, "--json", *arguments, timeout=600).stdout)

    def test_the_ten_best_are_those_of_all(self):
        for budget in ("64MiB", "600KiB"):
            arguments = ("--ranks", 4, "--cluster", self.cluster, "--train.global_batch", 8, "--model.layers", 3,
                         "--memory.budget", budget)
            quick = self.search(*arguments)
            everything = self.search(*arguments, "--exhaustive")
            self.assertEqual(quick["format"], "garonne.grids")
            self.assertEqual(len(quick["grids"]), 10)
            self.assertTrue(quick["proven"])
            self.assertLess(quick["planned"], everything["planned"])
            self.assertEqual([grid["seconds"] for grid in quick["grids"]],
                             [grid["seconds"] for grid in everything["grids"]])
            for grid in everything["grids"]:
                self.assertEqual(grid["data"] * grid["pipeline"] * grid["tensor"], 4)
                self.assertLessEqual(grid["seconds_at_least"], grid["seconds"] * (1 + 1e-9))
                self.assertLessEqual(max(grid["peak_bytes"]), quick["budget_bytes"])
                self.assertEqual(len(grid["peak_bytes"]), grid["pipeline"])
                self.assertIn(grid["binds"], grid["parts"])
            layouts = [[grid[key] for key in ("data", "pipeline", "tensor", "sequence_parallel", "schedule", "chunks", "micro_batch")]
                       for grid in quick["grids"]]
            self.assertEqual(len(set(map(str, layouts))), 10, "they differ in more than the ZeRO stage")
            shown = [[grid[key] for key in ("data", "pipeline", "tensor", "sequence_parallel", "micro_batch")] +
                     [f"{grid['seconds']:.9g}"] for grid in quick["grids"]]
            self.assertEqual(len(set(map(str, shown))), 10, "they differ in more than schedules that take equally long")

    def test_the_same_twice(self):
        arguments = ("--search", "--grid.data", 2, "--cluster", self.cluster)
        self.assertEqual(self.search(*arguments), self.search(*arguments))

    def test_the_best_can_be_planned_with_its_keys(self):
        best = self.search("--ranks", 8, "--cluster", self.cluster)["grids"][0]
        keys = []
        for key in ("data", "pipeline", "tensor", "schedule", "chunks", "zero", "bucket"):
            keys += [f"--grid.{key}", best[key]]
        keys += ["--grid.sequence_parallel", str(best["sequence_parallel"]).lower(),
                 "--train.micro_batch", best["micro_batch"]]
        plan = self.search(*keys, "--cluster", self.cluster)
        self.assertEqual(plan["format"], "garonne.plan")
        self.assertEqual(plan["costs"], "nominal")
        # The planner by node looks further than the search.
        self.assertLessEqual(plan["seconds"], best["seconds"] * (1 + 1e-9))
        self.assertEqual(plan["parts"].keys(), best["parts"].keys())
        self.assertEqual(plan["binds"], max(plan["parts"], key=plan["parts"].get))
        self.assertLessEqual(plan["bubble_seconds"], plan["seconds"])

    def keys_of(self, grid):
        keys = [part for key in ("data", "pipeline", "tensor", "sequence_parallel", "schedule", "chunks", "zero", "bucket")
                for part in (f"--grid.{key}", str(grid[key]).lower())]
        return [*keys, "--train.micro_batch", grid["micro_batch"]]

    def test_what_is_found_can_be_planned_and_trained(self):
        # Stages as the seconds of a machine with slow memory cut them need less than as they are declared.
        slow = self.folder / "slow.toml"
        slow.write_text(CLUSTER.replace("20e9", "2e8"))
        keys = ("--model.kind", "llama", "--model.layers", 3, "--model.hidden", 64, "--model.heads", 4, "--model.sequence", 64,
                "--model.vocabulary", 4099, "--model.dropout", 0, "--train.global_batch", 8, "--train.micro_batch", 1, "--evaluation.batches", 0,
                "--grid.pipeline", 2, "--grid.schedule", "1f1b", "--cluster", slow)
        one = self.search(*keys)["minimum_budget_bytes"]
        for budget in (one - 1, one, one + 2048):
            done = run("plan", self.config, *keys, "--json", "--search", "--ranks", 2, "--memory.budget", budget, check=None)
            self.assertEqual(done.returncode, 3 if budget < one else 0, done.stderr)
            for grid in json.loads(done.stdout)["grids"] if budget >= one else ():
                plan = self.search(*keys, *self.keys_of(grid), "--memory.budget", budget)
                self.assertLessEqual(plan["peak_bytes"], budget)
        copies = ("--ranks", 1, "--cluster", self.cluster, "--model.layers", 3, "--train.global_batch", 8, "--train.steps", 100,
                  "--checkpoint.every", 10, "--checkpoint.saving", "asynchronous", "--evaluation.batches", 0)
        for budget in ("64MiB", "1500KiB", "1200KiB", "900KiB"):
            done = run("plan", self.config, "--json", "--search", *copies, "--memory.budget", budget, check=None)
            self.assertIn(done.returncode, (0, 3), done.stderr)
            for grid in json.loads(done.stdout)["grids"] if done.returncode == 0 else ():
                self.assertTrue(self.search(*copies[2:], *self.keys_of(grid), "--memory.budget", budget)["saving"]["asynchronous"])

    def test_a_batch_of_many_ranks_is_planned(self):
        keys = ("--cluster", self.cluster, "--train.global_batch", 16384, "--train.micro_batch", 1, "--grid.data", 128,
                "--model.layers", 4)
        two = self.folder / "many.toml"
        two.write_text(CLUSTER.replace("nodes = 2", "nodes = 64"))
        plan = self.search(*keys[2:], "--cluster", two)
        self.assertGreater(plan["seconds"], 0)

    def test_a_named_plan_plans_every_grid(self):
        arguments = ("--cluster", self.cluster, "--model.layers", 3)
        automatic = self.search("--ranks", 4, *arguments)
        self.assertEqual(automatic["plan"], "auto")
        for plan in ("full", "uniform"):
            named = self.search("--ranks", 4, *arguments, "--memory.plan", plan)
            self.assertEqual(named["plan"], plan)
            if plan == "full":
                self.assertGreater(named["grids"][0]["seconds"], automatic["grids"][0]["seconds"])
            for grid in named["grids"][:3]:
                self.assertTrue(all(name.startswith(plan) for name in grid["plans"]), grid["plans"])
                alone = self.search(*self.keys_of(grid), *arguments, "--memory.plan", plan)
                self.assertAlmostEqual(alone["seconds"], grid["seconds"], delta=1e-12)
                self.assertGreaterEqual(grid["seconds"], grid["seconds_at_least"] * (1 - 1e-9))
            # As planning everything finds it.
            everything = self.search("--ranks", 4, *arguments, "--memory.plan", plan, "--exhaustive")
            self.assertEqual([grid["seconds"] for grid in named["grids"]], [grid["seconds"] for grid in everything["grids"]])
        out = run("plan", self.config, "--ranks", 4, *arguments, "--memory.plan", "full").stdout
        self.assertIn("each grid is planned by memory.plan = full", " ".join(out.split()))
        # Where it keeps everything, too little memory is too little.
        refused = run("plan", self.config, "--ranks", 4, *arguments, "--memory.plan", "keep-all", "--memory.budget", "60KiB",
                      check=3).stderr
        self.assertIn("smallest budget", refused)
        refused = run("plan", self.config, "--ranks", 4, *arguments, "--memory.plan", "full", "--planner", "all", check=2).stderr
        self.assertIn("memory.plan = full", refused)

    def test_keys_that_are_given_stay(self):
        arguments = ("--ranks", 8, "--cluster", self.cluster)
        pinned = ("--grid.tensor", 2, "--train.micro_batch", 1, "--grid.zero", 2)
        answer = self.search(*arguments, *pinned)
        self.assertEqual(answer["pinned"], {"grid.tensor": "2", "train.micro_batch": "1", "grid.zero": "2"})
        self.assertEqual({(grid["tensor"], grid["micro_batch"], grid["zero"]) for grid in answer["grids"]}, {(2, 1, 2)})
        self.assertGreater(len(answer["grids"]), 1)
        self.assertEqual(self.search(*arguments)["pinned"], {})
        # Of all grids that have them, the fastest.
        everything = self.search(*arguments, *pinned, "--exhaustive")
        self.assertEqual(answer["grids"][0]["seconds"], everything["grids"][0]["seconds"])
        out = run("plan", self.config, *arguments, *pinned).stdout
        self.assertIn("given, not searched for: grid.tensor = 2, grid.zero = 2, train.micro_batch = 1", out)
        # Those of the run file do not.
        config = self.folder / "with_grid.toml"
        config.write_text(self.config.read_text() + "\n[grid]\ntensor = 2\n")
        free = self.search(*arguments, config=config)
        self.assertIn(1, {grid["tensor"] for grid in free["grids"]})
        refused = run("plan", self.config, *arguments, "--train.micro_batch", 3, check=2).stderr
        self.assertIn("no grid of so many ranks has train.micro_batch = 3", refused)
        refused = run("plan", self.config, *arguments, "--grid.tensor", 2, "--planner", "all", check=2).stderr
        self.assertIn("grid.tensor = 2", refused)
        # And a job has them once more from the search.
        script = self.folder / "pinned.sbatch"
        run("plan", self.config, *arguments, *pinned, "--sbatch", script)
        self.assertIn("--grid.tensor 2", script.read_text())
        self.assertNotIn("--grid.zero 0", script.read_text())

    # Every rank writes its part of the whole model, with two states, before the job's time is over.
    def test_a_job_is_warned_in_time_for_its_checkpoint(self):
        cluster = self.folder / "large.toml"
        cluster.write_text(CLUSTER.replace("64 MiB", "256 GiB"))
        arguments = ("--cluster", cluster, "--memory.budget", "256GiB", "--model.layers", 2, "--model.hidden", 4096,
                     "--train.micro_batch", 1)
        numbers = self.search(*arguments)["parameters"]
        script = self.folder / "large.sbatch"
        for grid in (("--grid.data", 2), ("--grid.tensor", 2), ("--ranks", 2, "--search", "--grid.tensor", 2)):
            with self.subTest(grid):
                answer = self.search(*arguments, *grid, "--sbatch", script, "--time-limit", 600)
                step = answer.get("grids", [answer])[0]["seconds"]
                written = numbers * 12 // 2 / 100e6
                warning = int(re.search(r"--signal=B:USR1@(\d+)", script.read_text())[1])
                self.assertEqual(warning, math.ceil(180 + 2 * (step + written)))

    def test_other_rates(self):
        arguments = ("--ranks", 8, "--cluster", self.cluster)
        self.assertNotIn("other_rates", self.search(*arguments))
        answer = self.search(*arguments, "--tolerance", 60)
        rates = answer["other_rates"]
        self.assertEqual({other["factor"] for other in rates}, {0.4, 1.6})
        self.assertEqual(len({other["rate"] for other in rates}) * 2, len(rates))
        for other in rates:
            self.assertGreaterEqual(other["regret"], 0)
            self.assertEqual(other["best"] == 0, other["regret"] == 0)
            self.assertLess(other["best"], len(answer["grids"]))
        text = run("plan", self.config, *arguments, "--tolerance", 60).stdout
        changes = [line for line in text.splitlines() if re.match(r"with .* 60 % (slower|faster) grid \d+ is best", line)]
        self.assertEqual(len(changes), sum(other["best"] > 0 for other in rates))
        self.assertEqual("the first stays best" in text, not changes)
        self.assertIn("--tolerance", run("plan", self.config, "--tolerance", 10, check=2).stderr)

    def test_table_keys_and_programs(self):
        folder = self.directory("programs")
        out = run("plan", self.config, "--ranks", 8, "--cluster", self.cluster, "--program", folder).stdout
        self.assertIn("8 ranks on two small nodes", out)
        self.assertIn("[grid]", out)
        self.assertEqual(len([line for line in out.splitlines() if re.match(r" ?\d+  ", line)]), 2 * 10)
        self.assertEqual(" dualpipev " in out, "passes that dualpipev lets overlap" in out)
        programs = [json.loads(file.read_text()) for file in folder.glob("rank_*.json")]
        self.assertEqual(sorted(rank for program in programs for rank in program["ranks"]), list(range(8)))

    def test_rates_are_those_of_the_model_by_hand(self):
        layers, hidden, sequence, vocabulary, batch = 2, 32, 32, 512, 8
        # Six operations for each number of a product and token, and attention forward and twice back.
        numbers = layers * 12 * hidden**2 + vocabulary * hidden
        operations = batch * sequence * (6 * numbers + 12 * layers * sequence * hidden)
        keys = ("--model.layers", layers, "--model.hidden", hidden, "--model.sequence", sequence, "--model.vocabulary", vocabulary,
                "--train.global_batch", batch)
        answer = self.search("--ranks", 8, "--cluster", self.cluster, *keys)
        single = self.search("--grid.data", 2, "--grid.pipeline", 2, "--grid.tensor", 2, "--train.micro_batch", 2,
                             "--cluster", self.cluster, *keys)
        for grid in [single, *answer["grids"]]:
            self.assertAlmostEqual(grid["samples_per_second"] * grid["seconds"], batch)
            self.assertAlmostEqual(grid["tokens_per_second"] * grid["seconds"], batch * sequence)
            # Norms and activations are declared, too, and left out by hand.
            self.assertAlmostEqual(grid["model_operations_per_second"] * 8 * grid["seconds"] / operations, 1, delta=0.1)
            self.assertAlmostEqual(grid["model_utilisation"], grid["model_operations_per_second"] / 1e11)
            self.assertAlmostEqual(sum(grid["parts"].values()) / grid["seconds"], 1)
            links = sum(seconds for name, seconds in grid["parts"].items() if "link" in name or name == "sums of the step")
            self.assertAlmostEqual(grid["communication_seconds"], links)
            self.assertLess(grid["communication_seconds"], grid["bubble_seconds"] + 1e-12)
            self.assertEqual("bubble" in grid["parts"], grid.get("pipeline", 2) > 1)

    def test_tables_are_readable(self):
        one_stage = ("--ranks", 4, "--cluster", self.cluster, "--model.layers", 1)
        for arguments in (("--ranks", 8, "--cluster", self.cluster), one_stage, ("--ranks", 64, "--train.global_batch", 64)):
            out = run("plan", self.config, *arguments, "--tolerance", 60).stdout
            self.assertLessEqual(max(map(len, out.splitlines())), 120)
            for words in ("micro-batches", "tokens/s", "TFLOP/s", "used", "communication", "`garonne plan`"):
                self.assertIn(words, out)
            tables = [line.split() for line in out.splitlines() if re.match(r" ?\d+  ", line)]
            grids = len(tables) // 2
            self.assertGreater(grids, 0)
            for speed, time_of in zip(tables[:grids], tables[grids:]):
                self.assertEqual(speed[0], time_of[0])
                # Pipelines alone have a bubble.
                self.assertEqual(speed[2] == "1", "-" == time_of[7], out)
            self.assertEqual("one efficiency, 1, for products of all sizes" in " ".join(out.split()), "--cluster" in arguments)
            self.assertEqual(f"this machine has {os.cpu_count()} core" in out, "--cluster" not in arguments)

    def test_a_single_plan_says_what_its_rows_are(self):
        out = run("plan", self.config, "--grid.pipeline", 2, "--cluster", self.cluster).stdout
        self.assertLessEqual(max(map(len, out.splitlines())), 120)
        self.assertRegex(out, r"(?m)^of these stage [01] is shown below$")
        # The disk is that of a node: what is free on this machine's is not asked.
        wide = {"gpt2_xl_disk.toml": ["--memory.disk", self.folder / "of_a_node"],
                "gpt2_1558m.toml": ["--cluster", SOURCE / "config/clusters/dgx_h200.toml", "--grid.pipeline", 8]}
        for config, options in wide.items():
            lines = run("plan", SOURCE / "config" / config, *options).stdout.splitlines()
            self.assertLessEqual(max(map(len, lines)), 120, config)
        self.assertRegex(out, r"plans of stage [01] alone, as if it waited for no other:")
        self.assertRegex(out, r"of [\d.]+ ms the busiest stage computes [\d.]+, waits")
        self.assertRegex(out, r"\d tokens/s · [\d.e-]+ TFLOP/s a device, [\d.]+ % of its 0.1 ")
        self.assertNotIn("alone", run("plan", self.config, "--cluster", self.cluster).stdout)

    def test_an_automatic_budget_is_one_number(self):
        out = run("plan", self.config, "--memory.budget", "auto").stdout
        said = re.search(r"memory.budget = auto: ([\d.]+ \w+) a rank", out)[1]
        self.assertRegex(out, rf"  budget +\d+ B +{said} ")

    def test_slow_links_between_nodes_keep_traffic_inside(self):
        slow = self.folder / "slow.toml"
        slow.write_text(CLUSTER.replace("bytes_per_second = 0.5e9", "bytes_per_second = 1e6"))
        best = self.search("--ranks", 8, "--cluster", slow)["grids"][0]
        fast = self.search("--ranks", 8, "--cluster", self.cluster)["grids"][0]
        self.assertLessEqual(best["between_nodes_bytes"], fast["between_nodes_bytes"])
        self.assertGreater(best["seconds"], fast["seconds"])

    def test_refusals(self):
        def refused(*arguments, code=2):
            return run("plan", self.config, *arguments, check=code).stderr

        self.assertIn("8 devices", refused("--ranks", 16, "--cluster", self.cluster))
        self.assertIn("train.global_batch = 8", refused("--ranks", 7))
        self.assertIn("cannot be read", refused("--ranks", 4, "--cluster", self.folder / "absent.toml"))
        self.assertIn("device.flops.bfloat16", refused("--ranks", 4, "--cluster", self.cluster,
                                                       "--train.precision", "bfloat16"))
        self.assertIn("--explain", refused("--ranks", 4, "--explain"))
        none = refused("--ranks", 4, "--memory.budget", "20KiB", code=3)
        self.assertIn("smallest budget", none)
        self.assertIn("data", none)
        # Of the grid that it names: the search takes it there, and plan names the same number for its keys.
        least = int(re.search(r"smallest budget that works is (\d+) bytes", none)[1])
        data, pipeline, tensor = re.search(r"data (\d+) × pipeline (\d+) × tensor (\d+)", none).groups()
        self.assertIn(f"works is {least} bytes", refused("--ranks", 4, "--memory.budget", least - 1, code=3))
        found = self.search("--ranks", 4, "--memory.budget", least)["grids"][0]
        self.assertEqual([str(found[key]) for key in ("data", "pipeline", "tensor")], [data, pipeline, tensor])
        keys = [part for key in ("data", "pipeline", "tensor", "sequence_parallel", "schedule", "chunks", "zero", "bucket")
                for part in (f"--grid.{key}", str(found[key]).lower())]
        self.assertIn(f"works is {least} bytes",
                      refused(*keys, "--train.micro_batch", found["micro_batch"], "--memory.budget", 1000, code=3))

    def test_what_cannot_be_planned_is_left_out(self):
        # A prime: as many micro-batches, which are too many for a plan, or one.
        samples = 1048573
        large = self.folder / "large_devices.toml"
        large.write_text(CLUSTER.replace('memory = "64 MiB"', 'memory = "2 TiB"'))
        arguments = ("--search", "--cluster", large, "--train.global_batch", samples, "--evaluation.batches", 0)
        answer = self.search(*arguments, "--memory.budget", "1TiB")
        self.assertEqual([grid["micro_batch"] for grid in answer["grids"]], [samples])
        self.assertEqual([left["grid"].split(", ")[-1] for left in answer["unplanned"]], [f"{samples} micro-batches of 1"])
        self.assertIn("larger train.micro_batch", answer["unplanned"][0]["reason"])
        out = run("plan", self.config, *arguments, "--memory.budget", "1TiB").stdout
        self.assertRegex(out, rf"left out: .*, {samples} micro-batches of 1: train.global_batch")
        # The smallest budget is of the other one, too.
        self.assertIn(f"1 micro-batch of {samples}",
                      run("plan", self.config, *arguments, "--memory.budget", "1GiB", check=3).stderr)

    def test_four_thousand_devices(self):
        config = self.folder / "large.toml"
        config.write_text(LARGE)
        start = time.time()
        answer = self.search("--ranks", 4096, "--cluster", self.frontier(), config=config)
        print(f"4096 devices, {LAYERS} layers: {time.time() - start:.1f} s, {answer['candidates']} grids, {answer['planned']} planned")
        self.assertEqual(len(answer["grids"]), 10)
        seconds = [grid["seconds"] for grid in answer["grids"]]
        self.assertEqual(seconds, sorted(seconds))
        for grid in answer["grids"]:
            self.assertEqual(grid["data"] * grid["pipeline"] * grid["tensor"], 4096)
            self.assertLessEqual(max(grid["peak_bytes"]), answer["budget_bytes"])

    def frontier(self):
        return os.path.join(os.environ["GARONNE_SOURCE"], "config", "clusters", "frontier.toml")


if __name__ == "__main__":
    unittest.main(verbosity=2)
