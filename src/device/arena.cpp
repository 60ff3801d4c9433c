#include "device/arena.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <numeric>

namespace garonne::device {
namespace {

// Address space costs nothing until it is used; where it is limited, less must do.
constexpr std::int64_t generous_region = std::int64_t{64} << 30;

// Huge pages are asked for where the rounding to them is small beside the whole.
constexpr std::int64_t huge_page = std::int64_t{2} << 20;
constexpr std::int64_t worth_huge_pages = 256 * huge_page;

}  // namespace

Arena::Arena(std::int64_t resident_limit_bytes)
    : page_bytes_(resident_limit_bytes >= worth_huge_pages ? huge_page : sysconf(_SC_PAGESIZE)),
      resident_limit_pages_(resident_limit_bytes / page_bytes_ + 1) {}

Arena::~Arena() {
  for (auto& [begin, region] : regions_) {
    munmap(region.mapped, region.mapped_bytes);
  }
}

void Arena::add_region(std::int64_t at_least) {
  at_least = (at_least + page_bytes_ - 1) / page_bytes_ * page_bytes_;
  void* address = MAP_FAILED;
  std::int64_t bytes = std::max(at_least, generous_region);
  std::size_t mapped_bytes = 0;
  while (true) {
    mapped_bytes = static_cast<std::size_t>(bytes + page_bytes_);  // room to align it to a page
    address = mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address != MAP_FAILED) break;
    if (bytes == at_least) throw std::bad_alloc();
    bytes = std::max(at_least, bytes / 4 / page_bytes_ * page_bytes_);
  }
  Region region;
  region.mapped = address;
  region.mapped_bytes = mapped_bytes;
  const auto misplaced = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(address) %
                                                   static_cast<std::uintptr_t>(page_bytes_));
  region.begin = static_cast<char*>(address) + (misplaced == 0 ? 0 : page_bytes_ - misplaced);
  region.bytes = bytes;
#ifdef MADV_HUGEPAGE
  // Advice only: where the system has no huge pages, everything works as before.
  if (page_bytes_ == huge_page)
    madvise(region.begin, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
#endif
  const char* key = region.begin;
  char* begin = region.begin;
  regions_.emplace(key, std::move(region));
  free_.give(begin, bytes, begin, begin + bytes);
}

Arena::Region& Arena::region_of(const char* address) {
  return std::prev(regions_.upper_bound(address))->second;
}

void* Arena::allocate(std::int64_t bytes) {
  char* begin = free_.take(bytes);
  if (begin == nullptr) {
    add_region(bytes);
    begin = free_.take(bytes);
  }
  touch(begin, bytes);
  return begin;
}

void Arena::release(void* block, std::int64_t bytes) {
  char* begin = static_cast<char*>(block);
  const Region& region = region_of(begin);
  free_.give(begin, bytes, region.begin, region.begin + region.bytes);
}

void Arena::touch(char* begin, std::int64_t bytes) {
  Region& region = region_of(begin);
  const std::int64_t first = (begin - region.begin) / page_bytes_;
  const std::int64_t last = (begin - region.begin + bytes - 1) / page_bytes_;
  if (static_cast<std::int64_t>(region.touched.size()) <= last) {
    region.touched.resize(static_cast<std::size_t>(last + 1), 0);
  }
  const auto from = region.touched.begin() + first;
  const auto to = region.touched.begin() + last + 1;
  const std::int64_t already = std::accumulate(from, to, std::int64_t{0});
  const std::int64_t fresh = last + 1 - first - already;
  if (fresh == 0) return;
  if (resident_pages_ + fresh > resident_limit_pages_) {
    give_back(resident_pages_ + fresh - resident_limit_pages_);
  }
  std::fill(from, to, std::uint8_t{1});
  resident_pages_ += fresh;
}

// From the largest free ranges, whole pages that no block shares.
void Arena::give_back(std::int64_t pages) {
  const auto& ranges = free_.by_size();
  for (auto range = ranges.rbegin(); range != ranges.rend() && pages > 0; ++range) {
    const auto [bytes, begin] = *range;
    Region& region = region_of(begin);
    const std::int64_t offset = begin - region.begin;
    const std::int64_t first = (offset + page_bytes_ - 1) / page_bytes_;
    const std::int64_t end =
        std::min((offset + bytes) / page_bytes_, static_cast<std::int64_t>(region.touched.size()));
    for (std::int64_t page = end; page > first && pages > 0;) {
      const std::int64_t stop = page;
      while (page > first && pages > 0 && region.touched[static_cast<std::size_t>(page - 1)] != 0) {
        region.touched[static_cast<std::size_t>(--page)] = 0;
        --resident_pages_;
        --pages;
      }
      if (page == stop) {
        --page;
        continue;
      }
      madvise(region.begin + page * page_bytes_,
              static_cast<std::size_t>((stop - page) * page_bytes_), MADV_DONTNEED);
    }
  }
}

std::int64_t Arena::resident_bytes() const {
  return resident_pages_ * page_bytes_;
}

}  // namespace garonne::device
