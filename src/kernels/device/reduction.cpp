#include "kernels/device/reduction.hpp"

#include "kernels/device/add_blocks.hpp"
#include "kernels/device/combine.hpp"
#include "kernels/device/spaces.hpp"

namespace garonne::kernels::device {

namespace {

// The sums of the squares of blocks of `length` elements: thread t of a team has the packs t,
// t + threads, … of its block.
template <typename T>
struct BlockSquares {
  const T* values;
  std::int64_t n;
  std::int64_t length;
  double* sums;  // [blocks]

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t block) const {
    const std::int64_t begin = block * length;
    const std::int64_t end = Kokkos::min(n, begin + length);
    double* const groups = team.template shared<double>(Team::groups);
    const double total = team.template sum<double>(groups, [&](int thread) {
      constexpr int width = pack<T>;
      double sum = 0;
      for (std::int64_t i = begin + thread * width; i < end; i += Team::threads * width) {
        Values<T, width> pieces{};
        if (i + width <= end) {
          read<width>(values + i, pieces);
        } else {
          for (int j = 0; j < width; ++j) {
            if (i + j < end) pieces[j] = values[i + j];
          }
        }
        for (int j = 0; j < width; ++j) {
          const auto value = static_cast<double>(pieces[j]);
          sum += value * value;
        }
      }
      return sum;
    });
    team.each(1, [&](int) { sums[block] = total; });
  }
};

}  // namespace

void add_sum_of_squares(const Place& place, ElementType type, const void* values, std::int64_t n,
                        double* total) {
  if (n <= 0) return;
  const std::int64_t length = squares_block(n);
  const std::int64_t blocks = (n + length - 1) / length;
  with_wide_type_and_space(
      place, type, "add_sum_of_squares", [&]<typename T>(T, const auto& space) {
        add_sum_of_blocks(space, blocks,
                          BlockSquares<T>{static_cast<const T*>(values), n, length, place.scratch},
                          place.scratch, total);
      });
}

void add_into(const Place& place, ElementType type, void* destination, const void* source,
              std::int64_t n) {
  with_type_and_space(place, type, [&]<typename T>(T, const auto& space) {
    combine<T, T>(space, source, destination, n, true);
  });
}

}  // namespace garonne::kernels::device
