// Virtual datasets as h5py makes them, by plain calls of HDF5.
#pragma once

#include <gtest/gtest.h>
#include <hdf5.h>

#include <filesystem>
#include <string>
#include <vector>

#include "data/fields/field_files.hpp"

namespace garonne::data::testing {

// Adds mappings to a list of sources, then makes the dataset.
class VirtualDataset {
 public:
  using Shape = std::vector<hsize_t>;
  // start, stride, count, block of each dimension; empty = all
  using Selection = std::vector<std::vector<hsize_t>>;

  VirtualDataset(Shape shape, hid_t type)
      : shape_(std::move(shape)), type_(type), properties_(H5Pcreate(H5P_DATASET_CREATE)) {}
  VirtualDataset(const VirtualDataset&) = delete;
  VirtualDataset& operator=(const VirtualDataset&) = delete;
  ~VirtualDataset() { H5Pclose(properties_); }

  static hid_t space_of(const Shape& shape, const std::vector<Selection>& selections) {
    const hid_t space = H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr);
    bool first = true;
    for (const Selection& selection : selections) {
      if (selection.empty()) continue;
      Shape parts[4];
      for (const std::vector<hsize_t>& along : selection) {
        for (std::size_t part = 0; part < 4; ++part) parts[part].push_back(along[part]);
      }
      EXPECT_GE(H5Sselect_hyperslab(space, first ? H5S_SELECT_SET : H5S_SELECT_OR, parts[0].data(),
                                    parts[1].data(), parts[2].data(), parts[3].data()),
                0);
      first = false;
    }
    return space;
  }

  // Several selections are one, of all that is in any of them.
  void map(const std::vector<Selection>& here, const std::string& file, const std::string& dataset,
           const Shape& source_shape, const std::vector<Selection>& there = {}) {
    const hid_t target = space_of(shape_, here);
    const hid_t origin = space_of(source_shape, there);
    EXPECT_GE(H5Pset_virtual(properties_, target, file.c_str(), dataset.c_str(), origin), 0);
    H5Sclose(origin);
    H5Sclose(target);
  }

  // With fill value 0, as makani's.
  void write(const std::string& path, const std::string& name) const {
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    EXPECT_GE(file, 0) << path;
    const hid_t space = space_of(shape_, {});
    const hid_t dataset =
        H5Dcreate2(file, name.c_str(), type_, space, H5P_DEFAULT, properties_, H5P_DEFAULT);
    EXPECT_GE(dataset, 0) << name;
    H5Dclose(dataset);
    H5Sclose(space);
    H5Fclose(file);
  }

 private:
  Shape shape_;
  hid_t type_;
  hid_t properties_;
};

// [start, start + count) along a dimension.
inline std::vector<hsize_t> range(hsize_t start, hsize_t count) {
  return {start, 1, count, 1};
}

// What makani writes beside a virtual `fields`: everything but it.
inline void write_virtual_year(const std::string& path, const YearlyFile& all,
                               const VirtualDataset& fields) {
  {
    Hdf5File file = Hdf5File::create(path);
    put_line(file, "timestamp",
             all.times.empty()
                 ? line(YearlyFile::begin + YearlyFile::step * static_cast<double>(all.first_frame),
                        YearlyFile::step, all.frames)
                 : all.times);
    put_line(file, "lat", line(90, -180.0 / static_cast<double>(all.rows - 1), all.rows));
    put_line(file, "lon", line(0, 360.0 / static_cast<double>(all.columns), all.columns));
    file.create_texts("channel", all.channels);
    file.close();
  }
  fields.write(path, "fields");
}

// Two years of different lengths in two groups of channels, as `data/surface/1979.h5`, and the
// virtual file of all, with names relative to it; `all` is what a plain file of it holds.
struct VirtualYears {
  YearlyFile all;
  std::vector<hsize_t> lengths = {6, 5};
  std::vector<std::vector<std::string>> groups = {{"u10", "t2m"}, {"z500"}};
  std::vector<std::string> folders = {"surface", "levels"};
  std::vector<hsize_t> chunk;  // of the sources' frames, channels, rows and columns; empty = none

  VirtualYears() {
    all.frames = 11;
    all.channels = {"u10", "t2m", "z500"};
  }

  // The value at a place does not depend on how it is stored: value_at of the whole.
  void write_sources(const std::string& folder) const {
    std::int64_t frame = 0;
    for (std::size_t year = 0; year < lengths.size(); ++year) {
      std::int64_t channel = 0;
      for (std::size_t group = 0; group < groups.size(); ++group) {
        std::filesystem::create_directories(folder + "/" + folders[group]);
        YearlyFile part = all;
        part.frames = static_cast<std::int64_t>(lengths[year]);
        part.first_frame = all.first_frame + frame;
        part.channels = groups[group];
        part.chunk.assign(chunk.begin(), chunk.end());
        if (!part.chunk.empty()) part.chunk[1] = static_cast<std::int64_t>(groups[group].size());
        part.write(source(folder, year, group), [&](std::vector<float>& values) {
          values = filled(
              {part.frames, static_cast<std::int64_t>(part.channels.size()), all.rows, all.columns},
              [&](const std::vector<std::int64_t>& at) {
                return value_at(part.first_frame + at[0], channel + at[1], at[2], at[3]);
              });
        });
        channel += static_cast<std::int64_t>(groups[group].size());
      }
      frame += static_cast<std::int64_t>(lengths[year]);
    }
  }
  std::string source(const std::string& folder, std::size_t year, std::size_t group) const {
    return folder + "/" + named(year, group);
  }
  std::string named(std::size_t year, std::size_t group) const {
    return folders[group] + "/" + std::to_string(1979 + year) + ".h5";
  }
  void write_virtual(const std::string& path, const std::string& prefix = "") const {
    const auto rows = static_cast<hsize_t>(all.rows);
    const auto columns = static_cast<hsize_t>(all.columns);
    VirtualDataset fields({static_cast<hsize_t>(all.frames), all.channels.size(), rows, columns},
                          H5T_IEEE_F32LE);
    hsize_t frame = 0;
    for (std::size_t year = 0; year < lengths.size(); ++year) {
      hsize_t channel = 0;
      for (std::size_t group = 0; group < groups.size(); ++group) {
        const hsize_t channels = groups[group].size();
        fields.map({{range(frame, lengths[year]), range(channel, channels), range(0, rows),
                     range(0, columns)}},
                   prefix + named(year, group), "fields", {lengths[year], channels, rows, columns});
        channel += channels;
      }
      frame += lengths[year];
    }
    write_virtual_year(path, all, fields);
  }
};

}  // namespace garonne::data::testing
