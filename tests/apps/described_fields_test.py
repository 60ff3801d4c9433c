# SPDX-License-Identifier: MIT
"""`garonne plan --fields`: a plan before the data are there is the plan that they give."""
import json
import pathlib
import tempfile
import unittest

from support import SOURCE, FieldsTest, run

ROWS, COLUMNS = 17, 32
CHANNELS = ("u10m", "v10m", "t2m", "z500")
RUN_FILE = """
[model]
kind = "sfno"
layers = 2
hidden = 8
[data]
path = "{folder}/weather/train"
normalisation = "none"
[train]
steps = 5
global_batch = 4
micro_batch = 1
loss = "area-l2"
seed = 3
[optimizer]
learning_rate = 1e-3
[evaluation]
every = 0
[memory]
budget = "64 MiB"
[run]
directory = "{folder}/run"
threads = 1
"""


class DescribedFieldsTest(FieldsTest, unittest.TestCase):
    RUN_FILE, RUN_FILE_END = RUN_FILE, ""

    @classmethod
    def make_data(cls):
        run("data", "synthetic-era5", "--output", cls.folder / "weather", "--latitudes", ROWS, "--longitudes", COLUMNS,
            "--channels", *CHANNELS, "--years", 1, "--frames-a-year", 12)

    def answer(self, *keys):
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        answer = json.loads(run("plan", self.config, "--cluster", SOURCE / "config/clusters/laptop.toml", *keys, "--json",
                                "--program", folder).stdout)
        return answer, [path.read_text() for path in sorted(folder.glob("*.json"))]

    def test_is_the_plan_that_the_data_give(self):
        statistics = self.folder / "statistics.h5"
        run("data", "statistics", self.folder / "weather/train", "--output", statistics, "--pointwise")
        decoded = ("--data.statistics", statistics, "--train.decode", "true")
        for keys in ((), ("--data.history", 2, "--train.rollout", 2), ("--data.normalisation", "channel", *decoded),
                     ("--data.normalisation", "pointwise", *decoded), ("--grid.tensor", 2),
                     ("--data.validation", self.folder / "weather/test"),
                     ("--data.inputs", "u10m,t2m,z500", "--data.targets", "t2m")):
            with self.subTest(keys=keys):
                # Validation data are not looked into either.
                told = ("--fields", f"{len(CHANNELS)}x{ROWS}x{COLUMNS}:equiangular", *keys, "--data.path", self.folder / "nowhere")
                self.assertEqual(self.answer(*keys), self.answer(*told))

    def test_the_shipped_models_of_the_atmosphere_plan_on_the_shipped_clusters(self):
        self.plan_on_the_shipped_clusters("era5_sfno", "73x721x1440:equiangular")
        self.plan_on_the_shipped_clusters("era5_afno", "20x720x1440:equiangular")

    def plan_on_the_shipped_clusters(self, name, sizes):
        config, fields = SOURCE / "config" / f"{name}.toml", ("--fields", sizes)
        clusters = sorted((SOURCE / "config/clusters").glob("*.toml"))
        self.assertGreater(len(clusters), 5)
        for cluster in clusters:
            with self.subTest(name, cluster=cluster.stem):
                if cluster.stem == "laptop":
                    # Of four processors, which have no room for a sample and its activations at full size.
                    refused = run("plan", config, *fields, "--cluster", cluster, "--grid.data", 1, "--grid.zero", 0,
                                  "--train.global_batch", 1, "--memory.budget", "64 GiB", check=2).stderr
                    self.assertIn("is more than a node of laptop, four cores has for it: 8.00 GiB, 4 times device.memory", refused)
                    continue
                answer = json.loads(run("plan", config, *fields, "--cluster", cluster, "--json").stdout)
                self.assertLessEqual(answer["peak_bytes"], answer["budget_bytes"])
                self.assertGreater(answer["seconds"], 0)

    def test_says_what_it_wants(self):
        missing = ("--data.path", self.folder / "nowhere")
        done = run("plan", self.config, *missing, check=5)
        self.assertIn("no such file; to plan before the data are there, give their sizes with --fields", done.stderr)
        for text, words in (("73", "another number of sizes"), ("0x3x3", "no number from 1"), ("3x4:round", "none of box"),
                            ("3x4x5x6:equiangular", "no grid on the sphere"), ("1x2x3x4x5", "another number"),
                            ("", "no number from 1")):
            with self.subTest(text):
                done = run("plan", self.config, *missing, "--fields", text, check=2)
                self.assertIn(words, done.stderr)
                self.assertIn("73x721x1440:equiangular", done.stderr)
        named = ("--data.inputs", "a,b,c", "--fields", "2x9x16:equiangular")
        self.assertIn("fewer channels than data.inputs names: 3", run("plan", self.config, *missing, *named, check=2).stderr)
        text = run("plan", SOURCE / "config/gpt_shakespeare.toml", "--fields", "3x4x5", check=2)
        self.assertIn("wants a model of fields", text.stderr)


if __name__ == "__main__":
    unittest.main()
