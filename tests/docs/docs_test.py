# SPDX-License-Identifier: MIT
"""The documents say what the program does: every configuration key, with its default, range and meaning;
every command; and links that lead somewhere."""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

BINARY = os.environ.get("GARONNE_BINARY", "build/bin/garonne")
ROOT = pathlib.Path(os.environ.get("GARONNE_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "slurm/README.md",
             *sorted((ROOT / "docs").glob("**/*.md"))]


def help_of(*command):
    return subprocess.run([BINARY, *command, "--help"], capture_output=True, text=True, check=True).stdout


def keys_of_help():
    """{key: (range, default, meaning)}; a long name has its description on the next line."""
    text = re.sub(r"\n {25,}", " ", help_of("train"))
    found = re.findall(r"^ +--([a-z]+\.\w+) +(.*) \[(.*); default (.*)\] *$", text, re.MULTILINE)
    return {name: (choices, default, meaning.strip()) for name, meaning, choices, default in found}


def keys_of_formats():
    text = (ROOT / "docs/formats.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| `([a-z]+\.\w+)` \| (\S+) \| (.*?) \| (.*) \|$", text, re.MULTILINE)
    return {name: (choices, default.strip("`"), meaning)
            for name, default, choices, meaning in found}


def anchors(text):
    """As GitHub makes them from headings."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
            for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


class Documents(unittest.TestCase):
    maxDiff = None

    def test_every_key_is_described(self):
        in_help = keys_of_help()
        self.assertEqual(set(in_help), set(re.findall(r"--([a-z]+\.\w+)", help_of("train"))))
        self.assertEqual(keys_of_formats(), in_help)

    def test_every_command_is_in_the_readme(self):
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        commands = help_of().split("Subcommands:")[1].split("Exit codes")[0]
        for command in re.findall(r"^  (\w+) ", commands, re.MULTILINE):
            self.assertIn(f"garonne {command} ", readme)

    def test_every_pipeline_schedule_is_in_the_guide(self):
        grids = (ROOT / "docs/guide/grids.md").read_text(encoding="utf-8")
        plans = (ROOT / "docs/guide/plans.md").read_text(encoding="utf-8")
        of_key = re.search(r"`grid.schedule` orders the micro-batches \((.*?)\)", grids, re.DOTALL).group(1)
        of_command = re.search(r"The schedules are (.*?)`--all`", plans, re.DOTALL).group(1)
        for name in keys_of_help()["grid.schedule"][0].split(", "):
            self.assertIn(f"`{name}`", of_key)
            self.assertIn(f"`{name}`", of_command)

    def test_the_plan_in_the_readme_is_the_plan(self):
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        options = re.search(r"\$ build/bin/garonne plan config/gpt_shakespeare.toml (.*)", readme).group(1).split()
        with tempfile.TemporaryDirectory() as cache:
            # The vocabulary of bytes, so that the data need not be there.
            shown = subprocess.run([BINARY, "plan", ROOT / "config/gpt_shakespeare.toml", *options,
                                    "--model.vocabulary", "256"], capture_output=True, text=True, check=True,
                                   env=os.environ | {"GARONNE_CACHE": cache}).stdout
        for line in shown.splitlines()[:-1]:  # the last one is about times
            for word in line.removesuffix("  <- chosen").split("  "):
                self.assertIn(word.strip(), readme)

    def test_files_that_are_named_are_there(self):
        """From the root of the project; in backticks, rooms also as they are included."""
        rooms = "|".join(room.name for room in (ROOT / "src").iterdir() if room.is_dir())
        paths = [re.compile(r"(?<![\w/.-])(?:src|tests|scripts|config|apps|cmake|slurm|docs|\.ci)/[\w/.*-]*[\w/*]"),
                 re.compile(rf"(?<=`)(?:{rooms})/[\w/.*-]*[\w/*]")]
        guide = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs/guide").glob("*.md"))
        for name in ("README.md", "CONTRIBUTING.md", "docs/design.md", "docs/nodes.md", "docs/operators.md", *guide):
            text = (ROOT / name).read_text(encoding="utf-8")
            # What a user makes is no part of the project, and <room> is any room.
            named = {path for pattern in paths for path in pattern.findall(text.replace("<room>", "base"))
                     if not path.endswith(".h5")}
            if name not in guide:  # a page of it may name none
                self.assertNotEqual(named, set(), name)
            for path in sorted(named):
                self.assertTrue([*ROOT.glob(path), *(ROOT / "src").glob(path)], f"{name}: {path}")

    def test_links_lead_somewhere(self):
        for document in DOCUMENTS:
            for target in re.findall(r"\]\(([^)]+)\)", document.read_text(encoding="utf-8")):
                if target.startswith("http"):
                    continue
                path, _, anchor = target.partition("#")
                file = document.parent / path if path else document
                self.assertTrue(file.exists(), f"{document.name}: {target}")
                if anchor:
                    self.assertIn(anchor, anchors(file.read_text(encoding="utf-8")), f"{document.name}: {target}")


if __name__ == "__main__":
    unittest.main()
