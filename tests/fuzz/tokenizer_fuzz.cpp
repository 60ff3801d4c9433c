// Descriptions of tokenizers: tokenizer.json, vocab.json with merges.txt, or tokenizer.model, and
// the name of a kind of them, as files of tokens have it.
#include <fstream>
#include <string>

#include "data/tokenizers/tokenizer.hpp"
#include "fuzz/folder_input.hpp"

using namespace garonne;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::FolderInput input(data, size);
  return fuzz::take_or_refuse([&] {
    const auto tokenizer = data::open_tokenizer(input.path());
    for (const char* text : {"", "Hello, world's 1234 numbers\n\n  and\tblanks ",
                             "h\xc3\xa9llo \xff", "<|endoftext|>abcabcabc"}) {
      const std::vector<std::uint32_t> tokens = tokenizer->encode(text);
      for (const std::uint32_t token : tokens)
        fuzz::hold(token < tokenizer->vocabulary(), "tokens are of the vocabulary");
      tokenizer->decode(tokens);
    }
    // As it travels with tokens and runs.
    const auto again = data::make_tokenizer(tokenizer->name(), tokenizer->description(), "again");
    fuzz::hold(again->vocabulary() == tokenizer->vocabulary(), "a tokenizer is made again");
    data::huggingface_tokenizer(*tokenizer);
    fuzz::hold(tokenizer->special_tokens().size() <= 64, "special tokens are few");
    std::string kind;
    if (std::getline(std::ifstream(input.file("kind")), kind))
      data::make_tokenizer(kind, tokenizer->description(), "kind");
  });
}
