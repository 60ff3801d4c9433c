// Memory of the program garonne-hdf5-reader, in which HDF5 is to fail on a damaged file where it
// reads beyond what it was given, and not by chance: behind each block are pages that nobody may
// touch.
#pragma once

#include <cstddef>

namespace garonne::data {

// Address space that guard_memory() takes at most.
inline constexpr std::size_t guarded_address_bytes = std::size_t{4} << 30;

// From now on malloc gives such blocks, up to 1 MiB each and for as many as there is room; what
// they hold is no address before it is written and after it is given back. With other C libraries
// than glibc, and under sanitizers, nothing changes.
void guard_memory();

}  // namespace garonne::data
