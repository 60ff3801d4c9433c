// Files of tensors.
#include <vector>

#include "fuzz/fuzz_target.hpp"
#include "train/checkpoint/safetensors.hpp"

using namespace garonne;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::MemoryFile file(data, size);
  return fuzz::take_or_refuse([&] {
    const train::SafetensorsFile tensors(file.path());
    std::int64_t next = 0;
    for (const train::TensorEntry& tensor : tensors.tensors()) {
      fuzz::hold(tensor.begin == next && tensor.end >= tensor.begin, "no holes, no overlap");
      next = tensor.end;
      std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.end - tensor.begin));
      tensors.read(tensor, 0, bytes);
      fuzz::hold(tensors.find(tensor.name).begin == tensor.begin, "a tensor is found by its name");
      fuzz::take_or_refuse([&] { tensors.read(tensor, 1, bytes); });
    }
    fuzz::take_or_refuse([&] { tensors.find("a"); });
    fuzz::hold(next <= static_cast<std::int64_t>(size), "tensors are in the file");
  });
}
