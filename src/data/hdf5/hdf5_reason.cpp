#include "data/hdf5/hdf5_reason.hpp"

#include <hdf5.h>

namespace garonne::data {

std::string innermost_description() {
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
