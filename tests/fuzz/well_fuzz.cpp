// Fields of The Well.
#include "fuzz/hdf5_target.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return garonne::fuzz::read_fields(data, size, "well");
}
