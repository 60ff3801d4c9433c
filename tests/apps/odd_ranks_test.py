# SPDX-License-Identifier: MIT
"""A rank that is slower than the others is named: at the start, and by the steps that it holds up."""
import os
import re
import signal
import subprocess
import threading
import time
import unittest

from observability_test import page_data
from support import BINARY, SOURCE, ProgramTest, metrics, patient, ranks_of, run

# Of a command that is run on one core beside others that never stop.
CROWDED = """
for i in $(seq $LOOPS); do taskset -c $CORE sh -c 'while :; do :; done' & done
trap 'kill $(jobs -p)' EXIT
taskset -c $CORE "$@"
"""


class OddRanksTest(ProgramTest):
    OPTIONS = ["--train.global_batch", 8, "--train.micro_batch", 2, "--evaluation.batches", 0]

    def command(self, directory, *options):
        return [str(word) for word in (BINARY, "train", self.config, "--run.directory", directory, *self.OPTIONS, *options)]

    def finished(self, command, timeout=100):
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=patient(timeout), check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-3000:] + done.stderr[-3000:])
        return done.stdout

    def test_a_rank_whose_core_others_use_is_named_at_the_start(self):
        cores = sorted(os.sched_getaffinity(0))
        self.assertGreater(len(cores), 1)
        crowded = self.folder / "crowded.sh"
        crowded.write_text(CROWDED)
        # Other tests may hold up the rank that is compared with; then the crowd has to be larger.
        for loops in (10, 20, 40):
            command = self.command(self.folder / f"crowded-{loops}", "--grid.data", 2, "--train.steps", 1)
            output = self.finished(["mpirun", "-n", 1, "taskset", "-c", cores[0], *command, ":",
                                    "-n", 1, "env", f"CORE={cores[1]}", f"LOOPS={loops}", "bash", crowded, *command], timeout=200)
            print(loops, *(line for line in output.splitlines() if "warning" in line), flush=True)
            self.assertNotIn("rank 0 on", output)
            if "warning: rank 1 on " in output:
                break
        # A processor that is fast may be through with the first of the two before others have their turn.
        self.assertRegex(output, r"warning: rank 1 on \S+ (computes|moves memory) \d+\.\d times as long as the median of the others, three times in a row")

    def test_more_threads_than_cores_are_said_at_the_start(self):
        core = min(os.sched_getaffinity(0))
        options = ["--grid.data", 2, "--train.steps", 1]
        output = self.finished(["taskset", "-c", core, "mpirun", "-n", 2, *self.command(self.folder / "one-core", *options)])
        self.assertRegex(output, rf"warning: ranks 0-1 of \S+ run 2 threads on 1 core \({core}\): start fewer ranks there")
        output = self.finished(["taskset", "-c", core, "mpirun", "-n", 2,
                                *self.command(self.folder / "threads", *options, "--run.threads", 3)])
        self.assertRegex(output, r"warning: ranks 0-1 of \S+ run 3 threads on 1 core each: bind ranks to as many cores .* run.threads = 1")
        output = self.finished(self.command(self.folder / "alone", "--train.steps", 1))
        self.assertNotIn("warning", output)

    def test_a_rank_that_holds_the_others_up_is_named_by_its_steps(self):
        directory = self.folder / "slow"
        log = open(self.folder / "slow.log", "w+")
        self.addCleanup(log.close)
        job = subprocess.Popen(["mpirun", "-n", "4", *self.command(directory, "--grid.data", 4, "--train.steps", 120, "--model.hidden", 96,
                                                                  "--model.sequence", 128, "--train.global_batch", 16)],
                               stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        self.addCleanup(lambda: job.poll() is None and os.killpg(job.pid, signal.SIGKILL))
        end = time.monotonic() + patient(100)
        while "step       1/" not in (self.folder / "slow.log").read_text():
            self.assertIsNone(job.poll(), (self.folder / "slow.log").read_text()[-3000:])
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)
        ranks = ranks_of(job)
        over = threading.Event()

        def slow_down():
            # It runs for a fifth of the time.
            while not over.is_set():
                for sign, seconds in ((signal.SIGSTOP, 0.008), (signal.SIGCONT, 0.002)):
                    try:
                        os.kill(ranks[2], sign)
                    except ProcessLookupError:
                        return
                    time.sleep(seconds)

        helper = threading.Thread(target=slow_down)
        helper.start()
        try:
            code = job.wait(timeout=patient(300))
        finally:
            over.set()
            helper.join()
        text = (self.folder / "slow.log").read_text()
        self.assertEqual(code, 0, text[-3000:])
        said = re.findall(r"warning: \[rank 2/4 \S+ data 2, .*\] takes (\d+\.\d\d) times as long for its own work .*", text)
        print(f"{said} times")
        self.assertEqual(len(said), 1, text[-3000:])
        self.assertGreater(float(said[0]), 1.2)
        named = [(row["step"], slow["rank"]) for row in metrics(directory) for slow in row.get("slow_ranks", [])]
        self.assertEqual([rank for _, rank in named], [2])
        self.assertGreaterEqual(named[0][0], 80)
        run("report", directory, "--budgets", 0, "--cluster", SOURCE / "config/clusters/laptop.toml")
        reported = page_data(directory / "report.html")["time"]["slow_ranks"]
        self.assertEqual([(one["step"], one["rank"]) for one in reported], named)


if __name__ == "__main__":
    unittest.main()
