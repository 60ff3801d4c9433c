// The disk as a tier of memory: blocks of one file, counted, with a hard limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "device/disk_file.hpp"
#include "device/tier_memory.hpp"

namespace garonne::device {

// Its blocks are places in the file: their addresses are nobody's to touch. Safe for all threads.
class DiskTier {
 public:
  // Room for `limit_bytes` is taken at once. Throws as DiskFile does.
  DiskTier(const std::string& folder, std::int64_t limit_bytes);

  TierMemory& memory() { return memory_; }
  bool direct() const { return file_.direct(); }
  // Of the process, through which goes what is not aligned as blocks of the file are.
  std::int64_t staging_bytes() const;

  // The first `bytes` of a block. They hold the thread until all is done. IoError.
  void write(Span block, const std::byte* from, std::int64_t bytes);
  void read(Span block, std::byte* to, std::int64_t bytes);

 private:
  // One for each direction, so that they run beside each other.
  struct Staging {
    std::mutex mutex;
    std::vector<std::byte> memory;
    Span span;  // aligned, within it
  };

  std::int64_t offset_of(Span block) const;
  bool is_aligned(const std::byte* data, std::int64_t bytes) const;
  void make(Staging& staging) const;

  DiskFile file_;
  TierMemory memory_;
  Staging outward_;
  Staging inward_;
};

}  // namespace garonne::device
