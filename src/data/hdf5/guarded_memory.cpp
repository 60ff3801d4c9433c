// malloc and its like in the program garonne-hdf5-reader.
#include "data/hdf5/guarded_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* block, std::size_t bytes);
void __libc_free(void* block);
}

namespace {

// Of what is asked for and not written, and of what was given back: no address, no small number.
constexpr int fresh = 0xA5;
constexpr int stale = 0x5A;
constexpr std::size_t most_slots = 8192;

// Behind each slot: sizes of 16 bits that a file gives do not reach beyond, even two of them.
constexpr std::size_t guard_bytes = std::size_t{128} << 10;

// Slots of so many pages, each with a guard behind it that nobody may touch.
struct SizeClass {
  std::size_t pages;
  std::size_t slots;
  char* begin;
  std::size_t used;  // have been given out at least once
  std::size_t free_count;
  std::array<std::uint16_t, most_slots> free;
  std::array<std::uint32_t, most_slots> bytes;
};

// 2^k pages each.
constexpr std::array<std::size_t, 9> slots_of_class = {most_slots, 4096, 1024, 512, 256,
                                                       128,        64,   32,   16};
std::array<SizeClass, slots_of_class.size()> classes;
std::size_t page = 0;
char* all = nullptr;
std::size_t all_bytes = 0;
bool guards = false;

std::size_t stride_of(const SizeClass& of) {
  return of.pages * page + guard_bytes;
}

SizeClass* class_of(const void* block) {
  const auto* place = static_cast<const char*>(block);
  if (all == nullptr || place < all || place >= all + all_bytes) return nullptr;
  for (SizeClass& one : classes) {
    if (place < one.begin + one.slots * stride_of(one)) return &one;
  }
  return nullptr;
}

std::size_t slot_of(const SizeClass& of, const void* block) {
  return static_cast<std::size_t>(static_cast<const char*>(block) - of.begin) / stride_of(of);
}

// Ends where the guard begins, so that it is aligned as its size is: what holds numbers has a size
// that is a multiple of theirs. Null where there is no slot.
void* take(std::size_t bytes) {
  const std::size_t room = std::max<std::size_t>(bytes, 1);
  for (SizeClass& one : classes) {
    if (room > one.pages * page) continue;
    std::size_t slot = 0;
    if (one.free_count > 0) {
      slot = one.free[--one.free_count];
    } else if (one.used < one.slots) {
      slot = one.used;
      if (mprotect(one.begin + slot * stride_of(one), one.pages * page, PROT_READ | PROT_WRITE) !=
          0) {
        return nullptr;
      }
      ++one.used;
    } else {
      return nullptr;
    }
    one.bytes[slot] = static_cast<std::uint32_t>(bytes);
    return one.begin + slot * stride_of(one) + one.pages * page - room;
  }
  return nullptr;
}

}  // namespace

extern "C" {

void* malloc(std::size_t bytes) {
  void* const block = guards ? take(bytes) : nullptr;
  if (block == nullptr) return __libc_malloc(bytes);
  std::memset(block, fresh, bytes);
  return block;
}

void free(void* block) {
  SizeClass* const one = class_of(block);
  if (one == nullptr) {
    __libc_free(block);
    return;
  }
  const std::size_t slot = slot_of(*one, block);
  std::memset(block, stale, one->bytes[slot]);
  one->free[one->free_count++] = static_cast<std::uint16_t>(slot);
}

void* calloc(std::size_t count, std::size_t bytes) {
  std::size_t all_of_them = 0;
  const bool fits = !__builtin_mul_overflow(count, bytes, &all_of_them);
  void* const block = guards && fits ? take(all_of_them) : nullptr;
  if (block == nullptr) return __libc_calloc(count, bytes);
  std::memset(block, 0, all_of_them);
  return block;
}

void* realloc(void* block, std::size_t bytes) {
  SizeClass* const one = class_of(block);
  if (one == nullptr && (block != nullptr || !guards)) return __libc_realloc(block, bytes);
  if (one != nullptr && bytes == 0) {
    free(block);
    return nullptr;
  }
  void* const other = malloc(bytes);
  if (other == nullptr || one == nullptr) return other;
  std::memcpy(other, block, std::min<std::size_t>(bytes, one->bytes[slot_of(*one, block)]));
  free(block);
  return other;
}

}  // extern "C"

namespace garonne::data {

void guard_memory() {
  page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::size_t wanted = 0;
  for (std::size_t k = 0; k < classes.size(); ++k) {
    classes[k].pages = std::size_t{1} << k;
    classes[k].slots = slots_of_class[k];
    wanted += classes[k].slots * stride_of(classes[k]);
  }
  // Of pages of other sizes they may take more than the process may have, or no whole ones.
  if (wanted > guarded_address_bytes || guard_bytes % page != 0) return;
  void* const found =
      mmap(nullptr, wanted, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return;
  all = static_cast<char*>(found);
  all_bytes = wanted;
  char* next = all;
  for (SizeClass& one : classes) {
    one.begin = next;
    next += one.slots * stride_of(one);
  }
  guards = true;
}

}  // namespace garonne::data

#else

namespace garonne::data {

void guard_memory() {}

}  // namespace garonne::data

#endif
