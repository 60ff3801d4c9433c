# SPDX-License-Identifier: MIT
"""`garonne forecast`: the same fields from any number of ranks and after any end, and what is refused."""
import json
import signal
import subprocess
import time
import unittest

from support import BINARY, FieldsTest, patient, run
from skill_test import RUN_FILE


class ForecastTest(FieldsTest, unittest.TestCase):
    RUN_FILE = RUN_FILE

    @classmethod
    def make_data(cls):
        run("data", "synthetic-era5", "--latitudes", 19, "--longitudes", 36, "--channels", "t2m,z500", "--frame-hours", 24,
            "--years", 2, "--output", cls.folder / "data", "--no-progress")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.run_directory = cls.folder / "run"
        cls.train(cls.run_directory)

    def forecast(self, name, *arguments, **options):
        output = self.folder / name
        done = run("forecast", self.run_directory, "--output", output, *arguments, "--json", **options)
        return output, done

    @staticmethod
    def values(output):
        """What Garonne itself reads in the file: units, dates, and means, deviations and extremes by channel and lead."""
        facts = json.loads(run("data", "inspect", output, "--full", "--json").stdout)
        values = facts["values"]["inputs"]
        return facts["target_units"], facts["files"][0]["first_time"], values

    def test_any_number_of_ranks_makes_the_same_forecast(self):
        arguments = ("--steps", 3, "--from", "1981-01-03,1981-01-06", "--members", 2)
        kept = None
        for ranks in (0, 2, 3):
            output, done = self.forecast(f"ranks{ranks}.nc", *arguments, ranks=ranks)
            result = json.loads(done.stdout)
            self.assertEqual((result["starts"], result["members"], result["steps_made"]), (2, 2, 12))
            self.assertLessEqual(result["peak_bytes"], result["planned_peak_bytes"])
            units, first, values = self.values(output)
            self.assertEqual(units, ["K"] * 3 + ["m2 s-2"] * 3)
            self.assertEqual(first, "1981-01-03 00:00")
            self.assertEqual(values["channels"], [f"{name}_{24 * lead}" for name in ("t2m", "z500") for lead in (1, 2, 3)])
            self.assertEqual(values["missing"], [0] * 6)
            kept = kept or values
            self.assertEqual(values, kept, ranks)

    def test_an_end_at_any_moment(self):
        arguments = ("--steps", 40, "--from", "1981-01-03")
        whole, _ = self.forecast("whole.nc", *arguments)
        wanted = self.values(whole)
        output = self.folder / "killed.nc"
        part = self.folder / "killed.nc.part"
        for attempt in range(3):
            job = subprocess.Popen([BINARY, "forecast", self.run_directory, "--output", output, *map(str, arguments)],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            deadline = time.time() + patient(60)
            while not part.exists() and job.poll() is None and time.time() < deadline:
                time.sleep(0.002)
            time.sleep(0.02 * attempt)
            job.send_signal(signal.SIGKILL)
            job.wait()
        _, done = self.forecast("killed.nc", *arguments)
        result = json.loads(done.stdout)
        self.assertEqual(result["steps_found"] + result["steps_made"], 40)
        self.assertFalse(part.exists())
        self.assertEqual(self.values(output), wanted)

    def test_what_cannot_be_is_refused(self):
        for arguments, words in ((("--steps", 0), "--steps"), (("--steps", 1, "--from", "1979-01-01"), "the nearest is 19"),
                                 (("--steps", 1, "--from", "soon"), "is no date of the calendar"),
                                 (("--steps", 1, "--from", 100000), "is no frame"),
                                 (("--steps", 1, "--members", 0), "--members"), (("--steps", 1, "--noise", -1), "--noise")):
            _, refused = self.forecast("refused.nc", *arguments, check=2)
            self.assertIn(words, refused.stderr)
        _, refused = self.forecast("absent/x.nc", "--steps", 1, check=2)
        self.assertIn("absent/x.nc", refused.stderr)
        self.assertEqual(list(self.folder.glob("refused.nc*")), [])

    def test_without_what_it_was_trained_on(self):
        """A run that was moved: the manifest knows channels, grid, step and statistics."""
        arguments = ("--steps", 2, "--data", self.folder / "data/test", "--from", "1981-01-03")
        wanted = self.values(self.forecast("with.nc", *arguments)[0])
        moved = [(self.folder / "data" / name, self.folder / f"moved_{name}") for name in ("train", "stats")]
        for there, elsewhere in moved:
            there.rename(elsewhere)
        try:
            self.assertEqual(self.values(self.forecast("without.nc", *arguments)[0]), wanted)
            # An export knows the points; the package does not compute the same on an odd number of them.
            refused = run("checkpoint", "export", self.run_directory, "--to", "neuraloperator", self.folder / "package", check=2)
            self.assertIn("computes something else on 19 × 36 points", refused.stderr)
        finally:
            for there, elsewhere in moved:
                elsewhere.rename(there)

    def test_summary(self):
        output = self.folder / "shown.nc"
        shown = run("forecast", self.run_directory, "--output", output, "--steps", 2).stdout
        for word in ("step 4: 1 forecast of 2 steps", "from 19", "peak", str(output)):
            self.assertIn(word, shown)


if __name__ == "__main__":
    unittest.main(verbosity=2)
