#include "data/tokens/token_stream.hpp"

#include <memory>
#include <utility>

#include "data/hdf5/foreign_reader.hpp"
#include "data/sample_order.hpp"
#include "data/tokens/token_input.hpp"

namespace garonne::data {
namespace {

// A run of shuffled blocks (sample_order.hpp) of 32-bit tokens is 32 MiB; twice that also holds
// what lies across the ends of blocks and the beginning of the next run.
constexpr std::int64_t kept_bytes = 64 << 20;

// The files of samples, open.
class OpenSamples {
 public:
  explicit OpenSamples(TokenSamples samples) : samples_(std::move(samples)) {
    const auto foreign = std::make_shared<ForeignReader>();
    for (const TokenPart& part : samples_.parts()) {
      const double share =
          static_cast<double>(part.samples) / static_cast<double>(samples_.samples());
      inputs_.push_back(open_token_input(part.file.path, part.dataset, samples_.vocabulary(),
                                         static_cast<std::int64_t>(share * kept_bytes), foreign));
    }
  }

  MicroBatch cut(TokenParts parts, std::vector<std::int64_t> wanted) {
    MicroBatch batch;
    const std::int64_t sequence = samples_.sequence();
    const auto length = static_cast<std::size_t>(sequence);
    if (parts.tokens) batch.tokens.resize(wanted.size() * length);
    if (parts.targets) batch.targets.resize(wanted.size() * length);
    std::size_t place = 0;
    for (const std::int64_t sample : wanted) {
      const auto [part, window] = samples_.place(sample);
      TokenInput& input = *inputs_[part];
      if (parts.tokens)
        input.copy(window * sequence, std::span(batch.tokens).subspan(place, length));
      if (parts.targets)
        input.copy(window * sequence + 1, std::span(batch.targets).subspan(place, length));
      place += length;
    }
    batch.samples = std::move(wanted);
    return batch;
  }

  const TokenSamples& samples() const { return samples_; }

 private:
  TokenSamples samples_;
  std::vector<std::unique_ptr<TokenInput>> inputs_;
};

TokenSamples of_one_file(const std::string& path, const std::string& dataset,
                         std::int64_t sequence) {
  return TokenSamples("data.path", {{1, path}}, dataset, sequence);
}

}  // namespace

class TokenStream::Source {
 public:
  Source(TokenSamples samples, TokenParts parts) : open_(std::move(samples)), parts_(parts) {}

  MicroBatch read(std::vector<std::int64_t> samples) {
    return open_.cut(parts_, std::move(samples));
  }

  const TokenSamples& samples() const { return open_.samples(); }

 private:
  OpenSamples open_;
  TokenParts parts_;
};

TokenStream::TokenStream(std::shared_ptr<Reader> reader, TokenSamples samples, SamplesOf samples_of,
                         std::int64_t first_ordinal, std::int64_t end_ordinal, TokenParts parts,
                         int depth)
    : ahead_(std::make_unique<ReadAhead<Source>>(
          std::move(reader), [&] { return std::make_unique<Source>(std::move(samples), parts); },
          std::move(samples_of), first_ordinal, end_ordinal, depth)) {}

TokenStream::TokenStream(std::shared_ptr<Reader> reader, const std::string& path,
                         const std::string& dataset, std::int64_t sequence, SamplesOf samples_of,
                         std::int64_t first_ordinal, std::int64_t end_ordinal, TokenParts parts,
                         int depth)
    : TokenStream(std::move(reader), of_one_file(path, dataset, sequence), std::move(samples_of),
                  first_ordinal, end_ordinal, parts, depth) {}

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

const TokenSamples& TokenStream::samples() const {
  return ahead_->source().samples();
}

MicroBatch read_micro_batch(const TokenSamples& samples, std::span<const std::int64_t> wanted) {
  return OpenSamples(samples).cut({}, {wanted.begin(), wanted.end()});
}

MicroBatch read_micro_batch(const std::string& path, const std::string& dataset,
                            std::int64_t sequence, std::span<const std::int64_t> samples) {
  return read_micro_batch(of_one_file(path, dataset, sequence), samples);
}

}  // namespace garonne::data
