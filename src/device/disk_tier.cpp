#include "device/disk_tier.hpp"

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "device/fixed_arena.hpp"

namespace garonne::device {
namespace {

// A system call for so many is as fast as one for more.
constexpr std::int64_t staging_block_bytes = 1 << 20;

// What blocks of the file are counted from: no address of theirs is null.
std::byte* origin(const DiskFile& file) {
  return reinterpret_cast<std::byte*>(file.granularity());
}

std::size_t size(std::int64_t bytes) {
  return static_cast<std::size_t>(bytes);
}

}  // namespace

DiskTier::DiskTier(const std::string& folder, std::int64_t limit_bytes)
    : file_(folder, limit_bytes),
      memory_({.tier = Tier::Disk, .limit_bytes = limit_bytes, .granularity = file_.granularity()},
              std::make_unique<FixedArena>(origin(file_), file_.bytes())) {
  make(outward_);
  make(inward_);
}

void DiskTier::make(Staging& staging) const {
  staging.memory.resize(size(staging_block_bytes + file_.granularity()));
  void* begin = staging.memory.data();
  std::size_t room = staging.memory.size();
  expect(std::align(size(file_.granularity()), size(staging_block_bytes), begin, room) != nullptr,
         "a staging block without room for its alignment");
  staging.span = {Tier::Host, static_cast<std::byte*>(begin), staging_block_bytes};
}

std::int64_t DiskTier::staging_bytes() const {
  return static_cast<std::int64_t>(outward_.memory.size() + inward_.memory.size());
}

std::int64_t DiskTier::offset_of(Span block) const {
  return block.data - origin(file_);
}

bool DiskTier::is_aligned(const std::byte* data, std::int64_t bytes) const {
  const auto granularity = static_cast<std::uintptr_t>(file_.granularity());
  return reinterpret_cast<std::uintptr_t>(data) % granularity == 0 &&
         static_cast<std::uintptr_t>(bytes) % granularity == 0;
}

void DiskTier::write(Span block, const std::byte* from, std::int64_t bytes) {
  expect(bytes <= block.bytes, "more bytes for a block of the disk than it has");
  const std::int64_t offset = offset_of(block);
  if (is_aligned(from, bytes)) {
    // Nothing changes it: spans have one type for both directions.
    file_.write(offset, {Tier::Host, const_cast<std::byte*>(from), bytes});
    return;
  }
  const std::lock_guard lock(outward_.mutex);
  for (std::int64_t done = 0; done < bytes; done += staging_block_bytes) {
    const std::int64_t now = std::min(staging_block_bytes, bytes - done);
    Span part = outward_.span;
    std::memcpy(part.data, from + done, size(now));
    part.bytes = round_up(now, file_.granularity());
    file_.write(offset + done, part);
  }
}

void DiskTier::read(Span block, std::byte* to, std::int64_t bytes) {
  expect(bytes <= block.bytes, "more bytes of a block of the disk than it has");
  const std::int64_t offset = offset_of(block);
  if (is_aligned(to, bytes)) {
    file_.read(offset, {Tier::Host, to, bytes});
    return;
  }
  const std::lock_guard lock(inward_.mutex);
  for (std::int64_t done = 0; done < bytes; done += staging_block_bytes) {
    const std::int64_t now = std::min(staging_block_bytes, bytes - done);
    Span part = inward_.span;
    part.bytes = round_up(now, file_.granularity());
    file_.read(offset + done, part);
    std::memcpy(to + done, part.data, size(now));
  }
}

}  // namespace garonne::device
