# SPDX-License-Identifier: MIT
"""What is shown and measured of several ranks: the table of the grid at start, `bench links` and the cluster file that
it writes, `bench` on grids, and the same over emulated hosts where this machine allows them."""
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import unittest

from support import BINARY, ProgramTest, run

ROOT = pathlib.Path(os.environ.get("GARONNE_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
HOSTS = ROOT / "scripts" / "emulated-hosts"
QUICK = ("--seconds", 0.01, "--threads", 1, "--largest")

EMULATED_HOSTS = "GARONNE_EMULATED_HOSTS"


def cluster_of(path):
    """The tables of a cluster file, whose values are numbers and texts of one line. Python knows TOML from 3.11 only."""
    found = table = {}
    for line in path.read_text().splitlines():
        line = line.split("#")[0].strip()
        if line.startswith("["):
            table = found
            for part in line.strip("[]").split("."):
                table = table.setdefault(part, {})
        elif line:
            name, value = line.split("=")
            table[name.strip()] = json.loads(value)
    return found


def table_rows(text):
    """By rank: the cells of the table of places, and of the line of the table of memory that the rank shares."""
    lines = text.splitlines()
    rows = {}
    places = next(i for i, line in enumerate(lines) if line.split()[:2] == ["rank", "data"])
    for line in lines[places + 1:]:
        words = line.split()
        if not words[0].isdigit() or not line.startswith("   "):
            break
        rows[int(words[0])] = dict(zip(lines[places].split(), words, strict=True))
    memory = next(i for i, line in enumerate(lines) if line.split()[:2] == ["ranks", "peak"])
    columns = lines[memory].split()[1:]
    for line in lines[memory + 1:]:
        ranks = line[2:22].strip()
        if not re.fullmatch(r"[\d, -]+", ranks):
            break
        for part in ranks.split(", "):
            first, _, last = part.partition("-")
            for rank in range(int(first), int(last or first) + 1):
                rows[rank] |= dict(zip(columns, line[22:].split(), strict=True))
    return rows


class StartTest(ProgramTest):
    def test_every_rank_has_a_line_with_its_place_and_memory(self):
        directory = self.directory("run")
        out = self.train(directory, "--model.layers", 4, "--grid.data", 2, "--grid.pipeline", 2, ranks=4).stdout
        rows = table_rows(out)
        self.assertEqual(sorted(rows), [0, 1, 2, 3])
        table = out[out.index("ranks     4"):].splitlines()[:12]
        self.assertLessEqual(max(map(len, table)), 120)
        self.assertIn("ranks     4 on 1 host", out)
        self.assertIn("data      2 groups of 2, each on one host: {0 1} {2 3}", out)
        self.assertIn("pipeline  2 groups of 2, each on one host: {0 2} {1 3}", out)
        for rank, row in rows.items():
            program = json.loads((directory / "program" / f"rank_{rank}.json").read_text())
            place = program["coordinates"]
            self.assertEqual((row["data"], row["pipeline"], row["tensor"]),
                             tuple(str(place[axis]) for axis in ("data", "pipeline", "tensor")))
            self.assertEqual(row["local"], str(rank))
            self.assertEqual(row["peak"], f"{program['peak_bytes'] / 2**20:.2f}")
            parts = ("parameters", "gradients", "optimizer", "activations", "transients", "communication")
            self.assertAlmostEqual(sum(float(row[part]) for part in parts), float(row["peak"]), delta=0.04)
            self.assertAlmostEqual(float(row["peak"]) + float(row["free"]), 64, delta=0.02)

    def test_the_parameters_are_those_of_the_whole_model(self):
        def shown(directory, *arguments, **options):
            line = next(line for line in self.train(directory, "--model.hidden", 128, *arguments, **options).stdout.splitlines()
                        if line.startswith("model "))
            return line.split("·")[-1]
        one = shown(self.directory("one"))
        self.assertEqual(one, shown(self.directory("two"), "--grid.tensor", 2, ranks=2))

        def planned(*grid):
            arguments = ("plan", self.config, "--model.hidden", 128, *grid)
            text = run(*arguments).stdout
            self.assertIn(one.split(",")[0].strip(), text.splitlines()[0])
            return json.loads(run(*arguments, "--json").stdout), re.findall(r"^stage .* ([\d.]+) M parameters", text, re.MULTILINE)
        pipeline = ("--grid.pipeline", 2)
        for grid in ((), pipeline, (*pipeline, "--grid.schedule", "chimera")):
            with self.subTest(grid):
                alone, stages = planned(*grid)
                divided, stages_of_divided = planned(*grid, "--grid.tensor", 2)
                self.assertEqual(alone["parameters"], sum(math.prod(weight["shape"]) for weight in alone["weights"]))
                self.assertEqual(alone["parameters"], divided["parameters"])
                self.assertEqual(stages, stages_of_divided)
                self.assertEqual([f"{stage['parameters'] / 1e6:.2f}" for stage in alone.get("stages", ())], stages)
                self.assertEqual([stage["parameters"] for stage in alone.get("stages", ())],
                                 [stage["parameters"] for stage in divided.get("stages", ())])


class BenchTest(ProgramTest):
    def bench(self, *arguments, **options):
        out = run("bench", self.config, "--model.layers", 4, "--steps", 2, "--json", *arguments, **options).stdout
        return json.loads(out.splitlines()[-1])

    def test_grids_run_their_stages(self):
        one = self.bench()
        for grid in (("--grid.pipeline", 2), ("--grid.tensor", 2), ("--grid.data", 2, "--grid.zero", 3)):
            with self.subTest(grid):
                two = self.bench(*grid, ranks=2)
                self.assertGreater(two["step_seconds"], 0)
                self.assertGreater(two["planned_seconds"], 0)
                self.assertLessEqual(two["peak_bytes"], two["planned_peak_bytes"])
                self.assertGreaterEqual(two["peak_bytes"], 0.99 * two["planned_peak_bytes"])
                # Half of the model's states are another rank's.
                self.assertLess(two["planned_peak_bytes"], one["planned_peak_bytes"])

    # Every rank its share of what the model is, whatever of it stands on several.
    def test_operations_are_those_of_the_model(self):
        def of_step(*grid, ranks=0):
            line = self.bench(*grid, ranks=ranks)
            return line["operations_per_second"] * line["step_seconds"] * max(ranks, 1)
        one = of_step()
        pipeline = ("--grid.pipeline", 2, "--grid.schedule")
        for grid in ((*pipeline, "1f1b"), (*pipeline, "chimera"), ("--grid.tensor", 2), ("--grid.data", 2)):
            with self.subTest(grid):
                self.assertAlmostEqual(of_step(*grid, ranks=2) / one, 1)

    def test_a_tensor_rank_is_profiled_without_what_communicates(self):
        self.assertIn("layer_norm", run("profile", self.config, "--grid.tensor", 2).stdout)

    def test_budgets_of_a_pipeline(self):
        """Stages of their own under one budget each, whose plans keep to it and are no faster than the one that keeps all."""
        out = run("bench", "budgets", self.config, "--grid.pipeline", 2, "--steps", 2, "--json", ranks=2).stdout
        rows = json.loads(out)
        keep_all, rest = rows[0], rows[1:]
        self.assertEqual(keep_all["wanted"], "keep-all")
        self.assertEqual([row["wanted"] for row in rest], 3 * ["auto", "uniform", "selective", "full"])
        self.assertEqual(keep_all["peak_bytes"], keep_all["planned_peak_bytes"])
        fitting = [row for row in rest if row["fits"]]
        self.assertIn("auto", [row["wanted"] for row in fitting])
        for row in fitting:
            self.assertGreater(row["step_seconds"], 0)
            self.assertLessEqual(row["peak_bytes"], row["planned_peak_bytes"])
            self.assertGreaterEqual(row["peak_bytes"], 0.99 * row["planned_peak_bytes"])
            self.assertLessEqual(row["planned_peak_bytes"], row["budget_bytes"])
            self.assertGreaterEqual(row["planned_seconds"], keep_all["planned_seconds"])


class LinksTest(ProgramTest):
    def check_cluster(self, path, devices_per_node, nodes):
        cluster = cluster_of(path)
        self.assertEqual((cluster["version"], cluster["device"]["kind"]), (2, "cpu"))
        self.assertEqual((cluster["devices_per_node"], cluster["nodes"]), (devices_per_node, nodes))
        self.assertIn("inside_node", cluster["link"])
        for link in cluster["link"].values():
            self.assertGreater(link["bytes_per_second"], 1e5)
            self.assertGreaterEqual(link["latency_seconds"], 0)
        for rate in ("float32", "bfloat16", "float64"):
            self.assertGreater(cluster["device"]["flops"][rate], 1e6)
        return cluster

    def test_a_cluster_file_is_written(self):
        path = self.folder / "cluster.toml"
        out = run("bench", "links", *QUICK, 65536, "--output", path, ranks=2).stdout
        for words in ("between ranks of one host", "message", "all-reduce", "latency", "communication takes", str(path)):
            self.assertIn(words, out)
        self.check_cluster(path, 2, 1)
        answer = json.loads(run("bench", "links", *QUICK, 65536, "--json", ranks=3).stdout.splitlines()[-1])
        self.assertIsNone(answer["across_hosts"])
        samples = answer["one_host"]["samples"]
        self.assertEqual({(sample["what"], tuple(sample["ranks"])) for sample in samples},
                         {("message", (0, 1)), ("message", (0, 2)), ("all-reduce", (0, 1)), ("all-reduce", (0, 1, 2))})
        self.assertEqual({sample["bytes"] for sample in samples}, {64, 512, 4096, 32768, 65536})

    def test_one_rank_has_no_links(self):
        self.assertIn("mpirun -n 2", run("bench", "links", check=2).stderr)

    # Rates of a busy machine are no rates: under the label long, where it is alone.
    @unittest.skipUnless(EMULATED_HOSTS in os.environ, "under the label long")
    def test_emulated_hosts_are_hosts_with_slow_links(self):
        environment = os.environ | {"GARONNE_HOSTS_PREFIX": f"gt{os.getpid() % 1000}-"}

        def hosts(*words):
            # `timeout` ends the ranks, too, which would otherwise hold the pipes open.
            return subprocess.run(["timeout", "-k", "5", "100", HOSTS, *map(str, words)], env=environment,
                                  capture_output=True, text=True, check=True).stdout
        path = self.folder / "hosts.toml"
        hosts("up", 2, "100mbit")
        try:
            hosts("run", 4, BINARY, "bench", "links", *QUICK, 1 << 20, "--output", path)
            out = hosts("run", 2, BINARY, "train", self.config, "--grid.data", 2, "--run.directory",
                        self.directory("hosts"))
        finally:
            hosts("down")
        self.assertIn("ranks     2 on 2 hosts", out)
        self.assertIn("1 group of 2, across hosts: {0 1}", out)
        link = self.check_cluster(path, 2, 2)["link"]
        # 12.5 MB/s at most; machines in company are slower, but within a host nobody limits.
        self.assertLess(link["between_nodes"]["bytes_per_second"], 14e6)
        self.assertGreater(link["inside_node"]["bytes_per_second"], link["between_nodes"]["bytes_per_second"])


if __name__ == "__main__":
    # 77, which CTest calls skipped, where this machine allows no hosts.
    if EMULATED_HOSTS in os.environ and (code := subprocess.run([HOSTS, "check"]).returncode):
        sys.exit(code)
    unittest.main(verbosity=2)
