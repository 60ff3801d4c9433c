// For messages that say which numbers would do.
#pragma once

#include <cstdint>
#include <string>

namespace garonne {

// "the nearest that do are 4 and 6" or "the nearest that does is 2": the multiples of `step` around
// `value`, which is none itself; both above 0.
std::string nearest_multiples(std::int64_t value, std::int64_t step);

}  // namespace garonne
