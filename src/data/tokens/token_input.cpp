#include "data/tokens/token_input.hpp"

#include <utility>

#include "data/hdf5/hdf5.hpp"
#include "data/tokens/foreign_tokens.hpp"
#include "data/tokens/token_file.hpp"
#include "data/tokens/token_pages.hpp"

namespace garonne::data {
namespace {

class Hdf5Input final : public TokenInput {
 public:
  Hdf5Input(const std::string& path, const std::string& dataset, std::int64_t vocabulary,
            std::int64_t kept_bytes, std::shared_ptr<ForeignReader> foreign)
      : file_(Hdf5File::open(path, std::move(foreign))),
        pages_(file_, dataset, vocabulary > 0 ? vocabulary : inspect_open_file(file_).vocabulary,
               kept_bytes) {}

  std::int64_t tokens() const override { return pages_.tokens(); }
  void copy(std::int64_t first, std::span<std::int64_t> values) override {
    pages_.copy(first, values);
  }

 private:
  Hdf5File file_;
  TokenPages pages_;
};

}  // namespace

std::unique_ptr<TokenInput> open_token_input(const std::string& path, const std::string& dataset,
                                             std::int64_t vocabulary, std::int64_t kept_bytes,
                                             std::shared_ptr<ForeignReader> foreign) {
  if (const auto tokens = find_foreign_tokens(path))
    return open_foreign_tokens(*tokens, vocabulary, kept_bytes);
  return std::make_unique<Hdf5Input>(path, dataset, vocabulary, kept_bytes, std::move(foreign));
}

}  // namespace garonne::data
