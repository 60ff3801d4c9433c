# SPDX-License-Identifier: MIT
"""garonne simulate: JSON, tables, timelines and pictures of pipeline schedules, and what it refuses."""
import json
import pathlib
import re
import shutil
import statistics
import tempfile
import unittest
import xml.etree.ElementTree

from support import SOURCE, run

SCHEDULES = ["gpipe", "1f1b", "interleaved", "varuna", "chimera", "zb-h1", "zb-h2", "zb-v", "dualpipev"]
SIZES = ("--stages", 4, "--micro-batches", 8)
COSTS = ("--forward", 1, "--backward-input", 1.2, "--backward-weight", 0.8)


def simulate(schedule, *arguments):
    return json.loads(run("simulate", "--schedule", schedule, *arguments, "--json").stdout)


class SimulateTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="garonne-simulate-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def refused(self, *arguments, words, code=2):
        done = run("simulate", *arguments, check=code)
        self.assertEqual(done.stderr.count("garonne:"), 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertEqual(done.stdout, "")

    def test_json(self):
        answer = simulate("zb-h1", *SIZES, *COSTS)
        self.assertAlmostEqual(answer["makespan"], 28.2)
        self.assertAlmostEqual(answer["bubble"], 28.2 - 8 * 3)
        self.assertEqual(answer["peak_activations"], [4, 4, 4, 4])
        self.assertNotIn("peak_inputs", answer)
        self.assertEqual(len(answer["order"]), 4)
        self.assertEqual(answer["order"][3][:3], [["forward", 0, 0], ["backward-input", 0, 0], ["forward", 0, 1]])
        self.assertEqual(simulate("varuna", *SIZES)["peak_inputs"], [8, 6, 3, 1])
        self.assertEqual(simulate("interleaved", *SIZES, "--chunks", 4)["makespan"], 26.25)
        self.assertEqual(simulate("dualpipev", *SIZES)["makespan"], 25.5)
        self.assertAlmostEqual(simulate("dualpipev", *SIZES, "--overlap-gain", 0.2)["makespan"], 24)

    def test_every_operation_is_in_the_order(self):
        for name in SCHEDULES:
            answer = simulate(name, "--stages", 4, "--micro-batches", 3)
            done = {}
            for device, lane in enumerate(answer["order"]):
                for operation, _, micro_batch in lane:
                    key = (device, micro_batch)
                    done[key] = done.get(key, 0) + {"forward": 1, "backward": 2, "backward-input": 1,
                                                    "backward-weight": 1, "recompute": 0}[operation]
            passes = 2 if name in ("interleaved", "zb-v", "dualpipev") else 1
            self.assertEqual(done, {(r, m): 3 * passes for r in range(4) for m in range(3)}, name)

    def test_a_hop_delays_the_receiver(self):
        # One micro-batch: down three links and up three.
        arguments = ("--stages", 4, "--micro-batches", 1)
        self.assertEqual(simulate("1f1b", *arguments)["makespan"], 12)
        self.assertAlmostEqual(simulate("1f1b", *arguments, "--communication", 0.5)["makespan"], 15)
        # In a V the turn is on one device.
        self.assertAlmostEqual(simulate("zb-v", *arguments, "--communication", 0.5)["makespan"],
                               simulate("zb-v", *arguments)["makespan"] + 12 * 0.5)

    def test_timeline_keeps_to_the_width(self):
        for width in (40, 80, 200):
            shown = run("simulate", "--schedule", "zb-v", *SIZES, "--width", width).stdout
            lanes = [line for line in shown.splitlines() if line.startswith("device ")]
            self.assertEqual([len(lane) for lane in lanes], [width] * 4)
            self.assertNotIn("\x1b", shown)
            self.assertRegex(shown, r"makespan +25\.5 s\nbubble +1\.5 s \(5\.9 %")
            self.assertRegex(shown, r"peak activations +4 4 4 4 ")
        # A margin of 10 characters, one to close, and four for each of 9 seconds.
        shown = run("simulate", "--schedule", "1f1b", "--stages", 2, "--micro-batches", 2, "--width", 47).stdout
        self.assertEqual(shown.splitlines()[1:3], ["device 0 │F0--F1--········B0------····B1------│",
                                                   "device 1 │····F0--B0------F1--B1------········│"])

    def test_table_of_all(self):
        table = run("simulate", "--all", *SIZES).stdout
        for name, makespan in (("gpipe", 33), ("1f1b", 33), ("interleaved", 28.5), ("varuna", 39), ("chimera", 30),
                               ("zb-h1", 27), ("zb-h2", 27), ("zb-v", 25.5), ("dualpipev", 25.5)):
            self.assertRegex(table, rf"(?m)^{name} +\d +{makespan} ")
        rows = json.loads(run("simulate", "--all", "--stages", 3, "--micro-batches", 8, "--json").stdout)["schedules"]
        self.assertEqual([row["schedule"] for row in rows], SCHEDULES)
        self.assertEqual([row["schedule"] for row in rows if "refused" in row], ["chimera"])
        self.assertIn("2 and 4", next(row["refused"] for row in rows if "refused" in row))

    def test_picture(self):
        picture = self.folder / "timeline.svg"
        for name in ("interleaved", "varuna", "chimera", "dualpipev"):
            answer = simulate(name, *SIZES, "--svg", picture)
            root = xml.etree.ElementTree.parse(picture).getroot()
            space = "{http://www.w3.org/2000/svg}"
            blocks = root.findall(f"{space}g")
            self.assertEqual(len(blocks), sum(map(len, answer["order"])))
            width = float(root.get("width"))
            for rectangle in root.iter(f"{space}rect"):
                right = float(rectangle.get("x", 0)) + float(rectangle.get("width"))
                self.assertLessEqual(right, width + 0.5)
            ends = [float(re.search(r"to ([\d.]+) s$", block.find(f"{space}title").text).group(1)) for block in blocks]
            self.assertAlmostEqual(max(ends), answer["makespan"], places=4)
            self.assertIn("prefers-color-scheme: dark", picture.read_text())

    def test_file_of_ones_own(self):
        own = self.folder / "own.json"
        for name in ("interleaved", "varuna", "chimera", "dualpipev"):
            saved = simulate(name, *SIZES, *COSTS, "--save", own)
            again = simulate("file", "--file", own, *COSTS)
            self.assertEqual(saved, again)
        schedule = json.loads(own.read_text())
        lane = schedule["order"][1]
        lane.remove(["forward", 0, 3])
        schedule["overlaps"] = [[], [], [], []]
        own.write_text(json.dumps(schedule))
        self.refused("--schedule", "file", "--file", own, words=["device 1", "micro-batch 3", "before its forward"])
        own.write_text("{")
        self.refused("--schedule", "file", "--file", own, words=[str(own), "no JSON"])
        self.refused("--schedule", "file", "--file", self.folder / "absent.json", words=["absent.json"])
        self.refused("--schedule", "file", *SIZES, words=["--file"])

    def planned_seconds(self, *keys):
        return json.loads(run("plan", *keys, "--json").stdout)["seconds"]

    # The same model as that of plans: what is left between them is what an estimate by blocks does not know.
    def test_a_run_on_a_cluster(self):
        config = SOURCE / "config/gpt2_355m.toml"
        offs = []
        for cluster, schedules in (("dgx_h100", ("gpipe", "1f1b", "interleaved", "zb-v", "chimera")), ("jean_zay_a100", ("zb-h1", "dualpipev"))):
            for schedule in schedules:
                keys = (config, "--cluster", SOURCE / f"config/clusters/{cluster}.toml", "--grid.pipeline", 4, "--grid.schedule", schedule,
                        "--train.global_batch", 64, "--train.micro_batch", 2, "--grid.data", 2, "--model.vocabulary", 50304,
                        "--evaluation.batches", 0, "--memory.budget", "70GiB")
                answer = json.loads(run("simulate", *keys, "--json").stdout)
                self.assertEqual(answer["micro_batches"], 16)
                self.assertEqual(len(answer["chunk_seconds"]), 4 * answer["chunks"])
                self.assertLess(answer["makespan"], answer["step_seconds"])
                self.assertNotIn("forward", answer)
                offs.append(abs(answer["step_seconds"] / self.planned_seconds(*keys) - 1))
        print(f"simulated steps off by {100 * statistics.median(offs):.2f} % in the middle, {100 * max(offs):.1f} % at most")
        self.assertLess(statistics.median(offs), 0.01)
        self.assertLess(max(offs), 0.05)

    def test_schedules_for_a_run(self):
        keys = (SOURCE / "config/gpt2_124m.toml", "--cluster", SOURCE / "config/clusters/dgx_h100.toml", "--grid.pipeline", 4,
                "--train.global_batch", 16, "--train.micro_batch", 1, "--model.vocabulary", 50304)
        rows = json.loads(run("simulate", *keys, "--all", "--json").stdout)["schedules"]
        self.assertEqual([row["schedule"] for row in rows], SCHEDULES)
        self.assertEqual([row["schedule"] for row in rows if "refused" in row], ["varuna"])
        by_name = {row["schedule"]: row for row in rows}
        self.assertLess(by_name["zb-v"]["makespan"], by_name["1f1b"]["makespan"])
        one = json.loads(run("simulate", *keys, "--grid.schedule", "zb-v", "--json").stdout)
        self.assertEqual(one["makespan"], by_name["zb-v"]["makespan"])
        shown = run("simulate", *keys, "--width", 80).stdout
        self.assertRegex(shown, r"(?m)^makespan +[\d.e-]+ s$")
        self.assertRegex(shown, r"(?m)^a step +[\d.e-]+ s \(with sums over ranks and updates; published figures")
        # A smaller budget has blocks run again.
        roomy = json.loads(run("simulate", *keys, "--json").stdout)
        self.assertEqual(roomy["makespan"], by_name["1f1b"]["makespan"])
        self.assertLess(roomy["peak_bytes"], roomy["budget_bytes"])
        less = ("--memory.budget", roomy["peak_bytes"] - (64 << 20))
        small = json.loads(run("simulate", *keys, *less, "--json").stdout)
        self.assertGreater(small["makespan"], roomy["makespan"])
        self.assertLessEqual(small["peak_bytes"], small["budget_bytes"])
        self.assertRegex(run("simulate", *keys, *less).stdout, r"(?m)^peak .* of a rank, within ")
        self.assertRegex(run("simulate", *keys, "--memory.budget", "64MiB").stdout, r"(?m)^peak .* of a rank, BEYOND 64.00 MiB$")

    def test_refusals_of_runs(self):
        config, cluster = SOURCE / "config/gpt2_124m.toml", ("--cluster", SOURCE / "config/clusters/dgx_h100.toml")
        self.refused(config, words=["--cluster"])
        self.refused(*cluster, "--schedule", "1f1b", *SIZES, words=["--cluster", "run file"])
        self.refused("--schedule", "1f1b", *SIZES, "--grid.data", 2, words=["grid.data", "run file"])
        self.refused(config, *cluster, "--model.vocabulary", 50304, words=["grid.pipeline", "two stages"])
        self.refused(config, *cluster, "--schedule", "1f1b", words=["--schedule", "--grid.schedule"])
        self.refused(config, *cluster, "--grid.pipeline", 2, "--forward", 1, words=["--forward"])
        self.refused(config, *cluster, "--grid.pipeline", 64, "--model.vocabulary", 50304, "--grid.data", 1, words=["grid.pipeline"])

    def test_refusals(self):
        self.refused("--schedule", "1f2b", *SIZES, words=["--schedule", "zb-h1"])
        self.refused("--schedule", "chimera", "--stages", 5, "--micro-batches", 8, words=["4 and 6"])
        self.refused("--schedule", "zb-v", *SIZES, "--chunks", 3, words=["--chunks", "2 a device"])
        self.refused("--schedule", "interleaved", *SIZES, "--group-size", 2, words=["--group-size", "at least 4"])
        self.refused("--schedule", "1f1b", *SIZES, "--overlap-gain", 0.1, words=["--overlap-gain", "dualpipev"])
        self.refused("--schedule", "dualpipev", *SIZES, "--overlap-gain", 1, words=["--overlap-gain"])
        self.refused("--schedule", "1f1b", *SIZES, "--forward", -1, words=["--forward"])
        self.refused("--schedule", "1f1b", *SIZES, "--communication", "nan", words=["--communication"])
        self.refused("--schedule", "1f1b", *SIZES, "--forward", 0, "--backward-input", 0, "--backward-weight", 0,
                     words=["no time"])
        self.refused("--schedule", "1f1b", "--stages", 4, words=["--micro-batches"])
        self.refused("--schedule", "1f1b", "--stages", 0, "--micro-batches", 8, words=["--stages"])
        self.refused(*SIZES, words=["--schedule", "--all"])
        self.refused("--schedule", "1f1b", *SIZES, "--json", "--width", 80, words=["--width"])
        self.refused("--all", "--schedule", "1f1b", *SIZES, words=["--all"])
        self.refused("--all", *SIZES, "--svg", self.folder / "all.svg", words=["--svg"])
        self.refused("--schedule", "gpipe", "--stages", 64, "--micro-batches", 1000, "--svg", self.folder / "big.svg",
                     words=["--svg", "128000"])
        self.refused("--schedule", "gpipe", *SIZES, "--svg", self.folder / "no" / "such.svg", words=["such.svg"], code=2)


if __name__ == "__main__":
    unittest.main()
