# SPDX-License-Identifier: MIT
"""Models of SentencePiece of several kinds, made by its own trainer."""
import io

# What rules can do: letters and marks put together and taken apart, white space made equal, letters dropped and changed.
RULES = """0009\t0020
000A\t0020
000D\t0020
200B\t0020
3000\t0020
00AD\t
FEFF\t
FB01\t0066 0069
0065 0301\t00E9
0041 030A\t00C5
212B\t00C5
00BD\t0031 2044 0032
0044 004F 004E\t0064 006F 006E
"""

KINDS = {
    "unigram": {"model_type": "unigram"},
    # As Llama 2 has it.
    "bpe-bytes": {"model_type": "bpe", "normalization_rule_name": "identity", "byte_fallback": True,
                  "remove_extra_whitespaces": False, "split_digits": True, "allow_whitespace_only_pieces": True},
    "bpe": {"model_type": "bpe"},
    # Symbols of users, which stay whole; letters made small.
    "unigram-symbols": {"model_type": "unigram", "normalization_rule_name": "nmt_nfkc_cf", "byte_fallback": True,
                        "user_defined_symbols": ["<left>", "<|both|>", "iver", "   "]},
    "bpe-symbols": {"model_type": "bpe", "normalization_rule_name": "identity", "remove_extra_whitespaces": False,
                    "user_defined_symbols": ["<left>", "<|both|>", "iver", "   "]},
    # Pieces across words, and nothing in front of a text.
    "unigram-across": {"model_type": "unigram", "normalization_rule_name": "identity", "remove_extra_whitespaces": False,
                       "add_dummy_prefix": False, "split_by_whitespace": False},
    # Spaces belong to the word before them.
    "bpe-behind": {"model_type": "bpe", "treat_whitespace_as_suffix": True},
}


def train(kind, texts, vocabulary, rules=None):
    """The bytes of a model. `rules`: a file that takes the place of Unicode's normal forms, which are long."""
    import sentencepiece
    options = dict(KINDS[kind])
    if rules and options.get("normalization_rule_name") != "identity":
        options.pop("normalization_rule_name", None)
        options["normalization_rule_tsv"] = str(rules)
    model = io.BytesIO()
    if options.get("byte_fallback"):
        vocabulary += 256
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, vocab_size=vocabulary, hard_vocab_limit=False,
        character_coverage=0.9995, max_sentence_length=100_000, minloglevel=2, num_threads=2, **options)
    return model.getvalue()
