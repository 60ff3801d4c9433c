// Zarr stores: metadata and chunks.
#include "data/fields/field_index.hpp"
#include "data/zarr/zarr_store.hpp"
#include "fuzz/field_checks.hpp"
#include "fuzz/folder_input.hpp"

using namespace garonne;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::FolderInput input(data, size);
  return fuzz::take_or_refuse([&] {
    if (!data::ZarrStore::is_store(input.path())) {
      data::describe_zarr(input.path(), "auto");
      return;
    }
    const data::FieldIndex index = data::index_field_files(input.path(), "zarr", {}, nullptr);
    fuzz::hold(index.frames > 0 && index.files.size() == 1, "a store has frames");
    fuzz::check_description(index.files[0]);
    fuzz::read_some_frames(index.files[0]);
  });
}
