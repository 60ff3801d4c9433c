// Where the blocks of a tier of memory are cut from.
#pragma once

#include <cstdint>

namespace garonne::device {

// Not safe for several threads at once.
class BlockSource {
 public:
  virtual ~BlockSource() = default;
  BlockSource(const BlockSource&) = delete;
  BlockSource& operator=(const BlockSource&) = delete;

  // `bytes` is positive and a multiple of what blocks are aligned to. Null where no free range is
  // as long.
  virtual void* allocate(std::int64_t bytes) = 0;
  // `bytes` as they were asked for.
  virtual void release(void* block, std::int64_t bytes) = 0;

 protected:
  BlockSource() = default;
};

}  // namespace garonne::device
