# SPDX-License-Identifier: MIT
"""Files of fields on the command line: what they hold, their statistics, and what is no such file."""
import json
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import browser
from support import BINARY, SOURCE, FieldsTest, ProgramTest, run

CLIMATE = SOURCE / "data/climate"


class BadFiles(ProgramTest):
    """One message and exit code 5, on one rank and on two."""

    def refused(self, path, *words):
        for command, ranks in (("inspect", 0), ("statistics", 0), ("statistics", 2)):
            done = run("data", command, path, ranks=ranks, check=5)
            ours = [line for line in done.stderr.splitlines() if "garonne:" in line]
            self.assertEqual(len(ours), 1, done.stderr)
            for word in (str(path), *words):
                self.assertIn(word, done.stderr)

    def test_nothing_there(self):
        self.refused(self.folder / "absent.h5", "no such file")

    def test_folder_without_data(self):
        empty = self.folder / "empty"
        empty.mkdir()
        self.refused(empty, "no data files")

    def test_not_hdf5(self):
        self.refused(self.folder / "train.txt", "not an HDF5 file")

    def test_truncated(self):
        cut = self.folder / "cut.h5"
        cut.write_bytes(self.data.read_bytes()[:3000])
        self.refused(cut, "truncated")

    def test_tokens_are_no_fields(self):
        for ranks in (0, 2):
            done = run("data", "statistics", self.data, ranks=ranks, check=5)
            self.assertIn("no known layout of fields", done.stderr)
            self.assertIn('"tokens"', done.stderr)
        self.assertIn("tokenizer", run("data", "inspect", self.data).stdout)

    def test_options(self):
        done = run("data", "inspect", self.data, "--layout", "grib")
        self.assertIn("tokenizer", done.stdout)
        run("data", "statistics", self.data, "--layout", "grib", check=2)
        run("data", "statistics", self.data, "--missing", "ignore", check=2)
        run("data", "inspect", self.data, ranks=2, check=2)


RUN_FILE = """
[model]
kind = "fno"
layers = 1
hidden = 4
modes = [3, 3]
[data]
path = "{folder}/good"
normalisation = "none"
[train]
steps = 20
global_batch = 4
micro_batch = 1
seed = 3
[grid]
data = 2
"""


class FilesOfOthers(FieldsTest, unittest.TestCase):
    """What is wrong with a file is said once, with its name and that of the dataset, on one rank and on two."""

    RUN_FILE = RUN_FILE

    @classmethod
    def make_data(cls):
        subprocess.run([pathlib.Path(BINARY).parents[1] / "tests/make_field_files", cls.folder], check=True)

    def refused(self, arguments, ranks, *words, in_a_step=False):
        done = run(*arguments, ranks=ranks, check=5)
        ours = [line for line in done.stderr.splitlines() if "garonne:" in line or line.startswith("[rank ")]
        if in_a_step:  # each rank that meets it says so
            self.assertTrue(ours and all(word in line for word in words for line in ours), done.stderr)
        else:
            self.assertEqual(len(ours), 1, done.stderr)
        self.assertLess(len(ours[0]), 2000)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertNotIn("H5", ours[0].replace(".h5", ""))

    def test_years_that_do_not_go_together(self):
        run("data", "inspect", self.folder / "good", "--full")
        for kind, words in {
            "wrong_rank": ('"fields"', "3 dimensions", "[8, 3, 144]"),
            "swapped_axes": ('"fields"', "swapped"),
            "missing_channel": ('"fields"', '"t2m" is missing'),
            "other_size": ('"fields"', "[17, 32]"),
            "nan_slab": ('"fields"', '"t2m"', "row 3", "frame 2", "NaN"),
        }.items():
            with self.subTest(kind):
                culprit = str(self.folder / kind / "1980.h5")
                if kind != "nan_slab":
                    self.refused(("data", "inspect", self.folder / kind), 0, culprit, *words)
                self.refused(("data", "statistics", self.folder / kind), 2, culprit, *words)
                self.refused(("train", self.config, "--data.path", self.folder / kind, "--run.directory",
                              self.folder / f"run-{kind}"), 2, culprit, *words, in_a_step=kind == "nan_slab")

    def test_files_that_are_not_believed(self):
        for name, words in {
            "links.h5": ('"dimensions"', "link to another file"),
            "giant.h5": ('"tensor"', "declares", "1099511627776"),
            "giant_tokens.h5": ('"tokens"', "declares"),
            "damaged_texts.nc": ("cannot be read", "damaged"),
        }.items():
            with self.subTest(name):
                path = self.folder / name
                self.refused(("data", "inspect", path, "--full"), 0, str(path), *words)
                self.refused(("train", self.config, "--data.path", path, "--run.directory", self.folder / f"run-{name}"),
                             2, str(path))

    def test_texts_of_other_programs(self):
        shown = run("data", "inspect", self.folder / "climate.nc", "--full").stdout
        self.assertIn("layout netcdf", shown)
        self.assertIn("tas", shown)
        self.assertIn("density", run("data", "inspect", self.folder / "well.h5").stdout)

    def test_virtual_and_lzf_files_train_as_plain_ones(self):
        """Years and channels that a .h5v file puts together, and chunks that h5py compresses as lzf."""
        losses = {}
        for kind, file in (("plain", "all.h5"), ("virtual", "all.h5v"), ("lzf", "all.h5")):
            path = self.folder / kind / file
            directory = self.folder / f"same-{kind}"
            statistics = self.folder / f"statistics-{kind}.h5"
            run("data", "statistics", path, "--output", statistics, ranks=2)
            run("train", self.config, "--data.path", path, "--data.validation", path, "--data.normalisation", "channel",
                "--data.statistics", statistics, "--run.directory", directory, ranks=2)
            lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
            losses[kind] = [line[key] for line in lines for key in ("loss", "validation_loss") if key in line]
        self.assertGreaterEqual(len(losses["plain"]), 21)
        self.assertEqual(losses["virtual"], losses["plain"])
        self.assertEqual(losses["lzf"], losses["plain"])
        self.assertIn("virtual of 4 files", run("data", "inspect", self.folder / "virtual/all.h5v", "--full").stdout)
        self.assertIn("LZF", run("data", "inspect", self.folder / "lzf/all.h5", "--full").stdout)

    def test_a_source_that_is_missing_is_named(self):
        path = self.folder / "virtual_gap/all.h5v"
        words = (str(path), '"fields"', "surface/1980.h5", "is missing")
        self.refused(("data", "inspect", path), 0, *words)
        self.refused(("data", "statistics", path), 2, *words)
        self.refused(("train", self.config, "--data.path", path, "--run.directory", self.folder / "run-gap"), 2, *words)

    def test_names_are_shown_without_control_characters(self):
        file = self.folder / "control_names/1980.h5"
        shown = run("data", "inspect", file, "--full").stdout
        self.assertIn(r"t2m\x1b[31m\n", shown)
        self.assertNotIn("\x1b", shown)
        facts = json.loads(run("data", "inspect", file, "--json").stdout)
        self.assertIn(r"t2m\x1b[31m\n", facts["channels"])


def setUpModule():
    # scripts/test gets them; what is not read is not tested.
    if not CLIMATE.is_dir():
        raise FileNotFoundError(f"{CLIMATE} is missing; scripts/fetch-data --only climate makes it")


class Climate(ProgramTest):
    def test_what_a_file_holds(self):
        shown = run("data", "inspect", CLIMATE / "A1B_north_america.nc").stdout
        for words in ("layout netcdf", "air_temperature [K]", "latitude 37 (15 to 60)", "1860-06-01 00:00", "239",
                      "steps of 1 year\n", "calendar 360_day"):
            self.assertIn(words, shown)
        self.assertIn(" 110970 26.4 %", run("data", "inspect", CLIMATE / "ostia_monthly.nc", "--full").stdout)
        facts = json.loads(run("data", "inspect", CLIMATE / "ostia_monthly.nc", "--full", "--json").stdout)
        self.assertEqual(facts["points"], [18, 432])
        self.assertEqual(facts["samples"], 53)
        self.assertEqual(facts["values"]["inputs"]["missing"], [110970])

    def test_statistics_by_any_number_of_ranks(self):
        pattern = CLIMATE / "*_north_america.nc"
        shown = {run("data", "statistics", pattern, "--json", ranks=ranks).stdout for ranks in (0, 1, 2, 3)}
        self.assertEqual(len(shown), 1)
        made = json.loads(shown.pop())["inputs"]
        self.assertEqual(made["missing"], [0])
        self.assertTrue(280 < made["mean"][0] < 295, made)
        output = self.folder / "statistics.h5"
        run("data", "statistics", pattern, "--output", output)
        self.assertTrue(output.is_file())
        self.assertEqual(list(self.folder.glob("*.partial*")), [])

    def test_missing_values(self):
        ostia = CLIMATE / "ostia_monthly.nc"
        refused = run("data", "statistics", ostia, ranks=2, check=5)
        for words in (str(ostia), "surface_temperature", "mask"):
            self.assertIn(words, refused.stderr)
        made = json.loads(run("data", "statistics", ostia, "--missing", "mask", "--json").stdout)
        self.assertEqual(made["inputs"]["missing"], [110970])

    def test_truncated(self):
        folder = self.folder / "cut"
        folder.mkdir()
        shutil.copy(CLIMATE / "A1B_north_america.nc", folder / "a.nc")
        (folder / "b.nc").write_bytes((CLIMATE / "E1_north_america.nc").read_bytes()[:900000])
        refused = run("data", "statistics", folder, ranks=2, check=5)
        self.assertIn(f"{folder}/b.nc", refused.stderr)
        self.assertIn("truncated", refused.stderr)


class ClimateRun(unittest.TestCase):
    """config/hadgem_fno.toml, some steps of it, and what its forecasts are worth."""

    def test_a_scenario_is_learned_and_the_other_forecast(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="garonne-climate-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        statistics = folder / "statistics.h5"
        run("data", "statistics", CLIMATE / "A1B_north_america.nc", "--pointwise", "--output", statistics)
        run("train", SOURCE / "config/hadgem_fno.toml", "--data.path", CLIMATE / "A1B_north_america.nc",
            "--data.validation", CLIMATE / "E1_north_america.nc", "--data.statistics", statistics,
            "--run.directory", folder / "run", "--run.threads", 1, "--train.steps", 60, "--evaluation.every", 0,
            "--checkpoint.every", 0)
        arguments = ("eval", folder / "run", "--lead-steps", 2, "--samples", 30)
        shown = run(*arguments).stdout
        # Of 360 days each.
        for words in ("1 year ", "2 years ", "air_temperature (K)"):
            self.assertIn(words, shown)
        skill = json.loads((folder / "run/skill.json").read_text())
        self.assertEqual((skill["units"], skill["calendar"]), (["K"], "360_day"))
        self.assertEqual(skill["sources"], ["model", "persistence", "climatology"])
        model, persistence, climatology = (lead[0][0] for lead in skill["rmse"])
        self.assertLess(model, 0.95 * persistence)
        self.assertLess(model, climatology)
        # A year of E1 is no further from the year before than this.
        self.assertTrue(0.8 < persistence < 1.0, persistence)
        kept = (folder / "run/skill.json").read_bytes()
        self.assertEqual(run(*arguments, ranks=2).stdout, shown)
        self.assertEqual((folder / "run/skill.json").read_bytes(), kept)
        # A year of the page has 360 days, too.
        run("report", folder / "run", "--budgets", 0)
        window = browser.Browser()
        self.addCleanup(window.close)
        window.open(folder / "run/report.html", 1280, "light")
        page = window.evaluate("document.getElementById('skill').textContent")
        for words in ("up to 2 years", "lead (years)", "RMSE (K)"):
            self.assertIn(words, page)
        self.assertNotIn("0.986", page)
        # Past the end of the data, whose last frame is of 2099.
        future = folder / "future.nc"
        self.assertIn("from 2099-06-01 00:00 to 2101-06-01 00:00",
                      run("forecast", folder / "run", "--steps", 2, "--output", future).stdout)
        facts = json.loads(run("data", "inspect", future, "--json").stdout)
        self.assertEqual((facts["calendar"], facts["files"][0]["first_time"]), ("360_day", "2099-06-01 00:00"))

    def test_periods(self):
        file = CLIMATE / "E1_north_america.nc"
        facts = json.loads(run("data", "inspect", file, "--period", "2000/2099", "--json").stdout)
        self.assertEqual((facts["frames"], facts["samples"], facts["runs"]), (100, 99, 1))
        # Until 2000 the scenarios are one run.
        both = [run("data", "statistics", CLIMATE / name, "--period", "/1999", "--json").stdout
                for name in ("A1B_north_america.nc", "E1_north_america.nc")]
        self.assertEqual(*both)
        for period in ("2000", "2200/"):
            refused = run("data", "inspect", file, "--period", period, check=2)
            self.assertIn("--period", refused.stderr)


if __name__ == "__main__":
    unittest.main()
