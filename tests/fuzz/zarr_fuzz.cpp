// Zarr stores: metadata and chunks.
#include "data/fields/field_index.hpp"
#include "fuzz/field_checks.hpp"
#include "fuzz/folder_input.hpp"

using namespace garonne;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::FolderInput input(data, size);
  return fuzz::take_or_refuse([&] {
    const data::FieldFile store = data::describe_zarr(input.path(), "auto");
    fuzz::check_description(store);
    if (store.frames > 0) fuzz::read_some_frames(store);
  });
}
