# SPDX-License-Identifier: MIT
"""Tokenizers as GPT-2, Llama 3 and Qwen have them, made with Hugging Face's package."""
import json

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

LLAMA_3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA_3.replace(r"\p{N}{1,3}", r"\p{N}")


def split(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated", invert=False),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


# How each cuts text, whether it makes normal form C, and whether a word that is a token needs no merges.
KINDS = {"gpt2": (lambda: pre_tokenizers.ByteLevel(add_prefix_space=False), False, False),
         "llama3": (lambda: split(LLAMA_3), False, True),
         "qwen": (lambda: split(QWEN), True, False),
         # Several cuts, each in what the one before has left, and a space in front.
         "digits": (lambda: pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                     pre_tokenizers.ByteLevel(add_prefix_space=False)]), False, False),
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
    return tokenizer
