// Counter-based random numbers: the same bits for the same (seed, name, step, sample, element) on
// every device, grid and order of computation. Philox-4x32-10 after Salmon, Moraes, Dror, Shaw,
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#ifdef __CUDACC__
#define GARONNE_HOST_DEVICE __host__ __device__
#else
#define GARONNE_HOST_DEVICE
#endif

namespace garonne {

struct PhiloxKey {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
};

struct PhiloxBlock {
  std::uint32_t word[4];
};

// Ten rounds on a 128-bit counter.
GARONNE_HOST_DEVICE constexpr PhiloxBlock philox(PhiloxBlock counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = 0xD2511F53ULL * counter.word[0];
    const std::uint64_t product1 = 0xCD9E8D57ULL * counter.word[2];
    const PhiloxBlock next = {
        {static_cast<std::uint32_t>(product1 >> 32) ^ counter.word[1] ^ key.low,
         static_cast<std::uint32_t>(product1),
         static_cast<std::uint32_t>(product0 >> 32) ^ counter.word[3] ^ key.high,
         static_cast<std::uint32_t>(product0)}};
    counter = next;
    key.low += 0x9E3779B9U;
    key.high += 0xBB67AE85U;
  }
  return counter;
}

// The four words of elements 4·group … 4·group+3 of one sample at one step. Element e uses word e %
// 4 of group e / 4. Steps below 2^32, samples below 2^48, elements of a tensor below 2^50.
GARONNE_HOST_DEVICE constexpr PhiloxBlock philox_at(PhiloxKey key, std::uint64_t step,
                                                    std::uint64_t sample, std::uint64_t group) {
  const std::uint32_t high = (static_cast<std::uint32_t>(group >> 32) & 0xFFFFU) |
                             (static_cast<std::uint32_t>(sample >> 32) << 16);
  return philox({{static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(sample),
                  static_cast<std::uint32_t>(step), high}},
                key);
}

// Key of one use of randomness: hash of run seed, global node (or parameter) name and repetition.
// FNV-1a over the name, then the splitmix64 finaliser, so that near names give far keys.
constexpr PhiloxKey philox_key(std::uint64_t seed, std::string_view name,
                               std::uint64_t repetition = 0) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  for (const char character : name) {
    hash = (hash ^ static_cast<unsigned char>(character)) * 0x100000001B3ULL;
  }
  for (const std::uint64_t part : {seed, repetition}) {
    hash += 0x9E3779B97F4A7C15ULL + part;
    hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9ULL;
    hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EBULL;
    hash ^= hash >> 31;
  }
  return {static_cast<std::uint32_t>(hash), static_cast<std::uint32_t>(hash >> 32)};
}

// ⌊probability · 2^32⌋, the threshold below which an element is dropped.
constexpr std::uint32_t dropout_threshold(double probability) {
  return static_cast<std::uint32_t>(probability * 4294967296.0);
}

}  // namespace garonne
