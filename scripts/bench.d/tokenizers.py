# SPDX-License-Identifier: MIT
"""Times `garonne data text --tokenizer` beside encode_batch of Hugging Face's tokenizers, and prints the ratios.

Started by `scripts/bench tokenizers`, which makes the environment. Both get the same documents, tokenizers trained on
some of them, and the same number of threads. Garonne's seconds are those of the whole command: it reads one file,
encodes and writes tokens with checksums. encode_batch has the documents in memory and its ids are dropped.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# In place of this folder, in which a file has the name of the package.
sys.path[0] = str(ROOT / "tests" / "peer")


def parse_arguments():
    parser = argparse.ArgumentParser(prog="scripts/bench tokenizers")
    parser.add_argument("--megabytes", type=int, default=100, help="of text; what the machine has is repeated")
    parser.add_argument("--threads", type=int, default=2, help="for both programs")
    parser.add_argument("--repeats", type=int, default=3, help="turns of each program")
    parser.add_argument("--kinds", default="gpt2,llama3,qwen", help="of gpt2, llama3, qwen; comma-separated")
    parser.add_argument("--vocabulary", type=int, default=50_000, help="tokens of each tokenizer")
    parser.add_argument("--json", type=pathlib.Path, help="where to write every figure")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    os.environ["RAYON_NUM_THREADS"] = str(arguments.threads)  # before the package starts its threads
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    from mixed_text import documents
    from tokenizer_kinds import make_tokenizer, train_model

    wanted = arguments.megabytes * 1_000_000
    own = documents(min(wanted, 50_000_000))
    repeated = own * -(-wanted // sum(map(len, own)))
    decoded = [part.decode("utf-8", "replace") for part in own]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "text"
        path.write_bytes(b"".join(repeated))
        megabytes = path.stat().st_size / 1e6
        texts = [part.decode("utf-8", "replace") for part in repeated]
        print(f"{megabytes:.0f} MB in {len(texts)} documents, {arguments.threads} threads; best of {arguments.repeats}")
        for kind in arguments.kinds.split(","):
            tokenizer = make_tokenizer(kind, train_model(decoded[::4], arguments.vocabulary, kind))
            tokenizer.save(f"{folder}/{kind}.json")
            theirs, ours = [], []
            for _ in range(arguments.repeats):
                start = time.perf_counter()
                for first in range(0, len(texts), 1000):  # all at once would take their memory
                    tokenizer.encode_batch(texts[first:first + 1000], add_special_tokens=False)
                theirs.append(time.perf_counter() - start)
                start = time.perf_counter()
                subprocess.run([os.environ["GARONNE_BINARY"], "data", "text", path, "--output", f"{folder}/tokens.h5",
                                "--tokenizer", f"{folder}/{kind}.json", "--threads", str(arguments.threads)],
                               check=True, stdout=subprocess.DEVNULL)
                ours.append(time.perf_counter() - start)
            rows.append({"kind": kind, "megabytes": megabytes, "threads": arguments.threads, "garonne_seconds": ours,
                         "tokenizers_seconds": theirs})
            print(f"{kind:7} garonne {megabytes / min(ours):7.1f} MB/s   encode_batch {megabytes / min(theirs):6.1f} MB/s"
                  f"   {min(theirs) / min(ours):5.1f} times as fast", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


main()
