# SPDX-License-Identifier: MIT
"""Weights of operators in the form of packages of PyTorch, out and in again, and what is refused. tests/peer runs them there."""
import json
import pathlib
import shutil
import tempfile
import unittest

from skill_test import RUN_FILE
from support import BINARY, FieldsTest, checkpoint_tensors, run, safetensors


class PackagesTest(FieldsTest, unittest.TestCase):
    RUN_FILE = RUN_FILE

    @classmethod
    def make_data(cls):
        run("data", "synthetic-era5", "--latitudes", 16, "--longitudes", 32, "--channels", "t2m,z500", "--frame-hours", 24,
            "--years", 2, "--output", cls.folder / "data", "--no-progress")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.exported = {}

    SFNO = ("--model.kind", "sfno", "--model.modes", "", "--model.scale_factor", 2)
    FORMS = {"neuraloperator": (), "torch-harmonics": (*SFNO, "--model.block", "torch-harmonics"), "makani": SFNO,
             "neuraloperator of factors": ("--model.kind", "tfno", "--model.rank", 0.4),
             "makani by degree and order": (*SFNO, "--model.spectral_operator", "diagonal")}

    def export(self, form):
        """Run and folder of two steps of a form, made once."""
        if form not in self.exported:
            directory = self.folder / form.replace(" ", "-")
            self.train(directory, "--train.steps", 2, *self.FORMS[form])
            folder = self.folder / f"{directory.name}-exported"
            run("checkpoint", "export", directory, "--to", form.split()[0], folder)
            self.exported[form] = directory, folder
        return self.exported[form]

    def refused_import(self, folder, *arguments, package="neuraloperator", check=(2, 5)):
        directory = self.folder / "refused"
        done = run("checkpoint", "import", "--from", package, folder, *arguments, "--output", directory, check=None)
        self.assertIn(done.returncode, check)
        self.assertFalse(directory.exists())
        return done.stderr

    def test_what_its_budget_has_no_room_for_is_exported(self):
        """A tensor at a time, whatever the run had below its device: the bytes of the run that had all of it there."""
        wide = ("--model.layers", 8, "--model.hidden", 96, "--model.modes", "6,6", "--train.steps", 1, "--evaluation.batches", 0)
        # The folder of temporary files may be in memory.
        with tempfile.TemporaryDirectory(prefix="packages-test-", dir=pathlib.Path(BINARY).resolve().parent) as disk:
            below = ("--memory.disk", disk)
            planned = json.loads(run("plan", self.config, *wide, *below, "--json").stdout)
            budget = planned["minimum_budget_bytes"]
            self.assertLess(budget, 4 * planned["parameters"])
            self.train(self.folder / "small", *wide, *below, "--memory.budget", budget)
        self.train(self.folder / "whole", *wide)
        for name in ("small", "whole"):
            run("checkpoint", "export", self.folder / name, "--to", "neuraloperator", self.folder / f"{name}-exported")
        for file in ("model.safetensors", "config.json"):
            self.assertEqual(*((self.folder / f"{name}-exported" / file).read_bytes() for name in ("small", "whole")), file)

    def test_out_and_in_again_to_the_byte(self):
        for form in self.FORMS:
            with self.subTest(form):
                directory, folder = self.export(form)
                package = form.split()[0]
                imported = self.folder / f"{directory.name}-imported"
                shown = run("checkpoint", "import", "--from", package, folder, "--config", self.config, "--output",
                            imported).stdout
                self.assertIn("hidden = 8", shown)
                again = self.folder / f"{directory.name}-again"
                run("checkpoint", "export", imported, "--to", package, again)
                for file in ("model.safetensors", "config.json"):
                    self.assertEqual((folder / file).read_bytes(), (again / file).read_bytes(), file)
                wanted = checkpoint_tensors(directory / "checkpoints" / "step-2")
                found = checkpoint_tensors(imported / "checkpoints" / "step-0")
                for name, (shape, values) in found.items():
                    if package == "makani" and name.endswith(("norm1.bias", "skip.bias")):
                        continue  # they are one there
                    self.assertEqual((shape, values), wanted[name], name)

    def test_biases_of_makanis_skips_are_in_those_of_the_norms(self):
        directory, folder = self.export("makani")
        ours = checkpoint_tensors(directory / "checkpoints" / "step-2")
        theirs = safetensors(folder / "model.safetensors")["blocks.1.norm1.bias"]
        self.assertTrue(any(ours["block.1.skip.bias"][1]))
        for found, one, other in zip(theirs, ours["block.1.norm1.bias"][1], ours["block.1.skip.bias"][1], strict=True):
            self.assertAlmostEqual(found, one + other, places=7)

    def test_a_run_begins_with_imported_weights(self):
        _, folder = self.export("neuraloperator")
        imported = self.folder / "to-start-from"
        run("checkpoint", "import", "--from", "neuraloperator", folder, "--config", self.config, "--output", imported)
        done = self.train(self.folder / "started", "--train.steps", 1, "--init-from", imported)
        self.assertIn("starts from the parameters of", done.stdout)
        self.assertIn("rmse", run("eval", imported, "--lead-steps", 1).stdout.lower())

    def test_layout_of_the_files(self):
        _, folder = self.export("neuraloperator")
        config = json.loads((folder / "config.json").read_text())
        self.assertEqual((config["class"], config["arguments"]["n_modes"]), ("neuralop.models.fno.FNO", [4, 4]))
        self.assertEqual(config["complex"], [f"fno_blocks.convs.{layer}.weight.tensor" for layer in range(2)])
        header = (folder / "model.safetensors").read_bytes()
        shapes = {name: entry["shape"] for name, entry in json.loads(header[8:8 + int.from_bytes(header[:8], "little")]).items()
                  if name != "__metadata__"}
        self.assertEqual(shapes["fno_blocks.convs.0.weight.tensor"], [8, 8, 4, 3, 2])
        self.assertEqual(shapes["fno_blocks.convs.0.bias"], [8, 1, 1])
        self.assertEqual(shapes["fno_blocks.channel_mlp_skips.1.weight"], [1, 8, 1, 1])
        self.assertEqual(shapes["lifting.fcs.0.weight"], [16, 4, 1])

    def test_models_that_a_package_has_not_are_refused(self):
        cases = (("neuraloperator", ("--model.block", "li"), "model.block"),
                 ("neuraloperator", ("--model.padding", 3), "model.padding"),
                 ("neuraloperator", self.FORMS["makani"], "model.kind"),
                 ("torch-harmonics", self.FORMS["makani"], "export --to makani"),
                 ("torch-harmonics", (*self.FORMS["torch-harmonics"], "--model.scale_factor", 1), "model.scale_factor"),
                 ("torch-harmonics", (*self.FORMS["torch-harmonics"], "--model.spectral_operator", "diagonal"),
                  "model.spectral_operator"),
                 ("makani", self.FORMS["torch-harmonics"], "export --to torch-harmonics"),
                 ("makani", (), "model.kind"))
        for number, (package, overrides, text) in enumerate(cases):
            with self.subTest(package, text=text):
                directory = self.folder / f"other-{number}"
                self.train(directory, "--train.steps", 1, *overrides)
                target = self.folder / f"none-{number}"
                refused = run("checkpoint", "export", directory, "--to", package, target, check=2)
                self.assertIn(text, refused.stderr)
                self.assertFalse(target.exists())

    def test_grids_that_torch_harmonics_has_not_are_refused(self):
        data = self.folder / "midpoints"
        run("data", "synthetic-era5", "--grid", "equiangular-midpoints", "--latitudes", 16, "--longitudes", 32, "--channels",
            "t2m,z500", "--frame-hours", 24, "--years", 1, "--output", data, "--no-progress")
        self.assertIn("equiangular-midpoints: latitude 16 (84.375 to -84.375)", run("data", "inspect", data / "train").stdout)
        for package in ("torch-harmonics", "makani"):
            directory = self.folder / f"midpoints-{package}"
            self.train(directory, "--train.steps", 1, *self.FORMS[package], "--data.path", data / "train", "--data.validation",
                       data / "test")
            refused = run("checkpoint", "export", directory, "--to", package, self.folder / "no-such-grid", check=2)
            self.assertIn("equiangular-midpoints", refused.stderr)
            run("eval", directory, "--lead-steps", 1, "--weighting", "quadrature")

    def test_other_packages_are_refused(self):
        directory, folder = self.export("neuraloperator")
        refused = run("checkpoint", "export", directory, "--to", "tensorflow", self.folder / "none", check=2).stderr
        self.assertIn("huggingface, neuraloperator, torch-harmonics, makani", refused)
        refused = run("checkpoint", "export", directory, "--to", "huggingface", self.folder / "none", check=2).stderr
        self.assertIn("--to", refused)
        self.assertIn("--config", self.refused_import(folder, check=(2,)))
        self.assertIn("package", self.refused_import(folder, "--config", self.config, package="makani"))

    def test_files_that_do_not_fit_are_refused(self):
        _, folder = self.export("neuraloperator")
        other = self.folder / "changed"

        def refused(change):
            shutil.rmtree(other, ignore_errors=True)
            shutil.copytree(folder, other)
            config = json.loads((other / "config.json").read_text())
            change(config)
            (other / "config.json").write_text(json.dumps(config))
            return self.refused_import(other, "--config", self.config)

        for argument, value in (("norm", "group_norm"), ("in_channels", 5), ("n_modes", [4, 4, 4]), ("use_channel_mlp", False),
                                ("hidden", 8), ("domain_padding", [0.25, 0.25]), ("factorization", "TT")):
            with self.subTest(argument):
                self.assertIn("modes" if argument == "n_modes" else f"arguments.{argument}",
                              refused(lambda config: config["arguments"].update({argument: value})))
        self.assertIn("class", refused(lambda config: config.update({"class": "neuralop.models.uno.UNO"})))
        self.assertIn("version", refused(lambda config: config.update(version=2)))
        self.assertIn("has the shape [16, 4, 1], and config.json makes it [8, 4, 1]",
                      refused(lambda config: config["arguments"].update(hidden_channels=4)))
        self.assertIn("has no tensor fno_blocks.fno_skips.2.conv.weight",
                      refused(lambda config: config["arguments"].update(n_layers=3)))
        self.assertIn("which is none of this model", refused(lambda config: config["arguments"].update(n_layers=1)))


if __name__ == "__main__":
    unittest.main()
