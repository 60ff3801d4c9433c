# SPDX-License-Identifier: MIT
"""scripts/gpu-check on a made-up machine: nvidia-smi, the program and its tests are scripts that answer what a test says;
and scripts/bench --cuda where there is no GPU.

The GPU is not there, so what is held here is the list: its order, its time limits, what is judged, and the archive."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ.get("GARONNE_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
BINARY = os.environ.get("GARONNE_BINARY", "build/bin/garonne")
LINES = 12

# What the fakes answer; a test changes some of it.
GOOD = {
    "nvidia-smi": "NVIDIA H200, 580.65, 143771, 0, Default\n",
    "facts": {"multiprocessors": 132, "free_bytes": 149 << 30, "total_bytes": 150 << 30, "driver_cuda": 13000,
              "runtime_cuda": 13000},
    "ceilings": {"device_copy_bytes_per_second": 4.2e12, "bfloat16_operations_per_second": 7.8e14,
                 "float32_operations_per_second": 5e13, "in_bytes_per_second": 5.3e10, "out_bytes_per_second": 5.2e10,
                 "both_ways_bytes_per_second": 9e10, "launch_seconds": 3e-6, "graph_node_seconds": 1e-6},
    "pinning": {"seconds_by_gibibytes": {"1": 0.3, "4": 1.2}},
    "version": "garonne 0.1.0\ntorch: 2.11.0\ncuda: 13.0\n",
    "test_kernels_device": "[  PASSED  ] 40 tests.\n",
    "test_gpu_products": "[  PASSED  ] 3 tests.\n",
    "test_dist_nccl_loop": "[  PASSED  ] 6 tests.\n",
    "compute-sanitizer": "========= ERROR SUMMARY: 0 errors\n",
    "gpu_test": {"test_same_bits": "ok", "test_no_bit": "ok", "test_near_those": "ok", "test_what_offloads": "ok"},
    "bench": {"tokens_per_second": 410e3, "step_seconds": 0.08, "peak_bytes": 995, "planned_peak_bytes": 1000,
              "roof_share": 0.46},
    "rows": {"adamw of 124500000 elements bfloat16": 1.0e-3, "layer_norm 32768x768 bfloat16": 28e-6,
             "dropout_add 32768x768 dropout true bfloat16": 43e-6},
    "without_graph": 3.5,  # times the seconds of a step
    "losses": {"one": [5.5, 5.4], "two": [5.5, 5.4]},
    "help": "  --run.device where\n  --memory.host_budget bytes\n",
    "codes": {},
    "hangs": "",
}

# Every fake: appends its call to `calls`, then answers.
FAKE = """#!{python} -IS
import json, os, pathlib, subprocess, sys, time
home = pathlib.Path({home!r})
answers = json.loads((home / "answers.json").read_text())
name, words = pathlib.Path(sys.argv[0]).stem, sys.argv[1:]
what = name + (" " + words[0] if words else "")
with open(home / "calls", "a") as calls:
    calls.write(json.dumps([name, *words]) + "\\n")
with open(home / "libraries-of-calls", "a") as file:
    file.write(json.dumps([name, os.environ.get("LD_LIBRARY_PATH", "")]) + "\\n")
if answers["hangs"] and what.startswith(answers["hangs"]):
    child = subprocess.Popen([sys.executable, "-c", "import os, signal, time; os.setpgid(0, 0); "
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"],
        stdout=subprocess.PIPE)
    child.stdout.readline()
    (home / "processes").write_text(f"{{os.getpid()}} {{child.pid}}")
    print(*answers.get("before_hanging", ()), "and then it hung", sep="\\n", flush=True)
    time.sleep(600)
if name == "mpirun":
    os.environ["RANKS"] = words[1]
    os.execv(words[2], words[2:])
elif name == "garonne":
    command = words[0]
    if command == "--version":
        print(answers["version"])
    elif command == "train" and words[1] == "--help":
        print(answers["help"])
    elif command == "train":
        folder = pathlib.Path(words[words.index("--run.directory") + 1])
        folder.mkdir()
        which = "two" if os.environ.get("RANKS") == "2" else "one"
        (folder / "metrics.jsonl").write_text("".join(json.dumps({{"loss": x}}) + "\\n" for x in answers["losses"][which]))
    elif command == "profile":
        print(json.dumps({{"format": "garonne.costs", "rows": {{
            key: {{"forward_seconds": value}} for key, value in answers["rows"].items()}}}}, indent=1))
    elif command == "bench":
        slower = answers["without_graph"] if "never" in words else 1
        print(json.dumps(answers["bench"] | {{"step_seconds": slower * answers["bench"]["step_seconds"]}}))
elif name == "gpu_test":
    wanted = words[2::2]
    for test, answer in answers["gpu_test"].items():
        if any(word in test for word in wanted):
            print(f"{{test}} (__main__.GpuTest.{{test}}) ... {{answer}}", file=sys.stderr)
elif name == "ceilings":
    print(json.dumps(answers[words[0]]))
elif name == "ldd":
    print("\\tlibc.so.6 => /lib/libc.so.6 (0x1)\\n\\tld-linux.so.2 => /lib/ld (0x1)")
    for library in answers.get("libraries", ["libcudart.so.13", "libcublas.so.13", "libtorch_cpu.so", "libmpi.so.40"]):
        print(f"\\t{{library}} => {{home / 'libraries' / library}} (0x7f)")
    for library in answers.get("missing", []):
        print(f"\\t{{library}} => not found")
elif name == "ompi_info":
    prefix = home / "usr"
    print(f"path:prefix:{{prefix}}\\npath:bindir:{{prefix}}/bin\\npath:pkglibdir:{{prefix}}/lib/openmpi3\\n"
          f"path:pkgdatadir:{{prefix}}/share/openmpi\\npath:sysconfdir:{{home}}/etc")
else:
    print(answers[name])
sys.exit(answers["codes"].get(what, answers["codes"].get(name, 0)))
"""


class GpuCheckTest(unittest.TestCase):
    def setUp(self):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="garonne-gpu-check-test-"))
        self.addCleanup(shutil.rmtree, self.home, ignore_errors=True)
        root = self.root = self.home / "checkout"
        shutil.copytree(SOURCE / "scripts/gpu-check.d", root / "scripts/gpu-check.d",
                        ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(SOURCE / "scripts/gpu-check", root / "scripts")
        shutil.copytree(SOURCE / "scripts/bench.d", root / "scripts/bench.d", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("config/gpt2_124m.toml", "tests/apps/support.py", "LICENSE"):
            self.write(root / name, "# made up\n")
        for path in ("scripts/gpu-check.d/ceilings.py", "tests/apps/gpu_test.py", "build-cuda/bin/garonne",
                     "build-cuda/tests/test_kernels_device", "build-cuda/tests/test_gpu_products",
                     "build-cuda/tests/test_dist_nccl_loop"):
            self.fake(root / path)
        with open(root / "tests/apps/gpu_test.py", "a") as file:
            file.writelines(f"class {name}:\n    def {name}(self):\n        pass\n" for name in GOOD["gpu_test"])
        for name in ("nvidia-smi", "ldd", "compute-sanitizer"):
            self.fake(self.home / "path" / name)
        for name in ("mpirun", "ompi_info", "orted"):
            self.fake(self.home / "usr/bin" / name)
        for name in ("libcudart.so.13", "libcublas.so.13", "libtorch_cpu.so", "libmpi.so.40"):
            self.write(self.home / "libraries" / name, name)
        for name in ("usr/lib/openmpi3/mca_btl_tcp.so", "usr/share/openmpi/help-mpi.txt", "etc/openmpi-mca-params.conf"):
            self.write(self.home / name, name)
        self.json = self.home / "result.json"
        self.answer()

    @staticmethod
    def write(path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def fake(self, path):
        self.write(path, FAKE.format(python=sys.executable, home=str(self.home)))
        path.chmod(0o755)

    def answer(self, **changes):
        (self.home / "answers.json").write_text(json.dumps(GOOD | changes))
        (self.home / "calls").write_text("")

    def calls(self):
        return [json.loads(line) for line in (self.home / "calls").read_text().splitlines()]

    def shorten(self, title, seconds):
        """The time limit of one line, with the patience of check()."""
        path = self.root / "scripts/gpu-check.d/lines.py"
        text, count = re.subn(re.escape(f'"{title}", ') + r"[.\d]+", f'"{title}", {seconds / 600}', path.read_text())
        self.assertEqual(count, 1)
        path.write_text(text)

    def check(self, *arguments, root=None, code=0, gpu=True):
        # A machine with a GPU has an nvidia-smi of its own, which must not be found.
        folders = [self.home / "path", self.home / "usr/bin", "/usr/bin", "/bin"] if gpu else [self.home / "nothing"]
        # What is not to be ended has all the time of a machine that does other things.
        command = [(root or self.root) / "scripts/gpu-check", "--json", self.json, "--patience", 10, *arguments]
        done = subprocess.run([sys.executable, *map(str, command)],
                              env={"PATH": ":".join(map(str, folders)), "HOME": str(self.home)},
                              capture_output=True, text=True, timeout=100, cwd=self.home)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        return done

    def lines(self):
        return {line["number"]: line for line in json.loads(self.json.read_text())["lines"]}

    def figure(self, number, name):
        return next(figure for figure in self.lines()[number]["figures"] if figure["name"].startswith(name))

    def test_without_a_gpu_it_says_so_and_is_no_pass(self):
        shutil.rmtree(self.home / "path")
        self.assertIn("there is no GPU: nvidia-smi is not on the path", self.check(code=2, gpu=False).stderr)
        self.fake(self.home / "path/nvidia-smi")
        self.answer(codes={"nvidia-smi": 9}, **{"nvidia-smi": "No devices were found"})
        self.assertIn("No devices were found", self.check(code=2).stderr)
        self.answer(**{"nvidia-smi": ""})
        self.assertIn("lists none", self.check(code=2).stderr)
        self.assertFalse(self.json.exists(), "a file to keep about nothing")
        self.assertEqual({call[0] for call in self.calls()}, {"nvidia-smi"})

    def test_lines_come_in_order_with_expected_beside_measured(self):
        said = self.check().stdout
        lines = self.lines()
        self.assertEqual(list(lines), list(range(1, LINES + 1)))
        for number, line in lines.items():
            self.assertEqual(line["result"], "pass", line)
        self.assertIn("12 passed, 0 failed", said)
        row = next(line for line in said.splitlines() if "tokens/s" in line)
        self.assertEqual(row.split()[1:], [">=", "250000,", "good", "400000", "410000", "pass"])
        steps = [" ".join(call[:2]) for call in self.calls()]
        order = ["ldd ", "garonne --version", "ceilings facts", "ceilings ceilings", "test_kernels_device",
                 "test_gpu_products", "compute-sanitizer --tool", "ceilings pinning", "garonne profile", "gpu_test -v", "garonne bench",
                 "mpirun -n", "test_dist_nccl_loop"]
        found = [next(index for index, step in enumerate(steps) if step.startswith(wanted)) for wanted in order]
        self.assertEqual(found, sorted(found), steps)
        tests = [call[3::2] for call in self.calls() if call[0] == "gpu_test"]
        self.assertEqual(tests, [["no_bit", "same_bits"], ["offload"], ["test_near_those"]], "every test in one of three lines")
        kept = json.loads(self.json.read_text())
        self.assertEqual((kept["format"], kept["result"]), ("garonne.gpu-check", "passed"))
        self.assertIn("adamw of 124500000 elements bfloat16", kept["costs"]["gpt2_124m"]["rows"])
        self.assertIn("gpt2_124m.toml", self.calls()[[call[1:2] for call in self.calls()].index(["bench"])][2])

    def test_the_program_takes_what_it_is_given(self):
        """The list's own configurations on one rank of a processor, layers left out, and what a plan for GPUs says."""
        self.check()
        commands = [call[1:] for call in self.calls() if call[0] == "garonne" and call[1] in ("bench", "profile")]
        self.assertEqual({command[0] for command in commands}, {"bench", "profile"})
        for command, file, *keys in commands:
            config = SOURCE / pathlib.Path(file).relative_to(self.root)
            with self.subTest(command, file=str(config), keys=keys):
                here = ["cpu" if word == "cuda" else word for word in keys]
                if "--run.graphs" in here:  # of steps on GPUs alone
                    place = here.index("--run.graphs")
                    here[place:place + 2] = []
                small = ["--model.layers", 1, "--model.hidden", 8, "--model.heads", 1, "--model.sequence", 4,
                         "--model.vocabulary", 64, "--data.path", "no/such/file.h5"]
                here = ["1" if index and here[index - 1] == "--steps" else word for index, word in enumerate(here)]
                self.real_program(command, config, *here, *small)
                if command == "bench":
                    keys = keys[:keys.index("--steps")]
                    self.real_program("plan", config, *keys, "--cluster", SOURCE / "config/clusters/dgx_a100.toml")

    def real_program(self, *words):
        done = subprocess.run([BINARY, *map(str, words)], capture_output=True, text=True, timeout=100, check=False,
                              env=os.environ | {"GARONNE_CACHE": str(self.home / "cache")})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_what_is_measured_is_judged(self):
        bench, facts, ceilings, rows = (GOOD[name] for name in ("bench", "facts", "ceilings", "rows"))
        cases = (
            (1, "multiprocessors", {"facts": facts | {"multiprocessors": 66}}),
            (1, "libraries that are not found", {"missing": ["libhdf5.so"]}),
            (1, "program's CUDA", {"version": "garonne 0.1.0\ncuda: no\n"}),
            (1, "driver's", {"facts": facts | {"driver_cuda": 12080}}),
            (2, "copy on the device", {"ceilings": ceilings | {"device_copy_bytes_per_second": 2e12}}),
            (3, "test_kernels_device", {"test_kernels_device": "[  PASSED  ] 0 tests.\n[  SKIPPED ] 40 tests, listed below:\n"}),
            (3, "test_kernels_device", {"test_kernels_device": "[  PASSED  ] 39 tests.\n[  SKIPPED ] 1 test, listed below:\n"}),
            (3, "test_gpu_products", {"test_gpu_products": "[  FAILED  ] 1 test, listed below:\n"}),
            (3, "test_kernels_device under memcheck", {"compute-sanitizer": "========= ERROR SUMMARY: 3 errors\n"}),
            (5, "layer norm", {"rows": rows | {"layer_norm 32768x768 bfloat16": 40e-6}}),
            (5, "dropout_add", {"rows": {key: value for key, value in rows.items() if "dropout" not in key}}),
            (6, "no bit", {"gpu_test": GOOD["gpu_test"] | {"test_no_bit": "FAIL"}}),
            (6, "gpu_test.py", {"gpu_test": {}}),
            (7, "tokens/s", {"bench": bench | {"tokens_per_second": 249e3}}),
            (7, "measured peak", {"bench": bench | {"peak_bytes": 1001}}),
            (7, "measured peak", {"bench": bench | {"peak_bytes": 980}}),
            (8, "without a graph", {"without_graph": 2.5}),
            (11, "two ranks over mpi", {"losses": {"one": [5.5, 5.4], "two": [5.6, 5.4]}}),
            (11, "all of them", {"losses": {"one": [5.5, 5.4], "two": [5.5, 5.5]}}),
            (12, "near those", {"gpu_test": GOOD["gpu_test"] | {"test_near_those": "ERROR"}}),
        )
        for number, name, changes in cases:
            with self.subTest(name, line=number, **changes):
                self.answer(**changes)
                self.check("--only", number, code=1)
                self.assertEqual(self.lines()[number]["result"], "FAIL")
                self.assertEqual(self.figure(number, name)["result"], "FAIL")
                self.assertEqual(json.loads(self.json.read_text())["result"], "failed")

    def test_rates_of_another_device_are_shown_alone(self):
        self.answer(**{"nvidia-smi": "NVIDIA A100-SXM4-80GB, 580.65, 81920, 0, Default\n",
                       "bench": GOOD["bench"] | {"tokens_per_second": 1000}})
        self.check("--only", 7)
        self.assertEqual(self.figure(7, "tokens/s")["result"], "seen")
        self.assertEqual(self.figure(7, "tokens/s")["expected"], "not known for this device")

    def test_what_ends_badly_fails_its_line_and_not_the_next(self):
        self.answer(codes={"garonne bench": 6})
        said = self.check("--only", "7,11", code=1).stdout
        self.assertIn("garonne bench", self.lines()[7]["reason"])
        self.assertIn("exit code 6", self.lines()[7]["reason"])
        self.assertEqual(self.lines()[11]["result"], "pass")
        self.assertEqual(self.lines()[10]["reason"], "not among --only")
        self.assertIn("2 passed, 1 failed", said)

    def test_sizes_that_were_pinned_in_time_are_kept(self):
        self.answer(hangs="ceilings pinning", before_hanging=['{"seconds_by_gibibytes": {"1": 0.3}}',
                                                             '{"seconds_by_gibibytes": {"1": 0.3, "4": 3.2}}'])
        self.shorten("pinning 1, 4, 16 GiB", 8)
        self.check("--only", "4")
        self.assertEqual(self.figure(4, "1 GiB")["measured"], "0.300 s/GiB")
        self.assertEqual(self.figure(4, "4 GiB")["measured"], "0.800 s/GiB")
        self.assertEqual(self.figure(4, "more")["result"], "not run")
        self.assertIn("was still running", self.figure(4, "more")["reason"])

    def test_an_early_failure_ends_the_list(self):
        self.answer(codes={"test_kernels_device": 1})
        self.check(code=1)
        for number in range(4, LINES + 1):
            self.assertEqual((self.lines()[number]["result"], self.lines()[number]["reason"]),
                             ("not run", "line 3 failed, without which this says nothing"))
        self.assertNotIn("bench", [call[1] for call in self.calls() if len(call) > 1])

    def test_a_line_that_hangs_is_ended_with_all_that_it_started_and_named(self):
        self.answer(hangs="ceilings pinning")
        self.shorten("pinning 1, 4, 16 GiB", 8)
        self.check("--only", "4,11", code=1)
        line = self.lines()[4]
        self.assertEqual(line["result"], "FAIL")
        self.assertIn("ceilings.py pinning", line["reason"])
        self.assertIn("was still running after", line["reason"])
        self.assertIn("and then it hung", line["output"])
        self.assertGreaterEqual(line["seconds"], line["limit_seconds"])
        self.assertEqual(self.lines()[11]["result"], "pass")
        for process in (self.home / "processes").read_text().split():
            self.assertFalse(pathlib.Path("/proc", process).exists(), "it was left behind")

    def test_memcheck_that_takes_too_long_is_ended_and_said(self):
        self.answer(hangs="compute-sanitizer")
        self.shorten("tests of kernels, then under memcheck", 8)
        self.check("--only", "3")
        self.assertEqual(self.figure(3, "test_kernels_device under memcheck")["result"], "not run")
        self.assertIn("was still running", self.figure(3, "test_kernels_device under memcheck")["reason"])

    def test_small_amounts_say_nothing_about_rates(self):
        self.answer(rows={"adamw of 2097152 elements bfloat16" if "adamw" in key else key: value
                          for key, value in GOOD["rows"].items()})
        self.check("--only", "5")
        self.assertEqual(self.figure(5, "AdamW")["result"], "seen")
        self.assertEqual(self.lines()[5]["result"], "pass")

    def unpacked(self, *arguments):
        archive = self.home / "carry.tar.gz"
        said = self.check("--archive", archive, *arguments).stdout
        self.assertIn(str(archive), said)
        there = self.home / "empty"
        shutil.rmtree(there, ignore_errors=True)
        there.mkdir()
        with tarfile.open(archive) as packed:
            packed.extractall(there)
        return there / "garonne-gpu-check"

    def test_an_archive_is_whole_wherever_it_is_unpacked(self):
        root = self.unpacked()
        held = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
        for name in ("build/bin/garonne", "build/tests/test_kernels_device", "lib/libcudart.so.13", "lib/libtorch_cpu.so",
                     "lib/libmpi.so.40", "mpi/bin/mpirun", "mpi/lib/openmpi3/mca_btl_tcp.so", "mpi/etc/openmpi-mca-params.conf",
                     "tests/apps/gpu_test.py", "config/gpt2_124m.toml", "scripts/gpu-check", "scripts/gpu-check.d/lines.py"):
            self.assertIn(name, held)
        self.assertFalse([name for name in held if name.startswith(("lib/libc.", "lib/ld-"))], "the machine has its own")
        self.assertEqual(set(json.loads((root / "MANIFEST.json").read_text())["files"]), held - {"MANIFEST.json"})
        shutil.rmtree(self.root)  # it needs nothing of where it was made
        self.assertIn("limit, s", self.check("--list", root=root, gpu=False).stdout)
        self.check(root=root)
        self.assertIn(str(root / "build/bin/garonne"), str(self.calls()))
        self.check("--list", root=root)  # running has altered nothing

    def test_a_missing_and_an_altered_file_are_named(self):
        root = self.unpacked()
        (root / "lib/libmpi.so.40").unlink()
        with open(root / "build/bin/garonne", "a") as file:
            file.write("#")
        for arguments in (("--list",), ()):
            said = self.check(*arguments, root=root, code=2).stderr
            self.assertIn("lib/libmpi.so.40 is missing", said)
            self.assertIn("build/bin/garonne was altered", said)

    def test_the_c_library_that_an_archive_needs_is_compared(self):
        # A program of this machine, whose C library has what it asks for.
        shutil.copy(shutil.which("bash"), self.home / "libraries/libmpi.so.40")
        root = self.unpacked()
        manifest = json.loads((root / "MANIFEST.json").read_text())
        said = subprocess.run(["readelf", "-V", "-W", shutil.which("bash")], capture_output=True, text=True, check=True).stdout
        versions = {tuple(map(int, text.split("."))) for text in re.findall(r"Name: GLIBC_([\d.]+) ", said)}
        self.assertEqual(tuple(map(int, manifest["glibc"].split("."))), max(versions))
        self.check(root=root)
        (root / "MANIFEST.json").write_text(json.dumps(manifest | {"glibc": "99.1"}))
        said = self.check(root=root, code=2).stderr
        for word in ("glibc 99.1", os.confstr("CS_GNU_LIBC_VERSION").split()[1], "container"):
            self.assertIn(word, said)
        self.check("--list", root=root)
        del manifest["glibc"]  # as older archives
        (root / "MANIFEST.json").write_text(json.dumps(manifest))
        self.check(root=root)

    def test_programs_of_the_machine_keep_their_libraries(self):
        root = self.unpacked()
        (self.home / "libraries-of-calls").write_text("")
        self.check(root=root)
        calls = [json.loads(line) for line in (self.home / "libraries-of-calls").read_text().splitlines()]
        names = {name for name, _ in calls}
        for name in ("ceilings", "gpu_test", "compute-sanitizer", "garonne", "mpirun", "test_kernels_device"):
            self.assertIn(name, names)
        for name, path in calls:
            of_archive = name in ("garonne", "mpirun", "test_kernels_device", "test_gpu_products",
                                  "test_dist_nccl_loop", "ldd")
            self.assertEqual(str(root / "lib") in path, of_archive, f"{name} with LD_LIBRARY_PATH={path}")
        # What the machine's programs start is a script that gives it the libraries.
        started = next(words[-1] for name, *words in self.calls() if name == "compute-sanitizer")
        self.assertNotEqual(started, str(root / "build/tests/test_kernels_device"))
        self.assertEqual(pathlib.Path(started).name, "test_kernels_device")

    def test_an_archive_without_torch_wants_it_there(self):
        root = self.unpacked("--without-torch")
        held = {path.name for path in (root / "lib").iterdir()}
        self.assertEqual(held, {"libmpi.so.40"})
        self.assertEqual((root / "torch-version.txt").read_text(), "2.11.0\n")
        self.check("--list", root=root)

    def test_a_program_that_does_not_offload(self):
        self.answer(help="  --run.device where\n")
        said = self.check().stdout
        line = self.lines()[9]
        self.assertEqual(line["result"], "not run")
        self.assertIn("does not offload", line["reason"])
        self.assertIn("11 passed, 0 failed, 1 not run: 9", said)

    def test_from_an_archive(self):
        archive = self.home / "carry.tar"
        self.check("--archive", archive)
        shutil.rmtree(self.root / "build-cuda")
        self.assertIn("12 passed", self.check("--from-archive", archive).stdout)
        archive.write_bytes(archive.read_bytes()[:20000])
        self.assertIn("carry.tar", self.check("--from-archive", archive, code=2).stderr)

    def test_no_archive_of_half_a_build(self):
        for name in ("build-cuda/tests/test_kernels_device", "build-cuda/bin/garonne", "tests/apps/gpu_test.py"):
            with self.subTest(name):
                (self.root / name).rename(self.home / "aside")
                said = self.check("--archive", self.home / "carry.tar", code=2).stderr
                self.assertIn(name, said)
                self.assertFalse((self.home / "carry.tar").exists())
                (self.home / "aside").rename(self.root / name)
        self.answer(missing=["libhdf5.so"])
        self.assertIn("does not find libhdf5.so", self.check("--archive", self.home / "carry.tar", code=2).stderr)

    def test_usage(self):
        for arguments in (("--only", "13"), ("--only", "a"), ("--patience", "0"), ("--without-torch",), ("--unknown",),
                          ("--archive", "a.tar", "--from-archive", "b.tar"), ("--from-archive", "none.tar")):
            with self.subTest(arguments):
                self.assertIn("error: ", self.check(*arguments, code=2).stderr)
        said = self.check("--help").stdout
        for word in ("--archive", "--from-archive", "--list", "--json", "Exit codes"):
            self.assertIn(word, said)

    def test_a_benchmark_of_gpus_without_one_is_refused(self):
        for answers in ({"codes": {"nvidia-smi": 9}, "nvidia-smi": "No devices were found"}, {"nvidia-smi": ""}):
            self.answer(**answers)
            done = subprocess.run(["bash", SOURCE / "scripts/bench", "--cuda", "--models", "gpt2"], capture_output=True, text=True,
                                  timeout=60, env=os.environ | {"PATH": f"{self.home / 'path'}:{os.environ['PATH']}"})
            self.assertEqual(done.returncode, 2)
            self.assertIn("wants a GPU, and nvidia-smi shows none", done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1)
            self.assertEqual(done.stdout, "", "something was installed or timed before")


class CeilingsTest(unittest.TestCase):
    """The calls of CUDA's libraries, by a library that refuses others than those that it should get."""

    def measure(self, what, **environment):
        library = pathlib.Path(os.environ["GARONNE_MADE_UP_CUDA"])
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "libcuda.so.1").symlink_to(library)
            return subprocess.run([sys.executable, SOURCE / "scripts/gpu-check.d/ceilings.py", what, library, library],
                                  env=os.environ | {"LD_LIBRARY_PATH": folder} | environment, capture_output=True, text=True,
                                  timeout=100)

    def test_every_call_is_as_the_libraries_want_it(self):
        wanted = {"facts": {"multiprocessors": 132, "free_bytes": 149 << 30, "total_bytes": 150 << 30, "driver_cuda": 13010,
                            "runtime_cuda": 13000},
                  # 2 ms are four copies or products, or 2,000 launches, or four graphs of as many.
                  "ceilings": {"device_copy_bytes_per_second": 4 * 4 * 2**30 / 2e-3, "in_bytes_per_second": 4 * 2**30 / 2e-3,
                               "out_bytes_per_second": 4 * 2**30 / 2e-3, "bfloat16_operations_per_second": 8 * 8192**3 / 2e-3,
                               "float32_operations_per_second": 8 * 8192**3 / 2e-3, "launch_seconds": 1e-6,
                               "graph_node_seconds": 2.5e-7}}
        for what, values in wanted.items():
            done = self.measure(what)
            self.assertEqual(done.returncode, 0, done.stderr)
            found = json.loads(done.stdout)
            self.assertEqual(set(found), set(GOOD[what]), "other names than the list reads")
            for name, value in values.items():
                self.assertAlmostEqual(found[name] / value, 1, places=5, msg=name)
        # Each size is said when it is done, and at the end all of them.
        said = [json.loads(line)["seconds_by_gibibytes"] for line in self.measure("pinning").stdout.splitlines()]
        self.assertEqual([len(found) for found in said[:-1]], list(range(1, len(said))))
        self.assertEqual(said[-2:-1] or [{}], said[-1:])
        self.assertLessEqual(set(said[-1]), {"1", "4", "16"})

    def test_what_fails_is_named(self):
        self.assertIn("sees no device", self.measure("facts", MADE_UP_CUDA_HAS_NO_DEVICE="1").stderr)


if __name__ == "__main__":
    unittest.main()
