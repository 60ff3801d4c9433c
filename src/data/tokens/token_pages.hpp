// A dataset of tokens read page by page, the pages used last kept in memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/hdf5/hdf5.hpp"
#include "data/tokens/page_cache.hpp"

namespace garonne::data {

// Pages are the chunks of the file, so that each read of HDF5 is one whole chunk, checked and
// widened once, however many windows are cut from it. The file must outlive the object. For one
// thread.
class TokenPages {
 public:
  // `vocabulary`: a token at or above it is an IoError. `capacity_bytes` of pages are kept, but at
  // least two.
  TokenPages(const Hdf5File& file, const std::string& dataset, std::int64_t vocabulary,
             std::int64_t capacity_bytes);

  std::int64_t tokens() const { return tokens_; }
  std::int64_t page_tokens() const { return page_tokens_; }

  // Copies tokens [first, first + values.size()), which must exist. IoError as in
  // Hdf5Dataset::read.
  void copy(std::int64_t first, std::span<std::int64_t> values);
  // Reads and checks one page without keeping it longer than the others.
  void load(std::int64_t page) { this->page(page); }

 private:
  // One of the two is filled, by the type of the dataset: 16-bit tokens stay 16-bit in memory.
  struct Page {
    std::vector<std::uint16_t> narrow;
    std::vector<std::uint32_t> wide;
  };

  const Page& page(std::int64_t number);
  template <typename T>
  void read(std::int64_t first, std::vector<T>& values) const;

  Hdf5Dataset dataset_;
  std::string path_;
  std::string name_;
  std::int64_t vocabulary_;
  std::int64_t tokens_;
  std::int64_t page_tokens_;
  PageCache<Page> pages_;
};

}  // namespace garonne::data
