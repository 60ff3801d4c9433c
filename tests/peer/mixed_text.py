# SPDX-License-Identifier: MIT
"""Text of many languages and of programs, from what the machine has."""
import glob
import gzip
import os
import pathlib
import random

SOURCE = pathlib.Path(__file__).resolve().parents[2]
HARD = [b"", b"\n", b"\xff\xfe\x80", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80abc", b"<|endoftext|>", b" " * 300,
        b"\n" * 77,
        ("👩‍👩‍👧‍👦🇩🇪👍🏽 e\u0301 \u1e9b\u0323 \u1100\u1161 Å \u212b ﬁ ½Ⅷ ١٢٣\u3000\u2003 a\u180eb\u0085c\u200bd"
         "\ufeff").encode(),
        "DON'T 'S 's 'ſ I'LL 12345678 \r\n\t  x  <left> y <right>  z<|both|>".encode(),
        "हिन्दी नमस्ते ไทยน้ำ العربية\u064b 日本語テキスト 中文文本 한국어 Ελληνικά Việt русский українська".encode()]


def found_files():
    """Paths of manual pages, and of sources and headers."""
    pages = sorted(glob.glob(str(SOURCE / ".deps/manual-pages/**/*.gz"), recursive=True) +
                   glob.glob("/usr/share/man/*/*/*.gz"))
    sources = sorted(glob.glob(str(SOURCE / "src/**/*.?pp"), recursive=True) + glob.glob("/usr/include/*.h") +
                     glob.glob(os.path.dirname(os.__file__) + "/*.py"))
    return pages, sources


def documents(size):
    """About `size` bytes, the same for the same files: translated manual pages, sources and headers."""
    dice = random.Random(1)
    pages, sources = found_files()
    parts = []
    for paths, limit in ((pages, size * 3 // 4), (sources, size)):
        dice.shuffle(paths)
        total = sum(map(len, parts))
        for path in paths:
            if total > limit:
                break
            try:
                parts.append(gzip.open(path).read() if path.endswith(".gz") else pathlib.Path(path).read_bytes())
            except OSError:  # a link to nowhere, or no gzip
                continue
            total += len(parts[-1])
    dice.shuffle(parts)
    return parts


def hard_text(size):
    """The documents with what is hard to cut between them."""
    dice = random.Random(2)
    return b"".join(part + dice.choice(HARD) for part in documents(size))
