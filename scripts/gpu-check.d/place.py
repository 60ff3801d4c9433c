# SPDX-License-Identifier: MIT
"""Where the program, its tests and its libraries are: in a checkout with a build, or in an unpacked archive."""
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MANIFEST = "MANIFEST.json"
ARCHIVE_BUILD = "build"
KERNEL_TESTS = ("test_kernels_device", "test_gpu_products")
NCCL_TEST = "test_dist_nccl_loop"
GPU_TESTS = (*KERNEL_TESTS, NCCL_TEST)
# LibTorch's and CUDA's, by the beginnings of their names: what a Python with the same torch has.
TORCH_LIBRARIES = ("libtorch", "libc10", "libcaffe2", "libshm", "libcu", "libnv", "libnccl", "libgomp")


class Trouble(Exception):
    """What cannot be, and what to do instead; the script ends with exit code 2."""


class Place:
    """Paths, and the environment that programs of this place need."""

    def __init__(self, build=None):
        self.root = ROOT
        self.is_archive = (ROOT / MANIFEST).exists()
        self.build = pathlib.Path(build).resolve() if build else ROOT / (ARCHIVE_BUILD if self.is_archive else "build-cuda")
        self.program = self.build / "bin" / "garonne"
        self.libraries = ROOT / "lib"
        self.torch_folders = []

    def test(self, name):
        return self.build / "tests" / name

    def expect_program(self):
        if not self.program.exists():
            raise Trouble(f"{self.program} is not there; `scripts/setup --cuda --tests` builds it, --build DIR names "
                          "another build")

    def find_torch(self):
        """An archive without LibTorch takes that of this machine's Python, which must be of the same version."""
        wanted = self.root / "torch-version.txt"
        if not self.is_archive or not wanted.exists():
            return
        version = wanted.read_text().strip()
        ask = "import torch; print(torch.__version__.split('+')[0], torch.__path__[0])"
        for python in dict.fromkeys((sys.executable, shutil.which("python3") or sys.executable)):
            asked = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
            if asked.returncode != 0:
                continue
            found, folder = asked.stdout.split(maxsplit=1)
            if found != version:
                raise Trouble(f"this archive has no LibTorch and needs torch {version}, but {python} has {found}; make "
                              "the archive without --without-torch, or install that version")
            packages = pathlib.Path(folder.strip()).parent
            self.torch_folders = [packages / "torch" / "lib", *sorted((packages / "nvidia").glob("*/lib"))]
            return
        raise Trouble(f"this archive has no LibTorch, and no python3 here has torch {version}; make the archive without "
                      "--without-torch")

    def environment(self, work):
        """Of every process that is started: `work` is where caches and runs go. Nobody gets an archive's libraries but
        programs of the archive (own_environment, started): those of this machine have others of the same names."""
        variables = dict(os.environ)
        variables.update({"GARONNE_BINARY": str(self.program), "GARONNE_SOURCE": str(self.root),
                          "GARONNE_CACHE": str(work / "cache"), "OMPI_ALLOW_RUN_AS_ROOT": "1",
                          "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
                          "OMPI_MCA_hwloc_base_binding_policy": "none", "GTEST_COLOR": "no"})
        if not self.is_archive:
            return variables
        variables["GARONNE_BINARY"] = str(self.started(self.program, work))
        mpi = self.root / "mpi"
        if mpi.exists():
            variables["PATH"] = f"{self.started(mpi / 'bin/mpirun', work).parent}:{variables.get('PATH', '')}"
            variables["OPAL_PREFIX"] = str(mpi)
            variables["OPAL_SYSCONFDIR"] = str(mpi / "etc")
            variables["PMIX_INSTALL_PREFIX"] = str(mpi)
        # Programs of an archive start others of it.
        for name in ("orted", "prterun", "prted", "orterun"):
            if (mpi / "bin" / name).exists():
                self.started(mpi / "bin" / name, work)
        blas = sorted(self.libraries.glob("libscipy_openblas*"))
        if blas:
            variables["GARONNE_OPENBLAS"] = str(blas[0])
        return variables

    def library_path(self):
        folders = [self.libraries, *self.torch_folders]
        return ":".join([*map(str, folders), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])

    def own_environment(self, work):
        """Of programs of this place that are started directly."""
        variables = self.environment(work)
        return {**variables, "LD_LIBRARY_PATH": self.library_path()} if self.is_archive else variables

    def started(self, program, work):
        """What programs of this machine start in place of one of this place: of an archive, a script that gives it the
        archive's libraries."""
        if not self.is_archive:
            return program
        script = work / "started" / program.name
        script.parent.mkdir(exist_ok=True)
        script.write_text(f"#!/bin/sh\nLD_LIBRARY_PATH={shlex.quote(self.library_path())} exec {shlex.quote(str(program))} "
                          '"$@"\n')
        script.chmod(0o755)
        return script
