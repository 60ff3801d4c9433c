# SPDX-License-Identifier: MIT
"""Which versions of LibTorch a build takes: the file that looks for it, on made-up folders with a version and nothing
else."""
import os
import pathlib
import subprocess
import tempfile
import unittest

CMAKE = os.environ["GARONNE_CMAKE"]
MODULE = pathlib.Path(__file__).resolve().parents[2] / "cmake" / "GaronneTorch.cmake"


class TorchVersions(unittest.TestCase):
    def configured(self, version, cuda):
        """What CMake says. It ends with an error in any case, since there are no libraries."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            headers = root / "torch" / "include" / "torch"
            for name in ("csrc/api/include/torch/torch.h", "headeronly/version.h"):
                (headers / name).parent.mkdir(parents=True)
                (headers / name).touch()
            parts = zip(("MAJOR", "MINOR", "PATCH"), version.split("."))
            lines = (f"#define TORCH_VERSION_{part} {number}\n" for part, number in parts)
            (headers / "headeronly/version.h").write_text("".join(lines))
            (root / "CMakeLists.txt").write_text(
                "cmake_minimum_required(VERSION 3.25)\nproject(versions NONE)\n"
                f"set(GARONNE_WITH_CUDA {'ON' if cuda else 'OFF'})\ninclude({MODULE})\n")
            command = [CMAKE, "-S", folder, "-B", str(root / "build"), f"-DGARONNE_TORCH_ROOT={root / 'torch'}"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            self.assertNotEqual(done.returncode, 0)
            return " ".join(done.stderr.split())

    def test_a_build_with_cuda_refuses_older_ones(self):
        for version in ("2.10.1", "2.9.0", "1.13.1"):
            said = self.configured(version, cuda=True)
            self.assertIn("a build with CUDA needs 2.11", said)
            self.assertIn(version, said)
            self.assertNotIn("fmt", said)

    def test_others_are_taken(self):
        for version, cuda in (("2.11.0", True), ("2.12.0", True), ("2.10.1", False)):
            said = self.configured(version, cuda)
            self.assertNotIn("needs 2.11", said)
            self.assertIn("fmt", said)  # comes after
            self.assertEqual("is untested" in said, version != "2.11.0", said)


if __name__ == "__main__":
    unittest.main()
