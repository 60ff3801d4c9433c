# SPDX-License-Identifier: MIT
"""`garonne plan` for GPUs that are not here: the shipped run file of GPT-2 on the cluster file of an H200."""
import json
import os
import pathlib
import re
import subprocess
import unittest

from support import BINARY, ProgramTest, SOURCE, run

CLUSTERS = SOURCE / "config" / "clusters"
GPT2 = SOURCE / "config" / "gpt2_124m.toml"
ALLOCATION = 512
LIBRARIES = 64 << 20


class GpuPlanTest(ProgramTest):
    def plan(self, *arguments, config=GPT2, cluster="dgx_h200.toml"):
        return json.loads(run("plan", config, "--cluster", CLUSTERS / cluster, "--json", *arguments).stdout)

    def test_bytes_are_a_gpus(self):
        programs = self.folder / "programs"
        answer = self.plan("--program", programs)
        self.assertEqual(answer["costs"], "nominal")
        self.assertLessEqual(answer["peak_bytes"], answer["budget_bytes"])
        self.assertEqual(answer["memory"]["libraries"], LIBRARIES)
        program = json.loads(next(programs.glob("rank_*.json")).read_text())
        self.assertEqual(program["granularity"], {"device": ALLOCATION})
        self.assertTrue(all(buffer["bytes"] % ALLOCATION == 0 for buffer in program["buffers"]))
        self.assertEqual([buffer["name"] for buffer in program["buffers"] if buffer["kind"] == "workspace"],
                         ["cublas.workspace", "cublaslt.workspace"])
        issued = sum(one.get("issue_seconds", 0) for one in program["instructions"])
        self.assertAlmostEqual(answer["issue_seconds"], issued, delta=1e-9)
        self.assertLess(answer["launch_seconds"], 0.01 * answer["seconds"])
        # What was written is legal, and another file than a processor's.
        run("check", programs)
        # A file of version 1 knows neither libraries nor launches; run.device says that it is a GPU.
        older = self.plan(cluster="frontier.toml")
        self.assertNotIn("libraries", older["memory"])
        self.assertNotIn("launch_seconds", older)
        self.assertEqual(older["peak_bytes"] % ALLOCATION, 0)
        for cluster, said in (("frontier", True), ("jean_zay_a100", False), ("jean_zay_h100", False), ("laptop", False)):
            device = "cpu" if cluster == "laptop" else "cuda"
            for search in ((), ("--search",)):
                out = run("plan", self.config, "--run.device", device, "--memory.budget", "1GiB", "--cluster",
                          CLUSTERS / f"{cluster}.toml", *search).stdout
                self.assertEqual('has no device.kind = "cuda"' in out, said, out)

    def test_the_same_gpu_has_the_same_bytes(self):
        plans = [self.plan("--grid.data", 4, cluster=f"{cluster}_h100.toml") for cluster in ("dgx", "jean_zay")]
        for key in ("budget_bytes", "peak_bytes", "minimum_budget_bytes"):
            self.assertEqual(plans[0][key], plans[1][key], key)

    def test_the_peak_is_what_an_h100_measured(self):
        # `garonne bench` of one rank on an H100 80GB, torch 2.11.0, CUDA 13.0; beside that are workspaces of libraries.
        answer = self.plan("--grid.data", 1, "--train.global_batch", 32, "--memory.budget", "70GiB", cluster="dgx_h100.toml")
        self.assertEqual(answer["peak_bytes"] - LIBRARIES, 15034281472)

    def test_small_models_are_bound_by_launches(self):
        text = run("plan", self.config, "--cluster", CLUSTERS / "dgx_a100.toml", "--memory.budget", "1GiB",
                   "--train.precision", "bfloat16").stdout
        self.assertRegex(text, r"bound by launches, [1-9][0-9] % of the step: the host takes [0-9.]+ ms to issue it")
        self.assertRegex(text, r"\n  libraries +67108864 B")
        large = run("plan", GPT2, "--cluster", CLUSTERS / "dgx_a100.toml", "--memory.budget", "70GiB").stdout
        self.assertRegex(large, r"launches: the host takes [0-9.]+ ms to issue it, hidden")

    def test_a_job_says_where_its_ranks_are_and_that_its_program_has_no_cuda(self):
        script = self.folder / "job.sbatch"
        for devices, words in ((16, "16 ranks, 8 on each node, at most "), (8, "8 ranks on one node, at most ")):
            said = run("plan", GPT2, "--cluster", CLUSTERS / "dgx_h200.toml", "--grid.data", devices, "--train.global_batch", 16,
                       "--train.micro_batch", 1, "--sbatch", script).stdout
            self.assertIn(f"job: sbatch {script} ({words}", said)
            without = "cuda: no" in run("--version").stdout
            self.assertEqual("is a build without CUDA" in said, without)

    def test_the_smallest_budget_is_the_same_number(self):
        least = self.plan()["minimum_budget_bytes"]
        self.assertLessEqual(self.plan("--memory.budget", least)["peak_bytes"], least)
        refused = run("plan", GPT2, "--cluster", CLUSTERS / "dgx_h200.toml", "--memory.budget", least - 1, check=3).stderr
        self.assertIn(str(least), refused)

    def test_what_a_device_has_is_the_automatic_budget(self):
        answer = self.plan()
        free = 141 * 10**9 - (600 << 20) - (1 << 30)  # of the context, of NCCL
        self.assertAlmostEqual(answer["budget_bytes"], free * 16 // 17 - (256 << 20), delta=ALLOCATION)
        self.assertEqual(answer["budget_bytes"] % ALLOCATION, 0)

    def test_shipped_files_are_for_any_gpu_that_holds_them(self):
        """Budgets are those of the device, buckets large enough that sums are few."""
        for name, sums, clusters in (("gpt2_124m", 10, ("dgx_h200", "dgx_h100", "dgx_a100")), ("gpt2_355m", 30, ("dgx_h100", "dgx_a100")),
                                     ("gpt2_774m", 60, ("dgx_h100",)), ("gpt2_1558m", 150, ("dgx_a100",)),
                                     ("llama_1b", 60, ("dgx_h200",))):
            for cluster in clusters:
                with self.subTest(name, cluster=cluster):
                    programs = self.folder / f"{name}-{cluster}"
                    answer = self.plan("--program", programs, config=SOURCE / f"config/{name}.toml",
                                       cluster=f"{cluster}.toml")
                    self.assertLess(answer["peak_bytes"], answer["budget_bytes"])
                    program = json.loads((programs / "rank_0.json").read_text())
                    found = [one for one in program["instructions"] if one["operation"] in ("all-reduce", "reduce-scatter")
                             and one["channel"]["bytes"] > 1000]
                    self.assertLess(0, len(found))
                    self.assertLess(len(found), sums)

    def test_half_of_the_memory_is_enough(self):
        kept = self.plan("--memory.plan", "keep-all")["peak_bytes"]
        half = self.plan("--memory.plan", "greedy", "--memory.budget", kept // 2)
        self.assertLessEqual(half["peak_bytes"], kept // 2)

    def sums(self, name, *keys, cluster="dgx_h200.toml"):
        """(bytes, seconds) of the largest sum of gradients."""
        programs = self.folder / name
        self.plan("--program", programs, *keys, cluster=cluster)
        program = json.loads((programs / "rank_0.json").read_text())
        return max((one["channel"]["bytes"], one["seconds"]) for one in program["instructions"]
                   if one["operation"] == "all-reduce")

    def test_sums_of_nccl_go_within_nodes_first(self):
        latency, port, inside = 5e-6, 47e9, 360e9
        for nodes in (2, 8):
            ranks = 8 * nodes
            keys = ("--grid.data", ranks, "--train.global_batch", 2 * ranks, "--train.micro_batch", 2)
            size, seconds = self.sums(f"nccl-{ranks}", *keys)
            between = 2 * (nodes - 1) * (latency + size / ranks / port)
            # Within a node at a rate of its curve, which ends at the rate of the link.
            self.assertGreater(seconds, between + 2 * 7 / 8 * size / inside)
            self.assertLess(seconds, between + 2 * 7 / 8 * size / (0.8 * inside))
            size, seconds = self.sums(f"mpi-{ranks}", *keys, "--grid.transport", "mpi")
            self.assertAlmostEqual(seconds, 2 * (ranks - 1) * (latency + size / ranks / port), delta=1e-9)
        # On one node it is the same ring.
        keys = ("--train.global_batch", 16, "--train.micro_batch", 2)
        self.assertEqual(self.sums("node", *keys), self.sums("node-mpi", *keys, "--grid.transport", "mpi"))

    def test_what_nccl_takes_beside_the_budget_is_said(self):
        keys = ("plan", GPT2, "--cluster", CLUSTERS / "dgx_h200.toml", "--train.micro_batch", 1, "--train.global_batch", 32)
        # Code, two communicators, and 12 MiB for each channel: 8 of the data ranks, 1 of what sums some numbers.
        mebibytes = 256 + 2 * 16 + 8 * 8 * 12 + 8 * 12
        self.assertIn(f"nccl      up to {mebibytes / 1024:.2f} GiB of each device beside the budget",
                      run(*keys, "--grid.data", 8).stdout)
        self.assertRegex(run(*keys, "--grid.pipeline", 4).stdout, r"\nnccl +up to [0-9.]+ [GM]iB of each device")
        for alone in (("--grid.data", 8, "--grid.transport", "mpi"), ("--grid.data", 1)):
            self.assertNotIn("\nnccl ", run(*keys, *alone).stdout)

    def test_a_search_plans_gpus(self):
        grids = self.plan("--ranks", 4, "--train.global_batch", 64, "--train.micro_batch", 8, "--model.layers", 4)["grids"]
        self.assertTrue(all(peak > LIBRARIES for grid in grids for peak in grid["peak_bytes"]))

    def test_a_search_with_a_policy_of_the_host(self):
        keys = ("--train.global_batch", 16, "--train.micro_batch", 8, "--model.layers", 2, "--grid.data", 2, "--memory.plan", "zero-offload")
        refused = run("plan", GPT2, "--cluster", CLUSTERS / "dgx_a100.toml", "--search", *keys, check=2).stderr
        self.assertIn("memory.host_budget", refused)
        host = ("--memory.host_budget", "20GiB")
        answer = self.plan("--search", *keys, *host, cluster="dgx_a100.toml")
        self.assertEqual(answer["plan"], "zero-offload")
        for grid in answer["grids"][:2]:
            self.assertTrue(grid["plans"][0].startswith("zero-offload"), grid["plans"])
            self.assertGreaterEqual(grid["seconds"], grid["seconds_at_least"])
            alone = self.plan(*keys, *host, "--grid.zero", grid["zero"], "--grid.bucket", grid["bucket"], cluster="dgx_a100.toml")
            self.assertAlmostEqual(alone["seconds"], grid["seconds"], delta=1e-12)
        # What does not fit a device without its host is planned with it.
        tight = ("--memory.budget", alone["minimum_budget_bytes"])
        self.assertLess(alone["minimum_budget_bytes"], alone["minimum_on_device_bytes"])
        found = self.plan("--search", *keys, *host, *tight, cluster="dgx_a100.toml")["grids"][0]
        self.assertTrue(found["plans"][0].startswith("zero-offload"), found["plans"])

    def test_a_search_with_the_host(self):
        keys = ("--train.global_batch", 16, "--model.layers", 2)
        host = ("--memory.host_budget", "20GiB")
        on_device = int(re.search(r"smallest budget that works is (\d+) bytes",
                                  run("plan", GPT2, "--cluster", CLUSTERS / "dgx_a100.toml", "--ranks", 2, *keys, "--memory.budget",
                                      "70MiB", check=3).stderr)[1])
        wide = ("--memory.budget", on_device + (on_device >> 3))
        for arguments in (("--memory.budget", on_device * 3 // 4), wide):
            found = self.plan("--ranks", 2, *keys, *host, *arguments, cluster="dgx_a100.toml")
            self.assertGreater(found["closely_planned"], 0)
            self.assertFalse(found["proven"])
            best = found["grids"][0]
            self.assertGreaterEqual(best["seconds"], best["seconds_at_least"])
            closely = [grid["closely"] for grid in found["grids"]]
            if arguments != wide:  # nothing fits the devices alone
                self.assertTrue(all(closely))
            # `garonne plan` compares more plans.
            pinned = (f"--{'train' if key == 'micro_batch' else 'grid'}.{key}={str(best[key]).lower()}"
                      for key in ("data", "pipeline", "tensor", "schedule", "zero", "bucket", "micro_batch"))
            alone = self.plan(*keys, *host, *arguments, *pinned, cluster="dgx_a100.toml")
            if best["closely"]:
                self.assertLessEqual(alone["seconds"], best["seconds"] * (1 + 1e-12))
        without = self.plan("--ranks", 2, *keys, *wide, cluster="dgx_a100.toml")
        self.assertEqual(without["closely_planned"], 0)
        self.assertLessEqual(best["seconds"], without["grids"][0]["seconds"])
        text = " ".join(run("plan", GPT2, "--cluster", CLUSTERS / "dgx_a100.toml", "--ranks", 2, *keys, *host, *wide).stdout.split())
        self.assertRegex(text, r"\d+ grids? planned node by node, with the host or the disk: the fastest")

    def test_bytes_go_over_the_links_of_the_seconds(self):
        """Two nodes of four GPUs: a sum sends twice three quarters inside, and twice half of a quarter to the other node."""
        keys = ("--search", "--devices-per-node", 4, "--grid.data", 8, "--grid.zero", 0, "--train.global_batch", 16,
                "--train.micro_batch", 2, "--model.layers", 2)
        grid = self.plan(*keys)["grids"][0]
        self.assertGreater(grid["between_nodes_bytes"], 0)
        self.assertAlmostEqual(grid["inside_node_bytes"] / grid["between_nodes_bytes"], 6)
        # Over MPI all eight are one ring, and the rank at its end sends everything to the other node.
        ring = self.plan(*keys, "--grid.transport", "mpi")["grids"][0]
        self.assertEqual(ring["inside_node_bytes"], 0)
        self.assertAlmostEqual(ring["between_nodes_bytes"] / grid["between_nodes_bytes"], 7)

    def test_a_budget_is_within_the_device(self):
        script = self.folder / "never.sbatch"
        for arguments in (("--memory.budget", "200GiB"), ("--memory.budget", "200GiB", "--search"),
                          ("--memory.budget", "80GB", "--sbatch", script)):
            refused = run("plan", GPT2, "--cluster", CLUSTERS / "dgx_a100.toml", *arguments, check=2).stderr
            for words in ("memory.budget", "device.memory", "device.reserved", "DGX A100"):
                self.assertIn(words, refused)
        self.assertFalse(script.exists())
        run("plan", GPT2, "--cluster", CLUSTERS / "dgx_a100.toml", "--memory.budget", 80 * 10**9 - (1624 << 20))

    def test_a_job_asks_for_the_memory_of_the_host(self):
        script = self.folder / "host.sbatch"
        arguments = ("--cluster", CLUSTERS / "dgx_a100.toml", "--train.global_batch", 16, "--train.micro_batch", 2, "--sbatch", script)
        run("plan", GPT2, *arguments)
        self.assertNotIn("--mem=", script.read_text())
        for search in ((), ("--search",)):
            said = run("plan", GPT2, *arguments, *search, "--grid.data", 8, "--memory.host_budget", "10GiB").stdout
            # Which nothing wears out, as it does disks.
            self.assertNotIn("a day", said)
            # Of eight ranks, with two for the process of each.
            self.assertIn(f"#SBATCH --mem={8 * (10 + 2) * 1024}M\n", script.read_text())

    def test_a_script_begins_where_it_was_planned(self):
        planned, elsewhere = self.directory("planned here"), self.directory("elsewhere")
        planned.mkdir()
        elsewhere.mkdir()
        tools = self.directory("tools")
        tools.mkdir()
        for name, text in (("srun", 'while [[ $1 == --* ]]; do shift; done; "$@"'), ("image", 'shift; echo "in $(pwd): $*"')):
            tool = tools / name
            tool.write_text(f"#!/bin/bash\n{text}\n")
            tool.chmod(0o755)
        script = self.folder / "a job.sbatch"
        config = pathlib.Path(GPT2)
        done = subprocess.run([pathlib.Path(BINARY).resolve(), "plan", config, "--cluster", CLUSTERS / "dgx_h200.toml", "--run.directory",
                               "runs/here", "--sbatch", script, "--time-limit", "1"], cwd=planned, capture_output=True, text=True, check=True)
        # To be pasted; nine hours of steps take some starts of a minute.
        self.assertIn(f"job: sbatch '{script}' (", done.stdout)
        self.assertRegex(done.stdout, r"at most 0?0:01:00 a start; all steps take about \d+ starts\)")
        environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "GARONNE": "image run"}
        for variables, where in (({}, planned), ({"RUN_FROM": str(elsewhere)}, elsewhere)):
            said = subprocess.run(["bash", script], cwd=self.folder, env={**environment, **variables}, capture_output=True, text=True)
            self.assertEqual(said.returncode, 0, said.stderr)
            self.assertIn(f"in {where}: train {config}", said.stdout)
            self.assertIn("--run.directory runs/here", said.stdout)

    def test_refusals_name_what_was_given(self):
        swept = run("plan", GPT2, "--cluster", CLUSTERS / "dgx_h200.toml", "--sweep", "batch", check=2).stderr
        self.assertIn("--sweep", swept)
        text = (CLUSTERS / "dgx_h200.toml").read_text()
        damaged = self.folder / "damaged.toml"
        damaged.write_text(text.replace("multiprocessors = 132", "multiprocessors = 0"))
        line = 1 + text[:text.index("multiprocessors = 132")].count("\n")
        refused = run("plan", GPT2, "--cluster", damaged, check=2).stderr
        self.assertTrue(re.search(rf"device.multiprocessors = 0.*line {line}", refused), refused)


if __name__ == "__main__":
    unittest.main()
