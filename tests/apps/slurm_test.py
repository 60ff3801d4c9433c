# SPDX-License-Identifier: MIT
"""Jobs under a real Slurm of two emulated nodes: the scripts of slurm/ and those that `garonne plan --sbatch` writes,
submitted as they are."""
import itertools
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from slurm_cluster import SlurmCluster
from support import BINARY, SOURCE, ProgramTest, metrics, patient, run

# Steps of a twentieth of a second or so.
STEPS = ["--train.global_batch", 32, "--train.micro_batch", 4]


class SlurmTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.place = pathlib.Path(tempfile.mkdtemp(prefix="slurm"))
        cls.addClassCleanup(lambda: shutil.rmtree(cls.place, ignore_errors=True))
        cls.slurm = SlurmCluster(cls.place)
        cls.addClassCleanup(cls.slurm.stop)
        cls.slurm.start()
        cls.slurm.environment["GARONNE"] = str(pathlib.Path(BINARY).resolve())

    def setUp(self):
        self.addCleanup(self.empty_queue)

    def empty_queue(self):
        for partition in ("low", "high"):
            self.slurm.command("scancel", "-p", partition)
        self.slurm.wait_for("empty queue", lambda: not self.slurm.queued())

    def log(self, job, name="garonne"):
        """Logs of a job are where it was submitted."""
        paths = sorted(SOURCE.glob(f"{name}-{job}.out")) + sorted(self.folder.glob(f"{name}-{job}.out"))
        return "".join(path.read_text(errors="replace") for path in paths)

    def submit(self, script, *arguments, sbatch=(), launcher="srun"):
        """Where the logs are not in the way, but with the project's slurm/."""
        place = self.folder / "project"
        place.mkdir(exist_ok=True)
        if not (place / "slurm").exists():
            (place / "slurm").symlink_to(SOURCE / "slurm")
        self.slurm.environment["LAUNCHER"] = launcher
        return self.slurm.submit(f"--output={self.folder}/%x-%j.out", *sbatch, script, *arguments, cwd=place)

    def await_end(self, job, state, seconds=240):
        ended = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED")
        self.slurm.wait_for(f"end of job {job}", lambda: self.slurm.state(job).get("JobState") in ended, patient(seconds))
        found = self.slurm.state(job)
        self.assertEqual(found["JobState"], state, self.log(job)[-3000:])
        return found

    def await_step(self, directory, step, seconds=120):
        self.slurm.wait_for(f"step {step}", lambda: (directory / "metrics.jsonl").exists() and
                            any(row["step"] >= step for row in metrics(directory)), patient(seconds))

    def check_whole(self, directory, steps, ranks, *options):
        """All steps are there once, and the last checkpoint has the bits of a run left alone."""
        self.assertEqual([row["step"] for row in metrics(directory)], list(range(1, steps + 1)))
        alone = self.folder / re.sub(r"\W+", "-", f"alone {options} {steps}")
        if not alone.exists():
            self.train(alone, *STEPS, *options, "--train.steps", steps, ranks=ranks, timeout=300)
        for rank in range(ranks):
            name = f"checkpoints/step-{steps}/rank_{rank}.safetensors"
            self.assertEqual((directory / name).read_bytes(), (alone / name).read_bytes(), f"rank {rank}")

    SMALL = ["--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=1"]

    def test_shipped_scripts_train(self):
        for launcher, script, sbatch, ranks in (("srun", "train", self.SMALL, 2), ("mpirun", "train", self.SMALL, 2),
                                                ("mpirun", "one-node", ["--ntasks-per-node=2", "--cpus-per-task=1"], 2)):
            with self.subTest(script, launcher=launcher):
                directory = self.folder / f"{script}-{launcher}"
                job = self.submit(SOURCE / f"slurm/{script}.sbatch", self.config, "--run.directory", directory, "--train.steps", 4,
                                  sbatch=sbatch, launcher=launcher)
                self.assertEqual(self.await_end(job, "COMPLETED")["ExitCode"], "0:0")
                self.assertEqual(len(metrics(directory)), 4)
                self.assertIn("2 ranks of 1 thread:", self.log(job))

    def test_a_fresh_clone_trains_in_a_job_by_the_command_of_the_guide(self):
        guide = (SOURCE / "docs/guide/jobs.md").read_text(encoding="utf-8")
        words = re.search(r"(?m)^    sbatch (.* --wrap scripts/quickstart)$", guide)[1].split()
        # Not in /tmp, which may be in memory.
        place = pathlib.Path(tempfile.mkdtemp(prefix="garonne-job-", dir="/var/tmp"))
        self.addCleanup(shutil.rmtree, place, ignore_errors=True)
        clone = place / "garonne"
        subprocess.run(["git", "clone", "--quiet", SOURCE, clone], check=True)
        (clone / ".deps").symlink_to(SOURCE / ".deps")  # what the first use downloads
        words[-1] += " --train.steps 20"
        job = self.slurm.submit(*words, cwd=clone)
        self.await_end(job, "COMPLETED", 1800)
        log = (clone / f"slurm-{job}.out").read_text(errors="replace")
        self.assertRegex(log, r"(?m)^ *step +1/20 .*\bloss\b")
        self.assertIn("HAMLET.", log)
        self.assertEqual(len(metrics(clone / "runs/shakespeare")), 20)

    def cluster_of_two_nodes(self):
        path = self.folder / "cluster.toml"
        text = (SOURCE / "config/clusters/laptop.toml").read_text()
        path.write_text(text.replace("devices_per_node = 4", "devices_per_node = 1").replace("nodes = 1", "nodes = 2")
                        .replace("[device]", "[slurm]\ndirectives = \"--exclusive --comment=none\"\n[device]", 1))
        return path

    def test_a_written_script_trains_on_the_grid_that_was_planned(self):
        directory = self.folder / "written"
        script = self.folder / "written.sbatch"
        done = run("plan", self.config, "--ranks", 2, "--cluster", self.cluster_of_two_nodes(), "--run.directory", directory,
                   "--train.steps", 4, "--sbatch", script, "--time-limit", 10)
        self.assertIn(f"job: sbatch {script}", done.stdout)
        job = self.submit(script)
        self.assertEqual(self.await_end(job, "COMPLETED")["ExitCode"], "0:0")
        self.assertEqual(len(metrics(directory)), 4)
        self.assertEqual(self.slurm.state(job)["NumNodes"], "2")
        self.assertIn("--exclusive", script.read_text())

    def make_room(self, job, directory, name):
        """Has the job give its nodes to a more urgent one once it trains, and waits until it has come back and is done."""
        self.await_step(directory, 20)
        urgent = self.slurm.submit("--partition=high", "--exclusive", "--nodes=2", f"--output={self.folder}/urgent.out", "--wrap",
                                   "sleep 1", cwd=self.folder)
        self.await_end(urgent, "COMPLETED")
        self.slurm.wait_for("a second start", lambda: "== start 2" in self.log(job, name), patient(300))
        self.assertEqual(self.await_end(job, "COMPLETED", 400)["ExitCode"], "0:0")
        log = self.log(job, name)
        self.assertIn("asking the ranks for a checkpoint", log)
        self.assertIn("queued again", log)

    def test_a_job_that_makes_room_goes_on_to_the_same_bits(self):
        directory = self.folder / "room"
        steps = 6000
        job = self.submit(SOURCE / "slurm/train.sbatch", self.config, *STEPS, "--run.directory", directory, "--train.steps", steps,
                          "--grid.data", 2, sbatch=[*self.SMALL, "--partition=low", "--exclusive"])
        self.make_room(job, directory, "garonne")
        self.check_whole(directory, steps, 2, "--grid.data", 2)

    def test_a_written_script_makes_room_and_goes_on_to_the_same_bits(self):
        directory = self.folder / "written-room"
        steps = 1500
        script = self.folder / "written-room.sbatch"
        run("plan", self.config, *STEPS, "--ranks", 2, "--cluster", self.cluster_of_two_nodes(), "--run.directory", directory,
            "--train.steps", steps, "--sbatch", script, "--time-limit", 60)
        job = self.submit(script, sbatch=["--partition=low"])
        self.make_room(job, directory, directory.name)
        self.assertIn("(exit code 75)", self.log(job, directory.name))
        grid = re.findall(r"(--grid\.\w+) (\S+)", re.search(r"^options=.*", script.read_text(), re.MULTILINE)[0])
        self.assertIn("--grid.data", dict(grid))
        self.check_whole(directory, steps, 2, *itertools.chain(*grid))

    def await_last_part(self, directory):
        """What ranks that were told to end leave behind to write; returns the newest saved step."""
        self.slurm.wait_for("the last part", lambda: not list(directory.glob(".parting-*")), 60)
        saved = max(int(path.name[5:]) for path in (directory / "checkpoints").glob("step-*"))
        run("checkpoint", "verify", directory)
        return saved

    def lost_at_most(self, directory, every):
        """Of the steps that are done, by how the run was ended."""
        return 1 if (directory / "stopped").exists() else every

    def test_scancel_loses_nothing_that_was_saved(self):
        for launcher in ("srun", "mpirun"):
            with self.subTest("scancel", launcher=launcher):
                directory = self.folder / f"cancelled-{launcher}"
                job = self.submit(SOURCE / "slurm/train.sbatch", self.config, *STEPS, "--run.directory", directory, "--train.steps", 100000,
                                  "--checkpoint.every", 10, "--grid.data", 2, sbatch=self.SMALL, launcher=launcher)
                self.await_step(directory, 25)
                self.slurm.command("scancel", job)
                self.slurm.wait_for("end of the job", lambda: job not in self.slurm.queued(), 90)
                saved = self.await_last_part(directory)
                done = metrics(directory)[-1]["step"]
                self.assertGreaterEqual(saved, done - self.lost_at_most(directory, 10), self.log(job)[-2000:])
                again = self.train(directory, *STEPS, "--grid.data", 2, "--train.steps", 100000, "--train.stop_after", 2, ranks=2, check=75)
                self.assertIn("step", again.stdout)

    def test_the_time_limit_loses_nothing_that_was_saved_and_the_run_goes_on_to_the_same_bits(self):
        every = 10
        # Learning rates that do not depend on where the run ends.
        options = ["--optimizer.schedule", "constant", "--checkpoint.every", every, "--grid.data", 2]
        jobs = {}
        for launcher in ("srun", "mpirun"):
            directory = self.folder / f"limited-{launcher}"
            # The warning before the limit, with which a job would be queued again, is another signal here, which nobody minds.
            job = self.submit(SOURCE / "slurm/train.sbatch", self.config, *STEPS, *options, "--run.directory", directory,
                              "--train.steps", 100000, sbatch=[*self.SMALL, "--time=1", "--signal=B:URG@1"], launcher=launcher)
            jobs[launcher] = (job, directory)
        last = 0
        for launcher, (job, directory) in jobs.items():
            self.assertEqual(self.await_end(job, "TIMEOUT")["Restarts"], "0")
            saved = self.await_last_part(directory)
            done = metrics(directory)[-1]["step"]
            print(f"{launcher}: at its limit after step {done}, saved {saved}", flush=True)
            self.assertGreater(done, every)
            self.assertGreaterEqual(saved, done - self.lost_at_most(directory, every), self.log(job)[-2000:])
            last = max(last, saved)
        steps = last + 20
        for launcher, (_, directory) in jobs.items():
            job = self.submit(SOURCE / "slurm/train.sbatch", self.config, *STEPS, *options, "--run.directory", directory,
                              "--train.steps", steps, sbatch=self.SMALL, launcher=launcher)
            self.assertEqual(self.await_end(job, "COMPLETED")["ExitCode"], "0:0")
        for launcher, (_, directory) in jobs.items():
            with self.subTest(launcher=launcher):
                self.check_whole(directory, steps, 2, *options)

    def test_a_job_that_is_warned_of_its_limit_is_queued_again(self):
        directory = self.folder / "limit"
        job = self.submit(SOURCE / "slurm/train.sbatch", self.config, *STEPS, "--run.directory", directory, "--train.steps", 100000,
                          "--grid.data", 2, sbatch=[*self.SMALL, "--time=3", "--signal=B:USR1@60"], launcher="mpirun")
        # Slurm may send it a minute early.
        self.slurm.wait_for("a word of the end", lambda: "queued again" in self.log(job), patient(210))
        step = int((directory / "stopped").read_text())
        self.assertEqual(metrics(directory)[-1]["step"], step)
        run("checkpoint", "verify", directory / "checkpoints" / f"step-{step}")
        self.slurm.wait_for("a queued job", lambda: self.slurm.state(job).get("Restarts") == "1", 60)

    def test_arrays(self):
        options = self.folder / "list"
        options.write_text("--train.seed 1\n--train.seed 2 --optimizer.learning_rate 2e-3\n")
        job = self.submit(SOURCE / "slurm/array.sbatch", self.config, options, "--run.directory", self.folder / "many", "--train.steps", 3,
                          sbatch=["--array=1-2", "--ntasks-per-node=1", "--cpus-per-task=1"])
        self.slurm.wait_for("both", lambda: job not in self.slurm.queued(), patient(200))
        losses = [metrics(self.folder / f"many-{k}")[-1]["loss"] for k in (1, 2)]
        self.assertNotEqual(*losses)

    def test_a_chain_ends_when_the_training_is_done(self):
        directory = self.folder / "chain"
        job = self.submit(SOURCE / "slurm/chain.sbatch", self.config, "--run.directory", directory, "--train.steps", 3,
                          "--grid.data", 2, sbatch=[*self.SMALL, "--array=1-5%1", "--job-name=chain"])
        self.slurm.wait_for("an empty queue", lambda: job not in self.slurm.queued(), patient(200))
        self.assertEqual(len(metrics(directory)), 3)
        # The elements that were not needed never began.
        self.assertEqual(len(list(self.folder.glob("chain-*.out"))), 1)


if __name__ == "__main__":
    unittest.main()
