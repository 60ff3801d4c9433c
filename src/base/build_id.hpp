// Which build the running program is: the GNU build id that the linker put into it.
#pragma once

#include <string>

namespace garonne {

// Hexadecimal digits of the build id of the running executable, as `readelf -n` shows it. It is
// read from memory, where the loader put it. InternalError where the executable has none.
std::string build_id();

}  // namespace garonne
