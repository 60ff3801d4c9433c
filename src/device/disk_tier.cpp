#include "device/disk_tier.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "device/thread_copies.hpp"
#include "device/tier_places.hpp"

namespace garonne::device {
namespace {

// What blocks of the file are counted from: no address of theirs is null.
std::byte* origin() {
  return reinterpret_cast<std::byte*>(host_allocation_granularity);
}

std::size_t size(std::int64_t bytes) {
  return static_cast<std::size_t>(bytes);
}

}  // namespace

DiskTier::DiskTier(const DiskTierSettings& settings)
    : file_(settings.folder, std::max(settings.file_bytes, settings.limit_bytes)),
      memory_({.tier = Tier::Disk,
               .limit_bytes = settings.limit_bytes,
               .granularity = file_.granularity()},
              settings.file_bytes > 0 ? tier_places(settings.limit_bytes, origin())
                                      : std::make_unique<FixedArena>(origin(), file_.bytes())),
      pinned_(settings.pinned) {
  Span staging = settings.staging;
  if (staging.data == nullptr) {
    own_.resize(size(disk_staging_bytes));
    staging = {Tier::Host, own_.data(), disk_staging_bytes};
  }
  const std::int64_t third = staging.bytes / 3;
  make(outward_, {Tier::Host, staging.data, third});
  make(inward_, {Tier::Host, staging.data + third, third});
  make(beside_, {Tier::Host, staging.data + 2 * third, third});
}

void DiskTier::make(Staging& staging, Span from) const {
  void* begin = from.data;
  std::size_t room = size(from.bytes);
  expect(
      std::align(size(file_.granularity()), size(disk_staging_piece_bytes), begin, room) != nullptr,
      "a staging block without room for its alignment");
  staging.span = {Tier::Host, static_cast<std::byte*>(begin), disk_staging_piece_bytes};
}

std::int64_t DiskTier::offset_of(Span block) const {
  return block.data - origin();
}

std::int64_t DiskTier::direct_bytes(const std::byte* data, std::int64_t bytes) const {
  const auto granularity = static_cast<std::uintptr_t>(file_.granularity());
  if (reinterpret_cast<std::uintptr_t>(data) % granularity != 0) return 0;
  return bytes / file_.granularity() * file_.granularity();
}

void DiskTier::write(Span block, const std::byte* from, std::int64_t bytes) {
  expect(bytes <= block.bytes, "more bytes for a block of the disk than it has");
  const std::int64_t offset = offset_of(block);
  const std::int64_t direct = direct_bytes(from, bytes);
  // Nothing changes it: spans have one type for both directions.
  if (direct > 0) file_.write(offset, {Tier::Host, const_cast<std::byte*>(from), direct});
  if (direct == bytes) return;
  const std::lock_guard lock(outward_.mutex);
  for (std::int64_t done = direct; done < bytes; done += disk_staging_piece_bytes) {
    const std::int64_t now = std::min(disk_staging_piece_bytes, bytes - done);
    Span part = outward_.span;
    std::memcpy(part.data, from + done, size(now));
    part.bytes = round_up(now, file_.granularity());
    file_.write(offset + done, part);
  }
}

void DiskTier::read(Span block, std::byte* to, std::int64_t bytes) {
  expect(bytes <= block.bytes, "more bytes of a block of the disk than it has");
  const std::int64_t offset = offset_of(block);
  const std::int64_t direct = direct_bytes(to, bytes);
  if (direct > 0) file_.read(offset, {Tier::Host, to, direct});
  if (direct == bytes) return;
  const std::lock_guard lock(inward_.mutex);
  for (std::int64_t done = direct; done < bytes; done += disk_staging_piece_bytes) {
    const std::int64_t now = std::min(disk_staging_piece_bytes, bytes - done);
    Span part = inward_.span;
    part.bytes = round_up(now, file_.granularity());
    file_.read(offset + done, part);
    std::memcpy(to + done, part.data, size(now));
  }
}

// Two of the direction's.
std::array<Span, 2> DiskTier::pinned_pieces(int direction) const {
  const std::int64_t bytes = pinned_.bytes / disk_pinned_pieces;
  expect(bytes > 0 && bytes % file_.granularity() == 0,
         fmt::format("{} pinned bytes are no pieces for a file", pinned_.bytes));
  std::byte* const first = pinned_.data + 2 * direction * bytes;
  return {Span{Tier::Host, first, bytes}, Span{Tier::Host, first + bytes, bytes}};
}

void DiskTier::write(Span block, Span from, ThreadCopies& copies) {
  expect(from.bytes <= block.bytes, "more bytes for a block of the disk than it has");
  if (from.bytes == 0) return;
  const std::lock_guard lock(pinned_outward_);
  const std::array<Span, 2> pieces = pinned_pieces(0);
  const auto begin = [&](std::int64_t at, int turn) {
    Span piece = pieces[size(turn % 2)];
    piece.bytes = std::min(piece.bytes, from.bytes - at);
    copies.begin(piece, {from.tier, from.data + at, piece.bytes});
    return piece;
  };
  std::int64_t done = 0;
  Span next = begin(0, 0);
  for (int turn = 1; done < from.bytes; ++turn) {
    Span piece = next;
    copies.finish();
    const std::int64_t end = done + piece.bytes;
    if (end < from.bytes) next = begin(end, turn);
    piece.bytes = round_up(piece.bytes, file_.granularity());
    file_.write(offset_of(block) + done, piece);
    done = end;
  }
}

void DiskTier::read(Span block, Span to, ThreadCopies& copies) {
  expect(to.bytes <= block.bytes, "more bytes of a block of the disk than it has");
  const std::lock_guard lock(pinned_inward_);
  const std::array<Span, 2> pieces = pinned_pieces(1);
  int turn = 0;
  for (std::int64_t done = 0; done < to.bytes; ++turn) {
    Span piece = pieces[size(turn % 2)];
    const std::int64_t now = std::min(piece.bytes, to.bytes - done);
    piece.bytes = round_up(now, file_.granularity());
    file_.read(offset_of(block) + done, piece);
    copies.finish();
    copies.begin({to.tier, to.data + done, now}, {Tier::Host, piece.data, now});
    done += now;
  }
  copies.finish();
}

Span DiskTier::piece_at(Span block, std::int64_t at) const {
  const std::int64_t begin = at / disk_staging_piece_bytes * disk_staging_piece_bytes;
  return {Tier::Host, beside_.span.data,
          std::min(disk_staging_piece_bytes, round_up(block.bytes, file_.granularity()) - begin)};
}

void DiskTier::show(Span block, std::int64_t first, std::int64_t bytes, const Show& show) {
  expect(first >= 0 && bytes <= block.bytes - first, "shows more of a block than it has");
  for (std::int64_t at = first; at < first + bytes;) {
    const Span piece = piece_at(block, at);
    const std::int64_t within = at % disk_staging_piece_bytes;
    const std::int64_t now = std::min(piece.bytes - within, first + bytes - at);
    file_.read(offset_of(block) + at - within, piece);
    show({piece.data + within, size(now)});
    at += now;
  }
}

void DiskTier::fill(Span block, std::int64_t first, std::int64_t bytes, const Make& make) {
  expect(first >= 0 && bytes <= block.bytes - first, "fills more of a block than it has");
  for (std::int64_t at = first; at < first + bytes;) {
    const Span piece = piece_at(block, at);
    const std::int64_t within = at % disk_staging_piece_bytes;
    const std::int64_t now = std::min(piece.bytes - within, first + bytes - at);
    // What is beside it stays.
    if (now < piece.bytes) file_.read(offset_of(block) + at - within, piece);
    make(at - first, {piece.data + within, size(now)});
    file_.write(offset_of(block) + at - within, piece);
    at += now;
  }
}

}  // namespace garonne::device
