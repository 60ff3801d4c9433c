// Bytes as people write them, and the keys of random numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/byte_units.hpp"
#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/philox.hpp"
#include "base/wrapped.hpp"

namespace garonne {
namespace {

TEST(Bytes, Rounding) {
  EXPECT_EQ(round_up(0, 64), 0);
  EXPECT_EQ(round_up(1, 64), 64);
  EXPECT_EQ(round_up(64, 64), 64);
  EXPECT_EQ(round_up(65, 512), 512);
  EXPECT_EQ(round_up(513, 512), 1024);
}

TEST(Bytes, FormattedForPeople) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(600 * (std::int64_t{1} << 20)), "600.00 MiB");
  EXPECT_EQ(format_bytes(-3 * (std::int64_t{1} << 30)), "-3.00 GiB");
  EXPECT_EQ(format_bytes(std::int64_t{1} << 50), "1.00 PiB");
  EXPECT_EQ(format_bytes(std::int64_t{1} << 62), "4096.00 PiB");
}

TEST(Counted, OneIsSingular) {
  EXPECT_EQ(counted(0, "rank"), "0 ranks");
  EXPECT_EQ(counted(1, "rank"), "1 rank");
  EXPECT_EQ(counted(2, "rank"), "2 ranks");
  EXPECT_EQ(counted(1, "micro-batch"), "1 micro-batch");
  EXPECT_EQ(counted(8, "micro-batch"), "8 micro-batches");
}

TEST(Bytes, Parsed) {
  const std::pair<const char*, std::int64_t> good[] = {
      {"0", 0},
      {"1024", 1024},
      {"1024B", 1024},
      {"600MiB", 629145600},
      {"2 GiB", 2147483648},
      {"80GB", 80000000000},
      {"1.5 GiB", 1610612736},
      {"  7 KiB  ", 7168},
      {"7kiB", 7168},
      {"3kB", 3000},
      {"3KB", 3000},
      {"3MB", 3000000},
      {"2TB", 2000000000000},
      {"1TiB", std::int64_t{1} << 40},
      {"1e3", 1000},
  };
  for (const auto& [text, bytes] : good) EXPECT_EQ(parse_bytes(text), bytes) << text;
}

TEST(Bytes, UnitsOfMessagesAreRead) {
  std::string_view left = byte_units;
  int units = 0;
  while (!left.empty()) {
    const std::size_t end = std::min(left.find(", "), left.size());
    EXPECT_TRUE(parse_bytes("1 " + std::string(left.substr(0, end))).has_value()) << left;
    left.remove_prefix(std::min(end + 2, left.size()));
    ++units;
  }
  EXPECT_EQ(units, 9);
}

TEST(Bytes, MalformedNegativeOrTooLarge) {
  const char* const bad[] = {"",       " ",   "MiB",      "-1",      "-2 MiB",      "1.5",
                             "12 MB2", "1 2", "10 mib",   "10 XiB",  "1,5 GiB",     "0x10",
                             "nan",    "inf", "1e400",    "600MiB!", "9000000 TiB", "1e19",
                             "auto",   "+5",  "10 MiB/s", "1 PiB"};
  for (const char* text : bad) EXPECT_FALSE(parse_bytes(text).has_value()) << text;
}

TEST(Bytes, FormattedAndParsedAgreeToTheShownDigits) {
  for (std::int64_t bytes = 1; bytes < std::int64_t{1} << 44; bytes = bytes * 3 + 1) {
    const auto again = parse_bytes(format_bytes(bytes));
    ASSERT_TRUE(again.has_value()) << format_bytes(bytes);
    EXPECT_NEAR(static_cast<double>(*again), static_cast<double>(bytes),
                0.0051 * static_cast<double>(bytes));
  }
}

TEST(PhiloxKey, DiffersByNameSeedAndRepetition) {
  std::set<std::pair<std::uint32_t, std::uint32_t>> keys;
  std::size_t count = 0;
  for (const char* name : {"", "layer.0.up", "layer.1.up", "layer.10.up", "layer.0.pu"}) {
    for (const std::uint64_t seed : {0ULL, 1ULL, 2ULL, 1ULL << 32, ~0ULL}) {
      for (const std::uint64_t repetition : {0ULL, 1ULL, 2ULL, 1ULL << 32}) {
        const PhiloxKey key = philox_key(seed, name, repetition);
        keys.emplace(key.low, key.high);
        ++count;
        // A function of its arguments and nothing else.
        const PhiloxKey again = philox_key(seed, name, repetition);
        EXPECT_EQ(key.low, again.low);
        EXPECT_EQ(key.high, again.high);
      }
    }
  }
  EXPECT_EQ(keys.size(), count);
  // Seed and repetition are not interchangeable.
  EXPECT_NE(philox_key(1, "a", 2).low, philox_key(2, "a", 1).low);
}

TEST(Wrapped, LinesEndAtSpacesAndContinueIndented) {
  EXPECT_EQ(wrapped("one two three", 7), "one two\nthree");
  EXPECT_EQ(wrapped("one two three", 8, 2), "one two\n  three");
  EXPECT_EQ(wrapped("a word-that-is-longer b", 6, 1), "a\n word-that-is-longer\n b");
  // Characters count, not bytes.
  EXPECT_EQ(wrapped("× × ×", 5), "× × ×");
  EXPECT_EQ(wrapped("one\ntwo\n", 9), "one\ntwo\n");
}

}  // namespace
}  // namespace garonne
