#include "data/tokens/text_converter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/partial_file.hpp"
#include "base/printable.hpp"
#include "base/progress.hpp"
#include "data/disk_space.hpp"
#include "data/hdf5/hdf5.hpp"
#include "data/hdf5/hdf5_output.hpp"
#include "data/tokenizers/tokenizer.hpp"
#include "data/tokenizers/unicode_text.hpp"
#include "data/tokens/foreign_tokens.hpp"

namespace garonne::data {
namespace {

namespace fs = std::filesystem;

// What is read at a time, for each thread that encodes.
constexpr std::size_t block_bytes = 2U << 20;
// HDF5 keeps an attribute in a header of at most 64 KiB; a longer list of sources is cut.
constexpr std::size_t largest_source_list = 48U << 10;

std::int64_t check_input(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) throw IoError(path, "no such file");
  if (error) throw IoError(path, error.message());
  if (!fs::is_regular_file(status)) throw IoError(path, "not a regular file");
  const auto bytes = static_cast<std::int64_t>(fs::file_size(path, error));
  if (error) throw IoError(path, error.message());
  if (bytes == 0) throw IoError(path, "the file is empty");
  return bytes;
}

// The file would say that its tokens are the tokenizer's.
void expect_tokens_of(const ForeignTokens& tokens, const Tokenizer& tokenizer) {
  const std::string reason = why_not_of_vocabulary(tokens.format, tokenizer.vocabulary());
  if (!reason.empty()) throw IoError(tokens.path, reason);
  if (tokens.vocabulary == 0 || tokens.vocabulary == tokenizer.vocabulary()) return;
  throw IoError(tokens.path,
                fmt::format("has tokens of a vocabulary of {}, and the tokenizer {} has {}; give "
                            "theirs with --tokenizer, or train on the file as it is: data.path",
                            tokens.vocabulary, tokenizer.name(), tokenizer.vocabulary()));
}

// What can be told from the first bytes, none of which begins a text.
void refuse_other_formats(const std::string& path) {
  struct Format {
    std::string_view beginning;
    std::string_view name;
    std::string_view advice;
  };
  using namespace std::string_view_literals;
  constexpr std::string_view unpack = "unpack it first";
  static constexpr std::array formats = {
      Format{"\x89HDF\r\n\x1A\n"sv, "an HDF5 file",
             "one of tokens is trained on as it is: data.path"},
      Format{"\x93NUMPY"sv, "an array of NumPy",
             "write tokens as a .bin of uint16, and a text as a text"},
      Format{"\x1F\x8B"sv, "packed by gzip", unpack},
      Format{"PK\x03\x04"sv, "a zip archive", unpack},
      Format{"\x28\xB5\x2F\xFD"sv, "packed by zstd", unpack},
      Format{"\xFD\x37zXZ\x00"sv, "packed by xz", unpack},
      Format{"BZh91AY&"sv, "packed by bzip2", unpack},
      Format{"PAR1\x15"sv, "a table of Parquet", "write its texts to a file of text"},
      Format{"ARROW1\0\0"sv, "a table of Arrow", "write its texts to a file of text"},
      Format{"\xFF\xFE"sv, "text of UTF-16", "convert it to UTF-8"},
      Format{"\xFE\xFF"sv, "text of UTF-16", "convert it to UTF-8"},
  };
  std::ifstream stream(path, std::ios::binary);
  std::array<char, 8> head{};
  stream.read(head.data(), head.size());
  const std::string_view beginning(head.data(), static_cast<std::size_t>(stream.gcount()));
  for (const Format& format : formats) {
    if (!beginning.starts_with(format.beginning)) continue;
    throw IoError(path, fmt::format("is {}, not text; {}", format.name, format.advice));
  }
}

bool same_file(const std::string& left, const std::string& right) {
  std::error_code error;
  return fs::equivalent(left, right, error) && !error;
}

// All that can be found wrong before a byte is written. Returns the bytes of all inputs.
std::int64_t check(const TextConversion& conversion, const Tokenizer& tokenizer) {
  if (conversion.inputs.empty()) throw ConfigError("no text to convert was given");
  if (conversion.output.empty()) throw ConfigError("no output file was given");
  std::int64_t bytes = 0;
  std::vector<std::string> inputs = {conversion.tokenizer};
  for (const auto* list : {&conversion.inputs, &conversion.validation_inputs}) {
    for (const std::string& path : *list) {
      bytes += check_input(path);
      if (const auto tokens = find_foreign_tokens(path)) {
        expect_tokens_of(*tokens, tokenizer);
      } else {
        refuse_other_formats(path);
      }
      inputs.push_back(path);
    }
  }
  expect_output("--output", conversion.output,
                hdf5_output("a tokens file of Garonne", token_file_format), inputs);
  for (const std::string& held_out : conversion.validation_inputs) {
    for (const std::string& path : conversion.inputs) {
      if (same_file(held_out, path)) {
        throw ConfigError("validation", held_out, "is given for training too; it can be only one");
      }
    }
  }
  return bytes;
}

// Gathers tokens into whole chunks and appends them.
template <typename T>
class ChunkWriter {
 public:
  ChunkWriter(Hdf5File& file, const std::string& name)
      : dataset_(file.create_growing<T>(name, token_file_chunk)) {
    pending_.reserve(token_file_chunk);
  }

  void add(std::span<const std::uint32_t> tokens) {
    constexpr auto chunk = static_cast<std::size_t>(token_file_chunk);
    std::size_t done = 0;
    while (done < tokens.size()) {
      const std::size_t filled = pending_.size();
      const std::size_t here = std::min(tokens.size() - done, chunk - filled);
      pending_.resize(filled + here);
      std::transform(tokens.data() + done, tokens.data() + done + here, pending_.data() + filled,
                     [](std::uint32_t token) { return static_cast<T>(token); });
      done += here;
      if (pending_.size() == chunk) flush();
    }
    written_ += static_cast<std::int64_t>(tokens.size());
  }

  void flush() {
    dataset_.append(std::span<const T>(pending_));
    pending_.clear();
  }

  std::int64_t written() const { return written_; }

 private:
  Hdf5Dataset dataset_;
  std::vector<T> pending_;
  std::int64_t written_ = 0;
};

// What of a text is no UTF-8, for tokenizers of characters.
class BrokenText {
 public:
  void add(std::span<const std::byte> block) {
    cut_.append(reinterpret_cast<const char*>(block.data()), block.size());
    valid_.clear();
    cut_.erase(0, append_valid_utf8(cut_, /*follows=*/true, valid_, &parts_));
  }
  // The parts of this text that were replaced; the next begins.
  std::int64_t finish() {
    append_valid_utf8(cut_, /*follows=*/false, valid_, &parts_);
    cut_.clear();
    return std::exchange(parts_, 0);
  }

 private:
  std::string cut_;
  std::string valid_;
  std::int64_t parts_ = 0;
};

std::string end_of_texts(const Tokenizer& tokenizer) {
  const std::optional<std::uint32_t> end = tokenizer.end_of_text();
  if (!end) {
    return fmt::format(
        "the tokenizer {} has no token that is known to end a text: an empty line "
        "stands between texts",
        tokenizer.name());
  }
  const std::string text = tokenizer.decode(std::vector<std::uint32_t>{*end});
  return fmt::format("the token {}{} ends each text", *end,
                     text.empty() ? std::string() : ", " + printable(text) + ",");
}

using BlockHandler = std::function<void(std::span<const std::byte>)>;

// Hands `path` on in blocks of about `bytes`, cut anywhere.
void for_each_block(const std::string& path, std::size_t bytes, const BlockHandler& handle) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw IoError(path, std::strerror(errno));
  std::string block(bytes, ' ');
  while (!stream.eof()) {
    stream.read(block.data(), static_cast<std::streamsize>(bytes));
    if (stream.bad()) throw IoError(path, fmt::format("cannot read: {}", std::strerror(errno)));
    handle(std::as_bytes(std::span(block.data(), static_cast<std::size_t>(stream.gcount()))));
  }
}

std::string source_list(const std::vector<TokenSource>& sources) {
  nlohmann::json list = nlohmann::json::array();
  std::size_t length = 2;
  for (std::size_t index = 0; index < sources.size(); ++index) {
    const TokenSource& source = sources[index];
    nlohmann::json entry = {
        {"name", source.name}, {"dataset", source.dataset}, {"tokens", source.tokens}};
    length += entry.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).size() + 1;
    if (length > largest_source_list) {
      std::int64_t training = 0;
      std::int64_t held_out = 0;
      for (std::size_t rest = index; rest < sources.size(); ++rest) {
        (sources[rest].dataset == training_dataset ? training : held_out) += sources[rest].tokens;
      }
      if (training > 0) {
        list.push_back({{"name", "others"}, {"dataset", training_dataset}, {"tokens", training}});
      }
      if (held_out > 0) {
        list.push_back({{"name", "others"}, {"dataset", validation_dataset}, {"tokens", held_out}});
      }
      break;
    }
    list.push_back(std::move(entry));
  }
  // Names of files need not be UTF-8.
  return list.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

// Hands all tokens of a file on, with the share of the file that is done.
void copy_tokens(TokenInput& input,
                 const std::function<void(std::span<const std::uint32_t>, double)>& handle) {
  std::vector<std::int64_t> read;
  std::vector<std::uint32_t> narrow;
  const std::int64_t count = input.tokens();
  for (std::int64_t first = 0; first < count; first += token_file_chunk) {
    read.resize(static_cast<std::size_t>(std::min(token_file_chunk, count - first)));
    input.copy(first, read);
    narrow.resize(read.size());
    std::transform(read.begin(), read.end(), narrow.begin(),
                   [](std::int64_t token) { return static_cast<std::uint32_t>(token); });
    handle(narrow, static_cast<double>(first + token_file_chunk) / static_cast<double>(count));
  }
}

int encoding_threads(int given) {
  if (given > 0) return given;
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

void write_description(Hdf5File& file, const std::string& description) {
  if (description.empty()) return;
  Hdf5Dataset dataset = file.create_growing<std::uint8_t>(tokenizer_dataset, token_file_chunk);
  dataset.append(
      std::span(reinterpret_cast<const std::uint8_t*>(description.data()), description.size()));
}

template <typename T>
void write_file(const TextConversion& conversion, const Tokenizer& tokenizer,
                const std::string& path, std::int64_t total_bytes) {
  Hdf5File file = Hdf5File::create(path);
  file.write_attribute("format", token_file_format);
  file.write_attribute("format_version", token_file_version);
  file.write_attribute("tokenizer", tokenizer.name());
  file.write_attribute("vocabulary", tokenizer.vocabulary());
  write_description(file, tokenizer.description());

  Progress progress("convert", total_bytes, !conversion.show_progress);
  std::int64_t done = 0;
  std::vector<TokenSource> sources;
  std::vector<std::uint32_t> tokens;
  const int threads = encoding_threads(conversion.threads);
  const std::unique_ptr<TokenEncoder> encoder = tokenizer.encoder(threads);
  const std::optional<std::uint32_t> end_of_text = tokenizer.end_of_text();
  const std::vector<std::uint32_t> separator = tokenizer.encode(text_separator);
  // A byte is a token of its own, whatever it means.
  const bool of_characters = !tokenizer.description().empty();
  BrokenText broken;
  int texts = 0;
  const auto note = [&](const std::string& text) {
    if (conversion.note) conversion.note(text);
  };
  const auto write_dataset = [&](const std::string& name, const std::vector<std::string>& inputs) {
    ChunkWriter<T> writer(file, name);
    const auto write = [&] {
      writer.add(tokens);
      tokens.clear();
    };
    for (std::size_t index = 0; index < inputs.size(); ++index) {
      const std::int64_t before = writer.written();
      const std::string source = fs::path(inputs[index]).filename().string();
      if (find_foreign_tokens(inputs[index])) {
        const std::int64_t bytes = check_input(inputs[index]);
        const auto input =
            open_token_input(inputs[index], training_dataset, tokenizer.vocabulary(), 0);
        copy_tokens(*input, [&](std::span<const std::uint32_t> copied, double share) {
          writer.add(copied);
          progress.advance_to(done + static_cast<std::int64_t>(share * static_cast<double>(bytes)),
                              source);
        });
        done += bytes;
        sources.push_back({source, name, writer.written() - before});
        continue;
      }
      ++texts;
      for_each_block(inputs[index], block_bytes * static_cast<std::size_t>(threads),
                     [&](std::span<const std::byte> text) {
                       encoder->add(text, tokens);
                       if (of_characters) broken.add(text);
                       write();
                       done += static_cast<std::int64_t>(text.size());
                       progress.advance_to(done, source);
                     });
      encoder->finish(tokens);
      if (const std::int64_t parts = broken.finish(); parts > 0) {
        note(fmt::format(
            "{} has {} that {} no UTF-8 and became U+FFFD; convert the text to UTF-8 where "
            "it is of another encoding",
            printable(inputs[index]), counted(parts, "part"), parts == 1 ? "is" : "are"));
      }
      if (end_of_text) tokens.push_back(*end_of_text);
      write();
      if (!end_of_text && index + 1 < inputs.size()) writer.add(separator);
      sources.push_back({source, name, writer.written() - before});
    }
    writer.flush();
  };
  write_dataset(training_dataset, conversion.inputs);
  if (!conversion.validation_inputs.empty()) {
    write_dataset(validation_dataset, conversion.validation_inputs);
  }
  if (texts > 1 || (texts == 1 && end_of_text)) note(end_of_texts(tokenizer));
  file.write_attribute("sources", source_list(sources));
  file.close();
}

}  // namespace

TokenFileInfo convert_text(const TextConversion& conversion) {
  const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(conversion.tokenizer);
  const std::int64_t bytes = check(conversion, *tokenizer);
  const bool narrow = tokenizer->vocabulary() <= 65536;
  // How many tokens a text becomes is known where each is a byte. Checksums, index and header take
  // less than a hundredth and 64 KiB.
  const std::int64_t tokens_bytes =
      tokenizer->vocabulary() <= 256 ? bytes * (narrow ? 2 : 4) : std::int64_t{0};
  check_space(conversion.output, tokens_bytes + tokens_bytes / 100 + 65536);

  PartialFile partial(conversion.output);
  if (narrow) {
    write_file<std::uint16_t>(conversion, *tokenizer, partial.path(), bytes);
  } else {
    write_file<std::uint32_t>(conversion, *tokenizer, partial.path(), bytes);
  }
  partial.publish();
  return inspect_token_file(conversion.output);
}

std::string tokens_at(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return {};
  try {
    const TokenFileInfo info = inspect_token_file(path);
    return fmt::format("a file of {} tokens of the tokenizer {}",
                       info.tokens + info.validation_tokens, info.tokenizer);
  } catch (const IoError&) {
    return std::filesystem::file_size(path, error) > 0 ? "a file of tokens that was damaged" : "";
  }
}

}  // namespace garonne::data
