# SPDX-License-Identifier: MIT
"""The quickstart's run: real text, two ranks, a memory budget, plays that the model has not seen."""
import json
import pathlib
import shutil
import sys
import tempfile
import unittest

from support import SOURCE, metrics, run

DATA = SOURCE / "data" / "shakespeare.h5"


class ShakespeareTest(unittest.TestCase):
    def test_learns_english_verse_within_the_budget(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="garonne-shakespeare-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        directory = folder / "run"
        out = run("train", SOURCE / "config" / "gpt_shakespeare.toml", "--data.path", DATA, "--run.directory", directory,
                  ranks=2, timeout=1500).stdout
        print(out[-2500:])
        rows = metrics(directory)
        print(f"seconds of training: {sum(row['seconds'] for row in rows):.1f}")
        self.assertLess(rows[-1]["validation_loss"], 2.0)
        for row in rows:
            self.assertLessEqual(row["peak_bytes"], row["planned_peak_bytes"])
        answer = json.loads(run("eval", directory, "--json", "--generate", "HAMLET.\n", "--tokens", 400,
                                timeout=600).stdout)
        print(answer["generated"])
        # Words of verse: lines of a few words, and the commonest of them.
        text = answer["generated"].lower()
        self.assertGreater(text.count("\n"), 3)
        self.assertGreater(sum(text.count(f" {word} ") for word in ("the", "and", "to", "of", "my", "i")), 5)


if __name__ == "__main__":
    if not DATA.exists():
        sys.exit(f"{DATA} is missing; scripts/fetch-data makes it")
    unittest.main(verbosity=2)
