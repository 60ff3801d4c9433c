#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes tests/data/tokenizers/sentencepiece: small models of SentencePiece of several kinds, trained by its package, and
the ids that it gives to texts of many kinds.

  tests/peer/make_sentencepiece_values.py FOLDER        with a Python that has the package `sentencepiece`
"""
import json
import os
import pathlib
import sys
import tempfile

import sentencepiece
from make_tokenizer_values import BROKEN, TEXTS
from sentencepiece_kinds import KINDS, RULES, train

MORE = ["   ", " \n", "iver<left>iver  <|both|>   river", "DON'T DON DO\u00adN \u200b\u3000 e\u0301e e\u0301\u0301 \u2581x \u2581",
        "=" * 75 + "*" * 61 + " " + "-" * 90, "a\0b", "\u2047 <unk> <s> </s> <0x41>"]
VOCABULARY = 300


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    folder.mkdir(exist_ok=True)
    texts = [text.encode() for text in TEXTS + MORE] + BROKEN
    lines = [line for text in TEXTS + MORE for line in text.splitlines() if line.strip()] * 3
    ids = {}
    with tempfile.TemporaryDirectory() as scratch:
        # A model names the file of its rules.
        os.chdir(scratch)
        pathlib.Path("rules.tsv").write_text(RULES)
        for kind in KINDS:
            model = train(kind, lines, VOCABULARY, "rules.tsv")
            (folder / f"{kind}.model").write_bytes(model)
            processor = sentencepiece.SentencePieceProcessor(model_proto=model)
            ids[kind] = [processor.encode(text) for text in texts]
            print(f"{kind}: {len(model)} bytes, {processor.get_piece_size()} pieces")
        os.chdir(folder)
    made = {"texts": [text.hex() for text in texts], "ids": ids}
    lines = [json.dumps(key) + ":" + json.dumps(value, separators=(",", ":")) for key, value in made.items()]
    (folder / "ids.json").write_text("{" + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    main()
