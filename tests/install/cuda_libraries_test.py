# SPDX-License-Identifier: MIT
"""What an installation of a CUDA build has beside LibTorch, without such a build: libraries in one folder, where each finds
what it is linked to."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["GARONNE_SOURCE"])
TORCH_ROOT = pathlib.Path(os.environ["GARONNE_TORCH_ROOT"])
WHEELS = pathlib.Path(os.environ["GARONNE_WHEELS"])
# What GaronneInstall.cmake names itself.
OF_TORCH = ("libtorch_cpu.so", "libc10.so", "libtorch_cuda.so", "libc10_cuda.so", "libgomp*.so*")
OF_THE_DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1")


def not_found(library):
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    said = subprocess.run(["ldd", library], env=environment, capture_output=True, text=True, check=True).stdout
    return [name for name in re.findall(r"^\s*(\S+) => not found", said, re.M) if name not in OF_THE_DRIVER]


@unittest.skipUnless((TORCH_ROOT / "lib/libtorch_cuda.so").exists() and list(WHEELS.glob("nvidia/*/lib/libnccl.so*")),
                     "this machine has no libraries of CUDA; scripts/setup --cuda fetches them")
class CudaLibrariesTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="garonne-install-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        for pattern in OF_TORCH:
            for path in (TORCH_ROOT / "lib").glob(pattern):
                (self.folder / path.name).symlink_to(path)

    def installed(self):
        said = subprocess.run([os.environ["CMAKE"], f"-DGARONNE_TORCH_ROOT={TORCH_ROOT}", f"-DGARONNE_WHEELS={WHEELS}", "-P",
                               SOURCE / "cmake/GaronneCudaLibraries.cmake"], capture_output=True, text=True, check=True)
        return [pathlib.Path(line) for line in said.stdout.splitlines()]

    def test_all_that_is_linked_to_is_beside_it(self):
        self.assertTrue(not_found(self.folder / "libtorch_cuda.so"), "the check would find nothing")
        for path in self.installed():
            (self.folder / path.name).symlink_to(path)
        for name in ("libtorch_nvshmem.so", "libtorch_cuda_linalg.so", "libcaffe2_nvrtc.so", "libnccl.so.2"):
            self.assertTrue((self.folder / name).exists(), name)
        self.assertEqual(not_found(self.folder / "libtorch_cuda.so"), [])
        for library in sorted(self.folder.iterdir()):
            # What opens it has loaded these: it looks nowhere itself.
            left = [name for name in not_found(library) if not (self.folder / name).exists()]
            self.assertEqual(left, [], library.name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
