# SPDX-License-Identifier: MIT
"""Trained models whose parameters have no room on the device: losses, texts and forecasts of those below it, in every budget."""
import json
import pathlib
import re
import shutil
import tempfile
import unittest

from offload_runs import OffloadRuns
from skill_test import RUN_FILE
from support import BINARY, FieldsTest, run

TEXT = ("--generate", "ROMEO:", "--tokens", 6, "--temperature", 0)
EMULATED = ("--run.device", "emulated")


def smallest(words, *keys, check=3, **more):
    """That a refusal with a byte of memory.budget names."""
    refused = run(*words, *keys, "--memory.budget", 1, check=check, **more)
    return int(re.search(r"the smallest budget that works is (\d+) bytes", refused.stderr).group(1))


class OffloadEvalTest(OffloadRuns):
    def evaluated(self, directory, *keys, **more):
        return json.loads(run("eval", directory, "--json", *TEXT, *keys, **more).stdout)

    def check_same(self, found, plain, budget):
        for key in ("validation_loss", "validation_data", "generated"):
            self.assertEqual(found[key], plain[key], key)
        self.assertEqual(found["peak_bytes"], found["planned_peak_bytes"])
        for peaks in (found, found["generation"]):
            self.assertLessEqual(peaks["peak_bytes"], peaks["planned_peak_bytes"])
            self.assertLessEqual(peaks["planned_peak_bytes"], budget)

    def trained(self, name, *keys):
        directory = self.directory(name)
        self.train(directory, *self.model("--train.steps", 2, *keys))
        return directory

    def test_every_budget_down_to_the_smallest(self):
        for precision in ("float32", "bfloat16"):
            directory = self.trained(precision, "--train.precision", precision)
            plain = self.evaluated(directory)
            self.assertEqual(plain["parameter_bytes_below"], 0)
            disk = ("--memory.disk", self.disk)
            least = smallest(("eval", directory, *TEXT), *disk)
            most = plain["planned_peak_bytes"]
            self.assertLess(least, most)
            below = [self.evaluated(directory, *disk, "--memory.budget", most)["parameter_bytes_below"]]
            self.assertEqual(below, [0], "what has room stays")
            for budget in (most - 1, (least + most) // 2, least):
                found = self.evaluated(directory, *disk, "--memory.budget", budget)
                self.check_same(found, plain, budget)
                below.append(found["parameter_bytes_below"])
            self.assertEqual(below, sorted(set(below)), "the less room, the more is below")
            self.assertEqual(list(self.disk.iterdir()), [])
            refused = run("eval", directory, *disk, "--memory.budget", least - 1, check=3).stderr
            self.assertIn(f"the smallest budget that works is {least} bytes", refused)
            shown = run("eval", directory, *disk, "--memory.budget", least).stdout
            self.assertRegex(shown, r"(?m)^[\d.]+ MiB of parameters on the disk$")
            alone = json.loads(run("eval", directory, "--json", *TEXT, "--no-validation", *disk, "--memory.budget", least).stdout)
            self.assertEqual(alone["generated"], plain["generated"])

    def test_grids(self):
        directory = self.trained("grids")
        for grid in (("--grid.tensor", 2), ("--grid.pipeline", 2), ("--grid.data", 2), ()):
            plain = self.evaluated(directory, *grid, ranks=2)
            disk = (*grid, "--memory.disk", self.disk)
            least = smallest(("eval", directory, *TEXT), *disk, ranks=2)
            found = self.evaluated(directory, *disk, "--memory.budget", least, ranks=2)
            self.assertGreater(found["parameter_bytes_below"], 0, grid)
            self.check_same(found, plain, least)

    def test_the_host_and_the_disk_below_an_emulated_device(self):
        directory = self.trained("emulated", *EMULATED)
        plain = self.evaluated(directory)
        for below in (("--memory.host_budget", "64 MiB"), ("--memory.host_budget", "64 MiB", "--memory.disk", self.disk),
                      ("--memory.host_budget", "512 KiB", "--memory.disk", self.disk)):
            least = smallest(("eval", directory, *TEXT), *below)
            self.check_same(self.evaluated(directory, *below, "--memory.budget", least), plain, least)
        shown = run("eval", directory, *below, "--memory.budget", least).stdout
        self.assertIn("MiB of parameters on the host and the disk\n", shown)

    def test_runs_of_policies_are_evaluated(self):
        for plan in ("zero-infinity", "offload-greedy"):
            directory = self.trained(plan, "--memory.disk", self.disk, "--memory.plan", plan)
            self.assertEqual(self.evaluated(directory)["step"], 2)
            run("checkpoint", "export", directory, "--to", "huggingface", self.directory("exported"))

    def test_what_cannot_be_is_refused(self):
        directory = self.trained("refusals")
        for keys, code, words in (
                (("--memory.budget", 1), 3, ("for the parameters alone", "--memory.disk", "--grid.tensor")),
                (("--memory.budget", "300 KiB", "--memory.disk", self.disk, "--memory.disk_budget", "1 MiB"), 2,
                 ("memory.disk_budget = 1.00 MiB", "of parameters that memory.budget has no room for")),
                (("--memory.disk", self.disk / "nowhere"), 2, ("memory.disk", "cannot be used")),
                (("--memory.host_budget", "1 MiB"), 2, ("memory.host_budget", "memory.disk")),
                (("--memory.budget", "lots"), 2, ("memory.budget = lots", "GiB"))):
            refused = run("eval", directory, *keys, check=code).stderr
            self.assertEqual(refused.count("garonne:"), 1, refused)
            for word in words:
                self.assertIn(word, refused)


class OffloadForecastTest(FieldsTest, unittest.TestCase):
    RUN_FILE = RUN_FILE

    @classmethod
    def make_data(cls):
        run("data", "synthetic-era5", "--latitudes", 19, "--longitudes", 36, "--channels", "t2m,z500", "--frame-hours", 24,
            "--years", 2, "--output", cls.folder / "data", "--no-progress")

    def test_forecasts_and_skill(self):
        directory = self.folder / "run"
        # Parameters of more bytes than what goes to a disk passes through.
        self.train(directory, "--model.layers", 4, "--model.hidden", 48, "--model.modes", "8,8")
        disk = pathlib.Path(tempfile.mkdtemp(prefix="offload-test-", dir=pathlib.Path(BINARY).resolve().parent))
        self.addCleanup(shutil.rmtree, disk)

        def values(name, *keys):
            output = self.folder / name
            done = json.loads(run("forecast", directory, "--output", output, "--steps", 3, *keys, "--json").stdout)
            self.assertEqual(done["peak_bytes"], done["planned_peak_bytes"])
            return json.loads(run("data", "inspect", output, "--full", "--json").stdout)["values"]["inputs"], done["peak_bytes"]

        plain, most = values("plain.nc")
        keys = ("--memory.disk", disk)
        least = smallest(("forecast", directory, "--output", self.folder / "refused.nc", "--steps", 3), *keys)
        self.assertLess(least, most)
        found, peak = values("below.nc", *keys, "--memory.budget", least)
        self.assertEqual(found, plain)
        self.assertLessEqual(peak, least)
        skills = [json.loads(run("eval", directory, "--json", "--output", self.folder / f"{name}.h5", *given).stdout)
                  for name, given in (("plain", ()), ("below", (*keys, "--memory.budget", least)))]
        self.assertGreater(skills[1]["parameter_bytes_below"], 0)
        self.assertEqual(skills[0]["validation_loss"], skills[1]["validation_loss"])
        for skill in skills:
            for key in ("output", "peak_bytes", "planned_peak_bytes"):
                del skill["skill"][key]
        self.assertEqual(skills[0]["skill"], skills[1]["skill"])


if __name__ == "__main__":
    unittest.main()
