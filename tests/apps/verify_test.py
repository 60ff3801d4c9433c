# SPDX-License-Identifier: MIT
"""What scripts/verify runs and records, with a cmake and a ctest that are made up."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ.get("GARONNE_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
TESTS = {"fast": [], "slow": ["long"], "other": ["peer"], "slow_other": ["long", "peer"], "card": ["gpu"], "bad": [], "fast.2": []}
CTEST = """#!/usr/bin/env python3
import json, pathlib, re, sys
tests = json.loads(pathlib.Path("{folder}/tests.json").read_text())
if "--show-only=json-v1" in sys.argv:
    print(json.dumps({{"tests": [{{"name": name, "properties": [{{"name": "LABELS", "value": labels}}] if labels else []}}
                               for name, labels in tests.items()]}}))
    sys.exit()
with open("{folder}/log", "a") as log:
    log.write(" ".join(sys.argv[1:]) + "\\n")
pattern = sys.argv[sys.argv.index("-R") + 1]
names = [name for name in tests if re.search(pattern, name)]
assert len(names) == 1, names
failed = names[0] == "bad" and not pathlib.Path("{folder}/mended").exists()
print("1/1 Test #7: " + names[0] + " ......" + ("***Failed" if failed else "   Passed") + "    0.01 sec")
sys.exit(8 if failed else 0)
"""


class VerifyTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="garonne-verify-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.checkout = self.folder / "checkout"
        (self.checkout / "scripts").mkdir(parents=True)
        for name in ("verify", "common.sh"):
            shutil.copy(SOURCE / "scripts" / name, self.checkout / "scripts")
        (self.checkout / ".gitignore").write_text("/verify.tsv\n")
        self.program("ctest", CTEST.format(folder=self.folder))
        self.program("cmake", f"#!/bin/sh\necho cmake \"$@\" >>'{self.folder}/log'\n")
        (self.folder / "tests.json").write_text(json.dumps(TESTS))
        self.git("init", "-q")
        self.commit("one")

    def program(self, name, text):
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def git(self, *arguments):
        names = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        return subprocess.run(["git", *arguments], cwd=self.checkout, env=os.environ | names, check=True, capture_output=True,
                              text=True, timeout=60).stdout.strip()

    def commit(self, text):
        (self.checkout / "file").write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", text)

    def verify(self, *options, code=0):
        """What ran: (preset, pattern) of ctest."""
        (self.folder / "log").write_text("")
        done = subprocess.run([self.checkout / "scripts/verify", *options], capture_output=True, text=True, timeout=60, check=False,
                              env=os.environ | {"PATH": f"{self.folder}/bin:{os.environ['PATH']}"})
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.said = done.stdout + done.stderr
        words = [line.split() for line in (self.folder / "log").read_text().splitlines()]
        self.built = [line for line in words if line[0] == "cmake"]
        return [(line[1], line[3]) for line in words if line[0] != "cmake"]

    def rows(self):
        header, *rows = (self.checkout / "verify.tsv").read_text().splitlines()
        self.assertEqual(header.split("\t"), ["commit", "preset", "label", "test", "result", "seconds"])
        return [row.split("\t") for row in rows]

    def test_pieces_are_presets_and_labels(self):
        (self.folder / "mended").touch()
        self.assertEqual(self.verify("long", "peer"), [("release", "^slow$"), ("release", "^other$"), ("release", "^slow_other$")])
        self.assertEqual([row[2] for row in self.rows()], ["long", "peer", "long,peer"])
        quick = ["^fast$", "^bad$", r"^fast\.2$"]
        self.assertEqual(self.verify(), [(preset, name) for preset in ("release", "dev", "asan", "tsan") for name in quick])
        self.assertEqual(len([line for line in self.built if "--build" in line]), 4)
        self.assertIn("no piece longer", (self.verify("longer", code=2), self.said)[1])
        commit = self.git("rev-parse", "--short=12", "HEAD")
        self.assertEqual({row[0] for row in self.rows()}, {commit})
        self.assertEqual(self.verify(), [])
        self.assertEqual(self.verify("--again", "--no-build", "--tests", "2", "dev"), [("dev", r"^fast\.2$")])
        self.assertEqual(self.built, [])

    def test_what_failed_and_what_changed_runs_again(self):
        self.assertEqual(len(self.verify("quick", code=1)), 3)
        self.assertIn("not passed: release bad", self.said)
        self.assertEqual([row[4] for row in self.rows()], ["passed", "failed", "passed"])
        self.assertEqual(self.verify("quick", code=1), [("release", "^bad$")])
        (self.folder / "mended").touch()
        self.assertEqual(self.verify("quick"), [("release", "^bad$")])
        self.assertEqual(self.verify("quick"), [])
        (self.checkout / "file").write_text("changed")
        for _ in range(2):
            self.assertEqual(len(self.verify("quick")), 3)
            self.assertTrue(self.rows()[-1][0].endswith("-dirty"))
        self.commit("two")
        self.assertEqual(self.verify("--minutes", "0", "quick", code=1), [])
        self.assertIn("3 not run in time", self.said)
        self.assertEqual(len(self.verify("quick")), 3)


if __name__ == "__main__":
    unittest.main()
