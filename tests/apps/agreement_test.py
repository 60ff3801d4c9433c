# SPDX-License-Identifier: MIT
"""Ranks that differ in a key, a file, the program, threads or instructions are refused before they train.

A few differences of each kind by default; GARONNE_RANDOM_DIFFERENCES = A:B does the random ones with the seeds from A to
below B (test agreement_random, label long)."""
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import unittest

from support import BINARY, FIELDS_RUN_FILE, RUN_FILE, ProgramTest, patient, run, series

# Keys that name files to read: ranks may have copies in different places.
FILES = ["data.path", "data.validation", "data.statistics", "grid.schedule_file"]
# What the random ones run: any of their numbers of ranks divides the batch.
RANDOM_RUN_FILE = RUN_FILE.replace("global_batch = 8", "global_batch = 12").replace("micro_batch = 2", "micro_batch = 1")
# What all ranks say for the odd one's key to be none that a rank alone refuses before it meets the others.
NEEDED = {"optimizer.decay_steps": ["--optimizer.schedule", "warmup-stable-decay"]}
FIELDS_MODEL = """
[model]
kind = "fno"
layers = 1
hidden = 4
modes = [4, 4]
[data]
path = "{folder}/darcy.h5"
validation = "{folder}/darcy_test.h5"
statistics = "{folder}/statistics.h5"
[train]
steps = 2
global_batch = 12
micro_batch = 1
"""


class Rank:
    """How one rank is started: arguments of the program, and what of its surroundings is its own."""

    def __init__(self, *arguments, binary=BINARY, folder=None, **environment):
        place = ["-C", str(folder)] if folder else []
        variables = [f"{name}={value}" for name, value in environment.items()]
        self.command = ["env", *place, *variables, os.path.abspath(binary), *map(str, arguments)]


def run_ranks(*ranks, timeout=60):
    """One process a rank, each with a command line of its own."""
    command = ["mpirun"]
    for number, rank in enumerate(ranks):
        command += ([":"] if number else []) + ["-n", "1", *rank.command]
    return subprocess.run(command, capture_output=True, text=True, timeout=patient(timeout), errors="replace")


def build_id_place(program):
    """Where the bytes of the GNU build id are in an executable: a note of type 3 and 20 bytes of the owner GNU."""
    note = struct.pack("<III", 4, 20, 3) + b"GNU\0"
    assert program.count(note) == 1
    return program.index(note) + len(note)


def described_keys():
    """name -> (values, default) of every key, as --help says them."""
    text = re.sub(r"\s+", " ", run("train", "--help").stdout)
    found = re.findall(r"--([a-z]+\.[a-z_0-9]+) .*?\[([^\[\]]*); default ([^\[\]]*)\]", text)
    return {name: (values, default) for name, values, default in found}


def other_value(name, values, default, taken, pick):
    """A value that the key may have, and that is neither its default nor `taken`."""
    if name.endswith("learning_rate"):
        choices = ["1e-6", "2e-6"] if "minimum" in name else ["0.5", "0.25"]
    elif "bytes" in values:
        choices = ["1000KiB", "3MiB", "77777"]
    elif "commas" in values:
        choices = ["3,5", "7", "9,8,7"]
    elif values == "text":
        choices = ["auto", "some-words", "1990/1999"]
    elif ", " in values:
        choices = values.split(", ")
    else:
        least, most = float(re.search(r">= ([^ ,]+)", values)[1]), re.search(r"<=? ([^ ,]+)", values)
        most = float(most[1]) if most else 1e9
        if "." in default or "e" in default or most <= 1:
            choices = ["0.125", "0.25", "0.5"]
        else:
            choices = [str(number) for number in range(int(least), int(min(least + 40, most)) + 1)]
    return pick([choice for choice in choices if choice not in (default, *taken)])


class AgreementTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # Planned once, so that only what is tested takes time.
        run("profile", cls.config)

    def ranks(self, directory, *own, count=2, **options):
        """One rank for each list of arguments of its own, then as many without as are missing."""
        own = [*own, *[[]] * (count - len(own))]
        return [Rank("train", self.config, "--run.directory", directory, "--grid.data", len(own), *arguments, **options)
                for arguments in own]

    def refuse(self, directory, *ranks, words=(), codes=(2,)):
        """Said once, with all words, by the code; nothing was written."""
        done = run_ranks(*ranks)
        self.assertIn(done.returncode, codes, done.stdout[-1000:] + done.stderr[-2000:])
        ours = [line for line in done.stderr.splitlines() if "garonne:" in line]
        self.assertEqual(len(ours), 1, done.stderr)
        message = done.stderr[done.stderr.index("garonne:"):]
        for word in words:
            self.assertIn(str(word), message)
        self.assertEqual([*directory.glob("metrics.jsonl"), *directory.glob("checkpoints/*")], [], "a run began")
        self.assertLess(len(message.split("-----")[0].encode()), 2100)
        return message

    def test_a_key_names_both_values_and_ranks(self):
        directory = self.directory("run")
        message = self.refuse(directory, *self.ranks(directory, ["--optimizer.learning_rate", "1e-3"],
                                                     ["--optimizer.learning_rate", "2e-3"]))
        self.assertIn("garonne: optimizer.learning_rate: rank 0 has 0.001, rank 1 has 0.002; give every rank the same run "
                      "file and options", message)
        self.assertFalse(directory.exists())

    def test_keys_that_decide_who_meets_whom(self):
        directory = self.directory("run")
        keys = {"checkpoint.every": 2, "evaluation.every": 1, "model.hidden": 64, "train.steps": 7}
        arguments = [part for key, value in keys.items() for part in (f"--{key}", value)]
        self.refuse(directory, *self.ranks(directory, [], [], arguments), words=["ranks 0 and 1 have", *keys])

    def test_another_folder_or_place(self):
        first, second = self.directory("first"), self.directory("second")
        self.refuse(first, *self.ranks(first, ["--run.directory", second]), words=["run.directory", first, second])
        for name in ("here", "there"):
            (self.folder / name).mkdir()
        ranks = [Rank("train", self.config, "--run.directory", "run", "--grid.data", 2, folder=self.folder / name)
                 for name in ("here", "there")]
        self.refuse(self.folder / "here/run", *ranks, words=["run.directory", "here/run", "there/run"])

    def test_another_command(self):
        directory = self.directory("run")
        train, other = self.ranks(directory)
        self.refuse(directory, train, Rank("bench", self.config, "--grid.data", 2), words=["the command", "train", "bench"])
        self.refuse(directory, train, Rank("train", "--help"), words=["the command", "train (help)"])
        self.refuse(directory, other, *self.ranks(directory, ["--gradients", self.folder / "gradients"])[:1],
                    words=["train --gradients", "rank 0 has none"])

    def test_another_program(self):
        directory = self.directory("run")
        program = bytearray(pathlib.Path(BINARY).read_bytes())
        place = build_id_place(program)
        name = program[place:place + 20].hex()
        program[place + 3] ^= 0x10
        other = self.folder / "garonne"
        other.write_bytes(program)
        other.chmod(0o755)
        one, two = self.ranks(directory)[0], self.ranks(directory, binary=other)[0]
        self.refuse(directory, one, two, words=["the program", name, program[place:place + 20].hex()])
        other.unlink()

    def test_threads_and_instructions(self):
        directory = self.directory("run")
        self.refuse(directory, *self.ranks(directory, ["--run.threads", 2]), words=["run.threads: rank 0 has 2, rank 1 has 1"])
        one, two = self.ranks(directory)[0], self.ranks(directory, GARONNE_INSTRUCTIONS="baseline")[0]
        self.refuse(directory, one, two, words=["instructions of the kernels: ", "GARONNE_INSTRUCTIONS=baseline"])
        limited = self.ranks(directory, OMP_THREAD_LIMIT=1)[0]
        self.refuse(directory, one, limited, words=["OMP_THREAD_LIMIT: rank 0 has none, rank 1 has 1"])

    def test_a_library_that_one_rank_lacks(self):
        directory = self.directory("run")
        cache = self.folder / "cache"
        tables = list(cache.glob("costs-*.json"))
        one, two = self.ranks(directory)[0], self.ranks(directory, GARONNE_OPENBLAS="/nowhere")[0]
        if any("OpenBLAS" in table.read_text() for table in tables):
            self.refuse(directory, one, two, words=["OpenBLAS", "rank 1 has not available", "GARONNE_OPENBLAS"])
        else:
            self.assertEqual(run_ranks(one, two).returncode, 0)

    def copies(self, name):
        """The tokens file, whole, in a folder of its own."""
        (self.folder / name).mkdir(exist_ok=True)
        return shutil.copyfile(self.data, self.folder / name / "copy.h5")

    def flip(self, path, text, byte):
        """Another bit in a byte of the tokens of this text."""
        content = bytearray(path.read_bytes())
        place = content.index(b"".join(bytes([letter, 0]) for letter in text))
        content[place + byte % (2 * len(text))] ^= 1
        path.write_bytes(content)

    def test_another_data_file(self):
        directory = self.directory("run")
        text = (self.folder / "train.txt").read_bytes()
        for name, part in (("first", text[:30000]), ("last", text[-2000:])):
            copy = self.copies(name)
            self.flip(copy, part, 777)
            self.refuse(directory, *self.ranks(directory, [], ["--data.path", copy]),
                        words=["data.path", self.data, copy, "rank 0", "rank 1"])

    def test_copies_of_the_data_in_other_places(self):
        directory, shared = self.directory("copies"), self.directory("shared")
        paths = [["--data.path", self.copies(name)] for name in ("one", "two")]
        for steps in (3, 6):
            done = run_ranks(*self.ranks(directory, *[[*path, "--train.steps", steps] for path in paths]))
            self.assertEqual(done.returncode, 0, done.stderr)
        for steps in (3, 6):
            self.train(shared, "--grid.data", 2, "--train.steps", steps, "--data.path", paths[0][1], ranks=2)
        self.assertEqual(series(directory, "loss"), series(shared, "loss"))

    def test_another_checkpoint(self):
        """Run directories that nodes have for themselves, here one path that is another folder for each rank."""
        whole = self.directory("whole")
        self.train(whole, "--train.stop_after", 2, check=75)
        self.train(whole, "--train.stop_after", 2, check=75)
        for name in ("left", "right"):
            shutil.copytree(whole, self.folder / name / "run")
        shutil.rmtree(self.folder / "right/run/checkpoints/step-4")
        (self.folder / "middle").mkdir()
        own = "/proc/self/cwd/run"
        for names, words in ((("left", "right"), ["step 4", "step 2"]), (("middle", "left"), ["none", "step 4"])):
            ranks = [Rank("train", self.config, "--run.directory", own, "--grid.data", 2, folder=self.folder / name)
                     for name in names]
            before = [sorted(self.folder.glob(f"{name}/run/checkpoints/*")) for name in names]
            done = run_ranks(*ranks)
            self.assertEqual(done.returncode, 2, done.stderr)
            for word in ["the checkpoint to start from", *words]:
                self.assertIn(word, done.stderr)
            self.assertEqual(before, [sorted(self.folder.glob(f"{name}/run/checkpoints/*")) for name in names])

    def test_evaluation(self):
        whole, other = self.directory("whole"), self.directory("other")
        self.train(whole, "--train.steps", 2)
        shutil.copytree(whole, other)
        shown = [run("eval", whole, "--json", ranks=2).stdout, run_ranks(Rank("eval", whole, "--json"), Rank("eval", other, "--json")).stdout]
        self.assertEqual(shown[0], shown[1])
        self.train(other, "--train.steps", 3)
        done = run_ranks(Rank("eval", whole), Rank("eval", other))
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("train.steps", done.stderr)
        done = run_ranks(Rank("eval", whole, "--step", 2), Rank("eval", whole, "--step", 0))
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("eval --step", done.stderr)

    def test_a_benchmark(self):
        # Free memory is another number for each rank; they plan within the least.
        run("bench", self.config, "--grid.data", 2, "--steps", 1, "--memory.budget", "auto", ranks=2)
        done = run_ranks(Rank("bench", self.config, "--grid.data", 2, "--steps", 1),
                         Rank("bench", self.config, "--grid.data", 2, "--steps", 1, "--memory.budget", "3MiB"))
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("memory.budget: rank 0 has", done.stderr)


class RandomDifferencesTest(AgreementTest):
    """One difference in one of two to four ranks, for each seed."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.keys = {name: described for name, described in described_keys().items() if name not in FILES}
        cls.config.write_text(RANDOM_RUN_FILE.format(data=cls.data, run=cls.folder / "unset"))
        cls.fields = cls.folder / "fields.toml"
        cls.fields.write_text((FIELDS_MODEL + FIELDS_RUN_FILE).replace("{folder}", str(cls.folder)))
        cls.text = (cls.folder / "train.txt").read_bytes()
        cls.held_out = (cls.folder / "validation.txt").read_bytes()
        # One file with another list of sources: an attribute, of the same length.
        shutil.copyfile(cls.folder / "train.txt", cls.folder / "brain.txt")
        run("data", "text", cls.folder / "brain.txt", "--validation", cls.folder / "validation.txt", "--output",
            cls.folder / "attribute.h5")
        run("data", "darcy", "--samples", 4, "--test-samples", 2, "--resolution", 17, "--output", cls.folder / "darcy.h5", "--test",
            cls.folder / "darcy_test.h5", "--no-progress")
        run("data", "statistics", cls.folder / "darcy.h5", "--output", cls.folder / "statistics.h5")
        run("simulate", "--schedule", "1f1b", "--stages", 2, "--micro-batches", 2, "--save", cls.folder / "schedule.json")

    def difference(self, seed):
        """(run file and keys of all ranks, arguments and surroundings of the odd one, words of the message, exit codes)."""
        pick = random.Random(seed).choice
        kind = pick(["key"] * 6 + ["tokens", "fields", "validation", "statistics", "schedule", "program", "threads", "instructions",
                                   "environment", "attribute"])
        odd, surroundings, common, words, codes = [], {}, [self.config], [], (2,)
        if kind == "key":
            name = pick(sorted(self.keys))
            values, default = self.keys[name]
            # What the run file or the command line of all ranks say already.
            section, key = name.split(".")
            set_to = re.search(rf"\[{section}\][^\[]*\n{key} = \"?([^\"\n]*)", RANDOM_RUN_FILE)
            taken = [set_to[1]] if set_to else "1234" if name == "grid.data" else []
            odd, words = [f"--{name}", other_value(name, values, default, taken, pick)], [f"{name}: "]
            common += NEEDED.get(name, [])
        elif kind == "tokens":
            path = self.copies(f"copy{seed}")
            # Two chunks of 32768 tokens, and one of the validation.
            self.flip(path, pick([self.text[:32768], self.text[32768:], self.held_out]), pick(range(64000)))
            odd, words = ["--data.path", path], ["data.path: ", path]
        elif kind == "attribute":
            odd, words = ["--data.path", self.folder / "attribute.h5"], ["data.path: ", "attribute.h5"]
        elif kind in ("fields", "validation", "statistics"):
            common = [self.fields]
            key = {"fields": "data.path", "validation": "data.validation", "statistics": "data.statistics"}[kind]
            source = {"fields": "darcy.h5", "validation": "darcy_test.h5", "statistics": "statistics.h5"}[kind]
            path = self.folder / f"other{seed}.h5"
            if kind == "statistics":
                run("data", "statistics", self.folder / "darcy_test.h5", "--output", path)
            else:
                content = bytearray((self.folder / source).read_bytes())
                # Somewhere in its numbers: what other seeds make otherwise.
                again = self.folder / "again.h5"
                count = ["--samples", 4] if kind == "fields" else ["--samples", 2]
                run("data", "darcy", *count, "--resolution", 17, "--seed", 99, "--output", again, "--no-progress")
                numbers = [place for place, pair in enumerate(zip(content, again.read_bytes())) if pair[0] != pair[1]]
                content[pick(pick([numbers[:40], numbers[-40:]]))] ^= 1
                path.write_bytes(content)
            odd, words, codes = [f"--{key}", path], [key if kind == "statistics" else path], (2, 5)
        elif kind == "schedule":
            common += ["--grid.pipeline", 2, "--grid.schedule", "file", "--grid.schedule_file", self.folder / "schedule.json"]
            path = self.folder / f"schedule{seed}.json"
            path.write_text((self.folder / "schedule.json").read_text() + " ")
            odd, words = ["--grid.schedule_file", path], ["grid.schedule_file: ", path]
        elif kind == "program":
            program = bytearray(pathlib.Path(BINARY).read_bytes())
            program[build_id_place(program) + pick(range(20))] ^= pick([1, 2, 16, 128])
            path = self.folder / "other-garonne"
            path.write_bytes(program)
            path.chmod(0o755)
            surroundings, words = {"binary": path}, ["the program: "]
        elif kind == "threads":
            odd, words = ["--run.threads", pick([0, 2, 3])], ["run.threads: "]
        elif kind == "instructions":
            surroundings, words = {"GARONNE_INSTRUCTIONS": "baseline"}, ["GARONNE_INSTRUCTIONS=baseline"]
        else:
            name = pick(["OMP_THREAD_LIMIT", "OMP_DYNAMIC", "MKL_CBWR", "ONEDNN_MAX_CPU_ISA"])
            surroundings, words = {name: {"OMP_THREAD_LIMIT": "1", "OMP_DYNAMIC": "true", "MKL_CBWR": "COMPATIBLE"}.get(name, "SSE41")}, [
                f"{name}: "]
        return common, odd, surroundings, words, codes

    def test_random_differences(self):
        given = os.environ.get("GARONNE_RANDOM_DIFFERENCES", "0:4")
        for seed in range(*map(int, given.split(":"))):
            common, odd, surroundings, words, codes = self.difference(seed)
            with self.subTest(f"seed {seed}: {' '.join(map(str, odd))} {surroundings}"):
                pick = random.Random(~seed).choice
                count = pick([2, 2, 3, 4])
                number = pick(range(count))
                directory = self.folder / f"run{seed}"
                ranks = []
                for rank in range(count):
                    own = {} if rank != number else surroundings
                    ranks.append(Rank("train", *common, "--run.directory", directory, "--grid.data", count,
                                      *(odd if rank == number else []), **own))
                self.refuse(directory, *ranks, words=[*words, f"rank {number}"], codes=codes)


def load_tests(loader, tests, pattern):
    """The random ones alone where they are asked for."""
    suite = unittest.TestSuite()
    if os.environ.get("GARONNE_RANDOM_DIFFERENCES"):
        suite.addTest(RandomDifferencesTest("test_random_differences"))
    else:
        suite.addTests(loader.loadTestsFromTestCase(AgreementTest))
        suite.addTest(RandomDifferencesTest("test_random_differences"))
    return suite


if __name__ == "__main__":
    unittest.main(verbosity=2)
