# SPDX-License-Identifier: MIT
"""What the end-to-end tests share: a small text, a small run file, the program under mpirun."""
import array
import atexit
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest

BINARY = os.environ.get("GARONNE_BINARY", "build/bin/garonne")
SOURCE = pathlib.Path(os.environ.get("GARONNE_SOURCE", pathlib.Path(__file__).resolve().parents[2]))

RUN_FILE = """
[model]
kind = "gpt"
layers = 2
hidden = 32
heads = 4
sequence = 32
dropout = 0.1
[data]
path = "{data}"
[memory]
budget = "64 MiB"
[train]
steps = 6
global_batch = 8
micro_batch = 2
seed = 3
[optimizer]
learning_rate = 1e-3
minimum_learning_rate = 1e-4
warmup_steps = 2
[evaluation]
every = 0
batches = 2
[checkpoint]
every = 0
[run]
directory = "{run}"
threads = 1
"""

# What run files of models on fields end with.
FIELDS_RUN_FILE = """
[optimizer]
learning_rate = 1e-3
warmup_steps = 1
[evaluation]
every = 0
batches = 2
[checkpoint]
every = 0
[memory]
budget = "512 MiB"
[run]
directory = "{folder}/run"
threads = 1
"""


def patient(seconds):
    """A time limit: that of a program without sanitizers, which slow it down."""
    return seconds * float(os.environ.get("GARONNE_TEST_PATIENCE", "1"))


def ranks_of(job):
    """Processes that this mpirun has started, ascending; an error where there are none."""
    found = subprocess.run(["pgrep", "-P", str(job.pid)], capture_output=True, text=True, check=True)
    return sorted(map(int, found.stdout.split()))


class ForkServer:
    """The program with its libraries loaded, forks of which start at once (fork_server.cpp). Loading is the larger part of
    a start."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="garonne-forks-"))
        self.socket = self.folder / "socket"
        preloaded = [os.environ.get("LD_PRELOAD"), str(FORKS / "libfork_server.so")]
        variables = {"LD_PRELOAD": ":".join(filter(None, preloaded)), "GARONNE_FORK_SOCKET": str(self.socket),
                     "ASAN_OPTIONS": sanitizer_options()}
        # It ends when its standard input does: at the latest with this process.
        self.server = subprocess.Popen([BINARY], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=os.environ | variables)
        atexit.register(self.end)
        deadline = time.time() + patient(60)
        while not self.socket.exists():
            if self.server.poll() is not None or time.time() > deadline:
                raise AssertionError(f"{BINARY} does not wait at {self.socket}")
            time.sleep(0.01)

    def end(self):
        self.server.stdin.close()
        self.server.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


# Where fork_server.cpp and forked.cpp are built; None starts every program by itself.
FORKS = pathlib.Path(os.environ["GARONNE_FORKS"]) if "GARONNE_FORKS" in os.environ else None
# By the variables that libraries read when they are loaded.
FORK_SERVERS = {}
READ_AT_LOADING = re.compile("LD_|OMP_|GOMP_|MKL_|OPENBLAS_|KMP_|MALLOC_|GLIBC_|.*SAN_OPTIONS")


def sanitizer_options():
    """For a program that has a library preloaded."""
    return ":".join(filter(None, [os.environ.get("ASAN_OPTIONS"), "verify_asan_link_order=0"]))


def program():
    """The words that start the program."""
    if FORKS is None:
        return [BINARY]
    variables = tuple(sorted(one for one in os.environ.items() if READ_AT_LOADING.match(one[0])))
    if variables not in FORK_SERVERS:
        FORK_SERVERS[variables] = ForkServer()
    return [str(FORKS / "forked"), str(FORK_SERVERS[variables].socket), BINARY]


def run(*arguments, ranks=0, check=0, timeout=100, before=""):
    """Runs the program (under mpirun with `ranks`), and returns the finished process.

    `check` is the exit code that is expected; None for any. `before` is shell text run first in the same
    shell, as for limits."""
    command = [*([BINARY] if before else program()), *map(str, arguments)]
    if ranks:
        command = ["mpirun", "-n", str(ranks), *command]
    if before:
        quoted = " ".join("'" + part.replace("'", "'\\''") + "'" for part in command)
        command = ["bash", "-c", f"{before}; exec {quoted}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patient(timeout), errors="replace")
    if check is not None and done.returncode != check:
        raise AssertionError(
            f"exit code {done.returncode} where {check} was expected: {' '.join(command)}\n"
            f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done


def strikes(rank, call, number, under, whom, log, seconds=0):
    """Words before a rank's command that have kill_at_call.cpp strike it, or all, in that call."""
    values = {"LD_PRELOAD": os.environ["GARONNE_KILL_LIBRARY"], "KILL_RANK": rank, "KILL_CALL": call, "KILL_NUMBER": number,
              "KILL_UNDER": under, "KILL_WHOM": whom, "KILL_LOG": log, "KILL_SECONDS": seconds, "ASAN_OPTIONS": sanitizer_options()}
    return ["env", *(f"{name}={value}" for name, value in values.items())]


def metrics(directory):
    with open(pathlib.Path(directory) / "metrics.jsonl") as file:
        return [json.loads(line) for line in file]


def series(directory, key):
    return [row[key] for row in metrics(directory)]


def saved_steps(directory):
    return sorted(int(path.name[5:]) for path in (directory / "checkpoints").iterdir())


def peaks_of_ranks(directory, ranks):
    """(measured peak, planned peak, budget) in bytes of every rank, as its Program was run."""
    for rank in range(ranks):
        program = json.loads((pathlib.Path(directory) / "program" / f"rank_{rank}.json").read_text())
        measured = max(instruction["measured_peak_bytes"] for instruction in program["instructions"])
        yield measured, program["peak_bytes"], program["budget_bytes"]


def safetensors(path):
    """name -> flat array of float or double."""
    content = pathlib.Path(path).read_bytes()
    length = int.from_bytes(content[:8], "little")
    tensors = {}
    for name, entry in json.loads(content[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        tensors[name] = array.array({"F32": "f", "F64": "d"}[entry["dtype"]], content[8 + length + begin : 8 + length + end])
    return tensors


def elements_of_box(shape, offset, box_shape):
    """The flat elements of the whole tensor that are in a box, in the order of the box."""
    elements = [0]
    for size, first, count in zip(shape, offset, box_shape, strict=True):
        elements = [outer * size + inner for outer in elements for inner in range(first, first + count)]
    return elements


def checkpoint_tensors(checkpoint):
    """name -> (shape, flat list): the whole tensors, put together from the shards of all ranks."""
    checkpoint = pathlib.Path(checkpoint)
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    files = {entry["name"]: safetensors(checkpoint / entry["name"]) for entry in manifest["files"]}
    tensors = {}
    for tensor in manifest["tensors"]:
        size = 1
        for axis in tensor["shape"]:
            size *= axis
        tensors[tensor["name"]] = (tensor["shape"], [None] * size)
    for shard in manifest["shards"]:
        shape, whole = tensors[shard["tensor"]]
        elements = elements_of_box(shape, shard["box_offset"], shard["box_shape"])[shard["begin"] : shard["end"]]
        for element, value in zip(elements, files[shard["file"]][shard["entry"]], strict=True):
            assert whole[element] is None, f"{shard['tensor']} has an element twice"
            whole[element] = value
    for name, (_, whole) in tensors.items():
        assert None not in whole, f"{name} has a hole"
    return tensors


def check_peaks_of_ranks(test, directory, ranks):
    """Every rank used what was planned, within its budget. Returns measured over planned of each."""
    shares = []
    for rank, (measured, planned, budget) in enumerate(peaks_of_ranks(directory, ranks)):
        test.assertLessEqual(measured, planned, f"rank {rank}")
        test.assertGreaterEqual(measured, 0.99 * planned, f"rank {rank}")
        test.assertLessEqual(planned, budget, f"rank {rank}")
        shares.append(measured / planned)
    return shares


class ProgramTest(unittest.TestCase):
    """A folder with a tokens file and a run file; every test gets a run directory of its own."""

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="garonne-test-"))
        # The profile is kept between the tests of a class and away from the user's own.
        os.environ["GARONNE_CACHE"] = str(cls.folder / "cache")
        words = "the quick brown fox jumps over a lazy dog and runs away from it".split()
        text = ""
        state = 1
        while len(text) < 40000:
            state = (state * 1103515245 + 12345) % 2**31
            text += words[state // 65536 % len(words)] + (" " if state // 7 % 9 else ".\n")
        (cls.folder / "train.txt").write_text(text)
        (cls.folder / "validation.txt").write_text(text[5000:9000][::-1])
        cls.data = cls.folder / "tokens.h5"
        run("data", "text", cls.folder / "train.txt", "--validation", cls.folder / "validation.txt", "--output",
            cls.data)
        cls.config = cls.folder / "run.toml"
        cls.config.write_text(RUN_FILE.format(data=cls.data, run=cls.folder / "unset"))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)

    def directory(self, name):
        return self.folder / re.sub(r"\W+", "-", f"{self.id().split('.')[-1]}-{name}")

    def train(self, directory, *overrides, **options):
        return run("train", self.config, "--run.directory", directory, *overrides, **options)

    def exported(self, directory, step=None):
        """The bytes of the weights, in Hugging Face's layout."""
        target = pathlib.Path(str(directory) + f"-export-{step}")
        step_arguments = [] if step is None else ["--step", step]
        run("checkpoint", "export", directory, *step_arguments, "--to", "huggingface", target)
        return (target / "model.safetensors").read_bytes()

    def tensor_files(self, directory, step):
        folder = pathlib.Path(directory) / "checkpoints" / f"step-{step}"
        return {file.name: file.read_bytes() for file in sorted(folder.glob("*.safetensors"))}


class RunningTest(ProgramTest):
    """Runs that are still at work while the test goes on."""

    def started(self, directory, *overrides, ranks=0):
        """A run without end that has come to its first row; what it says is in said(directory)."""
        launcher = ["mpirun", "-n", str(ranks)] if ranks else []
        # Into a file: a pipe that nobody reads is full after some hundred steps, and the run waits for ever.
        with open(self.log_of(directory), "w") as log:
            job = subprocess.Popen([*launcher, BINARY, "train", str(self.config), "--run.directory", str(directory),
                                    "--train.steps", "1000000", *map(str, overrides)],
                                   stdout=log, stderr=subprocess.STDOUT)
        self.addCleanup(self.end, job)
        deadline = time.time() + patient(60)
        while time.time() < deadline and not ((directory / "metrics.jsonl").exists() and metrics(directory)):
            self.assertIsNone(job.poll(), "it ended")
            time.sleep(0.05)
        return job

    def log_of(self, directory):
        return self.folder / f"{pathlib.Path(directory).name}.log"

    def said(self, directory):
        return self.log_of(directory).read_text(errors="replace")

    @staticmethod
    def end(job):
        if job.poll() is None:
            job.kill()
            job.wait()


def processes_of_ranks(launcher):
    """rank -> process of the ranks that a running mpirun has started."""
    found = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            name, fields = (folder / "stat").read_text().rsplit(")", 1)
            if "(garonne" not in name or int(fields.split()[1]) != launcher.pid:
                continue
            variables = (folder / "environ").read_text().split("\0")
        except OSError:  # a process that has just ended
            continue
        ranks = [value.split("=", 1)[1] for value in variables if value.startswith("OMPI_COMM_WORLD_RANK=")]
        found[int(ranks[0])] = int(folder.name)
    return found


class FieldsTest:
    """A folder with fields that `make_data` makes, and a run file: RUN_FILE for model, data and train, then its end."""

    RUN_FILE_END = FIELDS_RUN_FILE

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="garonne-fields-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        os.environ["GARONNE_CACHE"] = str(cls.folder / "cache")
        cls.config = cls.folder / "run.toml"
        cls.config.write_text((cls.RUN_FILE + cls.RUN_FILE_END).replace("{folder}", str(cls.folder)))
        cls.make_data()

    @classmethod
    def train(cls, directory, *overrides, **options):
        return run("train", cls.config, "--run.directory", directory, *overrides, **options)


class KeptFieldsTest(FieldsTest):
    """Besides a run of the run file as it is, which others are held against."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        run("profile", cls.config)
        cls.kept = cls.folder / "kept"
        cls.train(cls.kept)

    def check_bytes(self, directory, budget=None):
        for row in metrics(directory):
            self.assertLessEqual(row["peak_bytes"], row["planned_peak_bytes"])
            self.assertGreaterEqual(row["peak_bytes"], 0.99 * row["planned_peak_bytes"])
            if budget:
                self.assertLessEqual(row["planned_peak_bytes"], budget)

    def test_restart_is_bit_for_bit(self):
        directory = self.folder / "stopped"
        self.train(directory, "--train.stop_after", 2, check=75)
        self.train(directory)
        self.assertEqual(series(directory, "loss"), series(self.kept, "loss"))
