// NumPy's files of one array.
#include "data/statistics/npy.hpp"
#include "fuzz/fuzz_target.hpp"

using namespace garonne;

namespace {

template <typename T>
void check(const data::NpyArray<T>& array) {
  std::size_t elements = 1;
  for (const std::int64_t extent : array.shape) elements *= static_cast<std::size_t>(extent);
  fuzz::hold(elements == array.values.size(), "an array has as many values as its shape says");
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::MemoryFile file(data, size);
  fuzz::take_or_refuse([&] { check(data::read_npy<double>(file.path())); });
  return fuzz::take_or_refuse([&] { check(data::read_npy<float>(file.path())); });
}
