// The largest that keys may ask for: far beyond what is trained, and small enough that no size
// computed from a few of them overflows. What is computed from many is checked as a whole, see
// train/setup/size_check.hpp.
#pragma once

#include <cstdint>

namespace garonne {

inline constexpr std::int64_t most_threads = 1024;                 // of a rank
inline constexpr std::int64_t most_ranks = std::int64_t{1} << 20;  // on one axis
inline constexpr std::int64_t most_layers = 100'000;
inline constexpr std::int64_t most_width = std::int64_t{1} << 24;  // hidden, heads, modes
inline constexpr std::int64_t most_sequence = std::int64_t{1} << 30;
inline constexpr std::int64_t most_vocabulary = std::int64_t{1} << 32;
inline constexpr std::size_t most_modes_axes = 8;
inline constexpr std::int64_t most_levels = 20;
inline constexpr std::int64_t most_samples = std::int64_t{1} << 30;  // of a batch
inline constexpr std::int64_t most_rollout = 10'000;
inline constexpr std::int64_t most_members = 1'000;         // of an ensemble
inline constexpr std::int64_t most_history = 10'000;        // frames
inline constexpr std::int64_t most_frames = 1'000'000'000;  // from one to another
inline constexpr std::int64_t most_steps = 1'000'000'000'000'000;
inline constexpr std::int64_t most_key_bytes = std::int64_t{1} << 60;  // of a budget or bucket
inline constexpr std::int64_t most_wait_seconds = 1'000'000'000;       // of waiting
inline constexpr std::int64_t most_minutes = 1'000'000'000;            // of keeping
inline constexpr double most_ratio = 1e6;                              // of one width to another

}  // namespace garonne
