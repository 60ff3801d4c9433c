# SPDX-License-Identifier: MIT
"""What `scripts/bench saving` counts as the cost of a checkpoint: what training waits, and what steps take longer meanwhile."""
import sys
import unittest

from support import SOURCE

sys.path.insert(0, str(SOURCE / "scripts" / "bench.d"))

from saving import costs_of, read_saves

# As `garonne train` says it.
SAID = """
step      20/60  loss   0.6632  norm    0.527  lr 1.00e-03     100.0 ms       9031 tok/s
step      21/60  loss   0.6632  norm    0.527  lr 1.00e-03     150.0 ms       9031 tok/s
step      22/60  loss   0.6632  norm    0.527  lr 1.00e-03     150.0 ms       9031 tok/s
step      20  checkpoint runs/a/checkpoints/step-20 (0.3 s, of which training waited 0.02 s)
step      30/60  loss   0.6632  norm    0.527  lr 1.00e-03     100.0 ms       9031 tok/s
step      30  validation loss 0.6613 nats per token
step      30  checkpoint runs/a/checkpoints/step-30 (0.4 s)
"""


class SavingBenchTest(unittest.TestCase):
    def rows(self, slow):
        """Of two checkpoints, after steps 20 and 30, for each of which training waits 20 ms."""
        return [{"step": step, "seconds": 0.15 if step in slow else 0.1, "checkpoint_seconds": 0.02 if step % 10 == 1 else 0}
                for step in range(21, 41)]

    def test_saves_end_after_the_step_that_is_said_before_them(self):
        self.assertEqual(read_saves(SAID), [(20, 22, 0.3), (30, 30, 0.4)])

    def test_steps_that_are_slower_while_a_checkpoint_is_written_are_part_of_its_cost(self):
        found = costs_of(self.rows({21, 22, 23, 31}), [(20, 23, 0.5), (30, 31, 0.2)])
        wanted = {"step_seconds": 0.1, "steps_while_writing": 2, "step_seconds_while_writing": 0.15, "slowed_seconds": 2 * 0.05,
                  "waited_seconds": 0.02, "written_seconds": 0.35}
        self.assertEqual(found.keys(), wanted.keys())
        for key, value in wanted.items():
            self.assertAlmostEqual(found[key], value, msg=key)

    def test_checkpoints_that_are_waited_for_slow_no_steps(self):
        found = costs_of(self.rows({}), [(20, 20, 0.5), (30, 30, 0.2)])
        self.assertEqual((found["slowed_seconds"], found["steps_while_writing"]), (0, 0))
        self.assertIsNone(found["step_seconds_while_writing"])

    def test_nothing_is_compared_where_every_step_is_while_writing(self):
        self.assertIsNone(costs_of(self.rows({}), [(20, 30, 0.5), (30, 40, 0.2)])["step_seconds"])


if __name__ == "__main__":
    unittest.main()
