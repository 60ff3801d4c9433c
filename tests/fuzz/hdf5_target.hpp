// What the targets that read HDF5 share: an input is a recipe (hdf5_recipe.hpp), read as the
// program does.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "data/fields/field_dataset.hpp"
#include "data/fields/field_index.hpp"
#include "data/fields/field_inspect.hpp"
#include "data/file_identity.hpp"
#include "data/hdf5/foreign_reader.hpp"
#include "data/hdf5/hdf5.hpp"
#include "fuzz/field_checks.hpp"
#include "fuzz/fuzz_target.hpp"
#include "fuzz/hdf5_recipe.hpp"
#include "fuzz/scratch_folder.hpp"

namespace garonne::fuzz {

// One program for all inputs, that need not start one each. It ends by itself what takes longer
// than any of their small files does, since many have no end; by the clock that may be long where
// the machine is busy.
inline const std::shared_ptr<data::ForeignReader>& foreign_reader() {
  static const auto reader = std::make_shared<data::ForeignReader>("", 60.0, 0.1);
  return reader;
}

class Hdf5Input {
 public:
  Hdf5Input(const std::uint8_t* data, std::size_t size)
      : files_(make_hdf5_files(text_of(data, size), folder_.path())) {}
  const std::string& path() const { return files_.path; }
  bool by_path() const { return files_.by_path; }
  const ScratchFolder& folder() const { return folder_; }

 private:
  ScratchFolder folder_;
  MadeFiles files_;
};

// Reads fields of a layout, or of the one that recognises the file.
inline int read_fields(const std::uint8_t* data, std::size_t size, const std::string& layout) {
  const Hdf5Input input(data, size);
  const auto read = [&](const std::string& name) {
    return take_or_refuse([&] {
      const data::FieldIndex index =
          data::index_field_files(input.path(), name, {}, foreign_reader());
      hold(index.frames > 0 && !index.runs.empty(), "a dataset has frames");
      for (const data::FieldFile& file : index.files) {
        check_description(file);
        read_some_frames(file);
      }
    });
  };
  read(layout);
  if (!input.by_path()) return 0;
  read("auto");
  return take_or_refuse([&] {
    data::FieldQuery query;
    query.path = input.path();
    query.layout = layout;
    query.windows = false;
    const data::FieldDataset dataset = data::FieldDataset::open(query, foreign_reader());
    hold(!describe(dataset.info()).empty(), "a dataset can be described");
    data::field_dataset_json(dataset.info()).dump();
    dataset.identity();
  });
}

}  // namespace garonne::fuzz
