// Tensors of safetensors files that other programs wrote.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "train/checkpoint/safetensors.hpp"

namespace garonne::train {

// In the type that it has in the file. IoError (`path`, of the file) where that is none of weights:
// F16, BF16, F32 or F64.
at::Tensor read_tensor(const SafetensorsFile& file, const std::string& path,
                       const TensorEntry& entry);

}  // namespace garonne::train
