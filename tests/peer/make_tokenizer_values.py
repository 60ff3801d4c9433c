#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes tests/data/tokenizers/small_tokenizers.json: one small vocabulary, trained by Hugging Face's tokenizers, under
the expressions of GPT-2, Llama 3, Qwen and others, and the ids that they give to texts of many kinds.

  tests/peer/make_tokenizer_values.py FILE        with a Python that has the package `tokenizers`
"""
import json
import pathlib
import sys

from tokenizer_kinds import KINDS, make_tokenizer, train_model

TEXTS = [
    "The river rises in the Alps and flows west; it carries four boats, two mills and a song.",
    "Der Fluß trägt Schiffe. Überall hört man sie: Größe, Maß und äußerste Mühe.",
    "La rivière naît là-haut, où l'eau gèle ; ça déborde au printemps, n'est-ce pas ?",
    "Река течёт медленно, и в ней отражается небо над городом.",
    "川は山から海へ流れます。水はとても冷たいです。",
    "河水从山上流下来，春天的时候水很多。",
    "강은 산에서 바다로 흐릅니다. 물이 아주 차갑습니다.",
    "النهر طويل والماء بارد في الشتاء.",
    "नदी पहाड़ों से निकलती है और समुद्र तक जाती है।",
    "แม่น้ำไหลลงทะเล น้ำเย็นมาก",
    "Ποταμός μεγάλος· το νερό είναι κρύο.",
    "Dòng sông chảy ra biển, nước rất lạnh và trong.",
    "I'll say it: DON'T, 'S 's 'ſ it's they're WE'VE we'd I'M 'll",
    "for (int i = 0; i < 10; ++i) {\n\tsum += values[i] * 0x1F; // done\n}\n\n\n    return sum;\n",
    "def f(x):\r\n    return {'a': x**2, \"b\": [1, 22, 333, 4444, 1234567]}\r\n\r\n",
    "   leading, trailing   \n \n\t\t\n  x  \n",
    "👩‍👩‍👧‍👦 🇩🇪 👍🏽 ❤️ 🏴󠁧󠁢󠁳󠁣󠁴󠁿 smile 😀😀😀",
    "e\u0301 \u1e9b\u0323 A\u030a \u212b \ufb01 \u1100\u1161\u11a8 각 o\u0302\u0301 \u0344 \u2126",
    "½ Ⅷ ١٢٣٤٥ 四 ²³ 3.14159 1,000,000",
    "a\u180eb\u0085c\u200bd\u200de \u3000\u2003\u00a0\ufeff f\u2028g",
    "one<|endoftext|>two <|endoftext|><|pad|> three<|endoftext|",
    "<left> taken  <left>  and <right>  here <right>\n\nend <right>",
    "naïve cafe\u0301<|both|>\u0301 x<|both|>",
    "x" * 200 + " " * 70 + "\n" * 40 + "y",
    "中文。中文、ア。イー ひ・ら 々〆〇 กขค。ก ·ー 'ʹ",
    "1234x 1234567 12. 1。 a²Ⅷ x³¹ ¼½¾ ⅷⓐⓩ 🄰🅐🅰 ① a-b_c‿d ++! a\x0b\x0c\u0301\u20dd",
    "cafe\u0301| caf\u00e9| cafe\u0301\u0323| o\u0302\u0301 \u1ed1 \u00f4\u0301",
    "",
]
BROKEN = [b"ok \xff\xfe then \x80 and \xe2\x82 cut \xf0\x9f\x98", b"\xed\xa0\x80surrogate \xc0\xaf overlong \xf4\x90\x80\x80",
          b"\xe2\x82\xe2\x82\xac \xf0\x9f\xf0\x9f\x98\x80 \xc3", b"\xf8\x88\x80\x80\x80"]
VOCABULARY = 640


def main():
    texts = [text.encode() for text in TEXTS] + BROKEN
    decoded = [text.decode("utf-8", "replace") for text in texts]
    model = train_model(decoded, VOCABULARY)
    made = {"vocab": model["vocab"], "merges": model["merges"], "tokenizers": {}, "texts": [text.hex() for text in texts],
            "ids": {}}
    for kind in KINDS:
        tokenizer = make_tokenizer(kind, model)
        whole = json.loads(tokenizer.to_str())
        del whole["model"]["vocab"], whole["model"]["merges"]
        made["tokenizers"][kind] = whole
        made["ids"][kind] = [tokenizer.encode(text, add_special_tokens=False).ids for text in decoded]
    # A line for each part.
    lines = [json.dumps(key) + ":" + json.dumps(value, separators=(",", ":")) for key, value in made.items()]
    pathlib.Path(sys.argv[1]).write_text("{" + ",\n".join(lines) + "}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
