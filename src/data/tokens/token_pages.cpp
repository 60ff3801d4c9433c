#include "data/tokens/token_pages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "data/tokens/token_file.hpp"

namespace garonne::data {
namespace {

// Chunks outside these bounds (another program's choice) do not make good pages.
constexpr std::int64_t smallest_page = 4096;
constexpr std::int64_t largest_page = 4194304;

// Where several pages come from one chunk HDF5 must keep it, or would read all of it for each page.
Hdf5Dataset open_with_cache(const Hdf5File& file, const std::string& name) {
  std::optional<Hdf5Dataset> dataset = open_tokens(file, name);
  if (dataset->chunk_elements() <= largest_page) return std::move(*dataset);
  const std::int64_t chunk_bytes = dataset->chunk_elements() * dataset->type().bytes;
  dataset.reset();  // while it is open it keeps the cache that it was opened with
  return file.dataset(name, chunk_bytes);
}

std::int64_t page_tokens_of(const Hdf5Dataset& dataset) {
  const std::int64_t chunk = dataset.chunk_elements();
  return chunk < smallest_page || chunk > largest_page ? token_file_chunk : chunk;
}

}  // namespace

TokenPages::TokenPages(const Hdf5File& file, const std::string& dataset, std::int64_t vocabulary,
                       std::int64_t capacity_bytes)
    : dataset_(open_with_cache(file, dataset)),
      path_(file.path()),
      name_(dataset),
      vocabulary_(vocabulary),
      tokens_(dataset_.shape()[0]),
      page_tokens_(page_tokens_of(dataset_)),
      pages_(capacity_bytes, page_tokens_ * dataset_.type().bytes) {}

void TokenPages::copy(std::int64_t first, std::span<std::int64_t> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  expect(first >= 0 && first <= tokens_ - count, "TokenPages: range outside the dataset");
  std::int64_t done = 0;
  while (done < count) {
    const std::int64_t position = first + done;
    const Page& found = page(position / page_tokens_);
    const std::int64_t offset = position % page_tokens_;
    const std::int64_t here = std::min(count - done, page_tokens_ - offset);
    std::int64_t* target = values.data() + done;
    if (found.narrow.empty()) {
      std::copy_n(found.wide.begin() + offset, here, target);
    } else {
      std::copy_n(found.narrow.begin() + offset, here, target);
    }
    done += here;
  }
}

const TokenPages::Page& TokenPages::page(std::int64_t number) {
  return pages_.get(number, [&](Page& fresh) {
    const std::int64_t first = number * page_tokens_;
    const auto count = static_cast<std::size_t>(std::min(page_tokens_, tokens_ - first));
    if (dataset_.type().bytes == 2) {
      fresh.narrow.resize(count);
      read(first, fresh.narrow);
    } else {
      fresh.wide.resize(count);
      read(first, fresh.wide);
    }
  });
}

template <typename T>
void TokenPages::read(std::int64_t first, std::vector<T>& values) const {
  dataset_.read(first, std::span<T>(values));
  // The largest first, which the compiler makes fast; where it is, only when it is wrong.
  const T largest = *std::max_element(values.begin(), values.end());
  if (static_cast<std::int64_t>(largest) < vocabulary_) return;
  const auto wrong = std::find_if(values.begin(), values.end(), [this](T token) {
    return static_cast<std::int64_t>(token) >= vocabulary_;
  });
  throw IoError(path_, fmt::format("dataset \"{}\": token {} at {} is outside the vocabulary of {}",
                                   name_, *wrong, first + (wrong - values.begin()), vocabulary_));
}

}  // namespace garonne::data
