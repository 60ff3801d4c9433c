# SPDX-License-Identifier: MIT
"""find_package(Garonne): the example of a program of one's own, built against an installed planner and run."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

BUILD = os.environ["GARONNE_BUILD"]


def call(*command, code=0):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    if done.returncode != code:
        raise AssertionError(f"exit code {done.returncode}: {command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout


class PlannerTest(unittest.TestCase):
    def test_a_graph_of_ones_own(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="garonne-install-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        call("cmake", "--install", BUILD, "--prefix", folder / "made", "--component", "planner")
        # The tree can be moved.
        prefix = (folder / "made").rename(folder / "moved")
        sources = prefix / "share" / "garonne" / "examples" / "plan_graph"
        call("cmake", "-S", sources, "-B", folder / "build", "-DCMAKE_BUILD_TYPE=Debug", f"-DCMAKE_PREFIX_PATH={prefix}")
        call("cmake", "--build", folder / "build")
        program = folder / "build" / "plan_graph"
        shown = call(program)
        self.assertIn("(again)", shown)
        whole, kept, bound = map(float, re.findall(r"([\d.]+) ms", shown))
        self.assertLess(whole, kept)
        self.assertLessEqual(bound, kept)
        for number in range(4):
            self.assertIn(f"forward down{number}", shown)
        refused = call(program, 1 << 20, code=3)
        smallest = int(re.search(r"is (\d+) bytes", refused).group(1))
        self.assertIn("within", call(program, smallest))


if __name__ == "__main__":
    unittest.main(verbosity=2)
