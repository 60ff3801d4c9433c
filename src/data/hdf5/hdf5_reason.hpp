// What HDF5 says of its last error, for the sources of this room and for the program
// garonne-hdf5-reader, which has nothing else of it.
#pragma once

#include <string>

namespace garonne::data {

// The innermost description on HDF5's stack of errors; empty where there is none.
std::string innermost_description();

}  // namespace garonne::data
