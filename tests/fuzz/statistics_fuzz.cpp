// Statistics of fields: our own in HDF5, whose inputs are recipes (hdf5_recipe.hpp), makani's
// folder of .npy files, and The Well's stats.yaml, whose inputs begin with "=== ".
#include "data/statistics/field_statistics.hpp"
#include "fuzz/folder_input.hpp"
#include "fuzz/hdf5_target.hpp"

using namespace garonne;

namespace {

void read_statistics(const std::string& path) {
  data::FieldDatasetInfo info;
  info.channels = info.input_channels = info.target_channels = {"u10", "v_x", "v_y"};
  info.points = {4, 8};
  fuzz::take_or_refuse([&] {
    const data::FieldSummaries summaries =
        data::load_field_summaries(path, info, 1, fuzz::foreign_reader());
    for (const char* mode : {"channel", "pointwise"}) {
      fuzz::take_or_refuse([&] {
        const data::FieldStatistics chosen = data::choose_statistics(summaries, mode, info, path);
        fuzz::hold(chosen.inputs.mean.size() == chosen.inputs.deviation.size() &&
                       chosen.inputs.mean.size() >= info.input_channels.size(),
                   "every channel has a mean and a deviation");
      });
    }
  });
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (!fuzz::text_of(data, size).starts_with("=== ")) {
    read_statistics(fuzz::Hdf5Input(data, size).path());
    return 0;
  }
  const fuzz::FolderInput input(data, size);
  read_statistics(input.path());
  read_statistics(input.file("stats.yaml"));
  return 0;
}
