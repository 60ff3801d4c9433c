# SPDX-License-Identifier: MIT
"""`garonne eval` and `garonne report` of runs on fields: numbers, files, and what a browser shows of them."""
import json
import math
import shutil
import unittest

import browser
from report_test import CROWDED, data_of
from support import FieldsTest, run

RUN_FILE = """
[model]
kind = "fno"
layers = 2
hidden = 8
modes = [4, 4]
[data]
path = "{folder}/data/train"
validation = "{folder}/data/test"
[train]
steps = 4
global_batch = 2
micro_batch = 1
loss = "area-l2"
"""


class FieldRun(FieldsTest):
    RUN_FILE = RUN_FILE

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.run_directory = cls.folder / "run"
        cls.said = cls.train(cls.run_directory, *cls.OVERRIDES).stdout
        cls.shown = run("eval", cls.run_directory, *cls.ARGUMENTS).stdout
        cls.skill = json.loads((cls.run_directory / "skill.json").read_text())

    def test_numbers_of_things_and_bytes(self):
        self.assertIn("2 micro-batches of 1 sample a rank and step", self.said)
        self.assertRegex(self.shown, r"samples \(peak [0-9.]+ KiB of [0-9.]+ KiB planned\)")
        planned = run("plan", self.config, *self.OVERRIDES, "--train.global_batch", 1).stdout
        self.assertIn("1 rank: data 1 × pipeline 1 × tensor 1 · 1 micro-batch a rank", planned)
        self.assertNotIn("1 threads", planned)

    def of(self, key, source, channel=0):
        """Values of a source by lead."""
        return [lead[channel] for lead in self.skill[key][self.skill["sources"].index(source)]]

    def test_any_number_of_ranks_gives_the_same_files(self):
        files = ("skill.json", "skill.h5")
        kept = [(self.run_directory / name).read_bytes() for name in files]
        shown = set()
        for ranks in (1, 2, 3):
            shown.add(run("eval", self.run_directory, *self.ARGUMENTS, "--json", ranks=ranks).stdout)
            for name, wanted in zip(files, kept):
                self.assertEqual((self.run_directory / name).read_bytes(), wanted, f"{name} of {ranks} ranks")
        self.assertEqual(len(shown), 1)
        # What one rank cannot read or write is said once, with the code of a single one.
        absent = self.folder / "absent" / "skill.h5"
        refused = run("eval", self.run_directory, *self.ARGUMENTS, "--output", absent, ranks=2, check=2)
        self.assertEqual(refused.stderr.count("garonne:"), 1)

    def check_page(self, pictures, directory=None, skill=None):
        directory = directory or self.run_directory
        run("report", directory, "--budgets", 0)
        page = directory / "report.html"
        self.assertEqual(data_of(page.read_text(encoding="utf-8"))["skill"], skill or self.skill)
        window = browser.Browser()
        self.addCleanup(window.close)
        for width in (1280, 400):
            for scheme in ("light", "dark"):
                window.open(page, width, scheme)
                self.assertEqual(window.errors(), [])
                self.assertEqual(len(window.fetched()), 1, window.fetched())
                self.assertLessEqual(*window.evaluate(
                    "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"))
                self.assertEqual(window.evaluate("document.querySelectorAll('#skill .plot > svg').length"), pictures)
                self.assertEqual(window.evaluate(CROWDED), [], f"{width} {scheme}")
                # Truth, forecast and error; what a model says after four steps may be flat.
                self.assertEqual(window.evaluate("document.querySelectorAll('#skill canvas').length"), 3)
                self.assertGreaterEqual(window.evaluate(COLOURS), 2)
        return window


# How many maps have several colours.
COLOURS = """[...document.querySelectorAll('#skill canvas')].filter(canvas => {
  const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  return new Set(Array.from({length: data.length / 4}, (_, i) => data.slice(4 * i, 4 * i + 3).join())).size > 8;
}).length"""


class SphereTest(FieldRun, unittest.TestCase):
    OVERRIDES = ()
    ARGUMENTS = ("--lead-steps", 4, "--samples", 6)

    @classmethod
    def make_data(cls):
        run("data", "synthetic-era5", "--latitudes", 19, "--longitudes", 36, "--channels", "t2m,z500", "--frame-hours", 24,
            "--years", 2, "--output", cls.folder / "data", "--no-progress")

    def test_what_it_is_of(self):
        self.assertEqual((self.skill["format"], self.skill["version"]), ("garonne.skill", 1))
        self.assertEqual(self.skill["sources"], ["model", "persistence", "climatology"])
        self.assertEqual(self.skill["channels"], ["t2m", "z500"])
        self.assertEqual((self.skill["samples"], self.skill["lead_seconds"], self.skill["step"]), (6, 86400, 4))
        self.assertEqual(self.skill["weighting"], "cell-area")
        self.assertIn("two annual harmonics of 73", self.skill["climatology"])
        for word in ("cell-area", "persistence", "z500", "4 d", "skill.h5"):
            self.assertIn(word, self.shown)

    def test_numbers_make_sense(self):
        for channel in (0, 1):
            persistence = self.of("rmse", "persistence", channel)
            self.assertLess(persistence[0], persistence[-1])
            self.assertTrue(all(value > 0 for value in self.of("rmse", "model", channel)))
            self.assertEqual(self.of("acc", "climatology", channel), [None] * 4)
            for source in ("model", "persistence"):
                self.assertTrue(all(-1 <= value <= 1 for value in self.of("acc", source, channel)))
            # The mean square is not less than the square of the mean.
            for source in self.skill["sources"]:
                for rmse, bias in zip(self.of("rmse", source, channel), self.of("bias", source, channel)):
                    self.assertLessEqual(abs(bias), rmse)
        spectra = self.skill["spectra"]
        self.assertEqual((spectra["kind"], spectra["leads"]), ("spherical", [1, 2, 3, 4]))
        # Random weather of degrees below a third of the latitudes.
        truth = spectra["truth"][0][1]
        self.assertLess(truth[8], 1e-6 * truth[1])

    def test_json_and_other_options(self):
        other = self.folder / "other.h5"
        before = [(self.run_directory / name).read_bytes() for name in ("skill.json", "skill.h5")]
        result = json.loads(run("eval", self.run_directory, *self.ARGUMENTS, "--weighting", "quadrature", "--climatology",
                                "mean", "--maps", 0, "--output", other, "--json").stdout)["skill"]
        self.assertTrue(other.read_bytes().startswith(b"\x89HDF"))
        # Those of the run are of another evaluation.
        for name, kept in zip(("skill.json", "skill.h5"), before):
            self.assertEqual((self.run_directory / name).read_bytes(), kept, name)
        self.assertEqual((result["weighting"], result["output"]), ("quadrature", str(other)))
        self.assertLessEqual(result["peak_bytes"], result["planned_peak_bytes"])
        for one, others in zip(result["rmse"][0], self.skill["rmse"][0]):
            self.assertNotEqual(one[0], others[0])
            self.assertTrue(math.isclose(one[0], others[0], rel_tol=0.1))
        # The mean knows no season.
        self.assertGreater(result["rmse"][2][0][0], self.of("rmse", "climatology")[0])

    def test_ensembles(self):
        output = self.folder / "ensembles.h5"
        arguments = (*self.ARGUMENTS, "--members", 3, "--output", output)
        shown = run("eval", self.run_directory, *arguments).stdout
        self.assertIn("ensembles of 3 members", shown)
        results = [json.loads(run("eval", self.run_directory, *arguments, "--json", ranks=ranks).stdout)["skill"]
                   for ranks in (1, 2)]
        self.assertEqual(*results)
        skill = results[0]
        self.assertEqual(skill["sources"][-1], "ensemble mean")
        self.assertEqual(skill["rmse"][0], self.skill["rmse"][0])
        for key in ("crps", "spread", "spread_skill_ratio"):
            self.assertEqual([len(lead) for lead in skill[key]], [2] * 4)
            # A model that has hardly learnt may forget the noise after a step.
            self.assertTrue(all(value > 0 for value in skill[key][0]), key)
            self.assertTrue(all(value >= 0 for lead in skill[key] for value in lead), key)
        for lead in skill["rank_histogram"]:
            for shares in lead:
                self.assertEqual(len(shares), 4)
                self.assertAlmostEqual(sum(shares), 1, delta=1e-4)

    def test_the_page_of_ensembles(self):
        directory = self.folder / "with-ensembles"
        shutil.copytree(self.run_directory, directory)
        run("eval", directory, *self.ARGUMENTS, "--members", 5)
        skill = json.loads((directory / "skill.json").read_text())
        window = self.check_page(7, directory, skill)
        # CRPS, spread and the error of the mean are curves of four points, with numbers of the file.
        told = window.evaluate("""(() => {
          const svg = [...document.querySelectorAll('#skill svg')].find(
              svg => (svg.getAttribute('aria-label') || '').startsWith('CRPS, spread and error of ensembles of t2m'));
          const box = svg.getBoundingClientRect();
          svg.dispatchEvent(new PointerEvent('pointermove', {clientX: box.right - 15, clientY: box.top + box.height / 2}));
          return [svg.querySelectorAll('path.series').length, document.getElementById('tooltip').textContent];
        })()""")
        self.assertEqual(told[0], 3)
        for value in (skill["crps"][3][0], skill["spread"][3][0]):
            self.assertIn(f"{value:.4g}", told[1])
        # Each rank has a bar as high as its share, at the lead that is chosen.
        bars = """[...[...document.querySelectorAll('#skill svg')].find(
            svg => (svg.getAttribute('aria-label') || '').startsWith('Ranks of the truth')).querySelectorAll('rect')]
            .map(bar => bar.getBBox().height)"""
        for lead in (0, 3):
            # Pictures are drawn when their width is known.
            window.evaluate(f"""(() => {{
              const list = document.querySelectorAll('#skill select')[1];
              list.selectedIndex = {lead};
              list.dispatchEvent(new Event('change'));
              return new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(null))));
            }})()""")
            heights, shares = window.evaluate(bars), skill["rank_histogram"][lead][0]
            self.assertEqual(len(heights), 6)
            for height, share in zip(heights, shares, strict=True):
                self.assertAlmostEqual(height / sum(heights), share, 3)
        self.assertEqual(window.errors(), [])

    def test_the_page(self):
        window = self.check_page(4)
        self.assertEqual(window.evaluate("""(() => {
          const list = document.querySelector('#skill select');
          list.selectedIndex = 1;
          list.dispatchEvent(new Event('change'));
          return [...document.querySelectorAll('#skill h3')].every(title => title.textContent.includes('z500'));
        })()"""), True)
        self.assertEqual(window.errors(), [])

    def test_a_loss_that_is_chosen_has_its_name(self):
        directory = self.folder / "automatic"
        config = self.folder / "automatic.toml"
        config.write_text(self.config.read_text().replace('loss = "area-l2"\n', ""))
        run("train", config, "--run.directory", directory)
        shown = run("eval", directory, "--samples", 1).stdout
        self.assertRegex(shown, r"validation loss [0-9.]+ relative-l2 over")
        self.assertIn(": 1 forecast of ", shown)

    def test_what_cannot_be_is_refused(self):
        for arguments in (("--lead-steps", 400), ("--weighting", "area"), ("--climatology", "usual"),
                          ("--generate", "once"), ("--samples", 0)):
            refused = run("eval", self.run_directory, *arguments, check=2)
            self.assertIn(arguments[0], refused.stderr)
            self.assertEqual(refused.stdout, "", arguments)
        refused = run("eval", self.run_directory, "--output", self.folder / "absent" / "skill.h5", check=2)
        self.assertEqual(refused.stdout, "")
        damaged = self.folder / "damaged"
        shutil.copytree(self.run_directory, damaged)
        (damaged / "skill.json").write_text("{}")
        self.assertIn("skill.json", run("report", damaged, check=5).stderr)


class DarcyTest(FieldRun, unittest.TestCase):
    OVERRIDES = ("--data.path", "train.h5")
    ARGUMENTS = ()

    @classmethod
    def make_data(cls):
        data = cls.folder / "data"
        data.mkdir()
        run("data", "darcy", "--samples", 12, "--test-samples", 5, "--resolution", 33, "--stride", 2, "--output",
            data / "train.h5", "--test", data / "test.h5", "--no-progress")
        run("data", "statistics", data / "train.h5", "--output", data / "statistics.h5")
        cls.OVERRIDES = ("--data.path", data / "train.h5", "--data.validation", data / "test.h5", "--data.statistics",
                         data / "statistics.h5", "--train.loss", "relative-l2")

    def test_pairs_have_no_time(self):
        self.assertTrue(self.skill["pairs"])
        self.assertEqual(self.skill["sources"], ["model", "climatology"])
        self.assertEqual((self.skill["samples"], len(self.skill["rmse"][0])), (5, 1))
        self.assertEqual((self.skill["weighting"], self.skill["spectra"]["kind"]), ("uniform", "zonal"))
        self.assertIn("relative L2", self.shown)
        self.assertLess(self.of("relative_l2", "climatology")[0], 1)
        run("eval", self.run_directory, "--lead-steps", 2, check=2)

    def test_quantities_have_names(self):
        """PDEBench calls them "nu" and "tensor"."""
        self.assertRegex(self.shown, r"(?m)^tensor, pressure +— ")
        self.assertEqual((self.skill["channels"], self.skill["long_names"]), (["tensor"], ["pressure"]))
        shown = run("data", "inspect", self.folder / "data/train.h5").stdout
        self.assertIn("meaning     nu = permeability, tensor = pressure", shown)
        series = self.folder / "data/series.h5"
        run("data", "navier-stokes", "--samples", 1, "--resolution", 16, "--stride", 2, "--time", 3, "--step", 1e-2,
            "--output", series, "--no-progress")
        shown = run("data", "inspect", series).stdout
        for words in ("meaning     tensor = vorticity", "units       tensor [s-1]", "steps of 1 s\n"):
            self.assertIn(words, shown)

    def test_the_page(self):
        window = self.check_page(2)
        cells = window.evaluate("[...document.querySelectorAll('#skill td, #skill th')].map(cell => cell.textContent)")
        self.assertIn("tensor, pressure", cells)
        # One kind of minus, in exponents too.
        self.assertTrue(any("e−" in cell for cell in cells), cells)
        self.assertFalse(any("e-" in cell for cell in cells), cells)


if __name__ == "__main__":
    unittest.main(verbosity=2)
