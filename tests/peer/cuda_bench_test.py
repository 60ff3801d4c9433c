#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What scripts/bench --cuda holds Garonne against, on the processor: the same models as ours, in all ways that it times;
and its turns and budgets, with a made-up GPU and programs that answer what they are told.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

SOURCE = pathlib.Path(os.environ["GARONNE_SOURCE"])
ENVIRONMENT = SOURCE / ".deps" / "bench-python"
if pathlib.Path(sys.prefix).resolve() != ENVIRONMENT.resolve():
    if not (ENVIRONMENT / "garonne-wheels.txt").exists():
        sys.exit(".deps/bench-python has no PyTorch; `scripts/bench --environment-only` makes it")
    # Python finds its environment by the name that it is called by.
    os.execv(ENVIRONMENT / "bin" / "python", [str(ENVIRONMENT / "bin" / "python"), *sys.argv])

BENCH = SOURCE / "scripts" / "bench.d"
sys.path.insert(0, str(BENCH))
import references  # noqa: E402
import same_model  # noqa: E402

FAKE = """#!{python}
import json, os, pathlib, sys
home, name, words = pathlib.Path({home!r}), pathlib.Path(sys.argv[0]).stem, sys.argv[1:]
with open(home / "calls", "a") as calls:
    calls.write(json.dumps([name, *words]) + "\\n")
if name == "nvidia-smi":
    print("NVIDIA H200, 580.65")
elif name == "cuda_peer":
    way = words[words.index("--way") + 1]
    print(json.dumps({{"peak_bytes": {{"eager": 3000, "compile": 2000, "checkpoint": 1000}}[way], "samples_per_second": 10.0}}))
else:
    refused = os.environ.get("REFUSED")
    if refused and refused in words[1]:
        print("warning: something else", file=sys.stderr)
        print(f"garonne: run.device: {{refused}} runs on processors only", file=sys.stderr)
        sys.exit(2)
    if os.environ.get("BROKEN", "nothing") in words[1]:
        sys.exit(6)
    if words[0] == "train":
        sys.exit(0)
    budget = int(words[words.index("--memory.budget") + 1])
    if budget < 2000:
        print("garonne: the smallest budget is 1500 B", file=sys.stderr)
        sys.exit(3)
    print(json.dumps({{"peak_bytes": budget - 1, "samples_per_second": 20.0}}))
"""


class TinyModels(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="garonne-cuda-bench-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        os.environ["GARONNE_CACHE"] = str(self.folder / "cache")

    def test_each_is_the_same_model(self):
        for keys in same_model.TINY:
            with self.subTest(keys["kind"]):
                found = same_model.compare(keys, self.folder / keys["kind"])
                self.assertGreater(found["parameters"], 1000)

    def test_another_model_is_refused(self):
        keys = same_model.TINY[2]
        theirs, weights = references.make_model, references.sfno_weights

        def wider(keys, shape):
            return theirs(keys | {"hidden": keys["hidden"] + 1}, shape)

        def exchanged(tensors, keys):
            found = weights(tensors, keys)
            found["blocks.0.global_conv.weight"] = found["blocks.0.global_conv.weight"].transpose(0, 1)
            return found

        def incomplete(tensors, keys):
            return {name: value for name, value in weights(tensors, keys).items() if name != "decoder.0.weight"}

        for name, value, said in (("make_model", wider, "parameters, the other model"),
                                  ("sfno_weights", exchanged, "the first loss is"),
                                  ("sfno_weights", incomplete, "decoder.0.weight")):
            with self.subTest(said):
                with unittest.mock.patch.object(references, name, value), self.assertRaises(SystemExit) as refused:
                    same_model.compare(keys, self.folder / value.__name__)
                self.assertIn(said, str(refused.exception))

    def test_blocks_that_run_again_change_no_loss(self):
        shapes = {"fno": {"inputs": 1, "targets": 1, "points": [16, 16]},
                  "sfno": {"inputs": 3, "targets": 3, "points": [16, 32], "grid": "legendre-gauss"}, "gpt": {}}
        for keys in same_model.TINY:
            losses = []
            for way in ("eager", "checkpoint") if keys["kind"] != "fno" else ("eager",):
                command = [sys.executable, BENCH / "cuda_peer.py", "--device", "cpu", "--way", way, "--precision", "float32",
                           "--model", json.dumps(keys), "--shape", json.dumps(shapes[keys["kind"]]), "--global-batch", "4",
                           "--micro-batch", "2", "--steps", "1"]
                done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                losses.append(json.loads(done.stdout.splitlines()[-1])["loss"])
            for loss in losses:
                self.assertAlmostEqual(loss, losses[0], places=5)


class Turns(unittest.TestCase):
    def setUp(self):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="garonne-cuda-bench-"))
        self.addCleanup(shutil.rmtree, self.home, ignore_errors=True)
        shutil.copytree(BENCH, self.home / "bench.d", ignore=shutil.ignore_patterns("__pycache__"))
        for path in ("path/nvidia-smi", "garonne", "bench.d/cuda_peer.py"):
            (self.home / path).parent.mkdir(exist_ok=True)
            (self.home / path).write_text(FAKE.format(python=sys.executable, home=str(self.home)))
            (self.home / path).chmod(0o755)
        # What compares models needs the program; the tests above hold it.
        with open(self.home / "bench.d/same_model.py", "a") as file:
            file.write("\n\ndef compare(keys, folder, device):\n    if 'REFUSED_AT_ONCE' in os.environ:\n"
                       "        garonne('train', folder)\n    return {'parameters': 7, 'loss': 1.0, 'device': device,\n"
                       "            'loss_of_the_other_on_the_device': float(os.environ.get('LOSS_THERE', 1.0))}\n")

    def bench(self, *arguments, code=0, **further):
        environment = os.environ | {"PATH": f"{self.home / 'path'}:{os.environ['PATH']}",
                                    "GARONNE_BINARY": str(self.home / "garonne")} | further
        done = subprocess.run([sys.executable, self.home / "bench.d/cuda.py", "--json", self.home / "figures.json", *arguments],
                              env=environment, capture_output=True, text=True, timeout=100, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def test_budgets_are_what_the_other_program_takes(self):
        said = self.bench("--models", "gpt2", "--repeats", "2", "--steps", "5").stdout
        calls = [json.loads(line) for line in (self.home / "calls").read_text().splitlines()]
        ours = [call for call in calls if call[0] == "garonne"]
        budgets = [call[call.index("--memory.budget") + 1] for call in ours]
        self.assertEqual(budgets, ["3000", "2000", "1000", "3000", "2000"], "what does not fit is asked once")
        for call in ours:
            self.assertIn("cuda", call)
        timed = [call[0] for call in calls[1 + 3:] if call[0] != "nvidia-smi"]
        self.assertEqual(timed[:6], ["cuda_peer", "garonne"] * 3)
        self.assertEqual(timed[6:10], ["garonne", "cuda_peer"] * 2, "who begins takes turns")
        rows = {line.split()[0]: line for line in said.splitlines() if line.startswith(("eager", "compile", "checkpoint"))}
        self.assertIn("2.00", rows["eager"])
        self.assertIn("does not fit: garonne: the smallest budget is 1500 B", rows["checkpoint"])
        figures = json.loads((self.home / "figures.json").read_text())
        self.assertEqual(figures["machine"]["device"], "NVIDIA H200")
        self.assertEqual(figures["cases"][0]["ratios"], {"eager": 2.0, "compile": 2.0})
        self.assertEqual(figures["cases"][0]["same"]["device"], "cuda")

    def test_another_loss_on_the_device_is_said(self):
        said = "1.250000 in the other program on this device"
        for loss, there in (("1.25", True), ("1.0", False)):
            done = self.bench("--models", "gpt2", "--ways", "eager", "--repeats", "1", "--steps", "5", LOSS_THERE=loss)
            self.assertEqual(said in done.stderr + done.stdout, there, loss)

    def figures(self):
        return json.loads((self.home / "figures.json").read_text())

    def test_what_is_refused_takes_nothing_from_the_others(self):
        said = "\nfno is left out, since this program refuses it: garonne: run.device: /fno/ runs on processors only\n"
        for when in ({}, {"REFUSED_AT_ONCE": "1"}):
            with self.subTest(when):
                done = self.bench("--models", "gpt2,fno,sfno", "--repeats", "1", "--steps", "5", REFUSED="/fno/", **when)
                self.assertIn(said, done.stdout)
                self.assertEqual([case["model"]["name"] for case in self.figures()["cases"]], ["gpt2", "sfno"])
                self.assertEqual(list(self.figures()["refused"]), ["fno"])
                self.assertIn("[ 18/24] sfno", done.stderr, "what is left out is counted as done")
        self.bench("--models", "fno", "--repeats", "1", REFUSED="/fno/", code=2)
        self.assertEqual(self.figures()["cases"], [])

    def test_figures_are_kept_before_something_breaks(self):
        self.bench("--models", "gpt2,fno", "--repeats", "1", "--steps", "5", BROKEN="/fno/", code=1)
        self.assertEqual([case["model"]["name"] for case in self.figures()["cases"]], ["gpt2"])

    def test_without_a_gpu(self):
        (self.home / "path/nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
        said = self.bench(code=2).stderr
        self.assertIn("wants a GPU", said)
        self.assertEqual(len(said.splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
