#include "train/checkpoint/tensor_file.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <map>

#include "base/error.hpp"
#include "base/printable.hpp"

namespace garonne::train {

at::Tensor read_tensor(const SafetensorsFile& file, const std::string& path,
                       const TensorEntry& entry) {
  static const std::map<std::string, at::ScalarType> types = {
      {"F32", at::kFloat}, {"F64", at::kDouble}, {"F16", at::kHalf}, {"BF16", at::kBFloat16}};
  const auto found = types.find(entry.type);
  if (found == types.end()) {
    throw IoError(path, fmt::format("tensor {} is of type {}; weights are F16, BF16, F32 or F64",
                                    printable(entry.name), entry.type));
  }
  const at::Tensor tensor = at::empty(entry.shape, at::TensorOptions(found->second));
  file.read(entry, 0, {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()});
  return tensor;
}

}  // namespace garonne::train
