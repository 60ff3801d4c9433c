# SPDX-License-Identifier: MIT
"""A thousand steps of a small model with everything on a disk: the last ones hold what the hundredth did, and nothing stays
behind."""
import os
import pathlib
import re
import subprocess
import types
import unittest

from offload_runs import KINDS, OffloadRuns
from support import BINARY, metrics

STEPS = 1000
GROWTH = 8 << 20


def resident_bytes(process):
    status = pathlib.Path(f"/proc/{process}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) << 10


class OffloadStepsTest(OffloadRuns):
    def test_a_thousand_steps_hold_what_a_hundred_do(self):
        # What the MLP makes has a mebibyte, its parameters the 64 KiB from which on they move.
        keys, budget = self.only_moved("--model.layers", 2, "--model.hidden", 64, "--train.micro_batch", 8,
                                       "--train.global_batch", 16, "--train.steps", STEPS, way=KINDS[-1])
        directory = self.directory("run")
        command = [BINARY, "train", self.config, "--run.directory", directory, *keys]
        job = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(job.stdout.close)
        self.addCleanup(lambda: job.poll() is None and job.kill())
        text, held = [], {}
        for line in job.stdout:
            text.append(line)
            step = re.match(r"step +(\d+)/", line)
            # Before the last ones, behind which the run may have gone.
            if step and int(step[1]) in (STEPS // 10, STEPS * 99 // 100):
                held[int(step[1])] = (resident_bytes(job.pid), len(os.listdir(f"/proc/{job.pid}/fd")))
        self.assertEqual(job.wait(), 0, "".join(text)[-3000:])
        self.assertGreater(self.check_bytes(directory, types.SimpleNamespace(stdout="".join(text)), budget), 0)
        self.assertEqual(os.listdir(self.disk), [])
        rows = metrics(directory)
        self.assertEqual([row["step"] for row in rows], list(range(1, STEPS + 1)))
        self.assertEqual({row["peak_bytes"] for row in rows[1:]}, {rows[1]["peak_bytes"]})
        early, late = held.values()
        print(f"resident {early[0]} B and {late[0]} B, open files {early[1]} and {late[1]}")
        self.assertLess(late[0] - early[0], GROWTH)
        self.assertEqual(late[1], early[1])


if __name__ == "__main__":
    unittest.main(verbosity=2)
