#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""scripts/follow on a real run: what TensorBoard reads and what Weights & Biases would be sent.

`scripts/bench --environment-only` installs the packages of both."""
import glob
import importlib.util
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

from peer_environment import enter_environment

enter_environment()
if missing := [name for name in ("tensorboard", "tensorboardX", "wandb") if importlib.util.find_spec(name) is None]:
    sys.exit(f"{', '.join(missing)} not installed: scripts/bench --environment-only")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: E402
from wandb.proto import wandb_internal_pb2  # noqa: E402

from tiny_run import TRAIN, TinyRun  # noqa: E402

FOLLOW = pathlib.Path(os.environ["GARONNE_SOURCE"]) / "scripts" / "follow"


def follow(*arguments, folder):
    environment = os.environ | {"WANDB_MODE": "offline", "WANDB_DIR": str(folder), "WANDB_SILENT": "true"}
    done = subprocess.run([sys.executable, FOLLOW, *map(str, arguments)], env=environment, cwd=folder, capture_output=True,
                          text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr


def records(path):
    """Of a file of Weights & Biases: a header of seven bytes, then the log format of LevelDB, pieces in blocks of 32 KiB."""
    data = path.read_bytes()
    place, whole = 7, b""
    while place + 7 <= len(data):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        whole += data[place + 7:place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole one, or the last piece of one
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            whole = b""
            yield record


class FollowTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.tiny = TinyRun(cls.folder / "tiny", "float32", 1)
        cls.rows = cls.tiny.train()

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def test_tensorboard_reads_all_rows(self):
        target = self.folder / "board"
        follow(self.tiny.directory, "--tensorboard", target, "--once", folder=self.folder)
        board = EventAccumulator(str(target))
        board.Reload()
        self.assertIn("loss", board.Tags()["scalars"])
        events = board.Scalars("loss")
        self.assertEqual([event.step for event in events], [row["step"] for row in self.rows])
        for event, row in zip(events, self.rows):
            self.assertAlmostEqual(event.value, row["loss"], delta=1e-6 * abs(row["loss"]))
            self.assertAlmostEqual(event.wall_time, row["time"], places=3)

    def of_wandb(self, directory):
        before = set(glob.glob(str(self.folder / "wandb" / "offline-run-*")))
        follow(directory, "--wandb", "river", "--once", folder=self.folder)
        made = set(glob.glob(str(self.folder / "wandb" / "offline-run-*"))) - before
        self.assertEqual(len(made), 1)
        rows, name = [], None
        for record in records(next(pathlib.Path(made.pop()).glob("*.wandb"))):
            if record.WhichOneof("record_type") == "run":
                name = record.run.display_name
            if record.WhichOneof("record_type") == "history":
                rows.append({(item.key or "/".join(item.nested_key)): json.loads(item.value_json)
                             for item in record.history.item})
        self.assertEqual(name, directory.name)
        return rows

    def test_wandb_gets_all_rows(self):
        rows = self.of_wandb(self.tiny.directory)
        self.assertEqual([(row["step"], row["loss"]) for row in rows], [(row["step"], row["loss"]) for row in self.rows])

    # As after a restart from a checkpoint of an earlier step.
    def test_steps_that_come_again_reach_wandb_again(self):
        again = self.folder / "again"
        again.mkdir()
        (again / "config.toml").write_text(f"[train]\nsteps = {TRAIN['steps']}\n")
        twice = self.rows[:5] + self.rows[3:]
        (again / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in twice))
        self.assertEqual([row["step"] for row in self.of_wandb(again)], [row["step"] for row in twice])

    # It waits for more, and ends with the last step.
    def test_a_run_that_grows_is_followed_to_its_end(self):
        growing = self.folder / "growing"
        growing.mkdir()
        (growing / "config.toml").write_text(f"[train]\nsteps = {TRAIN['steps']}\n")
        lines = [json.dumps(row) + "\n" for row in self.rows]
        metrics = growing / "metrics.jsonl"
        metrics.write_text("".join(lines[:4]) + lines[4][:20])
        (growing / "lock").write_text("{}")
        target = self.folder / "growing.csv"
        child = subprocess.Popen([sys.executable, FOLLOW, growing, "--csv", target, "--every", "0.1"])
        with self.assertRaises(subprocess.TimeoutExpired):
            child.wait(timeout=2)
        with open(metrics, "a", encoding="utf-8") as file:
            file.write(lines[4][20:] + "".join(lines[5:]))
        self.assertEqual(child.wait(timeout=60), 0)
        table = target.read_text().splitlines()
        self.assertEqual([line.split(",")[0] for line in table[1:]], [str(row["step"]) for row in self.rows])


if __name__ == "__main__":
    unittest.main(verbosity=2)
