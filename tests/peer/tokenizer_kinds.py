# SPDX-License-Identifier: MIT
"""Tokenizers as GPT-2, Llama 3, Qwen, o200k and DeepSeek have them, made with Hugging Face's package."""
import json

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

LLAMA_3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA_3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = [r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]
# What other programs of expressions read otherwise: scripts, what is a letter of a word, and repetitions of repetitions.
SCRIPTS = r"\p{Han}+|[\p{Hiragana}\p{Katakana}]+|\P{Thai}?\p{Thai}+|\p{^N}+\P{L}|[^\p{Latin}\s]+"
WORDS = r"\d{,2}[.。]|\p{N}{1,3}+|\w{2,}+|[\w-]+|(?:[^\w\s]{2}?)\u0021|\v+"


def split(*patterns):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated", invert=False) for pattern in patterns] +
                                   [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


# How each cuts text, whether it makes normal form C, and whether a word that is a token needs no merges.
KINDS = {"gpt2": (lambda: pre_tokenizers.ByteLevel(add_prefix_space=False), False, False),
         "llama3": (lambda: split(LLAMA_3), False, True),
         "qwen": (lambda: split(QWEN), True, False),
         # Several cuts, each in what the one before has left, and a space in front.
         "digits": (lambda: pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                     pre_tokenizers.ByteLevel(add_prefix_space=False)]), False, False),
         "o200k": (lambda: split(O200K), False, True),
         "deepseek": (lambda: split(*DEEPSEEK), False, False),
         "scripts": (lambda: split(SCRIPTS), False, False),
         "words": (lambda: split(WORDS), False, False),
         "composed": (lambda: split(QWEN), True, False),
         "spaced": (lambda: pre_tokenizers.ByteLevel(add_prefix_space=True), True, False)}


def train_model(texts, vocabulary, kind="gpt2"):
    """A model as tokenizer.json has it, from the package's own trainer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = KINDS[kind][0]()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocabulary, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return json.loads(tokenizer.to_str())["model"]


def make_tokenizer(kind, model):
    cut, normal, whole_words = KINDS[kind]
    tokenizer = Tokenizer(models.BPE(vocab=model["vocab"], merges=[tuple(pair) for pair in model["merges"]],
                                     ignore_merges=whole_words))
    tokenizer.pre_tokenizer = cut()
    if normal:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>", "<|pad|>"])
    tokenizer.add_tokens([AddedToken("<left>", lstrip=True, normalized=False), AddedToken("<right>", rstrip=True),
                          AddedToken("<|both|>", normalized=True)])
    if kind == "composed":
        # In a form that no text has where tokens like it are looked for.
        tokenizer.add_tokens([AddedToken("e\u0301|", normalized=True), AddedToken("o\u0302\u0301", normalized=False)])
    return tokenizer
