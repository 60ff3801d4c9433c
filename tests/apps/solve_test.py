# SPDX-License-Identifier: MIT
"""`garonne solve` on chains: answers that an independent replay accepts, refusals by name."""
import copy
import json
import pathlib
import random
import shutil
import tempfile
import unittest

from support import run

ALGORITHMS = ["keep-all", "full", "periodic", "chen-sqrt", "revolve", "rotor", "best"]


def example(blocks=8, seed=1):
    chance = random.Random(seed)
    chain = {"format": "garonne.chain", "version": 1, "input_bytes": 4000, "blocks": []}
    for n in range(blocks):
        seconds = chance.randint(1, 8) / 2
        output = chance.randint(10, 40) * 100
        options = [{"name": name, "saved_bytes": output + saved,
                    "forward": {"seconds": seconds, "transient_bytes": 500},
                    "backward": {"seconds": backward * seconds, "transient_bytes": 800}}
                   for name, saved, backward in [("keep", chance.randint(50, 200) * 100, 2), ("lean", 1000, 2.5)]]
        chain["blocks"].append({"name": f"layer.{n}", "output_bytes": output, "gradient_bytes": 100 * (n % 3),
                                "forward": {"seconds": seconds, "transient_bytes": 500}, "options": options})
    return chain


def replay(chain, operations):
    """Peak and seconds by the table of docs/formats.md, with sets of names of what is live."""
    blocks = chain["blocks"]
    last = len(blocks)
    value = [chain["input_bytes"], *(block["output_bytes"] for block in blocks)]
    live = {"value 0": value[0], f"gradient {last}": value[last]}
    options = {}
    peak = sum(live.values())
    seconds = 0
    done = []

    def spend(more, cost):
        nonlocal peak, seconds
        peak = max(peak, sum(live.values()) + more + cost["transient_bytes"])
        seconds += cost["seconds"]

    def readable(i):
        return f"value {i}" in live or f"saved {i - 1}" in live

    for kind, i, *option in operations:
        if kind == "drop":
            del live[f"value {i}"]
            continue
        block = blocks[i]
        assert readable(i), (kind, i)
        if kind in ("forward-discard", "forward-checkpoint"):
            assert not readable(i + 1), (kind, i)
            spend(value[i + 1], block["forward"])
            live[f"value {i + 1}"] = value[i + 1]
            if kind == "forward-discard":
                live.pop(f"value {i}", None)
        elif kind == "forward-keep":
            assert not readable(i + 1), (kind, i)
            options[i] = block["options"][option[0]]
            spend(options[i]["saved_bytes"], options[i]["forward"])
            live[f"saved {i}"] = options[i]["saved_bytes"]
        else:
            assert kind == "backward", kind
            made = {f"gradient {i}": value[i], f"parameters {i}": block.get("gradient_bytes", 0)}
            spend(sum(made.values()), options[i]["backward"])
            live.update(made)
            del live[f"gradient {i + 1}"], live[f"saved {i}"]
            live.pop(f"value {i}", None)
            done.append(i)
    assert done == list(reversed(range(last))), done
    return peak, seconds


MOVERS = ["pofo", "offload-greedy", "offload-greedy-star", "best"]


def with_tier(chain):
    chain = copy.deepcopy(chain)
    chain.update(out_bytes_per_second=4000, in_bytes_per_second=5000)
    for n, block in enumerate(chain["blocks"]):
        block["weight_bytes"] = 500 * (n % 4)
    return chain


def replay_copies(chain, operations):
    """Peak and seconds by both tables of docs/formats.md: what is live by name, since when it is whole, what is below."""
    blocks = chain["blocks"]
    value = [chain["input_bytes"], *(block["output_bytes"] for block in blocks)]
    live = {"value 0": value[0], f"gradient {len(blocks)}": value[-1]}
    live.update({f"weights {n}": block["weight_bytes"] for n, block in enumerate(blocks)})
    below = {f"weights {n}": block["weight_bytes"] for n, block in enumerate(blocks)}
    lanes = {"out": 0, "in": 0}
    ends, options, done = {}, {}, []
    now, peak = 0, 0
    head = True
    at_start = None

    def whole(name):
        return name in live and ("in", name) not in ends

    def free(name):
        assert ("in", name) not in ends and ("out", name) not in ends, name
        del live[name]

    for kind, *rest in operations:
        if head and not (kind == "drop" and rest[0] == "weights"):
            head = False
            at_start = {name for name in live if name.startswith("weights")}
            peak = sum(live.values())
        if kind == "drop":
            name = f"value {rest[0]}" if len(rest) == 1 else f"{rest[0]} {rest[1]}"
            assert len(rest) == 1 or name in below, name
            free(name)
            continue
        way = kind.removeprefix("copy-").removeprefix("wait-")
        if kind.startswith("wait-"):
            name = f"{rest[0]} {rest[1]}"
            now = max(now, ends.pop((way, name)))
            if way == "out":
                below[name] = live[name]
            continue
        if kind.startswith("copy-"):
            name = f"{rest[0]} {rest[1]}"
            if way == "out":
                assert whole(name) and name not in below and ("out", name) not in ends, name
            else:
                assert name in below and name not in live, name
                live[name] = below[name]
                peak = max(peak, sum(live.values()))
            lanes[way] = max(lanes[way], now) + live[name] / chain[f"{way}_bytes_per_second"]
            ends[way, name] = lanes[way]
            continue
        i = rest[0]
        assert whole(f"weights {i}") and (whole(f"value {i}") or whole(f"saved {i - 1}")), (kind, i)
        if kind == "backward":
            assert whole(f"saved {i}")
            cost = options[i]["backward"]
            made = {f"gradient {i}": value[i], f"parameters {i}": blocks[i].get("gradient_bytes", 0)}
        else:
            assert f"value {i + 1}" not in live and f"saved {i}" not in live, (kind, i)
            if kind == "forward-keep":
                options[i] = blocks[i]["options"][rest[1]]
            cost = options[i]["forward"] if kind == "forward-keep" else blocks[i]["forward"]
            made = ({f"saved {i}": options[i]["saved_bytes"]} if kind == "forward-keep"
                    else {f"value {i + 1}": value[i + 1]})
        peak = max(peak, sum(live.values()) + sum(made.values()) + cost["transient_bytes"])
        now += cost["seconds"]
        live.update(made)
        if kind == "backward":
            free(f"gradient {i + 1}")
            free(f"saved {i}")
            done.append(i)
        if kind in ("backward", "forward-discard") and f"value {i}" in live:
            free(f"value {i}")
    assert done == list(reversed(range(len(blocks)))), done
    assert not ends and at_start == {name for name in live if name.startswith("weights")}
    return peak, now


class SolveTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="garonne-test-"))
        self.chain = example()
        self.path = self.write(json.dumps(self.chain))

    def tearDown(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def write(self, text, name="chain.json"):
        path = self.folder / name
        path.write_text(text)
        return path

    def solved(self, algorithm, budget, *more):
        output = self.folder / "schedule.json"
        run("solve", self.path, "--budget", budget, "--algorithm", algorithm, "--output", output, *more)
        return json.loads(output.read_text())

    def test_every_algorithm_at_its_smallest_budget_and_one_byte_below(self):
        seconds = {}
        for algorithm in ALGORITHMS:
            with self.subTest(algorithm):
                least = self.solved(algorithm, "1GB")["minimum_budget_bytes"]
                schedule = self.solved(algorithm, least)
                peak, seconds[algorithm] = replay(self.chain, schedule["operations"])
                self.assertEqual(peak, schedule["peak_bytes"])
                self.assertLessEqual(peak, least)
                self.assertAlmostEqual(seconds[algorithm], schedule["seconds"])
                self.assertLessEqual(schedule["lower_bound_seconds"], schedule["seconds"])
                refused = run("solve", self.path, "--budget", least - 1, "--algorithm", algorithm, check=3)
                self.assertIn(f"{least} bytes", refused.stderr)

    def test_best_is_the_default_and_never_behind(self):
        least = self.solved("full", "1GB")["minimum_budget_bytes"]
        best = json.loads(run("solve", self.path, "--budget", least, "--json").stdout)
        self.assertEqual(best["algorithm"], "best")
        for algorithm in ALGORITHMS:
            if run("solve", self.path, "--budget", least, "--algorithm", algorithm, check=None).returncode == 0:
                self.assertLessEqual(best["seconds"], self.solved(algorithm, least)["seconds"] + 1e-9)

    def test_a_tier_below(self):
        self.refused_without_bandwidths()
        self.chain = with_tier(self.chain)
        self.path = self.write(json.dumps(self.chain))
        resident = self.solved("rotor", "1GB")["minimum_budget_bytes"]
        for algorithm in MOVERS:
            with self.subTest(algorithm):
                least = self.solved(algorithm, "1GB")["minimum_budget_bytes"]
                schedule = self.solved(algorithm, least)
                peak, seconds = replay_copies(self.chain, schedule["operations"])
                self.assertEqual(peak, schedule["peak_bytes"])
                self.assertLessEqual(peak, least)
                self.assertAlmostEqual(seconds, schedule["seconds"])
                self.assertLessEqual(schedule["lower_bound_seconds"], schedule["seconds"])
                self.assertGreater(schedule["copies"]["in_bytes"], 0)
        self.assertLess(self.solved("best", "1GB")["minimum_budget_bytes"], resident)
        shown = run("solve", self.path, "--budget", resident).stdout
        self.assertRegex(shown, r"lower bound .* s: this is \+")
        self.assertRegex(shown, "copies .* out, .* in, .* below at most; passes wait")
        sweep = json.loads(run("solve", self.path, "--sweep", 4, "--json").stdout)
        for point in sweep["points"]:
            others = [seconds for seconds in point["seconds"].values() if seconds is not None]
            self.assertLessEqual(point["seconds"]["best"], min(others) + 1e-9)
            self.assertLessEqual(point["lower_bound_seconds"], min(others) + 1e-9)

    def refused_without_bandwidths(self):
        for algorithm in MOVERS[:3]:
            done = run("solve", self.path, "--budget", "1GB", "--algorithm", algorithm, check=2)
            self.assertIn("out_bytes_per_second", done.stderr)

    def test_slots_and_output_are_a_function_of_the_input(self):
        self.solved("rotor", 40000, "--slots", 50)
        first = (self.folder / "schedule.json").read_bytes()
        self.solved("rotor", 40000, "--slots", 50)
        self.assertEqual(first, (self.folder / "schedule.json").read_bytes())
        self.assertIn("slots", run("solve", self.path, "--budget", 40000, "--algorithm", "rotor", "--slots", 50).stdout)

    def test_units(self):
        self.assertEqual(self.solved("keep-all", "1.5 GiB")["budget_bytes"], 3 << 29)
        self.assertIn("--budget", run("solve", self.path, "--budget", "many", check=2).stderr)

    def test_sweep(self):
        shown = run("solve", self.path, "--sweep", 6).stdout
        for algorithm in ALGORITHMS:
            self.assertIn(algorithm, shown)
        sweep = json.loads(run("solve", self.path, "--sweep", 6, "--json").stdout)
        self.assertEqual(len(sweep["points"]), 6)
        self.assertIsNotNone(sweep["points"][0]["seconds"]["best"])
        self.assertIsNone(sweep["points"][0]["seconds"]["keep-all"])
        curve = [point["seconds"]["rotor"] for point in sweep["points"] if point["seconds"]["rotor"] is not None]
        self.assertEqual(curve, sorted(curve, reverse=True))
        self.assertAlmostEqual(sweep["points"][-1]["seconds"]["best"], sweep["points"][-1]["lower_bound_seconds"])

    def refused(self, text, word):
        done = run("solve", self.write(text, "bad.json"), "--budget", "1GB", check=2, timeout=20)
        self.assertIn(word, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_malformed_files_name_the_key(self):
        def changed(change):
            chain = copy.deepcopy(self.chain)
            change(chain)
            return json.dumps(chain)

        option = "blocks[1].options[0]"
        cases = [
            (lambda c: c.pop("input_bytes"), "input_bytes"),
            (lambda c: c.update(speed=1), "speed"),
            (lambda c: c.update(version=2), "version"),
            (lambda c: c.update(format="garonne.cake"), "format"),
            (lambda c: c.pop("format"), "format"),
            (lambda c: c.update(blocks=[]), "blocks"),
            (lambda c: c.update(input_bytes=-1), "input_bytes"),
            (lambda c: c.update(input_bytes=2**48 + 1), "input_bytes"),
            (lambda c: c.update(input_bytes=2**80), "input_bytes"),
            (lambda c: c["blocks"][1].pop("output_bytes"), "blocks[1].output_bytes"),
            (lambda c: c["blocks"][1]["options"][0]["forward"].update(seconds=-1), f"{option}.forward.seconds"),
            (lambda c: c["blocks"][1]["options"][0]["forward"].update(seconds=float("nan")), "seconds"),
            (lambda c: c["blocks"][1]["options"][0]["forward"].update(seconds=float("inf")), "seconds"),
            (lambda c: c["blocks"][1]["options"][0].update(saved_bytes=0), f"{option}.saved_bytes"),
            (lambda c: c["blocks"][1]["options"][1].update(name="keep"), "blocks[1].options[1].name"),
            (lambda c: c["blocks"][1].update(options=[]), "blocks[1].options"),
            (lambda c: c["blocks"][1].update(options={}), "blocks[1].options"),
            (lambda c: c["blocks"].insert(1, 7), "blocks[1]"),
        ]
        for change, word in cases:
            self.refused(changed(change), word)
        text = json.dumps(self.chain)
        self.refused(text[:len(text) // 2], "bad.json")
        self.refused("", "bad.json")
        self.refused("[" * 100000 + "]" * 100000, "nested more than 64 deep")
        self.refused("[" * 100000, "nested more than 64 deep")
        self.refused("[]", "is no object")
        self.refused(text.replace('"version": 1', '"version": 1, "version": 1', 1), "version")

    def test_usage(self):
        self.assertIn("absent.json", run("solve", self.folder / "absent.json", "--budget", 1, check=2).stderr)
        self.assertIn("is a folder", run("solve", self.folder, "--budget", 1, check=2).stderr)
        self.assertIn("--budget", run("solve", self.path, check=2).stderr)
        self.assertIn("rotor", run("solve", self.path, "--budget", 1, "--algorithm", "rotator", check=2).stderr)
        run("solve", self.path, "--budget", 1, "--sweep", 3, check=2)
        run("solve", self.path, "--sweep", 1, check=2)
        run("solve", self.path, "--budget", 1, "--slots", 0, check=2)


if __name__ == "__main__":
    unittest.main()
