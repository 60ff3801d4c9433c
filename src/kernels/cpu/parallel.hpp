// How kernels use the thread pool; private to this room.
#pragma once

#include "base/device.hpp"
#include "kernels/session.hpp"

#include <algorithm>
#include <cstdint>

namespace garonne::kernels {

// Elements that one thread should at least have to be worth waking, for a loop of a few operations
// each.
inline constexpr std::int64_t element_grain = 8192;

// The same in rows of `width` elements.
constexpr std::int64_t row_grain(std::int64_t width) {
  return std::max<std::int64_t>(element_grain / std::max<std::int64_t>(width, 1), 1);
}

// Calls piece(context, i) for i in [0, pieces) on the session's pool.
void run_pieces(std::int64_t pieces, void (*piece)(const void* context, std::int64_t i),
                const void* context);

// Calls work(begin, end) for contiguous ranges that cover [0, count), one a thread. A range has at
// least `grain` items (fewer threads are used where there are not enough), because waking the pool
// costs some microseconds; ranges begin at multiples of `alignment`, so that two threads do not
// write one cache line.
template <typename Work>
void for_ranges(const Queue& queue, std::int64_t count, std::int64_t grain, std::int64_t alignment,
                const Work& work) {
  if (count <= 0) return;
  const std::int64_t units = (count + alignment - 1) / alignment;
  const std::int64_t pieces =
      std::clamp<std::int64_t>(count / std::max<std::int64_t>(grain, 1), 1,
                               std::min<std::int64_t>(threads_of(queue), units));
  if (pieces == 1) {
    work(std::int64_t{0}, count);
    return;
  }
  const auto range = [&](std::int64_t piece) {
    const std::int64_t begin = units * piece / pieces * alignment;
    const std::int64_t end = std::min(units * (piece + 1) / pieces * alignment, count);
    if (begin < end) work(begin, end);
  };
  using Range = decltype(range);
  run_pieces(
      pieces, [](const void* context, std::int64_t i) { (*static_cast<const Range*>(context))(i); },
      &range);
}

}  // namespace garonne::kernels
