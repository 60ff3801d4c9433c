// Whether numbers of a tensor are finite.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace garonne::train {

// Of whole elements of type "F32", "F64" or "U8" (as in safetensors), which is always finite;
// InternalError for other types.
bool all_finite(const std::string& type, std::span<const std::byte> elements);

}  // namespace garonne::train
