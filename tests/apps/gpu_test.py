# SPDX-License-Identifier: MIT
"""Training on a GPU beside the processor: bits where they are promised, closeness where they are not.

In a build without CUDA, or where no GPU is visible, all of it fails: the label gpu is for machines that have one."""
import os
import re
import unittest

from support import ProgramTest, metrics, run

STEPS = 4
KEYS = ("--memory.budget", "512 MiB", "--train.steps", STEPS)
# Beside adamw, which all other tests have.
OPTIMIZERS = ("sgd", "lion", "lamb", "lars", "adafactor")
MODELS = {"gpt": (), "llama": ("--model.kind", "llama", "--model.kv_heads", 2, "--model.inner", 48, "--model.dropout", 0)}


def saved(directory):
    """The bytes of the newest checkpoint's tensors."""
    steps = sorted((directory / "checkpoints").glob("step-*"), key=lambda path: int(path.name[5:]))
    return {file.name: file.read_bytes() for file in sorted(steps[-1].glob("*.safetensors"))}


class GpuTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # Where there is no GPU the program says why, and no test is begun.
        done = run("train", cls.config, "--run.directory", cls.folder / "first", "--run.device", "cuda", *KEYS)
        assert "device memory: " in done.stdout, "something else than a GPU was computed on"

    def trained(self, name, device, *keys, check=0):
        directory = self.directory(name)
        done = self.train(directory, "--run.device", device, *KEYS, *keys, check=check)
        if device == "cuda" and check == 0:
            self.assertIn("device memory: ", done.stdout, "something else than a GPU was computed on")
        return directory, done

    def test_losses_are_near_those_of_the_processor(self):
        for kind, model in MODELS.items():
            for precision, bound in (("float64", 1e-10), ("float32", 1e-5), ("bfloat16", 1e-2)):
                with self.subTest(kind, precision=precision):
                    rows = []
                    for device in ("cpu", "cuda"):
                        directory, _ = self.trained(f"{kind}-{precision}-{device}", device, *model, "--train.precision", precision)
                        rows.append(metrics(directory)[0])
                    for key in ("loss", "gradient_norm"):
                        self.assertLessEqual(abs(rows[0][key] / rows[1][key] - 1), bound, key)

    def test_each_optimizer_updates_as_on_the_processor(self):
        for name in OPTIMIZERS:
            with self.subTest(name):
                rows = []
                for device in ("cpu", "cuda"):
                    directory, _ = self.trained(f"{name}-{device}", device, "--optimizer.name", name, "--train.precision", "float64")
                    rows.append(metrics(directory))
                # From the second step on, losses are of what it has updated.
                self.assertNotEqual(rows[0][0]["loss"], rows[0][-1]["loss"])
                for one, other in zip(*rows, strict=True):
                    self.assertLessEqual(abs(one["loss"] / other["loss"] - 1), 1e-8)

    def test_the_same_run_twice_has_the_same_bits(self):
        one, _ = self.trained("one", "cuda", "--train.precision", "bfloat16")
        other, _ = self.trained("other", "cuda", "--train.precision", "bfloat16")
        self.assertEqual([row["loss"] for row in metrics(one)], [row["loss"] for row in metrics(other)])
        self.assertEqual(saved(one), saved(other))

    def test_plans_change_no_bit_and_keep_to_their_bytes(self):
        for kind, model in MODELS.items():
            with self.subTest(kind):
                results = []
                for plan in ("keep-all", "selective", "full", "greedy"):
                    directory, _ = self.trained(f"{kind}-{plan}", "cuda", *model, "--memory.plan", plan, "--train.precision", "bfloat16")
                    for row in metrics(directory):
                        self.assertLessEqual(row["peak_bytes"], row["planned_peak_bytes"])
                    results.append(saved(directory))
                for other in results[1:]:
                    self.assertEqual(results[0], other)

    def test_a_graph_changes_no_bit(self):
        keys = ("--train.precision", "bfloat16", "--train.steps", 6, "--evaluation.every", 4)
        plain, _ = self.trained("plain-steps", "cuda", "--run.graphs", "never", *keys)
        whole, done = self.trained("whole-steps", "cuda", "--run.graphs", "always", *keys)
        self.assertIn("as one CUDA graph", done.stdout)
        for key in ("loss", "gradient_norm", "peak_bytes"):
            self.assertEqual([row[key] for row in metrics(plain)], [row[key] for row in metrics(whole)], key)
        self.assertEqual(saved(plain), saved(whole))

    def test_what_is_offloaded_is_what_is_kept(self):
        # Values of a mebibyte and more: smaller ones stay.
        keys = ("--model.layers", 4, "--model.hidden", 128, "--model.sequence", 128, "--train.global_batch", 16,
                "--train.micro_batch", 8, "--train.precision", "bfloat16")
        kept, done = self.trained("kept-on-the-device", "cuda", "--memory.plan", "keep-all", *keys)
        peak, budget = map(int, re.search(r"measured +(\d+) B .* budget (\d+) B", done.stdout).groups())
        of_libraries = (512 << 20) - budget
        host = ("--memory.host_budget", "256 MiB")
        folder = self.directory("of-a-node")
        folder.mkdir()
        for plan, share, tier, below in (("offload-greedy", 0.92, "host", host), ("zero-offload", 0.8, "host", host),
                                         ("zero-infinity", 0.8, "disk", ("--memory.disk", folder))):
            with self.subTest(plan):
                directory, done = self.trained(plan, "cuda", *keys, "--memory.plan", plan, *below,
                                               "--memory.budget", of_libraries + int(share * peak))
                planned, measured = re.search(tier + r" planned +(\d+) B +measured +(\d+) B", done.stdout).groups()
                self.assertEqual(planned, measured)
                for row in metrics(directory):
                    self.assertLessEqual(row["peak_bytes"], row["planned_peak_bytes"])
                self.assertEqual([row["loss"] for row in metrics(kept)], [row["loss"] for row in metrics(directory)])
                self.assertEqual(saved(kept), saved(directory))

    def test_stopped_and_continued_has_the_same_bits(self):
        whole, _ = self.trained("whole", "cuda")
        directory = self.directory("parts")
        for check in (75, 0):
            self.train(directory, "--run.device", "cuda", *KEYS, "--train.stop_after", 2, check=check)
        self.assertEqual(saved(whole), saved(directory))

    def test_goes_on_from_the_processor_and_back(self):
        directory = self.directory("to-and-fro")
        for last, device in ((1, "cpu"), (2, "cuda"), (3, "cpu")):
            self.train(directory, "--run.device", device, *KEYS, "--train.steps", last)
        alone, _ = self.trained("alone", "cpu")
        for one, other in zip(metrics(directory), metrics(alone)):
            self.assertLessEqual(abs(one["loss"] / other["loss"] - 1), 1e-4)

    def test_what_it_trained_is_judged_continued_and_exported(self):
        directory, _ = self.trained("judged", "cuda")
        self.assertIn("validation loss", run("eval", directory).stdout)
        self.assertTrue(run("eval", directory, "--generate", "To be", "--tokens", 5).stdout)
        self.assertTrue(self.exported(directory))

    def test_what_is_not_finite_is_said_alike(self):
        said = []
        for device in ("cpu", "cuda"):
            _, done = self.trained(f"far-{device}", device, "--optimizer.learning_rate", 1e18,
                                   "--optimizer.clip_norm", 0, "--optimizer.warmup_steps", 0, check=6)
            said.append(done.stderr.split("; nothing was updated")[1])
        self.assertEqual(*said)

    def test_synchronous_steps_have_the_same_bits(self):
        plain, _ = self.trained("plain", "cuda")
        os.environ["GARONNE_SYNCHRONOUS"] = "1"
        try:
            slow, _ = self.trained("slow", "cuda")
        finally:
            del os.environ["GARONNE_SYNCHRONOUS"]
        self.assertEqual(saved(plain), saved(slow))

    def test_ranks_that_share_the_device_train_over_mpi(self):
        one, _ = self.trained("one-rank", "cuda", "--train.precision", "float32")
        two = self.directory("two-ranks")
        for grid in ("data", "pipeline", "tensor"):
            with self.subTest(grid):
                directory = two / grid
                done = self.train(directory, "--run.device", "cuda", *KEYS, "--train.precision", "float32",
                                  f"--grid.{grid}", 2, ranks=2)
                self.assertIn("device memory: ", done.stdout)
                for row, other in zip(metrics(one), metrics(directory), strict=True):
                    self.assertLessEqual(abs(row["loss"] / other["loss"] - 1), 1e-5)
                    self.assertLessEqual(other["peak_bytes"], other["planned_peak_bytes"])

    def test_more_than_the_device_has_is_refused(self):
        done = self.train(self.directory("never"), "--run.device", "cuda", "--memory.budget", "100 TiB", check=2)
        self.assertIn("free on the device", done.stderr)

    def test_an_automatic_budget_is_what_the_device_has(self):
        _, done = self.trained("auto", "cuda", "--memory.budget", "auto")
        self.assertIn("memory.budget = auto: ", done.stdout)
        self.assertIn("free on the device", done.stdout)


if __name__ == "__main__":
    unittest.main()
