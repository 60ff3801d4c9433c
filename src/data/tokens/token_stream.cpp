#include "data/tokens/token_stream.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/error.hpp"
#include "data/hdf5/hdf5.hpp"
#include "data/sample_order.hpp"
#include "data/tokens/token_pages.hpp"

namespace garonne::data {
namespace {

// A run of shuffled blocks (sample_order.hpp) of 32-bit tokens is 32 MiB; twice that also holds
// what lies across the ends of blocks and the beginning of the next run.
constexpr std::int64_t kept_bytes = 64 << 20;

// `info` is the file's; a dataset with less than one window is an IoError.
TokenPages open_pages(const Hdf5File& file, const TokenFileInfo& info, const std::string& dataset,
                      std::int64_t sequence) {
  if (sequence < 1)
    throw ConfigError("sequence", fmt::format("{}", sequence), "must be at least 1");
  const std::int64_t tokens = info.tokens_of(dataset);
  if (windows(tokens, sequence) < 1) {
    throw IoError(info.path, fmt::format("dataset \"{}\" has {} tokens; one sample of sequence {} "
                                         "takes {}",
                                         dataset, tokens, sequence, sequence + 1));
  }
  return TokenPages(file, dataset, info.vocabulary, kept_bytes);
}

MicroBatch cut(TokenPages& pages, std::int64_t sequence, TokenParts parts,
               std::vector<std::int64_t> samples) {
  MicroBatch batch;
  const std::int64_t available = windows(pages.tokens(), sequence);
  const auto length = static_cast<std::size_t>(sequence);
  if (parts.tokens) batch.tokens.resize(samples.size() * length);
  if (parts.targets) batch.targets.resize(samples.size() * length);
  std::size_t place = 0;
  for (const std::int64_t sample : samples) {
    if (sample < 0 || sample >= available) {
      throw InternalError(fmt::format("sample {} asked for, but there are {}", sample, available));
    }
    if (parts.tokens) pages.copy(sample * sequence, std::span(batch.tokens).subspan(place, length));
    if (parts.targets)
      pages.copy(sample * sequence + 1, std::span(batch.targets).subspan(place, length));
    place += length;
  }
  batch.samples = std::move(samples);
  return batch;
}

}  // namespace

class TokenStream::Source {
 public:
  Source(const std::string& path, const std::string& dataset, std::int64_t sequence,
         TokenParts parts)
      : file_(Hdf5File::open(path)),
        info_(inspect_open_file(file_)),
        pages_(open_pages(file_, info_, dataset, sequence)),
        sequence_(sequence),
        parts_(parts) {}

  MicroBatch read(std::vector<std::int64_t> samples) {
    return cut(pages_, sequence_, parts_, std::move(samples));
  }

  const TokenFileInfo& info() const { return info_; }
  std::int64_t samples() const { return windows(pages_.tokens(), sequence_); }

 private:
  Hdf5File file_;
  TokenFileInfo info_;
  TokenPages pages_;
  std::int64_t sequence_;
  TokenParts parts_;
};

TokenStream::TokenStream(std::shared_ptr<Reader> reader, const std::string& path,
                         const std::string& dataset, std::int64_t sequence, SamplesOf samples_of,
                         std::int64_t first_ordinal, std::int64_t end_ordinal, TokenParts parts,
                         int depth)
    : ahead_(std::make_unique<ReadAhead<Source>>(
          std::move(reader),
          [&] { return std::make_unique<Source>(path, dataset, sequence, parts); },
          std::move(samples_of), first_ordinal, end_ordinal, depth)) {}

TokenStream::TokenStream(const std::string& path, const std::string& dataset, std::int64_t sequence,
                         SamplesOf samples_of, std::int64_t first_ordinal, std::int64_t end_ordinal,
                         TokenParts parts, int depth)
    : TokenStream(std::make_shared<Reader>(), path, dataset, sequence, std::move(samples_of),
                  first_ordinal, end_ordinal, parts, depth) {}

TokenStream::~TokenStream() = default;
TokenStream::TokenStream(TokenStream&&) noexcept = default;
TokenStream& TokenStream::operator=(TokenStream&& other) noexcept = default;

MicroBatch TokenStream::next() {
  return ahead_->next();
}

const TokenFileInfo& TokenStream::info() const {
  return ahead_->source().info();
}
std::int64_t TokenStream::samples() const {
  return ahead_->source().samples();
}

MicroBatch read_micro_batch(const std::string& path, const std::string& dataset,
                            std::int64_t sequence, std::span<const std::int64_t> samples) {
  const Hdf5File file = Hdf5File::open(path);
  TokenPages pages = open_pages(file, inspect_open_file(file), dataset, sequence);
  return cut(pages, sequence, {}, {samples.begin(), samples.end()});
}

}  // namespace garonne::data
