// Philox on many counters at once.

inline constexpr int philox_groups = 64;

#if GARONNE_VECTOR_BYTES >= 32
using Lanes =
    std::uint64_t __attribute__((vector_size(GARONNE_VECTOR_BYTES), aligned(8), may_alias));

GARONNE_INLINE Lanes low_product(Lanes a, Lanes b) {
#if GARONNE_VECTOR_BYTES == 64
  return (Lanes)_mm512_maskz_mul_epu32(0xFF, (__m512i)a, (__m512i)b);
#else
  return (Lanes)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#endif
}
#endif

// words[4 i + j] = word j of group first_group + i, for at least `groups` groups and at most
// philox_groups.
GARONNE_INLINE void philox_words(std::uint32_t* words, PhiloxKey key, std::uint64_t step,
                                 std::uint64_t sample, std::uint64_t first_group, int groups) {
#if GARONNE_VECTOR_BYTES >= 32
  // One counter word in the low half of each 64-bit lane: the multiplication reads only the low
  // halves and leaves the high word of the product one shift away. What gathers in the high halves
  // is never read.
  constexpr int lanes = GARONNE_VECTOR_BYTES / 8;
  Lanes index{};
  for (int lane = 0; lane < lanes; ++lane) index[lane] = static_cast<std::uint64_t>(lane);
  const Lanes zero{};
  for (int first = 0; first < groups; first += lanes) {
    const Lanes group = index + (first_group + static_cast<std::uint64_t>(first));
    Lanes word0 = group;
    Lanes word1 = zero + sample;
    Lanes word2 = zero + step;
    Lanes word3 = ((group >> 32) & 0xFFFFULL) | ((sample >> 32) << 16);
    std::uint32_t key_low = key.low;
    std::uint32_t key_high = key.high;
    for (int round = 0; round < 10; ++round) {
      const Lanes product0 = low_product(word0, zero + 0xD2511F53ULL);
      const Lanes product1 = low_product(word2, zero + 0xCD9E8D57ULL);
      word0 = (product1 >> 32) ^ word1 ^ (zero + key_low);
      word1 = product1;
      word2 = (product0 >> 32) ^ word3 ^ (zero + key_high);
      word3 = product0;
      key_low += 0x9E3779B9U;
      key_high += 0xBB67AE85U;
    }
    const Lanes pair01 = (word0 & 0xFFFFFFFFULL) | (word1 << 32);
    const Lanes pair23 = (word2 & 0xFFFFFFFFULL) | (word3 << 32);
    Lanes low_order{};
    Lanes high_order{};
    for (int lane = 0; lane < lanes; ++lane) {
      low_order[lane] = static_cast<std::uint64_t>(lane / 2 + lane % 2 * lanes);
      high_order[lane] = static_cast<std::uint64_t>(lane / 2 + lanes / 2 + lane % 2 * lanes);
    }
    const Lanes low = __builtin_shuffle(pair01, pair23, low_order);
    const Lanes high = __builtin_shuffle(pair01, pair23, high_order);
    std::memcpy(words + 4 * first, &low, sizeof low);
    std::memcpy(words + 4 * first + 2 * lanes, &high, sizeof high);
  }
#else
  for (int i = 0; i < groups; ++i) {
    const PhiloxBlock block =
        philox_at(key, step, sample, first_group + static_cast<std::uint64_t>(i));
    std::memcpy(words + 4 * i, block.word, sizeof block.word);
  }
#endif
}
