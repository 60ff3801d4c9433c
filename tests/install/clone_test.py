# SPDX-License-Identifier: MIT
"""What a new user does, to the letter: a clone and the first command of "Start here" in the README. From nothing to the first
loss line in at most three commands, and to a model that writes. What is checked out is cloned, with a fresh .deps; the
compiler's cache is an empty one."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest

SOURCE = pathlib.Path(os.environ["GARONNE_SOURCE"])


def first_command():
    text = (SOURCE / "README.md").read_text(encoding="utf-8")
    start = text.index("## Start here")
    return re.search(r"(?m)^    (scripts/\S+)", text[start:])[1]


class CloneTest(unittest.TestCase):
    def test_three_commands_train(self):
        # Not in /tmp, which may be in memory: a build and its libraries are some gigabytes.
        folder = pathlib.Path(tempfile.mkdtemp(prefix="garonne-clone-", dir="/var/tmp"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        commands = [f"git clone {SOURCE} garonne", "cd garonne", f"{first_command()} --train.steps 20"]
        environment = os.environ | {"CCACHE_DIR": str(folder / "compiler_cache")}
        started = time.monotonic()
        with subprocess.Popen(["bash", "-c", " && ".join(commands)], cwd=folder, env=environment, text=True, errors="replace",
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            lines, first_loss = [], None
            for line in process.stdout:
                lines.append(line)
                if first_loss is None and re.match(r" *step +\d+(/\d+)? .*\bloss\b", line):
                    first_loss = time.monotonic() - started
        said = "".join(lines)
        self.assertEqual(process.returncode, 0, said[-4000:])
        self.assertIsNotNone(first_loss, said[-4000:])
        print(f"a loss after {first_loss:.0f} s, all after {time.monotonic() - started:.0f} s")
        run = folder / "garonne/runs/shakespeare"
        self.assertEqual(len((run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()), 20)
        self.assertIn("HAMLET.", said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
