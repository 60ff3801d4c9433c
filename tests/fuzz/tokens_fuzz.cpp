// Files of tokens in HDF5.
#include "data/tokenizers/tokenizer.hpp"
#include "data/tokens/token_file.hpp"
#include "data/tokens/token_pages.hpp"
#include "fuzz/hdf5_target.hpp"

using namespace garonne;

namespace {

void read_tokens(const data::Hdf5File& file, const data::TokenFileInfo& info, const char* name) {
  constexpr std::int64_t at_once = 5000;
  const std::int64_t count = info.tokens_of(name);
  if (count == 0) return;
  data::TokenPages pages(file, name, info.vocabulary, 0);
  fuzz::hold(pages.tokens() == count, "a dataset has the tokens that its description says");
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(std::min(count, at_once)));
  for (const std::int64_t first : {std::int64_t{0}, count - std::min(count, at_once)}) {
    pages.copy(first, tokens);
    for (const std::int64_t token : tokens)
      fuzz::hold(token >= 0 && token < info.vocabulary, "tokens are of the vocabulary");
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::Hdf5Input input(data, size);
  fuzz::take_or_refuse([&] {
    const data::Hdf5File file = data::Hdf5File::open(input.path(), fuzz::foreign_reader());
    const data::TokenFileInfo info = data::inspect_open_file(file);
    fuzz::hold(info.vocabulary >= 1, "there is a vocabulary");
    fuzz::hold(info.bytes_per_token == 2 || info.bytes_per_token == 4, "tokens have a size");
    fuzz::hold(!data::describe(info).empty(), "a file can be described");
    data::token_file_json(info).dump();
    for (const char* name : {data::training_dataset, data::validation_dataset})
      read_tokens(file, info, name);
  });
  if (!input.by_path()) return 0;
  fuzz::take_or_refuse(
      [&] { data::verify_token_file(input.path(), false, fuzz::foreign_reader()); });
  return fuzz::take_or_refuse([&] { data::read_tokenizer(input.path(), fuzz::foreign_reader()); });
}
