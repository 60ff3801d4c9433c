// Reads slabs of frames from described files, a few of them open at a time. For the sources of this
// room.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "data/hdf5/hdf5.hpp"
#include "data/layouts/field_layout.hpp"
#include "data/zarr/zarr_store.hpp"

namespace garonne::data {

// Which values: rows [first_row, first_row + rows) of the first axis of space, all of the others.
struct FrameSlab {
  std::int64_t trajectory = 0;
  std::int64_t frame = 0;  // of the trajectory
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
};

// For one thread at a time.
class FieldReader {
 public:
  // `mask`: values that are missing become NaN instead of an error.
  FieldReader(int open_file_limit, bool mask) : limit_(open_file_limit), mask_(mask) {}

  // Reads the channels `places` (indices into the file's channels, or into its targets) of one
  // frame to `values` [places, rows, columns]. IoError as FieldDataset::read says, and where the
  // file has changed since it was described.
  void read(const FieldFile& file, bool targets, std::span<const int> places, const FrameSlab& slab,
            float* values);

  // Of HDF5; of a store no file stays open.
  int open_files() const { return static_cast<int>(open_.size()); }
  std::int64_t values_read() const { return values_read_; }

 private:
  struct OpenFile {
    explicit OpenFile(Hdf5File opened) : file(std::move(opened)) {}
    Hdf5File file;
    std::map<std::string, Hdf5Dataset> datasets;  // closed before the file
  };
  OpenFile& open(const FieldSource& source);
  ZarrStore& open_store(const FieldSource& source);
  const Hdf5Dataset& dataset(OpenFile& file, const std::string& name);
  // `count` channels from places[0] on that lie beside each other.
  void read_together(const FieldFile& file, const FieldPlace& place, std::int64_t count,
                     const FrameSlab& slab, float* values);
  void check_values(const FieldFile& file, const FieldPlace& place, const std::string& dataset,
                    const FrameSlab& slab, std::span<float> values);

  int limit_;
  bool mask_;
  std::list<OpenFile> open_;     // used last first
  std::list<ZarrStore> stores_;  // likewise
  std::int64_t values_read_ = 0;
  std::vector<float> crossed_;  // channels last, as some files have them
  std::vector<double> stored_;  // before scaling
};

}  // namespace garonne::data
