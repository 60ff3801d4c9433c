# SPDX-License-Identifier: MIT
"""`garonne report` and `garonne plan --sweep`: the numbers are those of the files, whatever they hold stays
text, what is missing is said, and a browser shows the page without complaint."""
import html.parser
import json
import pathlib
import re
import shutil
import statistics
import tempfile
import unittest

import browser
from support import SOURCE, ProgramTest, metrics, run

# A name that would end the element of the data, a string, an attribute and a mark of the page.
HOSTILE = 'run </script><b id=injected>&lt;"\' {{scripts}} \u00e9'


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL).group(1))


def live_by_kind(program):
    """The slow and plain count: bytes live during each instruction, by kind of buffer."""
    buffers = program["buffers"]
    live = {b["id"] for b in buffers if b["live_at_start"]}
    during = []
    for instruction in program["instructions"]:
        live |= set(instruction["writes"])
        kinds = {}
        for b in live:
            kinds[buffers[b]["kind"]] = kinds.get(buffers[b]["kind"], 0) + buffers[b]["bytes"]
        kinds["transients"] = instruction["transient_bytes"] + kinds.pop("scalar", 0)
        during.append(kinds)
        live -= set(instruction["frees"])
    return during


KINDS = {"parameters": ["parameter", "master-parameter"], "optimizer": ["optimizer-state"],
         "gradients": ["gradient"], "values": ["value"], "records": ["record"],
         "value gradients": ["value-gradient"], "communication": ["communication", "gathered-parameter"], "transients": ["transients"]}


class Elements(html.parser.HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))


class ReportTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.run_directory = cls.folder / HOSTILE
        # The fastest plan that fits here runs some nodes again.
        least = json.loads(run("plan", cls.config, "--grid.data", 2, "--json").stdout)["minimum_budget_bytes"]
        cls.budget = int(1.15 * least)
        run("train", cls.config, "--run.directory", cls.run_directory, "--grid.data", 2, "--memory.budget", cls.budget,
            "--evaluation.every", 3, ranks=2)
        cls.out = run("report", cls.run_directory, "--budgets", 6).stdout
        cls.page = (cls.run_directory / "report.html").read_text(encoding="utf-8")
        cls.data = data_of(cls.page)
        cls.programs = [json.loads((cls.run_directory / f"program/rank_{rank}.json").read_text()) for rank in (0, 1)]

    def copied(self, name="copy"):
        target = self.directory(name)
        shutil.copytree(self.run_directory, target)
        (target / "report.html").unlink()
        return target

    def reported(self, directory, *arguments):
        run("report", directory, *arguments)
        return data_of((directory / "report.html").read_text(encoding="utf-8"))

    def test_the_page_needs_nothing_else(self):
        self.assertIn("report.html", self.out)
        self.assertNotRegex(self.page, r"https?:|@import|url\(")
        self.assertIn("default-src 'none'", self.page)
        for tag, attributes in Elements(self.page).found:
            self.assertFalse({"src", "href", "srcset", "action"} & set(attributes), tag)

    def test_a_hostile_name_stays_text(self):
        self.assertEqual(self.data["run"], str(self.run_directory))
        self.assertEqual(self.page.count("</script>"), 2)
        self.assertEqual(self.page.count("<script"), 2)
        self.assertNotIn("<b id", self.page)
        self.assertNotIn("injected", [attributes.get("id") for _, attributes in Elements(self.page).found])

    def test_the_same_run_gives_the_same_bytes(self):
        other = self.folder / "other.html"
        run("report", self.run_directory, "--output", other, "--budgets", 6)
        self.assertEqual(other.read_text(encoding="utf-8"), self.page)

    def test_summary_and_curves_are_those_of_the_metrics(self):
        rows = metrics(self.run_directory)
        summary, shown = self.data["summary"], self.data["metrics"]
        self.assertEqual(summary["measured_peak_bytes"], max(row["peak_bytes"] for row in rows))
        self.assertEqual(summary["planned_peak_bytes"], rows[-1]["planned_peak_bytes"])
        self.assertEqual(summary["measured_seconds"], statistics.median_high(row["seconds"] for row in rows))
        self.assertEqual(summary["data_seconds"], statistics.median_high(row["data_seconds"] for row in rows))
        for row in rows:
            self.assertTrue(0 < row["data_seconds"] < row["seconds"], row)
        self.assertEqual(summary["last_loss"], rows[-1]["loss"])
        self.assertEqual(summary["last_validation_loss"], rows[-1]["validation_loss"])
        for key in ("step", "loss", "peak_bytes"):
            self.assertEqual(shown[key], [row[key] for row in rows])
        self.assertEqual(shown["items_per_second"], [row["tokens_per_second"] for row in rows])
        self.assertEqual(shown["validation"], [[row["step"], row["validation_loss"]] for row in rows
                                               if "validation_loss" in row])
        self.assertEqual(len(shown["validation"]), 2)

    def test_live_bytes_are_those_of_the_programs(self):
        self.assertEqual(len(self.data["programs"]), 1)
        shown = self.data["programs"][0]
        self.assertEqual(shown["kinds"], list(KINDS))
        during = live_by_kind(self.programs[0])
        for name, series in zip(shown["kinds"], shown["bytes"]):
            self.assertEqual(series, [sum(kinds.get(kind, 0) for kind in KINDS[name]) for kinds in during], name)
        totals = [sum(at) for at in zip(*shown["bytes"])]
        self.assertEqual(max(totals), self.programs[0]["peak_bytes"])
        self.assertEqual(totals[shown["peak_instruction"]], shown["peak_bytes"])
        self.assertEqual(shown["budget_bytes"], self.budget)
        memory = self.data["memory"]
        self.assertEqual(memory["peak"], shown["peak_bytes"])
        self.assertEqual(sum(memory.get(key, 0) for key in ("parameters", "optimizer", "gradients", "activations", "libraries",
                                                            "communication", "transients")), memory["peak"])
        self.assertEqual(memory["peak"] + memory["free"], self.budget)

    def test_measurements_are_those_of_the_programs(self):
        self.assertEqual([rank["rank"] for rank in self.data["ranks"]], [0, 1])
        for rank, program in zip(self.data["ranks"], self.programs):
            for key in ("measured_seconds", "measured_live_bytes", "measured_peak_bytes"):
                self.assertEqual(rank[key], [instruction[key] for instruction in program["instructions"]])
            # What the page shows as measured by kind rests on this.
            planned = [sum(kinds.values()) for kinds in live_by_kind(program)]
            self.assertLessEqual(max(rank["measured_peak_bytes"]), max(planned))

    def test_nodes_add_up_to_the_program(self):
        instructions = [i for i in self.programs[0]["instructions"] if re.match("forward|backward", i["operation"])]
        nodes = self.data["nodes"]
        self.assertEqual({node["node"] for node in nodes}, {i["node"] for i in instructions})
        # A backward in two parts is one.
        self.assertEqual(sum(node["forwards"] + node["backwards"] for node in nodes),
                         sum(i["operation"] != "backward-input" for i in instructions))
        again = sum(i["recompute"] for i in instructions)
        self.assertGreater(again, 0)
        self.assertEqual(sum(node["recomputations"] for node in nodes), again)
        self.assertAlmostEqual(sum(node["measured_forward_seconds"] + node["measured_backward_seconds"]
                                   for node in nodes), sum(i["measured_seconds"] for i in instructions))
        self.assertIn("linear", {node["kind"] for node in nodes})

    def test_the_curve_is_that_of_the_planner(self):
        self.assertEqual(self.data["costs"], "measured")
        points = self.data["curve"]["points"]
        self.assertEqual(len(points), 6)
        budgets = [point["budget_bytes"] for point in points]
        self.assertEqual(budgets, sorted(set(budgets)))
        for before, after in zip(points, points[1:]):
            self.assertLessEqual(after["seconds"], before["seconds"])
        self.assertTrue(all(point["peak_bytes"] <= point["budget_bytes"] for point in points))
        names = {policy["name"]: policy for policy in self.data["curve"]["policies"]}
        self.assertLessEqual({"keep-all", "uniform", "selective"}, set(names))
        self.assertEqual(names["keep-all"]["peak_bytes"], budgets[-1])
        planned = json.loads(run("plan", self.config, "--grid.data", 2, "--memory.budget", self.budget,
                                 "--json").stdout)
        self.assertEqual(planned["minimum_budget_bytes"], budgets[0])

    def test_without_its_costs_a_run_has_estimates(self):
        directory = self.copied()
        (directory / "costs.json").unlink()
        data = self.reported(directory, "--budgets", 3)
        self.assertEqual(data["costs"], "declared")
        self.assertEqual(len(data["curve"]["points"]), 3)
        self.assertEqual({cell["costs"] for cell in data["sweep"]["cells"]}, {"declared"})

    def test_no_points_no_curve(self):
        self.assertIsNone(self.reported(self.copied(), "--budgets", 0)["curve"])
        run("report", self.run_directory, "--budgets", 1, check=2)

    def test_before_the_run_has_ended(self):
        directory = self.copied()
        shutil.rmtree(directory / "program")
        data = self.reported(directory, "--budgets", 0)
        self.assertEqual((data["programs"], data["ranks"], data["nodes"], data["memory"]), ([], [], [], None))
        self.assertEqual(data["sweep"]["budget_bytes"], self.budget)
        # A line that is being written.
        with open(directory / "metrics.jsonl", "a") as file:
            file.write('{"step":7,"lo')
        self.assertEqual(self.reported(directory, "--budgets", 0)["summary"]["steps"], 6)

    def test_the_gpu_of_the_run(self):
        self.assertNotIn("gpu", self.data["summary"])
        directory = self.copied("gpu")
        choices = json.loads((directory / "choices.json").read_text())
        gpu = {"name": "NVIDIA H100 80GB HBM3", "architecture": 90, "memory_bytes": 80 * 2**30, "driver": "580.95.05",
               "driver_cuda": "13.2", "runtime_cuda": "13.0"}
        (directory / "choices.json").write_text(json.dumps(choices | {"gpu": gpu}))
        self.assertEqual(self.reported(directory, "--budgets", 0)["summary"]["gpu"],
                         "NVIDIA H100 80GB HBM3, architecture 90, 80.00 GiB, driver 580.95.05 (CUDA 13.2), run time 13.0")
        (directory / "report.html").unlink()
        (directory / "choices.json").write_text(json.dumps(choices | {"gpu": gpu | {"architecture": "Hopper"}}))
        self.refused(directory, 5, "choices.json", "gpu.architecture")

    def refused(self, directory, code, *words):
        done = run("report", directory, check=code)
        self.assertEqual(done.stderr.count("garonne:"), 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertFalse((pathlib.Path(directory) / "report.html").exists())

    def test_what_is_missing(self):
        self.refused(self.folder / "absent", 5, "absent")
        for name, code in (("metrics.jsonl", 5), ("choices.json", 5), ("config.toml", 5), ("program/rank_1.json", 5)):
            directory = self.copied(name)
            (directory / name).unlink()
            self.refused(directory, code, str(directory) if name == "config.toml" else name)
        directory = self.copied("empty")
        (directory / "metrics.jsonl").write_text("")
        self.refused(directory, 5, "metrics.jsonl", "no step")
        run("report", self.run_directory, "--output", self.folder / "absent" / "report.html", check=2)
        self.assertIn("one rank", run("report", self.run_directory, ranks=2, check=2).stderr)

    def test_what_is_damaged(self):
        directory = self.copied("metrics")
        lines = (directory / "metrics.jsonl").read_text().splitlines(keepends=True)
        (directory / "metrics.jsonl").write_text("".join([lines[0], "{}\n", *lines[2:]]))
        self.refused(directory, 5, "metrics.jsonl", "line 2")
        directory = self.copied("choices")
        (directory / "choices.json").write_text("[]")
        self.refused(directory, 5, "choices.json")
        directory = self.copied("costs")
        (directory / "costs.json").write_text("{")
        self.refused(directory, 5, "costs.json")

    def test_a_damaged_program(self):
        path = self.copied() / "program/rank_1.json"
        whole = path.read_text()

        def changed(change):
            program = json.loads(whole)
            change(program)
            return json.dumps(program)

        cases = {
            "no JSON": whole[:len(whole) // 2],
            "version": changed(lambda program: program.update(version=1)),
            "peak_bytes": changed(lambda program: program.pop("peak_bytes")),
            "measured_seconds": changed(lambda program: program["instructions"][3].pop("measured_seconds")),
            "is negative": changed(lambda program: program["instructions"][3].update(measured_peak_bytes=-1)),
            "illegal": changed(lambda program: program["instructions"][3]["reads"].append(10**6)),
            "not measured": changed(lambda program: [instruction.pop(key) for instruction in program["instructions"]
                                                     for key in list(instruction) if key.startswith("measured_")]),
        }
        for word, text in cases.items():
            path.write_text(text)
            self.refused(path.parent.parent, 5, "rank_1.json", word)

    def test_a_browser_shows_it(self):
        unended = self.copied()
        shutil.rmtree(unended / "program")
        run("report", unended, "--budgets", 0)
        window = browser.Browser()
        self.addCleanup(window.close)
        for directory, pictures in ((self.run_directory, 5), (unended, 2)):
            for width in (1280, 400):
                for scheme in ("light", "dark"):
                    window.open(directory / "report.html", width, scheme)
                    self.assertEqual(window.errors(), [])
                    if directory == unended:
                        page = window.evaluate("document.body.innerText")
                        self.assertIn("no points were asked for (--budgets 0)", page)
                        self.assertRegex(page, r"budget\s+[0-9.]+ (KiB|MiB)\s")
                        self.assertNotIn(str(self.budget), page)
                    self.assertEqual(len(window.fetched()), 1, window.fetched())
                    self.assertLessEqual(*window.evaluate(
                        "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"))
                    self.assertEqual(window.evaluate("document.querySelectorAll('.plot > svg').length"), pictures)
                    self.assertEqual(window.evaluate("document.getElementById('run').textContent"), str(directory))
                    self.assertEqual(window.evaluate(CROWDED), [], f"{width} {scheme}")
        window.open(self.run_directory / "report.html", 400)
        told = window.evaluate(TELLS)
        self.assertIn("instruction", told)
        self.assertIn("measured", told)

    def test_a_tier_below_the_device_is_drawn_where_something_is_there(self):
        data = data_of(self.page)
        program = data["programs"][0]
        count = len(program["operation"])
        program["below"] = {"host": {"budget_bytes": 4096, "peak_bytes": 3072, "peak_instruction": 1, "bytes": [
            [1024] * count if name == "parameters" else [0, 2048] + [0] * (count - 2) if name == "records" else [0] * count
            for name in program["kinds"]]}}
        page = self.folder / "tiers.html"
        text = json.dumps(data).replace("<", "\\u003c")
        page.write_text(re.sub(r'(?<=id="data">).*?(?=</script>)', lambda unused: text, self.page, count=1, flags=re.DOTALL),
                        encoding="utf-8")
        window = browser.Browser()
        self.addCleanup(window.close)
        labels = "[...document.querySelectorAll('#live .plot > svg')].map(svg => svg.getAttribute('aria-label'))"
        window.open(self.run_directory / "report.html", 1280)
        self.assertEqual(len(window.evaluate(labels)), 1)
        for width in (1280, 400):
            window.open(page, width)
            self.assertEqual(window.errors(), [])
            self.assertEqual(window.evaluate(CROWDED), [])
            self.assertEqual(window.evaluate(labels)[1:], ["Bytes of the host over the step, stacked by kind; peak 3.00 KiB"])
            # The two kinds that are there, the second with the height of its 2 of 3 KiB.
            heights = window.evaluate("[...document.querySelectorAll('#live .plot > svg')[1].querySelectorAll('path')]"
                                      ".map(path => path.getBBox().height)")
            self.assertEqual(len(heights), 2)
            self.assertAlmostEqual(heights[1] / heights[0], 2, 2)


# Texts of a picture that stick out of it or lie on each other.
CROWDED = """[...document.querySelectorAll('.plot > svg')].flatMap(svg => {
  const outer = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll('text')].map(text => [text.textContent, text.getBoundingClientRect()]);
  const outside = texts.filter(([, box]) => box.left < outer.left - 1 || box.right > outer.right + 1 ||
    box.top < outer.top - 1 || box.bottom > outer.bottom + 1).map(([text]) => text);
  const meeting = texts.flatMap(([text, a], i) => texts.slice(i + 1).filter(([, b]) =>
    a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3)
    .map(([other]) => text + ' | ' + other));
  return outside.concat(meeting);
})"""

# The tooltip over the middle of the live bytes.
TELLS = """(() => {
  const svg = document.querySelector('#live svg');
  const box = svg.getBoundingClientRect();
  svg.dispatchEvent(new PointerEvent('pointermove',
    {clientX: box.left + box.width / 2, clientY: box.top + box.height / 2}));
  const tooltip = document.getElementById('tooltip');
  return tooltip.hidden ? '' : tooltip.textContent;
})()"""


# Of the page what its scripts look for before they draw.
BARE_PAGE = """<!doctype html><meta charset="utf-8"><svg id="seed"></svg>
<script type="application/json" id="data">{data}</script><script>{scripts}</script>"""


class LaneRowsTest(unittest.TestCase):
    def test_every_lane_has_a_row_with_the_spans_of_replay(self):
        lanes = ["collective", "message", "a-lane-of-another-version"]
        # Compute, one thing on each lane, a wait for each.
        program = {"operation": ["load", "all-reduce", "receive", "load", "wait", "wait", "wait"],
                   "recompute": [0] * 7, "completes": [-1, -1, -1, -1, 1, 2, 3], "lanes": lanes,
                   "lane": [-1, 0, 1, 2, -1, -1, -1],
                   "begin_seconds": [0, 1, 1, 2, 1, 5, 6], "end_seconds": [1, 5, 3, 6, 5, 5, 6]}
        data = {"programs": [program], "ranks": [{"rank": 0, "program": 0, "measured_seconds": [1] * 7}]}
        scripts = [SOURCE / "src/train/report" / name for name in ("drawing.js", "schedule.js")]
        folder = pathlib.Path(tempfile.mkdtemp(prefix="garonne-rows-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        page = folder / "rows.html"
        page.write_text(BARE_PAGE.format(data=json.dumps(data), scripts="\n".join(map(pathlib.Path.read_text, scripts))))
        window = browser.Browser()
        self.addCleanup(window.close)
        window.open(page, 800)
        self.assertEqual(window.errors(), [])
        rows = dict(window.evaluate("lanes().map(row => [row.name, row.spans])"))
        self.assertEqual(rows["predicted"], [[0, 1], [1, 1], [1, 1], [1, 1], [1, 5], [5, 5], [6, 6]])
        self.assertEqual(rows["predicted, sums over ranks"], [None, [1, 5]])
        self.assertEqual(rows["predicted, messages"], [None, None, [1, 3]])
        self.assertEqual(rows["predicted, a-lane-of-another-version"], [None, None, None, [2, 6]])
        self.assertEqual(rows["measured, sums in flight at most"], [None, [1, 5]])
        self.assertEqual(rows["measured, a-lane-of-another-version in flight at most"], [None, None, None, [3, 7]])


class SweepTest(ProgramTest):
    def sweep(self, axes, *arguments):
        return json.loads(run("plan", self.config, "--sweep", axes, "--json", *arguments).stdout)

    def test_more_is_never_less(self):
        sweep = self.sweep("batch,sequence", "--memory.budget", "4 MiB")
        self.assertEqual((sweep["format"], sweep["version"]), ("garonne.sweep", 1))
        self.assertEqual(sweep["batches"], [1, 2, 4, 8, 16])
        self.assertEqual(sweep["sequences"], [8, 16, 32, 64, 128, 256])
        cells = {(cell["batch"], cell["sequence"]): cell for cell in sweep["cells"]}
        self.assertEqual(list(cells), [(b, s) for b in sweep["batches"] for s in sweep["sequences"]])
        for (batch, sequence), cell in cells.items():
            self.assertLessEqual(cell["minimum_budget_bytes"], cell["fastest_peak_bytes"])
            self.assertEqual(cell["fits"], cell["minimum_budget_bytes"] <= sweep["budget_bytes"])
            for larger in ((2 * batch, sequence), (batch, 2 * sequence)):
                for key in ("minimum_budget_bytes", "fastest_peak_bytes"):
                    if larger in cells:
                        self.assertLessEqual(cell[key], cells[larger][key])
        # The budget divides the cells, and growing is strict at the large end.
        self.assertEqual({cell["fits"] for cell in sweep["cells"]}, {True, False})
        self.assertLess(cells[8, 256]["minimum_budget_bytes"], cells[16, 256]["minimum_budget_bytes"])

    def test_a_cell_is_what_plan_says(self):
        for batch, sequence in ((2, 32), (8, 64)):
            sizes = ("--train.micro_batch", batch, "--model.sequence", sequence, "--train.global_batch", 4 * batch)
            planned = json.loads(run("plan", self.config, *sizes, "--json").stdout)
            cell = next(cell for cell in self.sweep("batch,sequence")["cells"]
                        if (cell["batch"], cell["sequence"]) == (batch, sequence))
            self.assertEqual(cell["minimum_budget_bytes"], planned["minimum_budget_bytes"])
            # The budget of the run file is no limit for these.
            self.assertEqual(cell["fastest_peak_bytes"], planned["peak_bytes"])

    def test_one_axis(self):
        sweep = self.sweep("sequence", "--model.sequence", 100)
        self.assertEqual(sweep["batches"], [2])
        self.assertEqual(sweep["sequences"], [16, 32, 64, 100, 128, 256, 512])

    def test_for_people(self):
        shown = run("plan", self.config, "--sweep", "batch,sequence", "--memory.budget", "4 MiB").stdout
        self.assertEqual(len(shown.splitlines()), 2 * (2 + 5) + 1)
        self.assertIn("MiB!", shown)

    def test_what_is_no_sweep(self):
        for axes in ("layers", "batch,batch", ",", "batch,", "batch,layers", ""):
            self.assertIn("--sweep", run("plan", self.config, "--sweep", axes, check=2).stderr)
        self.assertIn("--program", run("plan", self.config, "--sweep", "batch", "--program", self.folder / "p",
                                       check=2).stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
