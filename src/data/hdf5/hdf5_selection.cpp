#include "data/hdf5/hdf5_selection.hpp"

#include <hdf5.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

namespace garonne::data {
namespace {

// Of a selection, so that sums of two still are numbers.
constexpr hsize_t most_index = hsize_t{1} << 62;

// Of a selection that a start, a stride, a count and a block describe.
IndexGrid regular_grid(hid_t space, std::size_t rank) {
  std::vector<hsize_t> start(rank);
  std::vector<hsize_t> stride(rank);
  std::vector<hsize_t> count(rank);
  std::vector<hsize_t> block(rank);
  if (H5Sget_regular_hyperslab(space, start.data(), stride.data(), count.data(), block.data()) < 0)
    return {};
  IndexGrid grid(rank);
  const auto number = [](hsize_t value) { return static_cast<std::int64_t>(value); };
  for (std::size_t axis = 0; axis < rank; ++axis) {
    hsize_t indices = 0;
    if (count[axis] == H5S_UNLIMITED || block[axis] == H5S_UNLIMITED ||
        std::max(start[axis], stride[axis]) > most_index ||
        __builtin_mul_overflow(count[axis], block[axis], &indices) || indices > most_index) {
      return {};
    }
    if (count[axis] == 1 || block[axis] == stride[axis]) {
      grid[axis] = {{number(start[axis]), 1, number(count[axis] * block[axis])}};
    } else if (block[axis] == 1) {
      grid[axis] = {{number(start[axis]), number(stride[axis]), number(count[axis])}};
    } else {
      if (count[axis] > most_parts) return {};
      for (hsize_t index = 0; index < count[axis]; ++index) {
        grid[axis].push_back({number(start[axis] + index * stride[axis]), 1, number(block[axis])});
      }
    }
  }
  return grid;
}

// Of any selection of blocks, where these are all that is in some rows and in some columns: as many
// elements as the product of what they take of each dimension.
IndexGrid irregular_grid(hid_t space, std::size_t rank) {
  const hssize_t blocks = H5Sget_select_hyper_nblocks(space);
  if (blocks < 1 || blocks > static_cast<hssize_t>(most_parts)) return {};
  std::vector<hsize_t> corners(2 * rank * static_cast<std::size_t>(blocks));
  if (H5Sget_select_hyper_blocklist(space, 0, static_cast<hsize_t>(blocks), corners.data()) < 0)
    return {};
  IndexGrid grid(rank);
  hsize_t elements = 1;
  for (std::size_t axis = 0; axis < rank; ++axis) {
    std::set<std::pair<hsize_t, hsize_t>> ranges;  // first and last index
    for (std::size_t block = 0; block < static_cast<std::size_t>(blocks); ++block) {
      ranges.emplace(corners[2 * rank * block + axis], corners[2 * rank * block + rank + axis]);
    }
    for (const auto& [first, last] : ranges) {
      if (last < first || last > most_index) return {};
      const Steps run = {static_cast<std::int64_t>(first), 1,
                         static_cast<std::int64_t>(last - first + 1)};
      std::vector<Steps>& runs = grid[axis];
      if (!runs.empty() && run.start <= runs.back().last() + 1) {
        runs.back().count = std::max(runs.back().last(), run.last()) - runs.back().start + 1;
      } else {
        runs.push_back(run);
      }
    }
    elements *= static_cast<hsize_t>(length_of(grid[axis]));
  }
  const hssize_t selected = H5Sget_select_npoints(space);
  return selected >= 0 && static_cast<hsize_t>(selected) == elements ? grid : IndexGrid();
}

}  // namespace

std::int64_t length_of(const std::vector<Steps>& runs) {
  std::int64_t length = 0;
  for (const Steps& run : runs) {
    if (__builtin_add_overflow(length, run.count, &length))
      return std::numeric_limits<std::int64_t>::max();
  }
  return length;
}

IndexGrid grid_of(std::int64_t space) {
  const int rank = H5Sget_simple_extent_ndims(space);
  if (rank < 1 || rank > H5S_MAX_RANK || H5Sget_select_type(space) != H5S_SEL_HYPERSLABS) return {};
  const auto size = static_cast<std::size_t>(rank);
  return H5Sis_regular_hyperslab(space) > 0 ? regular_grid(space, size)
                                            : irregular_grid(space, size);
}

std::vector<std::pair<Steps, Steps>> aligned(std::vector<Steps> one, std::vector<Steps> other) {
  std::vector<std::pair<Steps, Steps>> pairs;
  const auto cut = [](Steps& run, std::int64_t count) {
    const Steps head = {run.start, run.step, count};
    run.start += count * run.step;
    run.count -= count;
    return head;
  };
  std::size_t left = 0;
  std::size_t right = 0;
  while (left < one.size() && right < other.size()) {
    const std::int64_t count = std::min(one[left].count, other[right].count);
    pairs.emplace_back(cut(one[left], count), cut(other[right], count));
    if (one[left].count == 0) ++left;
    if (other[right].count == 0) ++right;
  }
  return pairs;
}

bool meet(const Steps& one, const Steps& other) {
  const std::int64_t begin = std::max(one.start, other.start);
  const std::int64_t end = std::min(one.last(), other.last());
  if (begin > end) return false;
  const std::int64_t common = std::gcd(one.step, other.step);
  if ((one.start - other.start) % common != 0) return false;
  const Steps& coarse = one.step >= other.step ? one : other;
  const Steps& fine = one.step >= other.step ? other : one;
  // After this many steps of the coarse one the remainders repeat.
  std::int64_t index =
      coarse.start + (begin - coarse.start + coarse.step - 1) / coarse.step * coarse.step;
  for (std::int64_t tries = fine.step / common; tries > 0 && index <= end; --tries) {
    if ((index - fine.start) % fine.step == 0) return true;
    index += coarse.step;
  }
  return false;
}

std::pair<std::int64_t, std::int64_t> within(const Steps& steps, std::int64_t first,
                                             std::int64_t count) {
  const std::int64_t end = first + count;
  const std::int64_t begin_step =
      steps.start >= first ? 0 : (first - steps.start + steps.step - 1) / steps.step;
  const std::int64_t end_step =
      steps.start >= end ? 0 : std::min(steps.count, (end - 1 - steps.start) / steps.step + 1);
  return {begin_step, std::max<std::int64_t>(0, end_step - begin_step)};
}

}  // namespace garonne::data
