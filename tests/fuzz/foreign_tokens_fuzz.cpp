// Tokens of llm.c, nanoGPT and Megatron.
#include <algorithm>
#include <vector>

#include "data/tokens/foreign_tokens.hpp"
#include "fuzz/folder_input.hpp"

using namespace garonne;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::FolderInput input(data, size);
  return fuzz::take_or_refuse([&] {
    const auto found = data::find_foreign_tokens(input.file("input.bin"));
    if (!found) return;
    fuzz::hold(found->tokens >= 0 && found->offset >= 0 &&
                   found->offset + found->tokens * found->bytes_per_token <= found->file_bytes,
               "tokens are in the file");
    fuzz::hold(!data::identity_of(*found).empty(), "a file can be told from others");
    if (found->tokens == 0) return;
    const auto tokens = data::open_foreign_tokens(*found, found->vocabulary, 0);
    fuzz::hold(tokens->tokens() == found->tokens, "all tokens are read");
    std::vector<std::int64_t> values(
        static_cast<std::size_t>(std::min<std::int64_t>(found->tokens, 1 << 16)));
    tokens->copy(found->tokens - static_cast<std::int64_t>(values.size()), values);
    for (const std::int64_t value : values) {
      fuzz::hold(value >= 0 && (found->vocabulary == 0 || value < found->vocabulary),
                 "tokens are of the vocabulary");
    }
  });
}
