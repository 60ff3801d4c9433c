# SPDX-License-Identifier: MIT
"""scripts/quickstart --cuda in a made-up checkout: the GPUs, what sets up and what trains are made up, the plans are not.
And the help of the scripts."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from support import BINARY, ProgramTest, SOURCE, patient

FAKE = """#!/usr/bin/env python3
import json, os, pathlib, subprocess, sys
words = [pathlib.Path(sys.argv[0]).name, *sys.argv[1:]]
with open({home!r} + "/calls", "a") as calls:
    calls.write(json.dumps(words) + "\\n")
if words[0] == "nvidia-smi":
    print(os.environ["GPUS"])
elif words[0] == "mpirun":
    if "--version" not in words:
        sys.exit(subprocess.run(words[words.index("-n") + 2:]).returncode)
elif words[:2] == ["garonne", "plan"]:
    # A program without CUDA plans for a GPU that is described; an automatic budget it would have from there.
    budgets = [value for key, value in zip(words, words[1:]) if key == "--memory.budget"]
    if budgets[-1] == "auto":
        sys.exit("memory.budget = auto is what a GPU has free when the run starts there")
    sys.exit(subprocess.run([{program!r}, *words[1:], "--cluster", {cluster!r}]).returncode)
"""


class QuickstartTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.root = self.folder / "checkout"
        for name in ("scripts/quickstart", "scripts/common.sh", "config/gpt_shakespeare.toml"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(SOURCE / name, self.root / name)
        (self.root / "data").mkdir(exist_ok=True)
        shutil.copy(self.data, self.root / "data/shakespeare.h5")
        text = FAKE.format(home=str(self.folder), program=str(pathlib.Path(BINARY).resolve()),
                           cluster=str(SOURCE / "config/clusters/dgx_h200.toml"))
        for path in (self.root / "scripts/setup", self.root / "scripts/fetch-data", self.root / "build-cuda/bin/garonne",
                     self.folder / "path/nvidia-smi", self.folder / "path/mpirun"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)

    def calls(self, gpus, *arguments):
        """Of the program, by its command."""
        (self.folder / "calls").unlink(missing_ok=True)
        listed = "\n".join(f"GPU {number}: made up" for number in range(gpus))
        done = subprocess.run(["bash", self.root / "scripts/quickstart", "--cuda", *arguments], capture_output=True, text=True,
                              timeout=patient(100), check=False,
                              env=os.environ | {"PATH": f"{self.folder / 'path'}:{os.environ['PATH']}", "GPUS": listed})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        said = [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]
        return [call for call in said if call[0] == "setup"], {call[1]: call for call in said if call[0] == "garonne"}

    def test_a_plan_has_a_number_and_the_run_what_is_free(self):
        for gpus, ranks in ((1, "1"), (2, "2"), (8, "2")):
            with self.subTest(gpus=gpus):
                setup, calls = self.calls(gpus, "--train.steps", "7")
                self.assertIn("--cuda", setup[0])
                self.assertEqual(list(calls), ["plan", "train", "eval"])
                for command in ("plan", "train"):
                    words = calls[command]
                    self.assertEqual(words[words.index("--grid.data") + 1], ranks)
                    self.assertEqual(words[words.index("--run.device") + 1], "cuda")
                    self.assertEqual(words[-2:], ["--train.steps", "7"])
                self.assertEqual(calls["train"][calls["train"].index("--memory.budget") + 1], "auto")

    def test_a_budget_that_is_given_is_that_of_both(self):
        _, calls = self.calls(1, "--memory.budget", "512MiB")
        for command in ("plan", "train"):
            self.assertEqual(calls[command][-2:], ["--memory.budget", "512MiB"])

    def test_options_of_training_are_no_options_of_a_plan(self):
        _, calls = self.calls(1, "--trace-from", "10", "--trace=a.json", "--train.steps=7", "--run.directory", "runs/own")
        keys = ["--train.steps=7", "--run.directory", "runs/own"]
        self.assertEqual(calls["plan"][-3:], keys)
        self.assertNotIn("--trace-from", calls["plan"])
        self.assertEqual(calls["train"][-6:], ["--trace-from", "10", "--trace=a.json", *keys])
        self.assertIn("runs/own", calls["eval"])


class HelpTest(unittest.TestCase):
    """Of scripts of a checkout in which nothing is installed or built, on a machine without a GPU."""

    # What would install, build or train.
    TOOLS = ("apt-get", "cmake", "ctest", "dpkg-query", "flock", "git", "mpirun", "ninja", "pip", "sudo")

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="garonne-help-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        shutil.copytree(SOURCE / "scripts", self.folder / "checkout/scripts",
                        ignore=shutil.ignore_patterns("__pycache__"))
        (self.folder / "path").mkdir()
        for name in (*self.TOOLS, "nvidia-smi"):
            tool = self.folder / "path" / name
            tool.write_text(f"#!/bin/sh\necho {name} >>'{self.folder}/calls'\nexit 9\n")
            tool.chmod(0o755)

    def help(self, script, *arguments):
        done = subprocess.run(["bash", self.folder / "checkout/scripts" / script, *arguments], capture_output=True, text=True,
                              timeout=patient(60), check=False, cwd=self.folder,
                              env=os.environ | {"PATH": f"{self.folder / 'path'}:{os.environ['PATH']}",
                                                "PYTHONDONTWRITEBYTECODE": "1"})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stderr, "")
        self.assertEqual([path.name for path in self.folder.glob("calls")], [])
        self.assertEqual([path.name for path in (self.folder / "checkout").iterdir()], ["scripts"])
        return done.stdout.splitlines()

    def test_help_is_how_the_script_begins_and_does_nothing(self):
        for script, options in (("quickstart", ((), ("--train.steps", "7"), ("--cuda",), ("--cuda", "--train.steps", "7"))),
                                ("setup", ((), ("--tests", "--preset", "dev"), ("--cuda", "--architecture", "90"))),
                                ("test", ((), ("--long", "--preset", "dev"), ("-R", "replay"))),
                                ("bench", ((), ("--quick",), ("--grids", "--repeats", "1")))):
            head = (SOURCE / "scripts" / script).read_text(encoding="utf-8").partition("\nset -")[0]
            expected = [line.removeprefix("#").strip() for line in head.splitlines()[2:]]
            for before in options:
                for word in ("--help", "-h"):
                    with self.subTest(script=script, before=before, word=word):
                        self.assertEqual([line.strip() for line in self.help(script, *before, word)], expected)

    def test_help_of_a_comparison_is_its_own(self):
        # An older Python has to get what reads TOML before it can help with --cuda.
        reads_toml = sys.version_info >= (3, 11)
        for word in ("--hosts", "transforms", "operators", "budgets", *(["--cuda"] if reads_toml else [])):
            with self.subTest(word):
                self.assertEqual(self.help("bench", word, "--help")[0].split()[:3], ["usage:", "scripts/bench", word])


if __name__ == "__main__":
    unittest.main()
