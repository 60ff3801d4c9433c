// What the buffer of a workspace is called.
#pragma once

#include <string>

namespace garonne::plan {

inline std::string workspace_buffer(const std::string& name) {
  return name + ".workspace";
}

}  // namespace garonne::plan
