# SPDX-License-Identifier: MIT
"""Single bits of checkpoints flipped: every one is found and named, and the checkpoint before is used.

A few of them, or with GARONNE_ALL_FLIPS set a thousand, and sixty through resume, stop and a second start."""
import json
import os
import random
import shutil
import unittest

from support import ProgramTest, metrics, run, series

ALL = bool(os.environ.get("GARONNE_ALL_FLIPS"))
PLACES = ("manifest", "header", "weight", "moment")


def place(rng, checkpoint, kind):
    """(file, byte) of a random place of that kind."""
    if kind == "manifest":
        path = checkpoint / "manifest.json"
        return path, rng.randrange(path.stat().st_size)
    path = rng.choice(sorted(checkpoint.glob("*.safetensors")))
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    if kind == "header":
        return path, rng.randrange(start)
    entries = [entry for name, entry in json.loads(content[8:start]).items()
               if name != "__metadata__" and name.endswith("moment") == (kind == "moment")]
    begin, end = rng.choice([entry["data_offsets"] for entry in entries
                             if entry["data_offsets"][0] < entry["data_offsets"][1]])
    return path, start + rng.randrange(begin, end)


class Flipped:
    """A file with one bit flipped, as it was before afterwards."""

    def __init__(self, path, byte, bit):
        self.path, self.byte, self.bit = path, byte, bit

    def __enter__(self):
        self.content = self.path.read_bytes()
        damaged = bytearray(self.content)
        damaged[self.byte] ^= 1 << self.bit
        self.path.write_bytes(damaged)

    def __exit__(self, *_):
        self.path.write_bytes(self.content)


class FlipsTest(ProgramTest):
    KEYS = ("--model.layers", 1, "--model.hidden", 8, "--train.steps", 6, "--checkpoint.keep", 9)

    def test_every_flipped_bit_is_found_and_named(self):
        rng = random.Random(15)
        directory = self.directory("run")
        self.train(directory, *self.KEYS, "--grid.data", 2, "--train.stop_after", 2, ranks=2, check=75)
        checkpoint = directory / "checkpoints" / "step-2"
        found = {kind: 0 for kind in PLACES}
        for number in range(1000 if ALL else 36):
            kind = PLACES[number % len(PLACES)]
            path, byte = place(rng, checkpoint, kind)
            bit = rng.randrange(8)
            with Flipped(path, byte, bit):
                done = run("checkpoint", "verify", directory, check=None)
            what = f"{kind}: bit {bit} of byte {byte} of {path.name}"
            self.assertEqual(done.returncode, 5, what)
            self.assertIn(str(path), done.stderr, what)
            self.assertLess(len(done.stderr), 2000, what)
            found[kind] += 1
        self.assertIn("whole", run("checkpoint", "verify", directory).stdout)
        print(f"found of each kind: {found}")

    def test_the_checkpoint_before_is_used_and_nothing_is_lost(self):
        rng = random.Random(16)
        through = self.directory("through")
        kept = self.directory("kept")
        self.train(through, *self.KEYS)
        self.train(kept, *self.KEYS, "--checkpoint.every", 1, "--train.stop_after", 3, check=75)
        for number in range(60 if ALL else 4):
            kind = PLACES[number % len(PLACES)]
            directory = self.directory(f"run-{number}")
            shutil.copytree(kept, directory)
            path, byte = place(rng, directory / "checkpoints" / "step-3", kind)
            bit = rng.randrange(8)
            content = bytearray(path.read_bytes())
            content[byte] ^= 1 << bit
            path.write_bytes(content)
            what = f"{kind}: bit {bit} of byte {byte} of {path.name}"
            # Goes on from 2, and stops before what is damaged would be written again, or right behind.
            done = self.train(directory, *self.KEYS, "--train.stop_after", 1 + number % 2, check=75)
            self.assertIn(f"skipping checkpoint 3: {path}", done.stdout, what)
            self.assertIn("step-2 (step 2 of 6)", done.stdout, what)
            done = self.train(directory, *self.KEYS)
            self.assertNotIn("skipping", done.stdout, what)
            self.assertEqual(series(through, "loss"), series(directory, "loss"), what)
            self.assertEqual(self.tensor_files(through, 6), self.tensor_files(directory, 6), what)
            self.assertEqual([row["step"] for row in metrics(directory)], list(range(1, 7)), what)
            run("checkpoint", "verify", directory / "checkpoints" / "step-6")
            shutil.rmtree(directory)


if __name__ == "__main__":
    unittest.main(verbosity=2)
