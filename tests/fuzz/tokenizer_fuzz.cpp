// Descriptions of tokenizers: tokenizer.json, vocab.json with merges.txt, or tokenizer.model, and
// the name of a kind of them, as files of tokens have it.
#include <fstream>
#include <string>

#include "data/tokenizers/bpe_description.hpp"
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
    data::TokenizerFile file = data::huggingface_tokenizer(*tokenizer);
    if (!file.left_out.empty()) {
      const auto rules = [](const std::string& json) {
        return data::hash_of_rules(data::read_bpe(json, "exported"));
      };
      fuzz::hold(rules(file.content) == rules(tokenizer->description()),
                 "an export makes the same ids");
      fuzz::hold(data::leave_out_template(file.content).empty(), "all is left out at once");
    }
    const auto special =
        tokenizer->special_tokens(tokenizer->begin_of_text(), tokenizer->end_of_text());
    fuzz::hold(special.size() <= 64, "special tokens are few");
    std::string kind;
    if (std::getline(std::ifstream(input.file("kind")), kind))
      data::make_tokenizer(kind, tokenizer->description(), "kind");
  });
}
