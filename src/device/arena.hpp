// Address space of a tier of memory on hosts: blocks are cut from it and its pages stay with it, so
// that a step that allocates what the last one did finds its memory warm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "device/block_source.hpp"
#include "device/free_ranges.hpp"

namespace garonne::device {

// Best fit with coalescing. Not safe for several threads at once.
class Arena final : public BlockSource {
 public:
  // Pages beyond `resident_limit_bytes` are given back to the system, from free ranges, before the
  // arena grows over it; a few pages more remain where blocks share them. Pages are huge ones where
  // the limit is many of them.
  explicit Arena(std::int64_t resident_limit_bytes);
  ~Arena() override;

  static constexpr std::int64_t alignment = 64;

  // `bytes` is a positive multiple of the alignment; where all blocks are multiples of a larger
  // power of two up to the size of a page, so are their addresses. Throws std::bad_alloc where the
  // system has no address space left.
  void* allocate(std::int64_t bytes) override;
  void release(void* block, std::int64_t bytes) override;

  // Of pages that were used and not given back.
  std::int64_t resident_bytes() const;

 private:
  struct Region {
    void* mapped = nullptr;
    std::size_t mapped_bytes = 0;
    char* begin = nullptr;  // the first whole page of it
    std::int64_t bytes = 0;
    std::vector<std::uint8_t> touched;  // by page
  };

  void add_region(std::int64_t at_least);
  Region& region_of(const char* address);
  void touch(char* begin, std::int64_t bytes);
  void give_back(std::int64_t pages);

  std::int64_t page_bytes_;
  std::int64_t resident_limit_pages_;
  std::int64_t resident_pages_ = 0;
  std::map<const char*, Region> regions_;  // by begin
  FreeRanges free_;
};

}  // namespace garonne::device
