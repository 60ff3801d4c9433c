// Numbers of bytes: how they are rounded, written and read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace garonne {

// Granularity in bytes of the counted allocations.
inline constexpr std::int64_t cpu_allocation_granularity = 64;
inline constexpr std::int64_t cuda_allocation_granularity = 512;

// The least multiple of `granularity` that is at least `bytes`; zero stays zero.
constexpr std::int64_t round_up(std::int64_t bytes, std::int64_t granularity) {
  return (bytes + granularity - 1) / granularity * granularity;
}

// For people: "512 B", "1.50 KiB", "600.00 MiB".
std::string format_bytes(std::int64_t bytes);

// Reads "1024", "600MiB", "2 GiB", "80GB", "1.5 GiB"; empty when malformed, negative or too large.
std::optional<std::int64_t> parse_bytes(std::string_view text);

}  // namespace garonne
