// The lowest tier of memory: one file, as large as it will ever be.
#pragma once

#include <cstdint>
#include <string>

#include "device/device.hpp"

namespace garonne::device {

// Its room on the disk is taken when it is made. It has no name: what a killed run leaves behind is
// nothing, and nobody reads what another run wrote. Reads and writes go to the disk itself where
// the file system can do that; elsewhere what the page cache has of them is written out and dropped
// before they return, since the file would be memory again, counted by nobody. Safe for several
// threads at different places.
class DiskFile {
 public:
  // Cached: as if the file system could not do the other.
  enum class Way { Direct, Cached };

  // IoError naming `folder`: it does not exist, is in memory (tmpfs), is on a disk without room for
  // `bytes`, or cannot be written to.
  DiskFile(const std::string& folder, std::int64_t bytes, Way way = Way::Direct);
  DiskFile(const DiskFile&) = delete;
  DiskFile& operator=(const DiskFile&) = delete;

  // Of memory and file alike: offsets, addresses and sizes are multiples of it, or InternalError.
  std::int64_t granularity() const { return granularity_; }
  std::int64_t bytes() const { return bytes_; }  // rounded up to the granularity
  // Whether reads and writes pass the page cache by. Whoever makes a file that does not says so.
  bool direct() const { return direct_; }
  // For a process that is a copy of this one and closes what it does not use.
  int descriptor() const { return descriptor_.number; }

  // Hold the thread until all is done. IoError naming the folder, bytes and offset.
  void write(std::int64_t offset, Span from) const;
  void read(std::int64_t offset, Span to) const;

 private:
  // Closed too where the constructor of the file throws.
  struct Descriptor {
    int number = -1;
    Descriptor() = default;
    ~Descriptor();
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
  };

  void open_without_a_name();
  void refuse_memory() const;
  void find_granularity(Way way);
  void take_room() const;
  void leave_page_cache(std::int64_t offset, std::int64_t bytes) const;
  void check(const char* verb, std::int64_t offset, Span memory) const;

  const std::string folder_;
  Descriptor descriptor_;
  std::int64_t granularity_ = 0;
  std::int64_t bytes_ = 0;
  bool direct_ = false;
};

}  // namespace garonne::device
