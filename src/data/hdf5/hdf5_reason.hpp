// What HDF5 says of its last error, for the sources of this room and for the program
// garonne-hdf5-reader, which has nothing else of it.
#pragma once

#include <hdf5.h>

#include <string>

namespace garonne::data {

// The innermost description on HDF5's stack of errors; empty where there is none.
inline std::string innermost_description() {
  std::string reason;
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned, const H5E_error2_t* entry, void* text) -> herr_t {
        auto& found = *static_cast<std::string*>(text);
        if (found.empty() && entry->desc != nullptr) found = entry->desc;
        return 0;
      },
      &reason);
  return reason;
}

}  // namespace garonne::data
