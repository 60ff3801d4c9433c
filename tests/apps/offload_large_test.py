# SPDX-License-Identifier: MIT
"""A model with states on the disk in less than half of what it takes: GPT-2's 774 M in float32. Wants 17 GiB of memory and 30
GB of disk. Then GPT-2 XL in 14 GiB and in 10, where gradients and parameters move, too, and goes on from its checkpoint: wants 16
GiB and 60 GB of disk. `GARONNE_LARGE_LAYERS` layers (8 at least) in place of 36 and of 48 try the test itself, in as small a part
of what it takes."""
import ctypes
import json
import math
import mmap
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import threading
import unittest

from support import BINARY, SOURCE, metrics, run

STEPS = 3
LAYERS = int(os.environ.get("GARONNE_LARGE_LAYERS", "36"))
MODEL = ("--model.layers", LAYERS, "--model.hidden", 1280, "--model.heads", 20, "--model.sequence", 1024, "--model.vocabulary",
         50304, "--grid.data", 1, "--train.micro_batch", 1, "--train.global_batch", 1, "--train.steps", STEPS,
         "--evaluation.batches", 0, "--run.threads", 0, "--checkpoint.keep", 1)
XL_LAYERS = int(os.environ.get("GARONNE_LARGE_LAYERS", "48"))
XL = (*MODEL, "--model.layers", XL_LAYERS, "--model.hidden", 1600, "--model.heads", 25, "--train.global_batch", 2)
LIMIT_OF_THE_REST = 3 << 29  # 1.5 GiB: of resident memory beside the budget


# What XL has on the disk, a checkpoint, and the next one beside it.
FREE_BYTES = 57 * 10**9


class CachedPages(threading.Thread):
    """How many pages of a process's file on the disk tier, which has no name, were seen in memory."""

    def __init__(self, process):
        super().__init__(daemon=True)
        self.process = process
        self.looks = self.most = 0
        self.ended = threading.Event()

    def run(self):
        while not self.ended.wait(2):
            for link in pathlib.Path(f"/proc/{self.process}/fd").glob("*"):
                try:
                    if "garonne-memory-" in os.readlink(link):
                        self.look(link)
                except OSError:
                    pass  # closed meanwhile

    def look(self, link):
        with open(link, "r+b") as file:
            size = os.fstat(file.fileno()).st_size
            with mmap.mmap(file.fileno(), size) as mapped:
                pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
                begin = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
                mincore = ctypes.CDLL(None, use_errno=True).mincore
                if mincore(ctypes.c_void_p(begin), ctypes.c_size_t(size), pages) != 0:
                    raise OSError(ctypes.get_errno(), "mincore")
        self.looks += 1
        self.most = max(self.most, bytes(pages).count(1))


def last_of_each_key(words):
    """The last value of each key."""
    return [word for pair in dict(zip(words[::2], words[1::2], strict=True)).items() for word in pair]


class OffloadLargeTest(unittest.TestCase):
    def setUp(self):
        # The folder of temporary files may be in memory.
        self.assertGreater(shutil.disk_usage(pathlib.Path(BINARY).resolve().parent).free, FREE_BYTES * LAYERS // 36,
                           "too little is free on the disk")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="offload-large-", dir=pathlib.Path(BINARY).resolve().parent))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        texts = sorted((SOURCE / "src").rglob("*.cpp"))
        run("data", "text", *texts, "--output", self.folder / "tokens.h5")
        self.config = SOURCE / "config" / "gpt_shakespeare.toml"
        self.keys = ("--data.path", self.folder / "tokens.h5", *MODEL)

    def train(self, name, *keys):
        """The largest resident memory of a run, and what it printed."""
        command = [BINARY, "train", self.config, *self.keys, *keys, "--run.directory", self.folder / name]
        with open(self.folder / f"{name}.log", "w+") as log:
            process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=subprocess.STDOUT)
            cached = CachedPages(process.pid)
            cached.start()
            _, status, usage = os.wait4(process.pid, 0)
            cached.ended.set()
            cached.join()
            process.returncode = os.waitstatus_to_exitcode(status)
            log.seek(0)
            text = log.read()
        self.assertEqual(process.returncode, 0, text[-3000:])
        self.assertEqual(cached.looks > 0, "--memory.disk" in keys)
        self.assertEqual(cached.most, 0, "pages of the disk's file are in memory")
        return usage.ru_maxrss * 1024, text

    def test_xl_in_less_than_half_of_what_it_takes(self):
        self.keys = ("--data.path", self.folder / "tokens.h5", *last_of_each_key(XL))
        whole = json.loads(run("plan", self.config, *self.keys, "--memory.budget", "1 TiB", "--memory.plan", "keep-all",
                               "--json").stdout)["peak_bytes"]
        series = {}
        for name, gibibytes in (("most", 14), ("least", 10)):
            budget = min(gibibytes << 30, whole * gibibytes // 28)
            resident, text = self.train(name, "--memory.budget", budget, "--memory.disk", self.folder)
            program = json.loads((self.folder / name / "program" / "rank_0.json").read_text())
            measured = max(one["measured_peak_bytes"] for one in program["instructions"])
            self.assertLessEqual(measured, program["peak_bytes"])
            self.assertLessEqual(program["peak_bytes"], budget)
            on_disk = re.search(r"disk planned +(\d+) B +measured +(\d+) B", text)
            self.assertEqual(on_disk[1], on_disk[2])
            self.assertLessEqual(resident, budget + LIMIT_OF_THE_REST)
            series[name] = [(row["loss"], row["gradient_norm"]) for row in metrics(self.folder / name)]
            series[f"hashes of {name}"] = self.hashes(name)
            if name == "most":  # so that there is room for those of the other
                shutil.rmtree(self.folder / name / "checkpoints")
            seconds = [round(row["seconds"], 1) for row in metrics(self.folder / name)]
            print(f"{program['name']}: peak {program['peak_bytes']} B of {whole} B, disk {on_disk[1]} B, resident {resident} B, "
                  f"steps {seconds} s, planned {program['seconds']:.1f} s")
        self.assertEqual(series["most"], series["least"])
        self.assertEqual(series["hashes of most"], series["hashes of least"])
        # `budget` is the last one's.
        resident, text = self.train("least", "--memory.budget", budget, "--memory.disk", self.folder, "--train.steps", STEPS + 1)
        rows = metrics(self.folder / "least")
        self.assertEqual([row["step"] for row in rows], list(range(1, STEPS + 2)))
        self.assertTrue(math.isfinite(rows[-1]["loss"]))
        self.assertIn(f"step-{STEPS}", text)
        self.assertLessEqual(resident, budget + LIMIT_OF_THE_REST)
        self.assertEqual([path.name for path in (self.folder / "least" / "checkpoints").glob("step-*")], [f"step-{STEPS + 1}"])
        print(f"went on from step {STEPS}: resident {resident} B, step {rows[-1]['seconds']:.1f} s, losses "
              f"{[round(row['loss'], 4) for row in rows]}")

    def hashes(self, name):
        manifest = json.loads((self.folder / name / "checkpoints" / f"step-{STEPS}" / "manifest.json").read_text())
        return [(file["name"], file["xxh3_128"]) for file in manifest["files"]]

    def test_states_on_the_disk_change_no_bit(self):
        whole, _ = self.train("whole", "--memory.budget", "1 TiB")
        kept = json.loads((self.folder / "whole" / "program" / "rank_0.json").read_text())
        hashes = self.hashes("whole")
        shutil.rmtree(self.folder / "whole" / "checkpoints")
        budget = kept["peak_bytes"] * 45 // 100
        resident, text = self.train("disk", "--memory.budget", budget, "--memory.disk", self.folder)
        for key in ("loss", "gradient_norm"):
            self.assertEqual([row[key] for row in metrics(self.folder / "disk")],
                             [row[key] for row in metrics(self.folder / "whole")])
        self.assertEqual(self.hashes("disk"), hashes)
        program = json.loads((self.folder / "disk" / "program" / "rank_0.json").read_text())
        measured = max(one["measured_peak_bytes"] for one in program["instructions"])
        self.assertLessEqual(measured, program["peak_bytes"])
        self.assertLessEqual(program["peak_bytes"], budget)
        on_disk = re.search(r"disk planned +(\d+) B +measured +(\d+) B", text)
        self.assertEqual(on_disk[1], on_disk[2])
        copies, busy, waited = self.lanes(program, text)
        seconds = {name: [round(row["seconds"], 1) for row in metrics(self.folder / name)] for name in ("whole", "disk")}
        print(f"{program['name']}: peak {program['peak_bytes']} B of {kept['peak_bytes']} B, disk {on_disk[1]} B; resident "
              f"{resident} B where all is kept {whole} B; {len(copies)} copies planned "
              f"{sum(one['seconds'] for one in copies):.1f} s, took {busy:.1f} s, waited {waited:.1f} s in the last step; steps {seconds} s, "
              f"planned {program['seconds']:.1f} s where all is kept {kept['seconds']:.1f} s")
        print("\n".join(line for line in text.splitlines() if "copies" in line or line.startswith("disk ")))
        self.assertLessEqual(resident, budget + LIMIT_OF_THE_REST)
        self.assertLessEqual(waited, busy / 2)
        # Beside eight times as much that is computed there is time for all of it.
        _, text = self.train("eight", "--memory.budget", budget, "--memory.disk", self.folder, "--train.global_batch", 8, "--train.steps", 1)
        program = json.loads((self.folder / "eight" / "program" / "rank_0.json").read_text())
        self.assertEqual(sum(one["operation"] == "load" for one in program["instructions"]), 8)
        copies, busy, waited = self.lanes(program, text)
        step = metrics(self.folder / "eight")[-1]["seconds"]
        print(f"8 micro-batches, {program['name']}: {len(copies)} copies took {busy:.1f} s, waited {waited:.2f} s of a step of "
              f"{step:.1f} s: {waited / step:.2%}")
        self.assertLessEqual(waited, 0.015 * step)

    def lanes(self, program, text):
        """The copies to and from the disk, the seconds that both lanes were busy, and those that Compute waited for them."""
        moves = ("disk-read", "disk-write")
        copies = [one for one in program["instructions"] if one["operation"] in moves]
        waited = sum(one["measured_seconds"] for one in program["instructions"] if one["operation"] == "wait"
                     and program["instructions"][one["completes"]]["operation"] in moves)
        # A copy's own time in the Program is that of its issue.
        rates = re.search(r"copies +[\d.]+ [GM]iB out at ([\d.]+) GB/s .*?[\d.]+ [GM]iB back at ([\d.]+) GB/s", text)
        busy = sum(program["buffers"][one["arguments"]["inputs"][0]]["bytes"] / 1e9 / float(rates[1 if one["operation"] == moves[1] else 2])
                   for one in copies)
        return copies, busy, waited


if __name__ == "__main__":
    unittest.main(verbosity=2)
