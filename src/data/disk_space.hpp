// Whether there is room for a file that is to be written.
#pragma once

#include <cstdint>
#include <string>

namespace garonne::data {

// IoError where the folder of `output` does not exist or about `needed` bytes do not fit on its
// disk: found before minutes of work. A file system that cannot say how much is free is believed to
// have enough.
void check_space(const std::string& output, std::int64_t needed);

}  // namespace garonne::data
