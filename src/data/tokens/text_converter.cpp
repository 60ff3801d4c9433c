#include "data/tokens/text_converter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/partial_file.hpp"
#include "base/progress.hpp"
#include "data/disk_space.hpp"
#include "data/hdf5/hdf5.hpp"
#include "data/tokens/tokenizer.hpp"

namespace garonne::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t block_bytes = 1U << 20;
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

bool same_file(const std::string& left, const std::string& right) {
  std::error_code error;
  return fs::equivalent(left, right, error) && !error;
}

// All that can be found wrong before a byte is written. Returns the bytes of all inputs.
std::int64_t check(const TextConversion& conversion) {
  if (conversion.inputs.empty()) throw ConfigError("no text to convert was given");
  if (conversion.output.empty()) throw ConfigError("no output file was given");
  std::int64_t bytes = 0;
  for (const auto* list : {&conversion.inputs, &conversion.validation_inputs}) {
    for (const std::string& path : *list) {
      bytes += check_input(path);
      if (same_file(path, conversion.output)) {
        throw ConfigError("output", conversion.output,
                          "is one of the texts, which would be overwritten");
      }
    }
  }
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

using BlockHandler = std::function<void(std::span<const std::byte>)>;

// Hands `path` on in blocks that end after a newline where the megabyte read has one.
void for_each_block(const std::string& path, const BlockHandler& handle) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw IoError(path, std::strerror(errno));
  std::string block;
  std::size_t kept = 0;  // bytes of an unfinished line, at the front of the block
  while (true) {
    block.resize(kept + block_bytes);
    stream.read(block.data() + kept, static_cast<std::streamsize>(block_bytes));
    if (stream.bad()) throw IoError(path, fmt::format("cannot read: {}", std::strerror(errno)));
    const std::size_t size = kept + static_cast<std::size_t>(stream.gcount());
    std::size_t end = size;
    if (!stream.eof()) {
      const std::size_t newline = block.rfind('\n', size - 1);
      if (newline != std::string::npos) end = newline + 1;
    }
    handle(std::as_bytes(std::span(block.data(), end)));
    if (stream.eof()) return;
    kept = size - end;
    block.erase(0, end);
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

template <typename T>
void write_file(const TextConversion& conversion, const Tokenizer& tokenizer,
                const std::string& path, std::int64_t total_bytes) {
  Hdf5File file = Hdf5File::create(path);
  file.write_attribute("format", token_file_format);
  file.write_attribute("format_version", token_file_version);
  file.write_attribute("tokenizer", tokenizer.name());
  file.write_attribute("vocabulary", tokenizer.vocabulary());

  Progress progress("convert", total_bytes, !conversion.show_progress);
  std::int64_t done = 0;
  std::vector<TokenSource> sources;
  std::vector<std::uint32_t> tokens;
  const auto write_dataset = [&](const std::string& name, const std::vector<std::string>& inputs) {
    ChunkWriter<T> writer(file, name);
    const auto add = [&](std::span<const std::byte> text) {
      tokens.clear();
      tokenizer.encode(text, tokens);
      writer.add(tokens);
    };
    for (std::size_t index = 0; index < inputs.size(); ++index) {
      const std::int64_t before = writer.written();
      for_each_block(inputs[index], [&](std::span<const std::byte> text) {
        add(text);
        done += static_cast<std::int64_t>(text.size());
        progress.advance_to(done, fs::path(inputs[index]).filename().string());
      });
      if (index + 1 < inputs.size()) {
        add(std::as_bytes(std::span(text_separator, std::strlen(text_separator))));
      }
      sources.push_back(
          {fs::path(inputs[index]).filename().string(), name, writer.written() - before});
    }
    writer.flush();
  };
  write_dataset(training_dataset, conversion.inputs);
  if (!conversion.validation_inputs.empty()) {
    write_dataset(validation_dataset, conversion.validation_inputs);
  }
  file.write_attribute("sources", source_list(sources));
  file.close();
}

}  // namespace

TokenFileInfo convert_text(const TextConversion& conversion) {
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(conversion.tokenizer);
  const std::int64_t bytes = check(conversion);
  const bool narrow = tokenizer->vocabulary() <= 65536;
  // At most a token a byte; checksums, index and header take less than a hundredth and 64 KiB.
  const std::int64_t tokens_bytes = bytes * (narrow ? 2 : 4);
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

}  // namespace garonne::data
