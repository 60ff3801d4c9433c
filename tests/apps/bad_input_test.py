# SPDX-License-Identifier: MIT
"""Texts, keys and caches that cannot be: refused with the documented exit code and one short message,
within seconds and within 2 GiB. GARONNE_BAD_INPUT=long tries all of them and 1,700 files with random
damage; GARONNE_BINARY may name a build with sanitizers."""
import copy
import json
import os
import pathlib
import random
import resource
import shutil
import stat
import subprocess
import tempfile
import time
import unittest

from support import BINARY, SOURCE, run

LONG = os.environ.get("GARONNE_BAD_INPUT") == "long"
SANITIZED = b"__asan_init" in pathlib.Path(BINARY).read_bytes()
MOST_BYTES = 2 << 30
MOST_SECONDS = 120 if SANITIZED or LONG else 60
MOST_MESSAGE = 2048

RUN_FILE = """
[model]
layers = 2
hidden = 16
heads = 2
sequence = 16
[data]
path = "{folder}/tokens.h5"
[memory]
budget = "64 MiB"
[train]
steps = 2
global_batch = 4
micro_batch = 2
[evaluation]
every = 0
batches = 1
[checkpoint]
every = 0
[run]
directory = "{folder}/run"
threads = 1
"""

FIELDS = """
[model]
kind = "sfno"
layers = 1
hidden = 4
[data]
path = "{folder}/sphere/train"
[memory]
budget = "64 MiB"
[train]
steps = 1
global_batch = 1
micro_batch = 1
[run]
threads = 1
"""


class Outcome:
    def __init__(self, code, out, err, seconds, bytes_):
        self.code, self.out, self.err, self.seconds, self.bytes = code, out, err, seconds, bytes_


def attempt(*arguments, environment=None):
    """Runs the program under limits of time and memory; returns what came of it."""
    def limit():
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if not SANITIZED:
            # Libraries take some address space that they never touch.
            resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES + (2 << 30),) * 2)

    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.monotonic()
        process = subprocess.Popen([BINARY, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                   preexec_fn=limit, env={**os.environ, **(environment or {})})
        while True:
            done, status, usage = os.wait4(process.pid, os.WNOHANG)
            if done:
                break
            if time.monotonic() - start > MOST_SECONDS:
                process.kill()
                os.wait4(process.pid, 0)
                process.returncode = -9
                raise AssertionError(f"no end after {MOST_SECONDS} s: {arguments}")
            time.sleep(0.005)
        process.returncode = os.waitstatus_to_exitcode(status)
        for stream in (out, err):
            stream.seek(0)
        return Outcome(process.returncode, out.read(), err.read(), time.monotonic() - start, usage.ru_maxrss * 1024)


class BadInput(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.keep = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.keep.name)
        (cls.folder / "text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 60)
        held_out = cls.write_text("held_out.txt", "pack my box with five dozen jugs. " * 20)
        run("data", "text", cls.folder / "text.txt", "--validation", held_out, "--output", cls.folder / "tokens.h5")
        cls.config = cls.write_text("run.toml", RUN_FILE.format(folder=cls.folder))
        run("train", cls.config)
        cls.chain = cls.folder / "chain.json"
        cls.graph = cls.folder / "graph.json"
        run("plan", cls.config, "--chain", cls.chain, "--graph", cls.graph)
        cls.schedule = cls.folder / "schedule.json"
        run("simulate", "--schedule", "1f1b", "--stages", 2, "--micro-batches", 3, "--save", cls.schedule)
        cls.cluster = cls.folder / "cluster.toml"
        shutil.copy(SOURCE / "config" / "clusters" / "leonardo.toml", cls.cluster)
        cls.gpus = SOURCE / "config" / "clusters" / "dgx_h200.toml"

    @classmethod
    def tearDownClass(cls):
        cls.keep.cleanup()

    @classmethod
    def write_text(cls, name, text):
        path = cls.folder / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def expect(self, codes, *arguments, words=(), environment=None):
        outcome = attempt(*arguments, environment=environment)
        shown = f"{' '.join(map(str, arguments))[:300]}\nexit code {outcome.code}\n{outcome.err[:3000].decode(errors='replace')}"
        codes = codes if isinstance(codes, tuple) else (codes,)
        self.assertIn(outcome.code, codes, shown)
        if not SANITIZED:
            self.assertLess(outcome.bytes, MOST_BYTES, shown)
        self.assertLessEqual(len(outcome.err), MOST_MESSAGE, shown)
        text = outcome.err.decode()
        self.assertNotIn("json.exception", text, shown)
        self.assertNotIn("internal error", text, shown)
        self.assertNotIn("Sanitizer", text, shown)
        self.assertEqual([c for c in text if (ord(c) < 32 and c not in "\n\t") or ord(c) == 127], [], shown)
        if outcome.code != 0:
            self.assertEqual(sum(line.startswith("garonne: ") for line in text.splitlines()), 1, shown)
        for word in words:
            self.assertIn(word, text, shown)
        return text

    # --- where files of a kind are read, with the exit codes that may come of it

    def solve(self, path, codes=2, **more):
        return self.expect(codes, "solve", path, "--budget", "1GiB", "--algorithm",
                           "annealing" if "graph" in path.name else "best",
                           *(("--iterations", 5) if "graph" in path.name else ()), **more)

    def simulate(self, path, codes=2, **more):
        return self.expect(codes, "simulate", "--schedule", "file", "--file", path, **more)

    def plan(self, path, codes=2, **more):
        return self.expect(codes, "plan", path, **more)

    def plan_on(self, path, codes=2, **more):
        return self.expect(codes, "plan", self.config, "--cluster", path, **more)

    def run_with(self, name, text):
        """A copy of the run directory in which one file has another text."""
        copied = self.folder / "damaged_run"
        shutil.rmtree(copied, ignore_errors=True)
        shutil.copytree(self.folder / "run", copied)
        (copied / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return copied

    def report(self, name, text, codes=5, **more):
        return self.expect(codes, "report", self.run_with(name, text), "--budgets", 0, **more)

    def verify(self, text, codes=5, **more):
        return self.expect(codes, "checkpoint", "verify", self.run_with("checkpoints/step-2/manifest.json", text), **more)

    def cached(self, text, codes=0, **more):
        """What `plan` says where the cache holds this profile."""
        if not hasattr(self, "cache"):
            type(self).cache = self.folder / "cache"
            self.cache.mkdir(mode=0o700)
            run("profile", self.config, before=f"export GARONNE_CACHE='{self.cache}'")
            (type(self).profile,) = self.cache.glob("costs-*.json")
        good = self.profile.read_bytes()
        try:
            self.profile.write_bytes(text if isinstance(text, bytes) else text.encode())
            return self.expect(codes, "plan", self.config, environment={"GARONNE_CACHE": str(self.cache)}, **more)
        finally:
            self.profile.write_bytes(good)

    # --- nesting

    def test_deep_json(self):
        def bombs(text):
            deep = "[" * 100_000 + "]" * 100_000
            yield deep
            yield '{"a":' * 100_000 + "1" + "}" * 100_000
            source = json.loads(text)
            for key in source if LONG else list(source)[-1:]:
                yield json.dumps(source | {key: "BOMB"}).replace('"BOMB"', deep)

        for path, act in ((self.chain, self.solve), (self.graph, self.solve), (self.schedule, self.simulate)):
            for bomb in bombs(path.read_text()):
                act(self.write_text("bad_" + path.name, bomb), words=["nested more than 64 deep"])
        for name in ("choices.json", "costs.json", "program/rank_0.json"):
            for bomb in list(bombs((self.folder / "run" / name).read_text()))[slice(None if LONG else 1)]:
                self.report(name, bomb, words=["nested", name])
        self.report("skill.json", "[" * 100_000 + "]" * 100_000, words=["nested", "skill.json"])
        manifest = (self.folder / "run/checkpoints/step-2/manifest.json").read_text()
        for bomb in list(bombs(manifest))[slice(None if LONG else 1)]:
            self.verify(bomb, words=["nested", "manifest.json"])
        # What a continued run makes of it: no whole checkpoint is left.
        copied = self.run_with("checkpoints/step-2/manifest.json", "[" * 100_000 + "]" * 100_000)
        self.expect(5, "train", self.config, "--run.directory", copied)

    def test_deep_toml(self):
        for text in ("a" + ".a" * 100_000 + " = 1", "[a" + ".a" * 100_000 + "]", "a = " + "[" * 100_000 + "]" * 100_000,
                     "a = " + "{a=" * 100_000):
            self.plan(self.write_text("bad.toml", text), words=["line 1", "more than"])
        bomb = "a" + ".a" * 100_000 + " = 1"
        self.plan_on(self.write_text("bad.toml", bomb), words=["line 1"])
        self.report("config.toml", bomb, words=["config.toml"])

    # --- files that are none, or too large

    def test_no_files(self):
        pipe = self.folder / "pipe"
        if not pipe.exists():
            os.mkfifo(pipe)
        large = self.folder / "large"
        with open(large, "wb") as file:
            file.truncate(6 << 30)
        self.plan(pipe, words=["named pipe", "run file"])
        self.plan(large, words=["6.00 GiB", "at most"])
        self.plan(self.folder, words=["folder"])
        self.plan("/dev/zero", words=["device"])
        self.plan_on(pipe, words=["named pipe"])
        for act in (self.solve, self.simulate):
            act(pipe, words=["named pipe"])
            act(large, words=["6.00 GiB"])
        copied = self.run_with("choices.json", "")
        for name in ("checkpoints/step-2/manifest.json", "checkpoints/step-2/rank_0.safetensors"):
            whole = (copied / name).read_bytes()
            for put in (lambda path: os.mkfifo(path), lambda path: os.symlink("/dev/zero", path)):
                (copied / name).unlink()
                put(copied / name)
                self.expect(5, "checkpoint", "verify", copied, words=[pathlib.Path(name).name])
            (copied / name).unlink()
            (copied / name).write_bytes(whole)
        with open(copied / "checkpoints/step-2/manifest.json", "r+b") as file:
            file.truncate(6 << 30)
        self.expect(5, "checkpoint", "verify", copied, words=["6.00 GiB"])
        large.unlink()

    def test_long_values(self):
        value = "x" * 900_000
        for text in (f'[model]\nkind = "{value}"\n', f"[model]\n{value} = 1\n", f'[model]\nlayers = "{value}"\n',
                     f'[data]\npath = "{value}"\n', value):
            self.plan(self.write_text("bad.toml", text), (2, 5))
        self.plan(self.write_text("bad.toml", f'[model]\nkind = "{"x" * 3_000_000}"\n'), words=["at most 1.00 MiB"])
        self.plan(self.write_text("bad.toml", '[model]\nkind = "\\u001b[2J\\u0007"\n'), words=["\\x1b[2J"])
        self.expect(2, "plan", "/" + "d" * 5000)
        self.expect(2, "train", self.config, "--run.directory", b"u\xff".decode(errors="surrogateescape"), words=["UTF-8"])

    # --- keys

    def test_keys(self):
        huge = 2**63 - 1
        text = [
            ("--run.threads", 2000), ("--run.threads", 1_000_000), ("--model.hidden", 2**62, "--model.heads", 2),
            ("--model.layers", huge), ("--model.layers", 10_000_000), ("--model.layers", 100_000),
            ("--train.global_batch", huge), ("--train.global_batch", 1_000_000, "--train.micro_batch", 1),
            ("--model.hidden", 2**24, "--model.heads", 1, "--model.layers", 500), ("--model.sequence", 2**30),
            ("--model.vocabulary", 2**32, "--model.hidden", 2**23), ("--data.history", huge),
            ("--grid.data", 2**31), ("--memory.budget", "9000000000000000000"), ("--model.modes", "1," * 9)]
        for arguments in text if LONG else text[:9]:
            message = self.expect(2, "plan", self.config, *arguments)
            self.assertIn(arguments[0][2:], message)
        for arguments in text if LONG else text[:3]:
            self.expect(2, "train", self.config, *arguments)
        if not (self.folder / "sphere").is_dir():
            run("data", "synthetic-era5", "--latitudes", 9, "--longitudes", 16, "--channels", "t2m,z500", "--years", 1,
                "--test-years", 0, "--frames-a-year", 12, "--output", self.folder / "sphere")
        fields = self.write_text("fields.toml", FIELDS.format(folder=self.folder))
        for arguments in (("--train.rollout", 10_000), ("--train.push_forward", 10_000), ("--data.history", 10_000)):
            self.expect((2, 5), "plan", fields, *arguments)
        for arguments in (("--train.rollout", huge), ("--data.history", huge), ("--model.mlp_ratio", "1e300"),
                          ("--model.hidden", 2**24)):
            message = self.expect(2, "plan", fields, *arguments)
            self.assertIn(arguments[0][2:], message)
        self.expect(2, "plan", self.config, "--ranks", 1048575, "--train.global_batch", 1048575, words=["--ranks"])

    def test_options(self):
        side = 2**31 - 1
        for arguments in (("shallow-water", "--latitudes", side), ("shallow-water", "--longitudes", side),
                          ("shallow-water", "--trajectory-length", 10**9), ("synthetic-era5", "--latitudes", side),
                          ("darcy", "--resolution", side), ("navier-stokes", "--resolution", side),
                          ("darcy", "--samples", 2**62)):
            message = self.expect(2, "data", *arguments, "--output", self.folder / "made")
            self.assertIn(arguments[1].strip("-"), message)
        # Numbers that no generator takes are refused, and help shows no bounds that say nothing.
        for generator in ("darcy", "navier-stokes", "shallow-water", "synthetic-era5"):
            help_text = run("data", generator, "--help").stdout
            self.assertRegex(help_text, r"--samples N|--trajectories N|--years N")
            self.assertNotIn("1000000000", help_text)
        for samples in (-(10**9) - 1, 10**9 + 1):
            self.expect(2, "data", "darcy", "--samples", samples, "--output", self.folder / "made",
                        words=[f"--samples: Value {samples} not in range -1000000000 to 1000000000"])
        message = self.expect(2, "eval", self.folder / "run", "--samples", 0, words=["--samples = 0: must be at least 1"])
        self.assertLess(len(message), 200, message)
        message = self.expect(2, "train", self.config, "--train.learning_rate", "1e-3",
                              words=["not expected: --train.learning_rate 1e-3", "did you mean --optimizer.learning_rate?"])
        message = self.expect(2, "train", self.config, "--lr", "1e-3", words=["--lr"])
        self.assertNotIn("--all", message)
        # Ranges in words, and no digits of the largest double.
        for arguments, words in (
                (("stop", self.folder / "run", "--timeout", -1), "--timeout = -1: must be at least 0"),
                (("report", self.folder / "run", "--budgets", 1), "--budgets = 1: must be 0, or 2 to 1000"),
                (("plan", self.config, "--ranks", 0), "--ranks = 0: must be 1 to 65536"),
                (("plan", self.config, "--ranks"), "--ranks wants a value (1 to 65536)"),
                (("checkpoint", "export", self.folder / "run", "--to"), "--to wants 2 values"),
                (("checkpoint", "export", self.folder / "run", "--to", "huggingface"), "--to = huggingface: wants a format and"),
                (("checkpoint", "import", "--output", self.folder / "no", "--from", "huggingface"), "wants a format and a folder"),
                (("bench", "transforms", "--precision", "x"), "--precision = x: must be float32, float64")):
            message = self.expect(2, *arguments, words=[words])
            self.assertLess(len(message), 200, message)

    def test_one_message_under_mpirun(self):
        done = run("solve", self.chain, "--budget", "1GiB", ranks=2, check=2)
        self.assertEqual(done.stderr.count("runs on one rank"), 1, done.stderr)

    # --- formats, keys of files, caches

    def test_formats(self):
        self.solve(self.write_text("bad_chain.json", self.schedule.read_text()),
                   words=["format = garonne.pipeline-schedule", "garonne.chain, garonne.graph"])
        self.simulate(self.write_text("bad_schedule.json", self.chain.read_text()),
                      words=["format = garonne.chain", "garonne.pipeline-schedule"])
        for text in ("[1]", "null", "5", '"x"', "{}", "", "{\"format\": [1]}"):
            self.solve(self.write_text("bad_chain.json", text))
            self.simulate(self.write_text("bad_schedule.json", text))

    def test_profiles(self):
        self.assertEqual(self.cached("", words=["warning", "costs-"]).count("\n"), 1)
        good = json.loads(self.profile.read_text())
        key = next(iter(good["rows"]))

        def with_row(**values):
            changed = copy.deepcopy(good)
            changed["rows"][key] |= values
            return json.dumps(changed)

        texts = ["[1]", "null", "5", '"x"', '{"format": [1]}', json.dumps(good | {"machine": []}), with_row(forward_seconds=-1),
                 with_row(value_bytes=-5), with_row(value_bytes=2**62), with_row(backward_seconds=1e300),
                 with_row(backward_seconds="many"), "[" * 100_000 + "]" * 100_000,
                 json.dumps(good | {"products": {"forward": "none"}})]
        for text in texts if LONG else texts[::2]:
            self.cached(text, words=["warning", "costs-", "is ignored"])
        self.assertEqual(self.cached(json.dumps(good)), "")
        # What the user or the run directory gives is refused instead.
        for text in texts[:-1] if LONG else texts[1::4]:
            self.report("costs.json", text, words=["costs.json"])
        self.report("costs.json", with_row(backward_seconds="many"), words=["costs.json", "backward_seconds", "is no number"])
        self.report("choices.json", '{"format": "garonne.choices", "version": 1, "threads": null}', words=["choices.json", "threads"])

    def test_shared_caches(self):
        shared = self.folder / "shared"
        shared.mkdir()
        shared.chmod(0o777)
        environment = {"GARONNE_CACHE": str(shared)}
        self.expect(0, "plan", self.config, environment=environment, words=["warning", str(shared), "others"])
        self.assertEqual(list(shared.iterdir()), [])
        # Without a home: a folder of the user's own.
        temporary = self.folder / "tmp"
        temporary.mkdir()
        bare = {name: "" for name in ("GARONNE_CACHE", "XDG_CACHE_HOME", "HOME")} | {"TMPDIR": str(temporary)}
        self.expect(0, "plan", self.config, environment=bare)
        made = temporary / f"garonne-cache-{os.geteuid()}"
        self.assertEqual(stat.S_IMODE(made.stat().st_mode), 0o700)

    # --- random damage

    def damaged(self, good, chance, is_json):
        """A text with one kind of damage."""
        kind = chance.randrange(6 if is_json else 4)
        data = bytearray(good)
        if kind == 0:
            for _ in range(chance.randint(1, 4)):
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            return bytes(data)
        if kind == 1:
            return bytes(data[:chance.randrange(len(data))])
        if kind == 2:
            begin = chance.randrange(len(data))
            piece = data[begin:begin + chance.randint(1, 40)]
            place = chance.randrange(len(data))
            data[place:place + chance.randint(0, 40)] = piece
            return bytes(data)
        if kind == 3:
            words = good.split(b"\n") if not is_json else good.split(b",")
            first, second = chance.randrange(len(words)), chance.randrange(len(words))
            words[first], words[second] = words[second], words[first]
            return (b"\n" if not is_json else b",").join(words)
        source = json.loads(good)
        # Another value at a random place.
        place, key = None, None
        at = source
        while isinstance(at, (dict, list)) and at and (place is None or chance.random() < 0.8):
            place, key = at, chance.choice(list(at) if isinstance(at, dict) else range(len(at)))
            at = place[key]
        if place is None:
            return good
        if kind == 4:
            place[key] = chance.choice([None, True, -1, 0, 1.5, 2**63, -2**63, 1e308, -1e-300, "", "x", "\u001b[2J", [], {}, [[]],
                                        {"a": 1}, 2**31, 2**53, list(range(50))])
        else:
            place[key] = "BOMB"
            depth = chance.choice([3, 60, 70, 5000])
            return json.dumps(source).replace('"BOMB"', "[" * depth + "]" * depth).encode()
        return json.dumps(source).encode()

    def test_random_damage(self):
        directory = self.folder / "run"
        kinds = [
            (self.chain.read_bytes(), lambda text: self.solve(self.write_text("bad_chain.json", text), (0, 2, 3)), True),
            (self.graph.read_bytes(), lambda text: self.solve(self.write_text("bad_graph.json", text), (0, 2, 3)), True),
            (self.schedule.read_bytes(), lambda text: self.simulate(self.write_text("bad_schedule.json", text), (0, 2)), True),
            (self.cluster.read_bytes(), lambda text: self.plan_on(self.write_text("bad.toml", text), (0, 2, 3)), False),
            (self.gpus.read_bytes(), lambda text: self.plan_on(self.write_text("bad.toml", text), (0, 2, 3)), False),
            (self.config.read_bytes(), lambda text: self.plan(self.write_text("bad.toml", text), (0, 2, 3, 5)), False),
            ((directory / "checkpoints/step-2/manifest.json").read_bytes(), lambda text: self.verify(text, (0, 5)), True)]
        for name in ("choices.json", "costs.json", "program/rank_0.json", "config.toml", "metrics.jsonl"):
            kinds.append(((directory / name).read_bytes(), lambda text, name=name: self.report(name, text, (0, 2, 5)),
                          name.endswith(".json")))
        skill = json.dumps({"format": "garonne.skill", "version": 1, "channels": ["a"], "rmse": [[[1.0]]]}).encode()
        kinds.append((skill, lambda text: self.report("skill.json", text, (0, 5)), True))
        self.cached(b"{}")
        kinds.append((self.profile.read_bytes(), lambda text: self.cached(text, (0, 3)), True))
        chance = random.Random(15)
        for trial in range(1700 if LONG else 3 * len(kinds)):
            good, act, is_json = kinds[trial % len(kinds)]
            text = self.damaged(good, chance, is_json)
            with self.subTest(trial=trial, text=text[:200]):
                act(text)


if __name__ == "__main__":
    unittest.main()
