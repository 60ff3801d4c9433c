# SPDX-License-Identifier: MIT
"""containers/garonne.def as Apptainer would carry it out, in Debian trees instead of images: files, %post of each stage, %test,
then ranks by the host's mpirun with the MPI of the image and with the host's.

GARONNE_CONTAINER_TREES names a folder in which the trees are kept, so that a second run builds no more than what changed."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ.get("GARONNE_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
DEFINITION = SOURCE / "containers/garonne.def"
# What Apptainer mounts from the host.
MOUNTED = ("proc", "sys", "dev", "dev/shm", "tmp")
TREES = "GARONNE_CONTAINER_TREES"
INSIDE = "GARONNE_CONTAINER_TEST"  # set where mounts are this test's own


def stages_of(text):
    """[({keyword: value}, [(section, its words after the name, lines)])], in order."""
    stages = []
    section = None
    for line in text.splitlines():
        keyword = re.match(r"(Bootstrap|From|Stage): (.*)$", line)
        if keyword:
            if keyword[1] == "Bootstrap":
                stages.append(({}, []))
            stages[-1][0][keyword[1]] = keyword[2]
            section = None
        elif line.startswith("%"):
            name, *words = line[1:].split()
            section = (name, words, [])
            stages[-1][1].append(section)
        elif section:
            section[2].append(line)
    return stages


def script_of(stage, name):
    return "\n".join(line for section, _, lines in stage[1] if section == name for line in lines) + "\n"


def mirror():
    """Where this machine has its Debian from."""
    sources = pathlib.Path("/etc/apt/sources.list.d/debian.sources")
    if sources.exists():
        return re.search(r"^URIs: *(\S+)", sources.read_text(), re.MULTILINE)[1]
    return "http://deb.debian.org/debian"


def copy_there(path, tree):
    """A file or folder of the host, if there is one, to its place in the tree."""
    if pathlib.Path(path).is_dir():
        shutil.copytree(path, f"{tree}{path}", dirs_exist_ok=True)
    elif pathlib.Path(path).exists():
        pathlib.Path(f"{tree}{path}").parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, f"{tree}{path}")


class Tree:
    """A Debian that a stage begins with."""

    def __init__(self, folder):
        self.folder = folder
        if not (folder / "usr/bin/dpkg").exists():
            subprocess.run(["debootstrap", "--variant=minbase", "bookworm", folder, mirror()], check=True, stdout=subprocess.DEVNULL)
        # How this machine reaches its packages.
        for path in ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/apt/apt.conf.d", "/etc/apt/sources.list.d/debian.sources",
                     "/etc/ssl/certs/ca-certificates.crt", "/usr/local/share/ca-certificates"):
            copy_there(path, folder)
        if (folder / "etc/apt/sources.list.d/debian.sources").exists():
            (folder / "etc/apt/sources.list").write_text("")
        for name in MOUNTED:
            self.mount(f"/{name}", name)

    def mount(self, place, name):
        (self.folder / name).mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "--bind", place, self.folder / name], check=True)

    def run(self, script, *before, environment=()):
        """A section: each of its commands must end well."""
        kept = {name: value for name, value in os.environ.items()
                if re.fullmatch(r"(?i)(https?_proxy|no_proxy|pip_(index_url|trusted_host|cert)|ssl_cert_file|requests_ca_bundle)", name)}
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return subprocess.run([*before, "chroot", self.folder, "/bin/sh", "-e", "-c", script],
                              env={"HOME": "/root", "PATH": path, **kept, **dict(environment)}, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace")


class ContainerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(os.environ[TREES])
        cls.trees = {}
        cls.context = pathlib.Path(tempfile.mkdtemp(prefix="garonne-context-"))
        cls.addClassCleanup(shutil.rmtree, cls.context, ignore_errors=True)
        subprocess.run(["git", "-C", SOURCE, "archive", "--format=tar", f"--output={cls.context}/garonne.tar", "HEAD"], check=True)
        cls.stages = stages_of(DEFINITION.read_text())
        for stage in cls.stages:
            cls.build(stage)
        cls.final = cls.trees["final"]
        cls.environment = script_of(cls.stages[-1], "environment")

    @classmethod
    def build(cls, stage):
        name = stage[0]["Stage"]
        print(f"stage {name}", flush=True)
        tree = cls.trees[name] = Tree(cls.folder / name)
        for section, words, lines in stage[1]:
            if section != "files":
                continue
            begin = cls.trees[words[1]].folder if words else cls.context
            for line in filter(None, map(str.strip, lines)):
                source, target = line.split()
                place = tree.folder / target.lstrip("/")
                place.parent.mkdir(parents=True, exist_ok=True)
                subprocess.run(["rm", "-rf", place], check=True)
                subprocess.run(["cp", "-a", begin / source.lstrip("/"), place], check=True)
        done = tree.run(script_of(stage, "post"))
        if done.returncode != 0:
            raise AssertionError(f"%post of stage {name} ended with {done.returncode}:\n{done.stdout[-4000:]}")

    def inside(self, *command):
        """A command line that does as `apptainer run` does."""
        script = self.environment + script_of(self.stages[-1], "runscript")
        return ["chroot", str(self.final.folder), "/bin/sh", "-c", script, "garonne", *map(str, command)]

    def test_stages_are_those_of_the_documentation(self):
        self.assertEqual([stage[0]["Stage"] for stage in self.stages], ["build", "final"])
        self.assertEqual({stage[0]["From"] for stage in self.stages}, {"debian:bookworm-slim"})
        # No compiler in what is shipped, and nothing of the sources.
        self.assertFalse((self.final.folder / "usr/bin/g++").exists())
        self.assertFalse((self.final.folder / "opt/source").exists())

    def test_its_own_test_without_a_network(self):
        done = self.final.run(script_of(self.stages[-1], "test"), "unshare", "--net")
        self.assertEqual(done.returncode, 0, done.stdout[-4000:])
        self.assertRegex(done.stdout, r"step +2/2 ")

    def train(self, ranks):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="garonne-container-run-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        (folder / "text.txt").write_text("Words to train on, one line as the other.\n" * 200)
        subprocess.run(self.inside("data", "text", folder / "text.txt", "--output", folder / "text.h5"), check=True, capture_output=True)
        done = subprocess.run(
            ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks),
             *self.inside("train", "/opt/garonne/share/garonne/config/gpt_shakespeare.toml", "--data.path", folder / "text.h5",
                          "--run.directory", folder / "run", "--model.layers", 2, "--model.hidden", 32, "--model.heads", 2,
                          "--model.sequence", 32, "--train.steps", 2, "--train.global_batch", 4, "--train.micro_batch", 1,
                          "--grid.data", ranks, "--evaluation.batches", 0, "--evaluation.every", 0, "--memory.budget", "64 MiB",
                          "--run.threads", 1)],
            capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        steps = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
        self.assertEqual([step["step"] for step in steps if "loss" in step], [1, 2])
        return [step["loss"] for step in steps if "loss" in step]

    def test_ranks_by_the_mpirun_of_the_host(self):
        alone, together = self.train(1), self.train(2)
        for one, other in zip(alone, together, strict=True):
            self.assertAlmostEqual(one, other, delta=1e-5)

    def test_ranks_with_the_mpi_of_the_host_inside(self):
        # Open MPI in one folder, as sites have it.
        prefix = pathlib.Path(tempfile.mkdtemp(prefix="host-mpi-"))
        self.addCleanup(shutil.rmtree, prefix, ignore_errors=True)
        libraries = pathlib.Path("/usr/lib/x86_64-linux-gnu")
        (prefix / "lib").mkdir()
        for name in ("libmpi", "libopen-rte", "libopen-pal", "libpmix", "libhwloc", "libevent"):
            for library in libraries.glob(f"{name}*.so*"):
                shutil.copy(library, prefix / "lib", follow_symlinks=True)
        # Plugins and texts, where a prefix has them.
        paths = dict(line.split(":")[1:3] for line in subprocess.run(["ompi_info", "--path", "all", "--parsable"], check=True,
                                                                      capture_output=True, text=True).stdout.splitlines())
        for name in ("libdir", "pkgdatadir"):
            shutil.copytree(paths[name], prefix / os.path.relpath(paths[name], paths["prefix"]))
        self.final.mount(str(prefix), "host-mpi")
        try:
            maps = "exec garonne --version >/dev/null"
            shown = self.final.run(f"{self.environment}LD_DEBUG=libs sh -c '{maps}' 2>&1 | grep 'calling init.*libmpi[.]so' || true")
            self.assertIn("/host-mpi/lib/libmpi.so", shown.stdout)
            self.assertNotIn("/usr/lib/x86_64-linux-gnu/libmpi.so", shown.stdout)
            self.train(2)
        finally:
            subprocess.run(["umount", "--lazy", self.final.folder / "host-mpi"], check=True)


def main():
    if INSIDE in os.environ:
        unittest.main(verbosity=2)
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        print("trees are made by root with debootstrap")
        return 77
    # Beside the build: there may be little room in the folder of temporary files, which is mounted in the trees, too.
    folder = os.environ.get(TREES) or tempfile.mkdtemp(prefix="container-", dir=pathlib.Path(os.environ["GARONNE_BINARY"]).resolve().parent)
    # Mounts end with the process that made them, however that ends, so nothing of this machine is in what is removed.
    done = subprocess.run(["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv],
                          env={**os.environ, TREES: folder, INSIDE: "1"}, check=False)
    if TREES not in os.environ:
        shutil.rmtree(folder, ignore_errors=True)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
