#include "device/disk_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "device/disk_transfer.hpp"
#include "device/tier_memory.hpp"

namespace garonne::device {
namespace {

// What no file system that we know has more of; blocks of host memory are multiples of it, too.
constexpr std::int64_t least_granularity = host_allocation_granularity;

std::string because() {
  return std::strerror(errno);
}

}  // namespace

DiskFile::DiskFile(const std::string& folder, std::int64_t bytes, Way way) : folder_(folder) {
  expect(bytes > 0, fmt::format("a file of {} bytes as a tier of memory", bytes));
  open_without_a_name();
  refuse_memory();
  find_granularity(way);
  bytes_ = round_up(bytes, granularity_);
  take_room();
}

DiskFile::Descriptor::~Descriptor() {
  if (number >= 0) close(number);
}

void DiskFile::open_without_a_name() {
  std::string name = folder_ + "/garonne-memory-XXXXXX";
  descriptor_.number = mkostemp(name.data(), O_CLOEXEC);
  if (descriptor_.number < 0) {
    throw IoError(folder_, fmt::format("no file can be made there: {}", because()));
  }
  unlink(name.c_str());
}

void DiskFile::refuse_memory() const {
  struct statfs facts {};
  if (fstatfs(descriptor_.number, &facts) != 0) throw IoError(folder_, because());
  const auto type = static_cast<std::uint32_t>(facts.f_type);
  if (type == TMPFS_MAGIC || type == RAMFS_MAGIC || type == HUGETLBFS_MAGIC) {
    throw IoError(folder_, "is in memory, so a file there saves none; give a folder on a disk");
  }
}

void DiskFile::find_granularity(Way way) {
  const int flags = fcntl(descriptor_.number, F_GETFL);
  direct_ =
      way == Way::Direct && flags >= 0 && fcntl(descriptor_.number, F_SETFL, flags | O_DIRECT) == 0;
  granularity_ = least_granularity;
  // Nothing that nobody asked for.
  if (!direct_) posix_fadvise(descriptor_.number, 0, 0, POSIX_FADV_RANDOM);
#ifdef STATX_DIOALIGN
  struct statx facts {};
  if (direct_ && statx(descriptor_.number, "", AT_EMPTY_PATH, STATX_DIOALIGN, &facts) == 0 &&
      (facts.stx_mask & STATX_DIOALIGN) != 0) {
    granularity_ = std::max({granularity_, static_cast<std::int64_t>(facts.stx_dio_mem_align),
                             static_cast<std::int64_t>(facts.stx_dio_offset_align)});
  }
#endif
}

void DiskFile::take_room() const {
  const std::string needed = fmt::format("{} bytes ({})", bytes_, format_bytes(bytes_));
  struct statvfs facts {};
  if (fstatvfs(descriptor_.number, &facts) != 0) throw IoError(folder_, because());
  // Asked before anything is taken: other programs would run out of room while we found out.
  const auto block = static_cast<std::int64_t>(facts.f_frsize);
  if (bytes_ / block >= static_cast<std::int64_t>(facts.f_bavail)) {
    throw IoError(folder_,
                  fmt::format("{} are needed on its disk, {} are free", needed,
                              format_bytes(block * static_cast<std::int64_t>(facts.f_bavail))));
  }
  while (fallocate(descriptor_.number, 0, 0, bytes_) != 0) {
    if (errno == EINTR) continue;
    throw IoError(folder_,
                  fmt::format("{} cannot be set aside on its disk: {}", needed, because()));
  }
}

void DiskFile::check(const char* verb, std::int64_t offset, Span memory) const {
  const auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(memory.data));
  expect(memory.tier != Tier::Disk && offset >= 0 && memory.bytes >= 0 && memory.bytes <= bytes_ &&
             offset <= bytes_ - memory.bytes &&
             (offset | address | memory.bytes) % granularity_ == 0,
         fmt::format("a {} of {} bytes at byte {} of {}, from or to address {:#x}, in units of {}",
                     verb, memory.bytes, offset, bytes_, address, granularity_));
}

// Advice: whether it is taken changes memory of the system, and nothing that is read.
void DiskFile::leave_page_cache(std::int64_t offset, std::int64_t bytes) const {
  posix_fadvise(descriptor_.number, offset, bytes, POSIX_FADV_DONTNEED);
}

void DiskFile::write(std::int64_t offset, Span from) const {
  check("write", offset, from);
  transfer_all(folder_, "write", offset, from, granularity_,
               [this](std::byte* data, std::size_t bytes, off_t at) {
                 return pwrite(descriptor_.number, data, bytes, at);
               });
  if (direct_) return;
  constexpr unsigned all =
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  // Where a file system has no such call, it drops what it has written by itself.
  if (sync_file_range(descriptor_.number, offset, from.bytes, all) != 0 && errno != ENOSYS &&
      errno != EINVAL && errno != ESPIPE) {
    throw IoError(folder_, fmt::format("{} bytes at byte {} cannot be written: {}", from.bytes,
                                       offset, because()));
  }
  leave_page_cache(offset, from.bytes);
}

void DiskFile::read(std::int64_t offset, Span to) const {
  check("read", offset, to);
  transfer_all(folder_, "read", offset, to, granularity_,
               [this](std::byte* data, std::size_t bytes, off_t at) {
                 return pread(descriptor_.number, data, bytes, at);
               });
  if (!direct_) leave_page_cache(offset, to.bytes);
}

}  // namespace garonne::device
