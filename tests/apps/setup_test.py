# SPDX-License-Identifier: MIT
"""What scripts/setup --cuda builds for, by an nvidia-smi that is made up; nothing is installed or built."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ.get("GARONNE_SOURCE", pathlib.Path(__file__).resolve().parents[2]))


class SetupTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="garonne-setup-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def answer(self, text, code=0):
        path = self.folder / "nvidia-smi"
        path.write_text(f"#!/bin/sh\nprintf '{text}'\nexit {code}\n")
        path.chmod(0o755)

    def bash(self, *command, code=0):
        done = subprocess.run(["bash", *command], capture_output=True, text=True, timeout=60, check=False,
                              env=os.environ | {"PATH": f"{self.folder}:{os.environ['PATH']}"})
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def chosen(self, code=0):
        script = f"set -euo pipefail; source '{SOURCE}/scripts/common.sh'; gpu_architecture"
        return self.bash("-c", script, code=code)

    def test_the_architecture_is_that_of_the_gpu(self):
        for text, wanted in (("8.0\\n", "80"), ("8.6\\n", "80"), ("8.9\\n", "80"), ("9.0\\n" * 8, "90"), ("10.0\\n", "90"),
                             ("12.0\\n9.0\\n", "90"), ("9.0\\n8.0\\n", "80"), ("", "80"), ("[N/A]\\n", "80")):
            with self.subTest(text):
                self.answer(text)
                self.assertEqual(self.chosen().stdout, f"{wanted}\n")
        self.answer("No devices were found\\n", 6)
        self.assertEqual(self.chosen().stdout, "80\n")
        self.answer("7.0\\n")
        self.assertIn("architecture 70; kernels need 80", self.chosen(code=1).stderr)

    def test_others_are_refused_before_anything_is_installed(self):
        setup = self.folder / "checkout/scripts/setup"  # what would be installed would be here
        setup.parent.mkdir(parents=True)
        for name in ("setup", "common.sh"):
            shutil.copy(SOURCE / "scripts" / name, setup.parent)
        for arguments, said in ((("--cuda", "--architecture", "70"), "--architecture 70 is not known: 80 is for A100"),
                                (("--cuda", "--architecture"), "--architecture wants 80, 90 or all"),
                                (("--architecture", "80"), "goes with --cuda")):
            with self.subTest(arguments):
                self.assertIn(said, self.bash(setup, *arguments, code=1).stderr)
        self.answer("7.5\\n")
        self.assertIn("architecture 75", self.bash(setup, "--cuda", code=1).stderr)
        self.assertFalse((self.folder / "checkout/.deps").exists())


if __name__ == "__main__":
    unittest.main()
