// Statistics of fields: makani's folder of .npy files, and The Well's stats.yaml.
#include "data/statistics/field_statistics.hpp"
#include "fuzz/folder_input.hpp"

using namespace garonne;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::FolderInput input(data, size);
  data::FieldDatasetInfo info;
  info.channels = info.input_channels = info.target_channels = {"u10", "v_x", "v_y"};
  info.points = {4, 8};
  const auto read = [&](const std::string& path) {
    fuzz::take_or_refuse([&] {
      const data::FieldSummaries summaries = data::load_field_summaries(path, info);
      fuzz::hold(summaries.inputs.mean.size() == summaries.inputs.channels.size() &&
                     summaries.inputs.deviation.size() == summaries.inputs.channels.size(),
                 "every channel has a mean");
      for (const char* mode : {"channel", "pointwise"}) {
        fuzz::take_or_refuse([&] { data::choose_statistics(summaries, mode, info, path); });
      }
    });
  };
  read(input.path());
  read(input.file("stats.yaml"));
  return 0;
}
