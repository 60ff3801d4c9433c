#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The ids of `garonne data text --tokenizer` beside those of Hugging Face's `tokenizers`, on tokenizers that its own
trainer makes here, with the expressions of GPT-2, Llama 3 and Qwen.

The text, about 10 MB: translated manual pages where the machine has them, sources and headers, and between them what
is hard to cut: emoji, combining marks, contractions, runs of white space, added tokens and bytes that are no UTF-8.
Needs the environment that `scripts/bench --environment-only` makes, as scripts/test --peer does.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

from mixed_text import hard_text
from peer_environment import enter_environment

GARONNE = os.environ["GARONNE_BINARY"]


def tokens_of(path):
    import h5py
    with h5py.File(path, "r") as file:
        return file["tokens"][:].tolist()


def main():
    enter_environment()
    from tokenizer_kinds import KINDS, make_tokenizer, train_model

    mixed = hard_text(10_000_000)
    decoded = mixed.decode("utf-8", "replace")
    print(f"{len(mixed)} bytes of text")
    assert len(mixed) > 4_000_000, "too little text on this machine: scripts/bench --environment-only fetches some"
    pieces = [decoded[i:i + 100_000] for i in range(0, len(decoded), 200_000)]
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "text").write_bytes(mixed)
        models = {kind: train_model(pieces, 30_000, kind) for kind in ("gpt2", "llama3", "qwen")}
        for kind in KINDS:
            tokenizer = make_tokenizer(kind, models.get(kind, models["gpt2"]))
            tokenizer.save(f"{folder}/{kind}.json")
            expected = tokenizer.encode(decoded, add_special_tokens=False).ids
            expected.append(tokenizer.token_to_id("<|endoftext|>"))
            for threads in ("1", "2"):
                output = f"{folder}/{kind}.h5"
                subprocess.run([GARONNE, "data", "text", f"{folder}/text", "--output", output, "--tokenizer",
                                f"{folder}/{kind}.json", "--threads", threads], check=True, stdout=subprocess.DEVNULL)
                ours = tokens_of(output)
                equal = ours == expected
                failed = failed or not equal
                where = next((i for i, (a, b) in enumerate(zip(ours, expected)) if a != b), min(len(ours), len(expected)))
                print(f"{kind:7} {threads} threads: {len(ours)} tokens, " +
                      ("equal" if equal else f"{len(expected)} expected, the first difference at {where}"))
    sys.exit(1 if failed else 0)


main()
