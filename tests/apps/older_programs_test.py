# SPDX-License-Identifier: MIT
"""Plans are what they were: Programs of shipped run files and of random runs on grids, in the form that they had before,
against digests that older builds left in older_programs.json; the names of their plans and their peaks, too.

    older_programs_test.py --record BINARY COMMIT

writes the entries of COMMIT again, as BINARY plans: what a change of plans that is meant does, beside saying so."""
import json
import os
import pathlib
import random
import re
import shutil
import sys
import tempfile
import unittest

import support
from older_form import FINISHES, digests, exchanged_of, older_form
from random_models import make_data
from support import SOURCE, run

RECORDS = pathlib.Path(__file__).with_name("older_programs.json")
# The same seconds and memory on every machine.
FIXED = ("--cluster", SOURCE / "config/clusters/laptop.toml", "--run.threads", 1)


def make_fields(folder):
    """What the shipped run files learn from, in their shapes but few of them. In place of the climate: flow on the sphere."""
    run("data", "darcy", "--samples", 2, "--test-samples", 1, "--resolution", 141, "--stride", 4, "--output",
        folder / "darcy_train.h5", "--test", folder / "darcy_test.h5", "--no-progress")
    run("data", "statistics", folder / "darcy_train.h5", "--pointwise", "--output", folder / "darcy_statistics.h5")
    flow = ("data", "shallow-water", "--trajectories", 1, "--test-trajectories", 1, "--no-progress")
    run(*flow, "--latitudes", 64, "--longitudes", 128, "--trajectory-length", 2, "--frame-hours", 1, "--output",
        folder / "shallow_water")
    run(*flow, "--latitudes", 18, "--longitudes", 32, "--trajectory-length", 12, "--output", folder / "years")
    run("data", "statistics", folder / "years/train", "--pointwise", "--output", folder / "years_statistics.h5")


def planned(run_file, keys, folder):
    """name of the file -> Programs that `garonne plan` writes; values of keys may name {data}."""
    options = [part.replace("{data}", str(folder)) for key, value in keys.items() for part in (f"--{key}", str(value))]
    programs = pathlib.Path(tempfile.mkdtemp(dir=folder))
    path = SOURCE / run_file if run_file else folder / "random.toml"
    run("plan", path, *options, *FIXED, "--program", programs)
    found = {file.stem: json.loads(file.read_text()) for file in sorted(programs.glob("rank_*.json"))}
    shutil.rmtree(programs)
    return found


def all_digests(programs):
    return {name: digests(older_form(program)) for name, program in programs.items()}


def make_folder():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="garonne-older-"))
    # No profile: costs are those that are declared.
    os.environ["GARONNE_CACHE"] = str(folder / "cache")
    make_data(folder)
    make_fields(folder)
    (folder / "random.toml").write_text("[train]\nsteps = 2\nglobal_batch = 24\n")
    return folder


class OlderProgramsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = make_folder()
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.builds = json.loads(RECORDS.read_text())["builds"]

    def test_programs_are_those_of_older_builds(self):
        on_grids = folded = 0
        for build in self.builds:
            for case in build["cases"]:
                with self.subTest(commit=build["commit"], run_file=case["run_file"], keys=case["keys"]):
                    programs = planned(case["run_file"], case["keys"], self.folder)
                    self.assertEqual(all_digests(programs), case["programs"])
                on_grids += not case["run_file"]
                folded += any(instruction["operation"] in FINISHES
                              for program in programs.values() for instruction in program["instructions"])
        self.assertGreaterEqual(on_grids, 20)
        self.assertGreaterEqual(folded, 5)

    def test_whatever_is_other_has_other_digests(self):
        keys = next(case["keys"] for build in self.builds for case in build["cases"]
                    if case["keys"].get("model.kind") == "gpt" and case["keys"].get("grid.tensor", 1) > 1)
        program = planned("", keys, self.folder)["rank_0"]
        found = digests(older_form(program))
        tried = 0
        pick = random.Random(1)
        # Of what is folded, some is dropped.
        buffers = [buffer for buffer in program["buffers"] if buffer["kind"] != "communication"]
        instructions = [instruction for instruction in program["instructions"] if exchanged_of(instruction) < 0]
        for part in pick.sample(buffers, 8) + pick.sample(instructions, 16):
            for key, value in (("bytes", 1), ("kind", "record"), ("operation", "load"), ("frees", [0, 0]), ("completes", 0),
                               ("writes", [0, 0]), ("transient_bytes", 1), ("seconds", 1.5), ("recompute", None)):
                if key not in part:
                    continue
                kept, part[key] = part[key], value
                tried += kept != value
                self.assertEqual(digests(older_form(program)) == found, kept == value, (part, key))
                part[key] = kept
        self.assertGreater(tried, 60)


def case_text(case):
    keys, programs = json.dumps(case["keys"]), json.dumps(case["programs"])
    return f'  {{"run_file": "{case["run_file"]}", "keys": {keys},\n   "programs": {programs}}}'


def record(binary, commit):
    records = json.loads(RECORDS.read_text())
    folder = make_folder()
    support.BINARY = binary
    recorded = re.search(r"\(([\w-]+)\)", run("--version").stdout)[1]
    for build in records["builds"]:
        if build["commit"] != commit:
            continue
        build["commit"] = recorded
        for case in build["cases"]:
            case["programs"] = all_digests(planned(case["run_file"], case["keys"], folder))
            print(case["run_file"], *case["keys"].values(), *(program["plan"] for program in case["programs"].values()))
    shutil.rmtree(folder)
    # A line of keys and one of Programs for each case.
    builds = [f' {{"commit": "{build["commit"]}", "cases": [\n' + ",\n".join(map(case_text, build["cases"])) + "]}"
              for build in records["builds"]]
    comment = json.dumps(records["comment"], indent=1)
    RECORDS.write_text(f'{{"comment": {comment},\n"builds": [\n' + ",\n".join(builds) + "]}\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--record"]:
        record(sys.argv[2], sys.argv[3])
    else:
        unittest.main(verbosity=2)
