#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The ids of `garonne data text --tokenizer` beside those of Hugging Face's `tokenizers` and of SentencePiece, on
tokenizers that their own trainers make here: with the expressions of GPT-2, Llama 3, Qwen and others, unigram and BPE.

The text, about 10 MB: translated manual pages where the machine has them, sources and headers, and between them what
is hard to cut: emoji, combining marks, contractions, runs of white space, added tokens and bytes that are no UTF-8.
Needs the environment that `scripts/bench --environment-only` makes, as scripts/test --peer does.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from mixed_text import found_files, hard_text
from peer_environment import enter_environment

GARONNE = os.environ["GARONNE_BINARY"]


def tokens_of(path):
    import h5py
    with h5py.File(path, "r") as file:
        return file["tokens"][:].tolist()


def data_text(folder, name, texts, tokenizer, threads):
    output = f"{folder}/{name}.h5"
    subprocess.run([GARONNE, "data", "text", *texts, "--output", output, "--tokenizer", tokenizer, "--threads", threads],
                   check=True, stdout=subprocess.DEVNULL)
    return tokens_of(output)


def compare(name, threads, ours, expected):
    equal = ours == expected
    where = next((i for i, (a, b) in enumerate(zip(ours, expected)) if a != b), min(len(ours), len(expected)))
    print(f"{name:15} {threads} threads: {len(ours)} tokens, " +
          ("equal" if equal else f"{len(expected)} expected, the first difference at {where}"))
    return equal


# In brackets and out of them; Mc and Mn are left out, between which later versions of Unicode moved a character.
CLASSES = ([rf"\p{{{name}}}" for name in (
    "C Cc Cf Co L Ll Lm Lo Lt Lu M Me N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs Han Hiragana Katakana Hangul "
    "Bopomofo Thai Arabic Hebrew Latin Greek Cyrillic Devanagari Common").split()] +
           [form % name for form in (r"\P{%s}", r"[^\p{%s}]") for name in ("L", "N", "P", "S", "Han", "Latin")] +
           [r"\s", r"\S", r"[\s]", r"[^\s]", r"\d", r"\D", r"[\d]", r"[\D]", r"\w", r"\W", r"[\w]", r"[^\w]", ".",
            r"(?i:[a-z])", r"(?i:k|s|i)", r"[\P{Thai}]", r"\p{^Greek}"])


def classes_of_characters(folder):
    """Which of all characters each class has, but for those that PCRE2's version of Unicode does not know. Returns
    whether all are equal."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    def taken(pattern, text):
        tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(sorted(alphabet))}, merges=[]))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(pattern), "removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.save(f"{folder}/class.json")
        pathlib.Path(f"{folder}/characters").write_bytes(text.encode())
        return tokenizer, data_text(folder, "class", [f"{folder}/characters"], f"{folder}/class.json", "1")

    alphabet = pre_tokenizers.ByteLevel.alphabet()
    characters = "".join(chr(one) for one in range(1, 0x110000) if not 0xD800 <= one < 0xE000)
    tokenizer, ids = taken(r"\p{Cn}", characters)
    unknown = set(tokenizer.decode(ids))
    known = "".join(one for one in characters if one not in unknown)
    print(f"{len(known)} characters are known")
    good = True
    for pattern in CLASSES:
        tokenizer, ids = taken(pattern, known)
        good = compare(pattern, "1", ids, tokenizer.encode(known).ids) and good
    return good


def sentence_pieces(mixed, folder):
    """Those of BPE for the whole text; of unigram models for its parts of 64 KiB, up to which they are those of the
    package. Returns whether all are equal."""
    import sentencepiece
    from sentencepiece_kinds import KINDS, train

    lines = [line for line in mixed.decode("utf-8", "replace").splitlines() if line.strip()]
    limit = 1 << 16
    parts = []
    for i, begin in enumerate(range(0, len(mixed), limit)):
        parts.append(f"{folder}/part-{i:04}")
        pathlib.Path(parts[-1]).write_bytes(mixed[begin:begin + limit])
    good = True
    for kind, options in KINDS.items():
        model = train(kind, lines[::5], 8000)
        pathlib.Path(f"{folder}/{kind}.model").write_bytes(model)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        texts = [f"{folder}/text"] if options["model_type"] == "bpe" else parts
        expected = []
        for text in texts:
            expected += processor.encode(pathlib.Path(text).read_bytes()) + [processor.eos_id()]
        for threads in ("1", "2"):
            ours = data_text(folder, kind, texts, f"{folder}/{kind}.model", threads)
            good = compare(kind, threads, ours, expected) and good
    return good


def files_of_gpt2(model, decoded, folder):
    """The model as GPT-2 was published, vocab.json and merges.txt, with no added token but the end of a text. Returns
    whether all are equal."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    end = "<|endoftext|>"
    vocabulary = model["vocab"] | {end: len(model["vocab"])}
    pathlib.Path(f"{folder}/vocab.json").write_text(json.dumps(vocabulary))
    pathlib.Path(f"{folder}/merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in model["merges"]))
    tokenizer = Tokenizer(models.BPE.from_file(f"{folder}/vocab.json", f"{folder}/merges.txt"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([end])
    expected = tokenizer.encode(decoded, add_special_tokens=False).ids + [vocabulary[end]]
    good = True
    for threads in ("1", "2"):
        ours = data_text(folder, "vocab", [f"{folder}/text"], f"{folder}/vocab.json", threads)
        good = compare("vocab.json", threads, ours, expected) and good
    return good


def main():
    enter_environment()
    from tokenizer_kinds import KINDS, make_tokenizer, train_model

    mixed = hard_text(10_000_000)
    decoded = mixed.decode("utf-8", "replace")
    print(f"{len(mixed)} bytes of text")
    pages, sources = found_files()
    assert pages and sources, f"{len(pages)} manual pages and {len(sources)} sources on this machine: both are needed"
    assert len(mixed) > 9_500_000, "too little text on this machine: scripts/bench --environment-only fetches some"
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
                ours = data_text(folder, kind, [f"{folder}/text"], f"{folder}/{kind}.json", threads)
                failed = not compare(kind, threads, ours, expected) or failed
        failed = not files_of_gpt2(models["gpt2"], decoded, folder) or failed
        failed = not classes_of_characters(folder) or failed
        failed = not sentence_pieces(mixed, folder) or failed
    sys.exit(1 if failed else 0)


main()
