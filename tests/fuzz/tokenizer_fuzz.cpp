// Descriptions of tokenizers: tokenizer.json, or vocab.json with merges.txt.
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
  });
}
