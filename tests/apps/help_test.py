# SPDX-License-Identifier: MIT
"""What the command line says of itself: help of every command, its examples, and what was meant where it is refused;
and the manual and completion that are made of help."""
import fcntl
import json
import os
import pathlib
import pty
import re
import shlex
import struct
import subprocess
import tempfile
import termios
import unittest

from language_test import small_tokenizer
from support import BINARY, ProgramTest, RUN_FILE, SOURCE, run

POINTER = "every key of a run file can be given as --table.key VALUE; `garonne train --help` lists them"
# Those that take a run file and its keys.
WITH_KEYS = {"train", "plan", "profile", "data batch", "bench", "bench budgets", "bench offload", "simulate"}
# Examples that are not carried out here: they take minutes, wait for a run that there is not, or want one on fields.
NOT_RUN = {"forecast", "stop", "bench solvers", "bench links", "bench budgets", "bench offload", "bench transforms",
           "data navier-stokes", "data shallow-water", "data synthetic-era5", "data", "checkpoint", "profile"}
# What these take is text of any kind.
FREE_TEXTS = {"--generate", "--stop"}


def help_of(*words):
    return run(*words, "--help").stdout


def section(text, heading):
    """The lines below a heading."""
    found = re.search(rf"^{re.escape(heading)}:\n((?: .*\n?)*)", text, re.MULTILINE)
    return found.group(1).splitlines() if found else []


def all_helps(words=()):
    """{words: help} of the program and of all its commands."""
    found = {" ".join(words): help_of(*words)}
    for line in section(found[" ".join(words)], "Subcommands"):
        if name := re.match(r"  ([\w-]+)", line):
            found.update(all_helps((*words, name.group(1))))
    return found


def on_terminal(columns, *words):
    """What a terminal of so many columns gets."""
    own, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen([BINARY, *words], stdin=subprocess.DEVNULL, stdout=other)
    os.close(other)
    shown = b""
    try:
        while piece := os.read(own, 65536):
            shown += piece
    except OSError:
        pass  # so ends what a terminal gets
    os.close(own)
    assert process.wait() == 0
    return shown.decode().replace("\r\n", "\n")


def longest(text, examples=True):
    return max(len(line) for line in text.splitlines() if examples or not re.match(r"  (garonne|mpirun) |    --", line))


class HelpTest(ProgramTest):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.helps = all_helps()

    def test_every_command_is_there(self):
        self.assertGreater(len(self.helps), 30)
        self.assertLess(WITH_KEYS, set(self.helps))

    def test_lines_are_as_wide_as_the_terminal_or_100(self):
        for words, text in self.helps.items():
            self.assertLessEqual(longest(text), 100, words)
        for words in (("--help",), ("train", "--help"), ("bench", "--help"), ("eval", "--help")):
            self.assertLessEqual(longest(on_terminal(80, *words)), 80, words)
            self.assertLessEqual(longest(on_terminal(60, *words), examples=False), 60, words)
            self.assertEqual(on_terminal(200, *words), run(*words).stdout)
        # Names stand above what they mean where there is no place beside.
        self.assertIn("\n  --memory.budget\n        hard limit", on_terminal(60, "train", "--help"))

    def test_keys_are_listed_once(self):
        keys = set(re.findall(r"^  --([a-z]+\.\w+)", self.helps["train"], re.MULTILINE))
        self.assertGreater(len(keys), 80)
        for words, text in self.helps.items():
            listed = set(re.findall(r"^  --([a-z]+\.\w+)", text, re.MULTILINE))
            if words == "train":
                continue
            # Of what is trained, not of the run.
            memory = {"memory.budget", "memory.host_budget", "memory.disk", "memory.disk_budget"}
            of_its_own = {"eval": memory | {"grid.data", "grid.pipeline", "grid.tensor"}, "forecast": memory}
            self.assertLessEqual(listed, of_its_own.get(words, set()), words)
            self.assertLess(len(text.splitlines()), 100, words)
            self.assertEqual(POINTER in " ".join(text.split()), words in WITH_KEYS, words)
        # And all of these commands take them.
        for words in sorted(WITH_KEYS):
            refused = run(*words.split(), self.config, "--model.layers", "none", check=2).stderr
            self.assertIn("model.layers = none: must be an integer", refused)

    def test_keys_of_operators_come_last(self):
        headings = re.findall(r"^(Keys of .*):$", self.helps["train"], re.MULTILINE)
        of_operators = [heading.endswith("for neural operators only") for heading in headings]
        self.assertEqual(of_operators, sorted(of_operators))
        self.assertEqual(headings[-3:], [f"Keys of [{name}] for neural operators only" for name in ("model", "data", "train")])
        self.assertIn("Keys of [run]", headings)
        last = "\n".join(section(self.helps["train"], headings[-3]))
        self.assertIn("--model.modes", last)
        self.assertNotIn("--model.layers", last)

    def test_commands_stand_before_options(self):
        for words in ("", "bench", "data", "checkpoint"):
            text = self.helps[words]
            self.assertLess(text.index("\nSubcommands:"), text.index("\nOptions:"), words)
        self.assertIn("budgets", "\n".join(section(self.helps["bench"], "Subcommands")))

    def test_ranges_and_defaults_are_words(self):
        for words, text in self.helps.items():
            for name in (r"\bU?INT\b", r"\bFLOAT\b", r"\bNONNEGATIVE\b", r"\bPOSITIVE\b", r" in \[", r"\) OR \(", r"(; |\[)default *\]",
                         "REQUIRED", "Needs:", "Excludes:", r"\{false\}"):
                self.assertNotRegex(text, name, words)
        flat = {words: " ".join(text.split()) for words, text in self.helps.items()}
        for words, meaning in (
                ("report", "--budgets N points of the curve of time against budget; 0 = no curve [0, or 2 to 1000; default 20]"),
                ("plan", "--ranks N so many ranks;"), ("train", "--trace-steps N steps in the trace [1 to 1000; default 3; with --trace]"),
                ("train", "fno, tfno, ufno: Fourier modes kept along each axis [up to 8 integers >= 1 and <= 16777216 with "
                          "commas; default none]"),
                ("forecast", "--output FILE the netCDF file to write [required]"),
                ("forecast", "[at least 0; default 0.05]"), ("forecast", "--compression N level of deflate [0 to 9; default 1]"),
                ("solve", "[2 to 1000; not with --budget]"), ("bench transforms", "[float32, float64; default float32]"),
                ("bench budgets", "[0 to 1000; default 70,50,35]"), ("checkpoint export", "--to FORMAT DIR"),
                ("data text", "inputs text files to train on"), ("data text", "Usage: garonne data text [OPTIONS] inputs...")):
            self.assertIn(meaning, flat[words])
        self.assertIn("a neural operator of fields (the others) [gpt, llama, fno, tfno, ufno, afno, sfno; default gpt]", flat["train"])
        for family in ("GPT", "Llama", "FNO", "TFNO", "UFNO", "AFNO", "SFNO"):
            self.assertRegex(flat[""].split(".")[0], rf"\b{family}\b")

    def test_examples_are_the_commands_own(self):
        for words, text in self.helps.items():
            lines = section(text, "Examples")
            self.assertTrue(1 <= len(lines) <= (5 if words == "" else 3), words)
            self.assertLessEqual(max(map(len, lines)), 80)
            joined = "\n".join(lines).replace("\\\n", "").splitlines()
            if words:
                self.assertTrue(any(f"garonne {words} " in line + " " for line in joined), words)
            for line in joined:
                of = re.sub(r"^ *(mpirun -n \d+ )?garonne ", "", line)
                command = max((name for name in self.helps if of == name or of.startswith(name + " ")), key=len)
                self.assertTrue(command, line)
                if words:
                    self.assertTrue(words == "solve" or command.startswith(words), f"{words}: {line}")
                known = self.helps[command] + (self.helps["train"] if command in WITH_KEYS else "")
                for option in re.findall(r"(--[\w.-]+)", of):
                    self.assertRegex(known, rf"(?m)^  {re.escape(option)}\b", line)
        self.assertNotIn("Exit codes", "".join(text for words, text in self.helps.items() if words))

    def test_examples_work(self):
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        for name, source in (("corpus.txt", "train.txt"), ("held_out.txt", "validation.txt")):
            (folder / name).write_text((self.folder / source).read_text())
        (folder / "tokenizer.json").write_text(json.dumps(small_tokenizer()))
        (folder / "run.toml").write_text(RUN_FILE.format(data="corpus.h5", run="runs/first"))
        first = ["data text", "train", "data darcy"]
        last = [words for words in self.helps if words and words not in first]
        for words in first + last:
            if words in NOT_RUN:
                continue
            for line in "\n".join(section(self.helps[words], "Examples")).replace("\\\n", "").splitlines():
                command = re.sub(r"\bgaronne ", shlex.quote(str(pathlib.Path(BINARY).resolve())) + " ", line, count=1)
                # As small as these files are.
                command += " --samples 4 --test-samples 2 --test t.h5" if words == "data darcy" else ""
                command += " --train.steps 4" if words == "train" else ""
                with self.subTest(line):
                    done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, timeout=300,
                                          errors="replace")
                    self.assertEqual(done.returncode, 0, done.stderr)

    def test_help_is_a_command(self):
        self.assertEqual(run("help").stdout, self.helps[""])
        self.assertEqual(run().stdout, self.helps[""])
        for words in ("train", "data", "data text", "bench budgets"):
            self.assertEqual(run("help", *words.split()).stdout, self.helps[words])
        self.assertIn("trian is no command; did you mean train?", run("help", "trian", check=2).stderr)
        self.assertIn("txt is no command of `garonne data`; did you mean text?", run("help", "data", "txt", check=2).stderr)

    def test_what_was_meant(self):
        for command, given, meant in (
                ("train", ["--lr", 1], "--optimizer.learning_rate"), ("train", ["--model.n_embd", 1], "--model.hidden"),
                ("train", ["--n-layer", 1], "--model.layers"), ("train", ["--model.layer", 1], "--model.layers"),
                ("train", ["--vocab_size", 1], "--model.vocabulary"), ("train", ["--log_interval=5"], "--log.every"), ("train", ["--log-every", 5], "--log.every"),
                ("train", ["--train.learning_rate", 1], "--optimizer.learning_rate"),
                ("plan", ["--rank", 4], "--ranks"), ("plan", ["--steps", 4], "--train.steps"),
                ("plan", ["--memory.budget", 40, "GB"], "--memory.budget 40GB"),
                ("plan", ["--memory.budget", "1.5", "GiB"], "--memory.budget 1.5GiB")):
            with self.subTest(given=given):
                refused = run(command, self.config, *given, check=2).stderr
                self.assertIn(f"did you mean {meant}?", refused)
                # In the order in which they were given; of a budget, its unit.
                words = given[2:] if given[0] == "--memory.budget" else given
                self.assertIn(f"not expected: {' '.join(map(str, words))}; did you", refused)
                self.assertTrue(refused.endswith(f"; `garonne {command} --help` lists its options\n"), refused)
        # A run file that comes last has the unit taken for it.
        self.assertIn("did you mean --memory.budget 40GB?", run("plan", "--memory.budget", 40, "GB", self.config, check=2).stderr)
        for words, said in ((["trian"], "trian is no command; did you mean train?; `garonne --help` lists the commands"),
                            (["data", "txt"], "txt is no command of `garonne data`; did you mean text?; `garonne data --help` lists"),
                            (["train"], "config is required; `garonne train --help` lists its options"),
                            (["bench", "budgets"], "config is required; `garonne bench budgets --help` lists its options")):
            self.assertIn(said, run(*words, check=2).stderr)

    def test_a_mistyped_command_of_bench_is_no_run_file(self):
        refused = run("bench", "lnks", check=2)
        self.assertIn("lnks: is neither a run file nor a command of `bench`; did you mean links?", refused.stderr)

    def test_paths_are_files_or_folders(self):
        for command, text in self.helps.items():
            for line in text.splitlines():
                if " TEXT" in line:
                    self.assertIn(line.split()[0], FREE_TEXTS, command)

    def test_what_was_meant_in_files(self):
        for before, after, meant in (("hidden = 32", "n_embd = 32", "model.hidden"),
                                     ("learning_rate = 1e-3", "lr = 1e-3", "optimizer.learning_rate")):
            bad = self.folder / "bad.toml"
            bad.write_text(self.config.read_text().replace(before, after, 1))
            self.assertIn(f"unknown key; did you mean {meant}?", run("plan", bad, check=2).stderr)
        near = self.folder / "config"
        near.mkdir()
        (near / "gpt_shakespeare.toml").write_text("")
        refused = run("plan", near / "gpt_shakespear.toml", check=2).stderr
        self.assertIn(f"did you mean {near}/gpt_shakespeare.toml?", refused)
        self.assertIn("give the path of a run file", run("plan", near / "other.toml", check=2).stderr)
        inside = subprocess.run([pathlib.Path(BINARY).resolve(), "plan", "gpt_shakespeare.tml"], cwd=near, capture_output=True,
                                text=True)
        self.assertIn("did you mean gpt_shakespeare.toml?", inside.stderr)
        clusters = SOURCE / "config/clusters"
        self.assertIn(f"did you mean {clusters}/leonardo.toml?",
                      run("plan", self.config, "--cluster", clusters / "leonardo.tml", check=2).stderr)

    def test_manual_and_completion_know_the_keys(self):
        share = self.folder / "share"
        subprocess.run([SOURCE / "scripts/make-manual", BINARY, share], check=True)
        page = (share / "man/man1/garonne-plan.1").read_text()
        self.assertIn(POINTER.replace("--", "\\-\\-"), page)
        self.assertNotIn("model.hidden", page)
        page = (share / "man/man1/garonne-train.1").read_text()
        self.assertIn(".SH KEYS OF [MODEL]\n.TP\n.B \\-\\-model.kind\n", page)
        self.assertIn(".nf\n  garonne train run.toml", page)
        completion = share / "bash-completion/completions/garonne"

        def completed(*words):
            listed = " ".join(map(shlex.quote, ("garonne", *words)))
            script = f"source {completion}; COMP_WORDS=({listed}); COMP_CWORD={len(words)}; _garonne; echo ${{COMPREPLY[@]}}"
            return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.split()

        zsh = (share / "zsh/site-functions/_garonne").read_text()
        for command in sorted(WITH_KEYS):
            words = command.split()
            self.assertEqual(completed(*words, "--memory.bud"), ["--memory.budget"], command)
            self.assertEqual(completed(*words, "--model.mod"), ["--model.modes"], command)
            line = next(line for line in zsh.splitlines() if line.startswith(f'    "{command}")'))
            self.assertIn("'--memory.budget:hard limit", line)
        self.assertEqual(completed("plan", "--ran"), ["--ranks"])
        self.assertEqual(completed("stop", "--memory.bud"), [])
        self.assertEqual(completed("data", "sta"), ["statistics"])
        # Of an option that is only in an example of another command.
        self.assertEqual(completed("solve", "--chain"), [])


if __name__ == "__main__":
    unittest.main()
