// Reads all of a file of data, whatever it is, as `garonne data inspect --full --json` does.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/fields/field_dataset.hpp"
#include "data/fields/field_inspect.hpp"
#include "data/hdf5/hdf5.hpp"
#include "data/statistics/field_statistics.hpp"
#include "data/statistics/npy.hpp"
#include "data/tokens/token_file.hpp"

namespace garonne::data::testing {

inline void read_whole_fields(const std::string& path) {
  FieldQuery query;
  query.path = path;
  query.missing = "mask";
  query.windows = false;
  FieldDataset dataset = FieldDataset::open(query);
  const FieldDatasetInfo& info = dataset.info();
  describe(info);
  field_dataset_json(info).dump(2);
  std::vector<float> input(static_cast<std::size_t>(info.input_values(info.points[0])));
  std::vector<float> target(static_cast<std::size_t>(info.target_values(info.points[0])));
  for (std::int64_t frame = 0; frame < info.frames; ++frame) {
    dataset.read_frame(frame, {}, input.data(), info.pairs ? target.data() : nullptr);
  }
}

inline void read_whole_tokens(const std::string& path) {
  const TokenFileInfo info = inspect_token_file(path);
  verify_token_file(path);
  describe(info);
  token_file_json(info).dump(2);
}

// `path` ends in .npy or .h5; statistics say what they are.
inline void read_whole_file(const std::string& path) {
  if (std::filesystem::path(path).extension() == ".npy") {
    read_npy<float>(path);
    return;
  }
  bool tokens = false;
  {
    const Hdf5File file = Hdf5File::open(path);
    tokens = file.has_attribute("format");
    if (tokens && file.string_attribute("format") == "garonne.field-statistics") {
      const FieldSummaries summaries = load_field_summaries(path, {}, 1);
      FieldDatasetInfo info;
      info.input_channels = info.target_channels = summaries.inputs.channels;
      choose_statistics(summaries, "channel", info, path);
      return;
    }
  }
  tokens ? read_whole_tokens(path) : read_whole_fields(path);
}

}  // namespace garonne::data::testing
