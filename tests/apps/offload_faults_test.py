# SPDX-License-Identifier: MIT
"""Training whose memory.disk is full, fails or becomes slow while it runs."""
import os
import shlex
import unittest

from offload_runs import OffloadRuns
from support import run, saved_steps, strikes

STEPS = 6


class OffloadFaultsTest(OffloadRuns):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.saving = ("--train.steps", STEPS, "--checkpoint.every", 1, "--checkpoint.keep", STEPS, "--checkpoint.saving", "synchronous")

    def setUp(self):
        # What is in the profile need not be measured, so that transfers are those of steps.
        run("profile", self.config)
        self.keys, self.budget = self.only_moved(way="offload-states")
        self.whole = self.directory("whole")
        self.train(self.whole, *self.keys, *self.saving)
        program = self.programs(self.whole)[0]
        self.of_a_step = {call: sum(one["operation"] == call for one in program["instructions"]) for call in ("disk-write", "disk-read")}

    def with_fault(self, directory, call, whom, check):
        """A run whose disk has a fault from its third step on, or some steps later where the start moved something."""
        log = self.folder / f"{directory.name}.strikes"
        self.assertGreater(self.of_a_step[call], 0)
        words = strikes(0, call, 3 * self.of_a_step[call], self.disk.resolve(), whom, log)
        before = "export OMPI_COMM_WORLD_RANK=0 " + " ".join(shlex.quote(word) for word in words[1:])
        done = self.train(directory, *self.keys, *self.saving, before=before, check=check)
        self.assertIn(f"{call} ", log.read_text())
        self.assertIn(str(self.disk.resolve()), log.read_text())
        return done

    def test_a_disk_that_fails_ends_the_run_and_leaves_its_checkpoints(self):
        for call, words in (("disk-write", "No space left on device"), ("disk-read", "Input/output error")):
            with self.subTest(call):
                directory = self.directory(f"failing-{call}")
                done = self.with_fault(directory, call, "fail", check=5)
                self.assertEqual(done.stderr.count("garonne:"), 1, done.stderr)
                self.assertIn(words, done.stderr)
                self.assertIn(str(self.disk.resolve()), done.stderr)
                steps = saved_steps(directory)
                self.assertTrue(steps and steps[-1] < STEPS, steps)
                for step in steps:
                    run("checkpoint", "verify", directory / "checkpoints" / f"step-{step}")
                self.assertEqual(os.listdir(self.disk), [])
                self.train(directory, *self.keys, *self.saving)
                self.same_tensors(self.whole, directory, STEPS)

    def test_a_disk_that_becomes_slow_is_said_and_harms_nothing(self):
        directory = self.directory("slow")
        done = self.with_fault(directory, "disk-write", "slow", check=0)
        self.assertRegex(done.stdout, r"out at [\d.]+ GB/s \(planned [\d.]+\)")
        self.assertIn("the disk is slower than it was measured", done.stdout)
        self.same_tensors(self.whole, directory, STEPS)


if __name__ == "__main__":
    unittest.main()
