# SPDX-License-Identifier: MIT
"""`garonne solve` on graphs: answers that a replay of our own accepts, refusals that name the key."""
import copy
import json
import pathlib
import random
import shutil
import tempfile
import unittest

from support import run

FORWARDS = 6


def example(seed=1):
    """Tasks in a row with one skip, each with a record, and their backwards."""
    chance = random.Random(seed)
    values = [{"name": "input", "bytes": 1000, "live_at_start": True}]
    tasks = []

    def value(name, size, at_end=False):
        values.append({"name": name, "bytes": size, "live_at_end": at_end})
        return len(values) - 1

    outputs, records = [0], []
    for n in range(FORWARDS):
        reads = [outputs[-1]] + ([outputs[1]] if n == 4 else [])
        outputs.append(value(f"y{n}", chance.randint(10, 40) * 100))
        records.append(value(f"record{n}", chance.randint(20, 80) * 100))
        seconds = chance.randint(1, 8) / 4
        tasks.append({"name": f"forward{n}", "reads": reads, "options": [
            {"name": "keep", "makes": [outputs[-1], records[-1]], "seconds": seconds, "transient_bytes": 300},
            {"name": "discard", "makes": [outputs[-1]], "seconds": seconds, "transient_bytes": 300}]})
    gradient = None
    for n in reversed(range(FORWARDS)):
        reads = [records[n], outputs[n]] + ([gradient] if gradient is not None else [])
        gradient = value(f"dy{n}", values[outputs[n]]["bytes"])
        parameter = value(f"dw{n}", 500, at_end=True)
        tasks.append({"name": f"backward{n}", "once": True, "reads": reads, "options": [
            {"name": "run", "makes": [gradient, parameter], "seconds": 2, "transient_bytes": 0}]})
    return {"format": "garonne.graph", "version": 1, "values": values, "tasks": tasks}


def replay(graph, steps):
    """Peak and seconds: a copy of a value lives from its making to its last reader before the next one."""
    uses = {v: [] for v in range(len(graph["values"]))}
    for i, (task, option) in enumerate(steps):
        for v in graph["tasks"][task]["reads"] + graph["tasks"][task].get("updates", []):
            uses[v].append((i, "read"))
        for v in graph["tasks"][task]["options"][option]["makes"]:
            uses[v].append((i, "make"))
    live = [0] * len(steps)
    for v, value in enumerate(graph["values"]):
        start = 0 if value.get("live_at_start") else None
        end = -1
        copies = []
        for i, kind in uses[v]:
            if kind == "make":
                if start is not None:
                    copies.append((start, end))
                start = end = i
            else:
                assert start is not None, (v, i)
                end = i
        if start is not None:
            copies.append((start, len(steps) - 1 if value.get("live_at_end") else end))
        for first, last in copies:
            for i in range(first, last + 1):
                live[i] += value["bytes"]
    options = [graph["tasks"][task]["options"][option] for task, option in steps]
    return (max(here + option["transient_bytes"] for here, option in zip(live, options)),
            sum(option["seconds"] for option in options))


class SolveGraph(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def write(self, graph, name="graph.json"):
        path = self.folder / name
        path.write_text(graph if isinstance(graph, str) else json.dumps(graph))
        return path

    def test_answers_are_accepted(self):
        graph = example()
        path = self.write(graph)
        everything = replay(graph, [[t, 0] for t in range(2 * FORWARDS)])
        for algorithm in ("annealing", "checkmate", "checkmate-rounding"):
            seconds = 1e9
            for part in (0.7, 0.85, 1.0):
                budget = int(everything[0] * part)
                done = run("solve", path, "--budget", budget, "--algorithm", algorithm, "--json",
                           check=0 if algorithm != "checkmate-rounding" else None)
                if done.returncode == 3:
                    continue
                answer = json.loads(done.stdout)
                self.assertEqual((answer["format"], answer["version"]), ("garonne.graph-schedule", 1))
                peak, taken = replay(graph, answer["steps"])
                self.assertEqual(peak, answer["peak_bytes"])
                self.assertAlmostEqual(taken, answer["seconds"])
                self.assertLessEqual(peak, budget)
                self.assertLessEqual(answer["lower_bound_seconds"], taken + 1e-9)
                self.assertEqual(answer["keep_all"], {"seconds": everything[1], "peak_bytes": everything[0]})
                if algorithm == "checkmate":
                    self.assertTrue(answer["proved"])
                    self.assertLessEqual(taken, seconds)
                    seconds = taken
            if algorithm == "checkmate":
                self.assertEqual(seconds, everything[1])

    def test_output_and_text(self):
        path = self.write(example())
        output = self.folder / "answer.json"
        done = run("solve", path, "--budget", "1MiB", "--output", output)
        self.assertIn("annealing", done.stdout)
        self.assertIn("lower bound", done.stdout)
        self.assertEqual(json.loads(output.read_text())["algorithm"], "annealing")
        again = self.folder / "again.json"
        run("solve", path, "--budget", "1MiB", "--output", again, "--seed", 1)
        self.assertEqual(output.read_text(), again.read_text())

    def test_too_small_a_budget_names_one_that_works(self):
        path = self.write(example())
        done = run("solve", path, "--budget", 1000, check=3)
        least = int(done.stderr.split("smallest budget that works is ")[1].split()[0])
        run("solve", path, "--budget", least)
        run("solve", path, "--budget", least, "--algorithm", "checkmate")

    def test_malformed_files_name_the_key(self):
        def refused(graph, *words):
            done = run("solve", self.write(graph, "bad.json"), "--budget", 1000, check=2, timeout=20)
            for word in words:
                self.assertIn(word, done.stderr)

        good = example()
        text = json.dumps(good)
        for length in range(0, len(text), 397):
            refused(text[:length], "bad.json")
        for damage, key in [
            (lambda g: g.pop("values"), "values"),
            (lambda g: g.pop("format"), "format"),
            (lambda g: g.update(version=2), "version"),
            (lambda g: g.update(extra=1), "extra"),
            (lambda g: g["values"][1].pop("bytes"), "values[1].bytes"),
            (lambda g: g["values"][1].update(bytes=-5), "values[1].bytes"),
            (lambda g: g["values"][1].update(bytes=2 ** 48 + 1), "values[1].bytes"),
            (lambda g: g["values"][1].update(bytes=2 ** 70), "values[1].bytes"),
            (lambda g: g["values"][1].update(bytes=float("inf")), "bad.json"),
            (lambda g: g["tasks"][0]["options"][0].update(seconds=float("nan")), "bad.json"),
            (lambda g: g["tasks"][0]["options"][0].update(seconds=-1), "tasks[0].options[0].seconds"),
            (lambda g: g["tasks"][2].update(reads=[999]), "tasks[2].reads[0]"),
            (lambda g: g["tasks"].reverse(), "tasks[0].reads"),
            (lambda g: g["tasks"][1]["options"][0]["makes"].append(1), "tasks[1].options[0].makes[2]"),
        ]:
            bad = copy.deepcopy(good)
            damage(bad)
            refused(bad, key)
        for value in (None, 3, "graph", [], [good]):
            refused(json.dumps(value), "bad.json")

    def test_options_that_do_not_apply(self):
        path = self.write(example())
        for option in (["--slots", 10], ["--algorithm", "rotor"], ["--time-limit", -1], ["--iterations", 0]):
            run("solve", path, "--budget", "1MiB", *option, check=2)
        done = run("solve", path, "--budget", 20000, "--time-limit", 1e-9, "--iterations", 1000000, "--json", check=None)
        if done.returncode == 0:
            self.assertTrue(json.loads(done.stdout)["stopped_by_time_limit"])
        else:
            self.assertEqual(done.returncode, 3)
            self.assertIn("--time-limit", done.stderr)


if __name__ == "__main__":
    unittest.main()
