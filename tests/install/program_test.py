# SPDX-License-Identifier: MIT
"""The installed program, after its tree was moved: it finds its libraries, and there are manual and completion."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

BUILD = os.environ["GARONNE_BUILD"]


class ProgramTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="garonne-install-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        subprocess.run(["cmake", "--install", BUILD, "--prefix", cls.folder / "made"], check=True, capture_output=True)
        cls.prefix = (cls.folder / "made").rename(cls.folder / "moved")
        cls.program = cls.prefix / "bin" / "garonne"

    def test_it_runs_with_libraries_of_its_own(self):
        shown = subprocess.run(["ldd", self.program], capture_output=True, text=True, check=True).stdout
        self.assertNotIn("not found", shown)
        self.assertNotIn(".deps", shown)
        for library in ("libtorch_cpu.so", "libc10.so"):
            line = next(line for line in shown.splitlines() if library in line)
            self.assertIn(str(self.prefix.resolve()), os.path.realpath(line.split("=>")[1].split()[0]))
        done = subprocess.run([self.program, "data", "darcy", "--samples", "1", "--resolution", "9", "--stride", "2", "--output",
                               self.folder / "d.h5", "--no-progress"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = subprocess.run([self.program, "data", "inspect", self.folder / "d.h5"], capture_output=True, text=True)
        self.assertIn("pdebench", done.stdout)

    def test_manual_completion_and_files(self):
        share = self.prefix / "share"
        for name in ("man/man1/garonne.1", "man/man1/garonne-train.1", "man/man1/garonne-data-inspect.1",
                     "bash-completion/completions/garonne", "zsh/site-functions/_garonne", "garonne/config/darcy_fno.toml",
                     "garonne/config/clusters/dgx_h100.toml", "garonne/truth/points.json", "garonne/truth/constants.json",
                     "garonne/python/garonne_read/__init__.py", "doc/garonne/README.md", "doc/garonne/docs/formats.md"):
            self.assertTrue((share / name).is_file(), name)
        # Each measurement with its source, and the machine that it was made on.
        for point in json.loads((share / "garonne/truth/points.json").read_text())["points"]:
            self.assertTrue(point["note"])
            self.assertTrue((share / "garonne/truth/machines" / f"{point['machine']}.toml").is_file())
        page = (share / "man/man1/garonne-forecast.1").read_text()
        self.assertIn("\\-\\-members", page)
        script = f"source {share}/bash-completion/completions/garonne; COMP_WORDS=(garonne data sta); COMP_CWORD=2; _garonne; " \
                 "echo ${COMPREPLY[@]}"
        shown = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout
        self.assertEqual(shown.split(), ["statistics"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
