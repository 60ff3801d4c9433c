#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Traces of steps beside HolisticTraceAnalysis, which reads those of PyTorch's profiler."""
import json
import logging
import os
import pathlib
import sys
import unittest
import warnings

from peer_environment import enter_environment

enter_environment()

SOURCE = pathlib.Path(os.environ["GARONNE_SOURCE"])
sys.path[:0] = [str(SOURCE / "tests" / "apps"), str(SOURCE / "python")]
import garonne_read  # noqa: E402
from hta.trace_analysis import TraceAnalysis  # noqa: E402
from support import ProgramTest  # noqa: E402

# It says how long it reads, and that it uses what pandas will drop.
logging.disable(logging.WARNING)
warnings.simplefilter("ignore")


class TraceTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        path = cls.folder / "trace.json"
        # Long enough for a tool that counts whole microseconds.
        cls.train(cls, cls.folder / "run", "--train.steps", 8, "--grid.data", 2, "--grid.pipeline", 2, "--model.hidden", 96, "--model.sequence",
                  128, "--trace", path, "--trace-from", 4, "--trace-steps", 3, ranks=4, timeout=400)
        cls.events = json.loads(path.read_text())["traceEvents"]
        cls.paths = garonne_read.split_trace(path, cls.folder / "split")
        cls.analysis = TraceAnalysis(trace_dir=str(cls.folder / "split"))

    def slices(self, rank):
        """Of the steps that it looks at: it takes the last one of any trace to be cut short."""
        return [event for event in self.events if event["ph"] == "X" and event["pid"] == rank and event["cat"] != "step"
                and event["args"]["step"] in (4, 5)]

    def work(self, rank):
        """Microseconds of instructions on Compute that neither wait nor exchange nor begin what runs beside."""
        beside = {(event["args"]["step"], event["args"]["instruction"]) for event in self.events
                  if event["ph"] == "b" and event["pid"] == rank}
        return sum(event["dur"] for event in self.slices(rank) if event["cat"] != "wait" and "group" not in event["args"]
                   and (event["args"]["step"], event["args"]["instruction"]) not in beside)

    def test_every_rank_and_step_is_found(self):
        self.assertEqual([path.name for path in self.paths], [f"rank_{rank}.json" for rank in range(4)])
        self.assertEqual(sorted(self.analysis.t.get_all_traces()), [0, 1, 2, 3])
        self.assertEqual(list(self.analysis.get_profiler_steps()), [4, 5])

    def test_every_instruction_is_one_event_of_its_name(self):
        for rank, frame in self.analysis.t.get_all_traces().items():
            names = self.analysis.t.symbol_table.get_sym_table()
            host = [names[name] for name in frame[frame["stream"].eq(-1)].sort_values(["ts", "index"])["name"]]
            host = [name for name in host if not name.startswith("ProfilerStep#")]
            self.assertEqual(sorted(host), sorted(event["name"] for event in self.slices(rank)))

    def test_time_is_divided_as_the_events_say(self):
        breakdown = self.analysis.get_temporal_breakdown(visualize=False)
        for row in breakdown.to_dict("records"):
            compute, work = float(row["compute_time(us)"]), self.work(row["rank"])
            print(f"rank {row['rank']}: compute {compute:.0f} us, by hand {work:.0f} us; idle {row['idle_time(us)']:.0f} us")
            # It rounds each event inwards to whole microseconds.
            self.assertLessEqual(compute, work)
            self.assertGreater(compute, work - 2 * len(self.slices(row["rank"])))
            self.assertGreater(compute, 0.5 * work)

    def test_what_goes_between_ranks_is_known_as_that(self):
        kinds, kernels = self.analysis.get_gpu_kernel_breakdown(visualize=False, num_kernels=1000, duration_ratio=1.0)
        self.assertEqual({"COMPUTATION", "COMMUNICATION"}, set(kinds[kinds["sum"] > 0]["kernel_type"].str.split(" overlapping ").str[0]))
        sent = {event["name"] for event in self.events if event["ph"] == "b"}
        known = set(kernels[kernels["kernel_type"] == "COMMUNICATION"]["name"]) - {"others"}
        self.assertTrue({f"ncclDevKernel {name}" for name in sent} <= known, sent)
        overlap = self.analysis.get_comm_comp_overlap(visualize=False)
        self.assertTrue(((overlap["comp_comm_overlap_pctg"] >= 0) & (overlap["comp_comm_overlap_pctg"] <= 100)).all(), overlap)


if __name__ == "__main__":
    unittest.main(verbosity=2)
