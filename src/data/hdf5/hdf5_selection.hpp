// Selections of elements that are grids: of each dimension some indices, and all that these make.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "data/hdf5/hdf5_virtual.hpp"

namespace garonne::data {

// More runs of indices along a dimension, or blocks, are no grid for us.
inline constexpr std::size_t most_parts = 1U << 16;

using IndexGrid = std::vector<std::vector<Steps>>;  // of each dimension runs of indices, ascending

// The greatest number where there are more.
std::int64_t length_of(const std::vector<Steps>& runs);

// Of a dataspace of HDF5. Empty where its selection is of no such kind.
IndexGrid grid_of(std::int64_t space);

// Cut so that run n of the one and of the other have the same length; both are as long in all.
std::vector<std::pair<Steps, Steps>> aligned(std::vector<Steps> one, std::vector<Steps> other);

// Whether they have an index in common.
bool meet(const Steps& one, const Steps& other);

// The indices of `steps` that lie in [first, first + count): from which of them on, and how many.
std::pair<std::int64_t, std::int64_t> within(const Steps& steps, std::int64_t first,
                                             std::int64_t count);

}  // namespace garonne::data
