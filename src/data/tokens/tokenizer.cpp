#include "data/tokens/tokenizer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.hpp"

namespace garonne::data {
namespace {

// One token a byte: any text, no training, no unknown token.
class ByteTokenizer final : public Tokenizer {
 public:
  std::string name() const override { return "byte"; }
  std::int64_t vocabulary() const override { return 256; }

  void encode(std::span<const std::byte> text, std::vector<std::uint32_t>& tokens) const override {
    const std::size_t before = tokens.size();
    tokens.resize(before + text.size());
    std::transform(text.begin(), text.end(), tokens.data() + before,
                   [](std::byte byte) { return std::to_integer<std::uint32_t>(byte); });
  }

  std::string decode(std::span<const std::uint32_t> tokens) const override {
    std::string text;
    text.reserve(tokens.size());
    for (const std::uint32_t token : tokens) {
      if (token > 255) {
        throw ConfigError("tokenizer", name(), fmt::format("token {} is not a byte", token));
      }
      text.push_back(static_cast<char>(token));
    }
    return text;
  }
};

struct Row {
  const char* name;
  std::unique_ptr<Tokenizer> (*make)();
};

constexpr Row table[] = {
    {"byte", [] { return std::unique_ptr<Tokenizer>(std::make_unique<ByteTokenizer>()); }},
};

}  // namespace

std::vector<std::string> tokenizer_names() {
  std::vector<std::string> names;
  for (const Row& row : table) names.emplace_back(row.name);
  return names;
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name) {
  for (const Row& row : table) {
    if (name == row.name) return row.make();
  }
  throw ConfigError("tokenizer", name,
                    fmt::format("unknown; known are: {}", fmt::join(tokenizer_names(), ", ")));
}

}  // namespace garonne::data
