#include "data/tokens/foreign_tokens.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <limits>
#include <vector>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/printable.hpp"
#include "data/tokens/page_cache.hpp"

namespace garonne::data {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "the files are little-endian");

constexpr std::int64_t looked_at = 64 << 10;
constexpr std::int64_t page_tokens = 32768;

template <typename T>
T value_at(const FileReader& file, std::int64_t offset) {
  T value{};
  file.read(offset, &value, sizeof value);
  return value;
}

bool ends_in(const std::string& path, const std::string& end) {
  return path.size() >= end.size() && path.compare(path.size() - end.size(), end.size(), end) == 0;
}

// llm.c's (dev/data/data_common.py): 256 numbers of 32 bits, of which three say something.
constexpr std::int64_t llmc_header = 1024;
struct LlmcKind {
  std::int32_t magic;
  std::int32_t version;
  int bytes_per_token;
  std::int64_t vocabulary;
};
constexpr LlmcKind llmc_kinds[] = {{20240520, 1, 2, 50257}, {20240801, 7, 4, 128256}};

// Others of llm.c's, which hold no training tokens.
const char* other_llmc_file(std::int32_t magic) {
  switch (magic) {
    case 20240522:
      return "llm.c's questions and answers";
    case 20240326:
      return "a model of llm.c";
    case 20240327:
      return "a state of llm.c for finding faults";
    case 20240328:
      return "a tokenizer of llm.c";
    case 20240527:
      return "a state of training of llm.c";
    default:
      return nullptr;
  }
}

std::optional<ForeignTokens> read_llmc(const std::string& path, const FileReader& file) {
  if (file.size() < 4) return std::nullopt;
  const auto magic = value_at<std::int32_t>(file, 0);
  if (const char* other = other_llmc_file(magic)) {
    throw IoError(path, fmt::format("is {} (magic number {}), not a file of tokens", other, magic));
  }
  const auto* kind = std::find_if(std::begin(llmc_kinds), std::end(llmc_kinds),
                                  [&](const LlmcKind& known) { return known.magic == magic; });
  if (kind == std::end(llmc_kinds)) return std::nullopt;
  if (file.size() < llmc_header)
    throw IoError(path,
                  fmt::format("is cut off within the {} bytes of llm.c's header", llmc_header));
  const auto version = value_at<std::int32_t>(file, 4);
  if (version != kind->version) {
    throw IoError(path, fmt::format("is of version {} of llm.c's files with the magic number {}; "
                                    "known is {}",
                                    version, magic, kind->version));
  }
  ForeignTokens found{.format = "llm.c", .path = path, .index = {}};
  found.file_bytes = file.size();
  found.offset = llmc_header;
  found.tokens = value_at<std::int32_t>(file, 8);
  found.bytes_per_token = kind->bytes_per_token;
  found.vocabulary = kind->vocabulary;
  if (found.tokens < 0)
    throw IoError(path, fmt::format("says that it has {} tokens", found.tokens));
  const std::int64_t expected = llmc_header + found.tokens * found.bytes_per_token;
  if (file.size() != expected) {
    throw IoError(path,
                  fmt::format("says that it has {} tokens, which with the header are {} bytes, "
                              "and has {}",
                              found.tokens, expected, file.size()));
  }
  return found;
}

// nanoGPT's (data/openwebtext/prepare.py): tokens of 16 bits and nothing else.
ForeignTokens read_nanogpt(const std::string& path, const FileReader& file) {
  if (file.size() == 0 || file.size() % 2 != 0) {
    throw IoError(path,
                  fmt::format("has {} bytes: tokens of nanoGPT are 2 bytes each, and it has no "
                              "header of llm.c nor an .idx of Megatron beside it",
                              file.size()));
  }
  ForeignTokens found{.format = nanogpt_format, .path = path, .index = {}};
  found.file_bytes = file.size();
  found.tokens = file.size() / 2;
  found.bytes_per_token = 2;
  return found;
}

// Megatron's (megatron/core/datasets/indexed_dataset.py).
constexpr std::array<char, 9> megatron_magic = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};
constexpr std::int64_t megatron_header = 34;

struct MegatronNumber {
  int bytes;
  bool is_signed;
};

std::optional<MegatronNumber> megatron_number(int code) {
  switch (code) {
    case 1:
      return MegatronNumber{1, false};
    case 2:
      return MegatronNumber{1, true};
    case 3:
      return MegatronNumber{2, true};
    case 4:
      return MegatronNumber{4, true};
    case 5:
      return MegatronNumber{8, true};
    case 8:
      return MegatronNumber{2, false};
    default:
      return std::nullopt;
  }
}

// Numbers of a list in the file, read piece by piece. They may lie at any byte.
template <typename T, typename Take>
void for_each_number(const FileReader& file, std::int64_t offset, std::int64_t count, Take take) {
  std::vector<T> piece;
  for (std::int64_t first = 0; first < count;) {
    piece.resize(static_cast<std::size_t>(std::min<std::int64_t>(count - first, 1 << 18)));
    file.read(offset + first * static_cast<std::int64_t>(sizeof(T)), piece.data(),
              piece.size() * sizeof(T));
    for (const T value : piece) take(first++, value);
  }
}

// Sequences follow each other without gaps, from the start of the .bin to its end.
void check_sequences(const FileReader& index, const std::string& path, std::int64_t sequences,
                     const ForeignTokens& found) {
  std::int64_t lengths = megatron_header;
  const std::int64_t pointers = lengths + 4 * sequences;
  std::int64_t expected = 0;
  std::vector<std::int64_t> starts;
  // Both lists at once, a piece of each at a time.
  constexpr std::int64_t piece = 1 << 16;
  for (std::int64_t first = 0; first < sequences; first += piece) {
    const std::int64_t count = std::min(piece, sequences - first);
    starts.clear();
    for_each_number<std::int64_t>(
        index, pointers + 8 * first, count,
        [&](std::int64_t, std::int64_t start) { starts.push_back(start); });
    for_each_number<std::int32_t>(
        index, lengths + 4 * first, count, [&](std::int64_t i, std::int32_t length) {
          const std::int64_t start = starts[static_cast<std::size_t>(i)];
          if (length < 0)
            throw IoError(path, fmt::format("sequence {} has {} tokens", first + i, length));
          if (start != expected) {
            throw IoError(path, fmt::format("sequence {} begins at byte {} of the .bin, and those "
                                            "before it end at {}",
                                            first + i, start, expected));
          }
          expected += std::int64_t{length} * found.bytes_per_token;
          if (expected > found.file_bytes) {
            throw IoError(path, fmt::format("sequence {} ends at byte {}, and {} has {} bytes",
                                            first + i, expected, found.path, found.file_bytes));
          }
        });
  }
  if (expected != found.file_bytes) {
    throw IoError(path, fmt::format("describes {} bytes of tokens, and {} has {}", expected,
                                    found.path, found.file_bytes));
  }
}

void check_documents(const FileReader& index, const std::string& path, std::int64_t sequences,
                     std::int64_t boundaries) {
  if (boundaries < 1) throw IoError(path, "has no end of a document");
  std::int64_t before = 0;
  std::int64_t last = 0;
  for_each_number<std::int64_t>(
      index, megatron_header + 12 * sequences, boundaries,
      [&](std::int64_t i, std::int64_t boundary) {
        if (i == 0 ? boundary != 0 : boundary < before || boundary > sequences) {
          throw IoError(path, fmt::format("document {} begins with sequence {} of {}", i, boundary,
                                          sequences));
        }
        before = last = boundary;
      });
  if (last != sequences) {
    throw IoError(path,
                  fmt::format("the last document ends with sequence {} of {}", last, sequences));
  }
}

ForeignTokens read_megatron(const std::string& index_path, const std::string& path) {
  const FileReader index(index_path);
  if (index.size() < megatron_header)
    throw IoError(index_path, "is cut off within the 34 bytes of Megatron's header");
  std::array<char, 9> magic{};
  index.read(0, magic.data(), magic.size());
  if (magic != megatron_magic)
    throw IoError(index_path, "does not begin with MMIDIDX: it is no index of Megatron");
  const auto version = value_at<std::uint64_t>(index, 9);
  if (version != 1) throw IoError(index_path, fmt::format("is of version {}; known is 1", version));
  const int code = value_at<std::uint8_t>(index, 17);
  const auto number = megatron_number(code);
  if (!number) {
    throw IoError(index_path, fmt::format("has numbers of the code {}; tokens are 1 (uint8), 2 "
                                          "(int8), 3 (int16), 4 (int32), 5 (int64) or 8 (uint16)",
                                          code));
  }
  const auto sequences = value_at<std::int64_t>(index, 18);
  const auto boundaries = value_at<std::int64_t>(index, 26);
  // So that no product of them is too large.
  constexpr std::int64_t most = std::int64_t{1} << 48;
  if (sequences < 0 || boundaries < 0 || sequences > most || boundaries > most) {
    throw IoError(index_path, fmt::format("says that it has {} sequences and {} ends of documents",
                                          sequences, boundaries));
  }
  const std::int64_t expected = megatron_header + 12 * sequences + 8 * boundaries;
  // A byte more for each sequence where there are several modes.
  if (index.size() != expected && index.size() != expected + sequences) {
    throw IoError(index_path, fmt::format("says that it has {} sequences and {} ends of documents, "
                                          "which are {} bytes, and has {}",
                                          sequences, boundaries, expected, index.size()));
  }
  const FileReader data(path);
  ForeignTokens found{.format = "megatron", .path = path, .index = index_path};
  found.file_bytes = data.size();
  found.bytes_per_token = number->bytes;
  found.is_signed = number->is_signed;
  found.documents = std::max<std::int64_t>(boundaries - 1, 0);
  check_sequences(index, index_path, sequences, found);
  check_documents(index, index_path, sequences, boundaries);
  found.tokens = found.file_bytes / found.bytes_per_token;
  return found;
}

class ForeignInput final : public TokenInput {
 public:
  ForeignInput(const ForeignTokens& file, std::int64_t vocabulary, std::int64_t kept_bytes)
      : file_(file.path),
        about_(file),
        vocabulary_(vocabulary),
        pages_(kept_bytes, page_tokens * file.bytes_per_token) {}

  std::int64_t tokens() const override { return about_.tokens; }

  void copy(std::int64_t first, std::span<std::int64_t> values) override {
    std::size_t done = 0;
    while (done < values.size()) {
      const std::int64_t place = first + static_cast<std::int64_t>(done);
      const std::vector<std::byte>& page = this->page(place / page_tokens);
      const auto offset = static_cast<std::size_t>(place % page_tokens);
      const std::size_t here =
          std::min(values.size() - done,
                   page.size() / static_cast<std::size_t>(about_.bytes_per_token) - offset);
      expect(here > 0, "tokens beyond the end of a file");
      widen(page, offset, values.subspan(done, here), place);
      done += here;
    }
  }

 private:
  using Page = std::vector<std::byte>;

  const Page& page(std::int64_t number) {
    return pages_.get(number, [&](Page& fresh) {
      const std::int64_t first = number * page_tokens;
      const std::int64_t count = std::min(page_tokens, about_.tokens - first);
      fresh.resize(static_cast<std::size_t>(count * about_.bytes_per_token));
      file_.read(about_.offset + first * about_.bytes_per_token, fresh.data(), fresh.size());
    });
  }

  template <typename T>
  void widen_as(const std::vector<std::byte>& page, std::size_t offset,
                std::span<std::int64_t> values, std::int64_t place) const {
    const std::byte* from = page.data() + offset * sizeof(T);
    const std::int64_t most =
        vocabulary_ > 0 ? vocabulary_ : std::numeric_limits<std::int64_t>::max();
    for (std::size_t i = 0; i < values.size(); ++i) {
      T value{};
      std::memcpy(&value, from + i * sizeof(T), sizeof(T));
      const auto token = static_cast<std::int64_t>(value);
      if (token < 0 || token >= most) {
        throw IoError(about_.path,
                      fmt::format("token {} at {} is outside the vocabulary of {}", token,
                                  place + static_cast<std::int64_t>(i), vocabulary_));
      }
      values[i] = token;
    }
  }

  void widen(const std::vector<std::byte>& page, std::size_t offset, std::span<std::int64_t> values,
             std::int64_t place) const {
    switch (about_.bytes_per_token * (about_.is_signed ? -1 : 1)) {
      case 1:
        return widen_as<std::uint8_t>(page, offset, values, place);
      case -1:
        return widen_as<std::int8_t>(page, offset, values, place);
      case 2:
        return widen_as<std::uint16_t>(page, offset, values, place);
      case -2:
        return widen_as<std::int16_t>(page, offset, values, place);
      case 4:
        return widen_as<std::uint32_t>(page, offset, values, place);
      case -4:
        return widen_as<std::int32_t>(page, offset, values, place);
      case -8:
        return widen_as<std::int64_t>(page, offset, values, place);
      default:
        throw InternalError("tokens of a size that no file has");
    }
  }

  FileReader file_;
  ForeignTokens about_;
  std::int64_t vocabulary_;
  PageCache<Page> pages_;
};

std::string ends_of(const std::string& path) {
  const FileReader file(path);
  const std::int64_t count = std::min(looked_at, file.size());
  std::string first(static_cast<std::size_t>(count), '\0');
  std::string last = first;
  file.read(0, first.data(), first.size());
  file.read(file.size() - count, last.data(), last.size());
  return fmt::format("{} B, first {} last {}", file.size(), hash_text(first).substr(0, 12),
                     hash_text(last).substr(0, 12));
}

}  // namespace

std::optional<ForeignTokens> find_foreign_tokens(const std::string& path) {
  std::error_code error;
  const auto is_there = [&](const std::string& file) { return fs::exists(file, error); };
  const bool is_index = ends_in(path, ".idx");
  const bool is_tokens = ends_in(path, ".bin");
  const std::string stem = is_index || is_tokens ? path.substr(0, path.size() - 4) : path;
  const std::string index = stem + ".idx";
  const std::string tokens = stem + ".bin";
  if (!is_index && !is_tokens && (is_there(path) || !is_there(index))) return std::nullopt;
  if (is_there(index)) {
    if (!is_there(tokens))
      throw IoError(tokens, "no such file, and " + printable(index) + " describes it");
    return read_megatron(index, tokens);
  }
  if (is_index) throw IoError(path, "no such file");
  if (!is_there(path)) throw IoError(path, "no such file");
  const FileReader file(path);
  // Whatever its name.
  constexpr std::uint64_t hdf5_signature = 0x0A1A0A0D46444889;
  if (file.size() >= 8 && value_at<std::uint64_t>(file, 0) == hdf5_signature) return std::nullopt;
  if (auto found = read_llmc(path, file)) return found;
  return read_nanogpt(path, file);
}

std::string why_not_of_vocabulary(const std::string& format, std::int64_t vocabulary) {
  // A model's table may be padded a little beyond its tokens.
  constexpr std::int64_t most = 65536 + 1024;
  if (format != nanogpt_format || vocabulary <= most) return {};
  // Wider ones would be twice as many wrong ones.
  return fmt::format(
      "has no header and is read as tokens of 16 bits, which cannot name a "
      "vocabulary of {}; tokens of 32 bits are read from llm.c's .bin (magic number "
      "20240801) and from Megatron's .idx with its .bin",
      vocabulary);
}

std::unique_ptr<TokenInput> open_foreign_tokens(const ForeignTokens& file, std::int64_t vocabulary,
                                                std::int64_t kept_bytes) {
  return std::make_unique<ForeignInput>(file, vocabulary > 0 ? vocabulary : file.vocabulary,
                                        kept_bytes);
}

std::string identity_of(const ForeignTokens& file) {
  std::string text = fmt::format("{}: {}", file.format, ends_of(file.path));
  if (!file.index.empty()) text += "; index " + ends_of(file.index);
  return text;
}

}  // namespace garonne::data
