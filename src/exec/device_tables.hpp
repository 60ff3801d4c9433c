// The constant tables of a model in the memory of a GPU.
#pragma once

#include <functional>

#include "base/device.hpp"
#include "base/precision.hpp"
#include "exec/staging.hpp"
#include "nn/model.hpp"

namespace garonne::exec {

// Copies of all that kernels of the model's nodes read, in the calling thread's tier. What is put
// on Compute from now on finds them there.
nn::DeviceTables make_device_tables(const Queue& queue, const nn::Model& model, Precision precision,
                                    Staging& staging);

// The same in tensors of bytes that are there: `place` of each.
nn::DeviceTables fill_device_tables(
    const nn::Model& model, Precision precision, Staging& staging,
    const std::function<at::Tensor(const nn::ConstantTable&)>& place);

}  // namespace garonne::exec
