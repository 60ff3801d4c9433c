# SPDX-License-Identifier: MIT
"""What models of text get from other programs, GPT-2 as it is on the hub and tokens of llm.c, and what is said while and
after a file is read."""
import array
import json
import math
import os
import pathlib
import pty
import re
import shutil
import subprocess
import unittest

from huggingface_files import bits, read_safetensors, write_safetensors
from support import BINARY, ProgramTest, metrics, patient, run


def said_on_terminal(*arguments):
    """What a command says, its standard error being a terminal."""
    own, other = pty.openpty()
    process = subprocess.Popen([BINARY, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=other)
    os.close(other)
    said = b""
    try:
        while piece := os.read(own, 65536):
            said += piece
    except OSError:
        pass  # so ends what a terminal gets
    os.close(own)
    assert process.wait() == 0, said
    return said.decode()


class TextsTest(ProgramTest):
    def test_gpt2_as_it_is_on_the_hub(self):
        directory = self.directory("run")
        self.train(directory, "--train.steps", 2)
        exported = self.exported(directory)
        hub = self.directory("hub")
        shutil.copytree(pathlib.Path(f"{directory}-export-None"), hub)
        theirs = {name.removeprefix("transformer."): tensor
                  for name, tensor in read_safetensors(hub / "model.safetensors").items() if name != "lm_head.weight"}
        self.assertIn("wte.weight", theirs)
        for layer in range(2):
            mask = [float(column <= row) for row in range(32) for column in range(32)]
            theirs[f"h.{layer}.attn.bias"] = ("F32", [1, 1, 32, 32], bits(mask, "F32"))
            theirs[f"h.{layer}.attn.masked_bias"] = ("F32", [], bits([-1e4], "F32"))
        write_safetensors(hub / "model.safetensors", theirs)
        imported = self.directory("imported")
        run("checkpoint", "import", "--from", "huggingface", hub, "--output", imported)
        self.assertEqual(self.exported(imported), exported)
        # Buffers are left out by their names: others are no such.
        write_safetensors(hub / "model.safetensors", theirs | {"h.0.attn.other": ("F32", [1], bits([1.0], "F32"))})
        refused = run("checkpoint", "import", "--from", "huggingface", hub, "--output", self.directory("no"), check=None)
        self.assertIn(refused.returncode, (2, 5))
        self.assertIn("h.0.attn.other", refused.stderr)

    def test_tokens_of_llm_c_are_trained_on(self):
        tokens = [i * i % 211 for i in range(4000)]
        for magic, version, code, vocabulary in ((20240520, 1, "H", 50257), (20240801, 7, "I", 128256)):
            with self.subTest(magic):
                path = self.folder / f"{magic}.bin"
                header = array.array("i", [magic, version, len(tokens)] + [0] * 253)
                path.write_bytes(header.tobytes() + array.array(code, tokens).tobytes())
                self.assertIn("llm.c", run("data", "inspect", path).stdout)
                keys = ("--data.path", path, "--model.hidden", 8)
                batch = json.loads(run("data", "batch", self.config, *keys, "--json").stdout)
                self.assertEqual(len(batch["samples"]), 8)
                for sample, row, targets in zip(batch["samples"], batch["tokens"], batch["targets"]):
                    # The header's numbers are no tokens.
                    self.assertEqual((row, targets), (tokens[32 * sample:32 * sample + 32], tokens[32 * sample + 1:32 * sample + 33]))
                directory = self.directory(str(magic))
                self.train(directory, *keys, "--train.steps", 1)
                # Of a vocabulary that the magic number says, about which nothing is known yet.
                self.assertAlmostEqual(metrics(directory)[0]["loss"], math.log(vocabulary), delta=0.1)

    def test_inspecting_in_full_reads_the_checksums(self):
        words = "and their checksums fit"
        plain = run("data", "inspect", self.data).stdout
        self.assertNotIn(words, plain)
        full = run("data", "inspect", self.data, "--full").stdout
        self.assertIn(words, full)
        self.assertTrue(full.startswith(plain))

    def test_progress_is_for_terminals(self):
        command = ("data", "text", self.folder / "train.txt", "--output", self.folder / "shown.h5")
        self.assertRegex(said_on_terminal(*command), r"convert \[[#.]{24}\] +\d+ % ")
        self.assertNotIn("convert", run(*command).stderr)
        generated = ("data", "darcy", "--samples", 4, "--resolution", 17, "--output", self.folder / "darcy.h5")
        self.assertRegex(said_on_terminal(*generated), r" \[[#.]{24}\] +\d+ % ")
        self.assertNotIn("%", said_on_terminal(*generated, "--no-progress"))

    def test_a_run_says_at_once_what_it_is(self):
        directory, steps = self.directory("run"), 300
        environment = os.environ | {"GARONNE_CACHE": str(self.folder / "fresh-cache")}
        with subprocess.Popen([BINARY, "train", self.config, "--run.directory", directory, "--train.steps", str(steps)],
                              env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            try:
                header, heads = [], None
                for line in process.stdout:
                    if heads is None:
                        file = directory / "metrics.jsonl"
                        heads = (process.poll(), len(metrics(directory)) if file.exists() else 0)
                    if line.startswith("profile: measuring"):
                        break
                    header.append(line)
                self.assertTrue(header and header[0].startswith(f"run       {directory} · gpt · "), header)
                self.assertEqual([line.split()[0] for line in header[:5]], ["run", "to", "build", "model", "data"])
                self.assertTrue(line.startswith("profile: measuring"), line)
                # Of what is held back until the end, the first line is read when all steps are done.
                self.assertEqual(heads, (None, 0))
                rest = process.communicate(timeout=patient(100))[0]
                self.assertEqual(process.returncode, 0, rest)
                self.assertTrue(re.search(rf"(?m)^step +{steps}/{steps} ", rest), rest[-500:])
            finally:
                process.kill()


if __name__ == "__main__":
    unittest.main()
