// Small files of each layout of fields, whose values tell where they belong.
#pragma once

#include <gtest/gtest.h>
#include <hdf5.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/fields/field_dataset.hpp"
#include "data/hdf5/hdf5.hpp"

namespace garonne::data::testing {

inline FieldQuery query_of(const std::string& path) {
  FieldQuery query;
  query.path = path;
  return query;
}

// Exact as a float, and another one for every place of the small grids here.
inline float value_at(std::int64_t frame, std::int64_t channel, std::int64_t row,
                      std::int64_t column) {
  return static_cast<float>(((frame * 5 + channel) * 11 + row) * 13 + column);
}

// [size of the first index, …] filled by `value(indices)`, in row-major order.
inline std::vector<float> filled(
    const std::vector<std::int64_t>& shape,
    const std::function<float(const std::vector<std::int64_t>&)>& value) {
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) elements *= size;
  std::vector<float> values;
  std::vector<std::int64_t> place(shape.size(), 0);
  for (std::int64_t element = 0; element < elements; ++element) {
    values.push_back(value(place));
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      if (++place[axis] < shape[axis]) break;
      place[axis] = 0;
    }
  }
  return values;
}

template <typename T>
void put(Hdf5File& file, const std::string& name, const std::vector<std::int64_t>& shape,
         const std::vector<T>& values, const std::vector<std::int64_t>& chunk = {}) {
  Hdf5Dataset dataset = file.create_array<T>(name, shape, chunk);
  const std::vector<std::int64_t> origin(shape.size(), 0);
  dataset.write_box<T>(origin, shape, values);
}

inline void put_line(Hdf5File& file, const std::string& name, const std::vector<double>& values) {
  put<double>(file, name, {static_cast<std::int64_t>(values.size())}, values);
}

// `count` values from `first` on, `step` apart.
inline std::vector<double> line(double first, double step, std::int64_t count) {
  std::vector<double> values;
  for (std::int64_t index = 0; index < count; ++index) {
    values.push_back(first + step * static_cast<double>(index));
  }
  return values;
}

// A yearly file as makani writes it; what a test wants broken it sets here.
struct YearlyFile {
  std::int64_t frames = 6;
  std::int64_t first_frame = 0;  // value_at's, and 6-hourly since 1979
  std::vector<std::string> channels = {"u10", "t2m", "z500"};
  std::int64_t rows = 5;
  std::int64_t columns = 8;
  bool coordinates = true;
  std::vector<std::int64_t> chunk;
  std::vector<std::int64_t> shape;  // instead of [frames, channels, rows, columns]
  std::vector<double> times;        // instead of those of the frames
  std::vector<std::int32_t> valid;  // [frames, channels]

  static constexpr double begin = 283996800;  // 1979-01-01
  static constexpr double step = 6 * 3600;

  void write(const std::string& path,
             const std::function<void(std::vector<float>&)>& change = {}) const {
    Hdf5File file = Hdf5File::create(path);
    const auto count = static_cast<std::int64_t>(channels.size());
    const std::vector<std::int64_t> extent =
        shape.empty() ? std::vector<std::int64_t>{frames, count, rows, columns} : shape;
    std::vector<float> values = filled(extent, [&](const std::vector<std::int64_t>& at) {
      return value_at(first_frame + at[0], at[1], at.size() > 2 ? at[2] : 0,
                      at.size() > 3 ? at[3] : 0);
    });
    if (change) change(values);
    put<float>(file, "fields", extent, values, chunk);
    if (coordinates) {
      put_line(file, "timestamp",
               times.empty() ? line(begin + step * static_cast<double>(first_frame), step, frames)
                             : times);
      put_line(file, "lat", line(90, -180.0 / static_cast<double>(rows - 1), rows));
      put_line(file, "lon", line(0, 360.0 / static_cast<double>(columns), columns));
      file.create_texts("channel", channels);
    }
    if (!valid.empty()) put<std::int32_t>(file, "valid_data", {frames, count}, valid);
    file.close();
  }
};

// What FieldDataset::read should give of such files, in one file or several: an obvious loop.
inline void expect_window(FieldDataset& dataset, std::int64_t sample, std::int64_t first_frame,
                          const FieldQuery& query, const std::vector<std::int64_t>& inputs,
                          const std::vector<std::int64_t>& targets, FieldSlab slab = {}) {
  const FieldDatasetInfo& info = dataset.info();
  const std::int64_t rows = slab.rows < 0 ? info.points[0] - slab.first_row : slab.rows;
  const std::int64_t columns = info.points[1];
  std::vector<float> input(static_cast<std::size_t>(info.input_values(rows)), -1);
  std::vector<float> target(static_cast<std::size_t>(info.target_values(rows)), -1);
  dataset.read(sample, slab, input.data(), target.data());
  std::vector<float> wanted;
  const auto add = [&](std::int64_t frame, const std::vector<std::int64_t>& channels) {
    for (const std::int64_t channel : channels) {
      for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t column = 0; column < columns; ++column) {
          wanted.push_back(value_at(frame, channel, slab.first_row + row, column));
        }
      }
    }
  };
  for (std::int64_t back = query.history; back >= 0; --back) {
    add(first_frame + (query.history - back) * query.lead, inputs);
  }
  EXPECT_EQ(input, wanted) << "inputs of sample " << sample;
  wanted.clear();
  for (std::int64_t step = query.push_forward + 1; step <= query.push_forward + query.rollout;
       ++step) {
    add(first_frame + (query.history + step) * query.lead, targets);
  }
  EXPECT_EQ(target, wanted) << "targets of sample " << sample;
}

// Marks `dataset` as the coordinate of a netCDF dimension, and says which of them each dimension of
// `variable` has: the attributes of the HDF5 Dimension Scales specification.
inline void attach_scales(const std::string& path, const std::string& variable,
                          const std::vector<std::string>& scales) {
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  std::vector<hobj_ref_t> references(scales.size());
  std::vector<hvl_t> lists(scales.size());
  for (std::size_t axis = 0; axis < scales.size(); ++axis) {
    H5Rcreate(&references[axis], file, scales[axis].c_str(), H5R_OBJECT, -1);
    lists[axis] = {1, &references[axis]};
  }
  const hid_t type = H5Tvlen_create(H5T_STD_REF_OBJ);
  const hsize_t count = scales.size();
  const hid_t space = H5Screate_simple(1, &count, nullptr);
  const hid_t dataset = H5Dopen2(file, variable.c_str(), H5P_DEFAULT);
  const hid_t attribute =
      H5Acreate2(dataset, "DIMENSION_LIST", type, space, H5P_DEFAULT, H5P_DEFAULT);
  EXPECT_GE(H5Awrite(attribute, type, lists.data()), 0);
  H5Aclose(attribute);
  H5Dclose(dataset);
  H5Sclose(space);
  H5Tclose(type);
  H5Fclose(file);
}

// An attribute of a list of texts of one length, as h5py writes bytes; in place of another.
inline void write_texts_attribute(const std::string& path, const char* dataset, const char* name,
                                  const std::vector<std::string>& texts) {
  std::size_t length = 1;
  for (const std::string& text : texts) length = std::max(length, text.size());
  std::vector<char> bytes(length * texts.size());
  for (std::size_t number = 0; number < texts.size(); ++number) {
    std::copy(texts[number].begin(), texts[number].end(),
              bytes.begin() + static_cast<std::ptrdiff_t>(number * length));
  }
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  const hid_t object = H5Dopen2(file, dataset, H5P_DEFAULT);
  if (H5Aexists(object, name) > 0) H5Adelete(object, name);
  const hid_t type = H5Tcopy(H5T_C_S1);
  H5Tset_size(type, length);
  H5Tset_strpad(type, H5T_STR_NULLPAD);
  const hsize_t count = texts.size();
  const hid_t space = H5Screate_simple(1, &count, nullptr);
  const hid_t attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
  EXPECT_GE(H5Awrite(attribute, type, bytes.data()), 0);
  H5Aclose(attribute);
  H5Sclose(space);
  H5Tclose(type);
  H5Dclose(object);
  H5Fclose(file);
}

// A netCDF-4 file as climate models write it: t2m packed in 16 bits, u on two levels, orography.
struct NetcdfFile {
  std::int64_t frames = 4;
  std::int64_t first_frame = 0;
  std::string time_units = "hours since 1850-01-01 00:00:00";
  std::string calendar = "360_day";
  double time_step = 720;  // a month of 30 days
  bool swapped = false;

  static constexpr std::int64_t rows = 3;
  static constexpr std::int64_t columns = 4;
  static constexpr double scale = 0.5;
  static constexpr double offset = 1000;

  void write(const std::string& path) const {
    {
      Hdf5File file = Hdf5File::create(path);
      put_line(file, "time", line(time_step * static_cast<double>(first_frame), time_step, frames));
      file.attributes("time").write("units", time_units);
      file.attributes("time").write("calendar", calendar);
      put_line(file, "latitude", line(15, 1.25, rows));
      file.attributes("latitude").write("units", std::string("degrees_north"));
      put_line(file, "longitude", line(225, 1.875, columns));
      file.attributes("longitude").write("units", std::string("degrees_east"));
      put_line(file, "level", {850, 500});
      file.attributes("level").write("units", std::string("hPa"));
      std::vector<std::int32_t> packed;
      for (const float value : filled({frames, rows, columns}, [&](const auto& at) {
             return value_at(first_frame + at[0], 0, at[1], at[2]);
           })) {
        packed.push_back(static_cast<std::int32_t>(value));
      }
      packed[5] = -32767;
      std::vector<std::int64_t> extent = {frames, rows, columns};
      if (swapped) extent = {frames, columns, rows};
      put<std::int32_t>(file, "t2m", extent, packed, {1, extent[1], extent[2]});
      Hdf5Attributes attributes = file.attributes("t2m");
      attributes.write("scale_factor", std::vector<double>{scale});
      attributes.write("add_offset", std::vector<double>{offset});
      attributes.write("_FillValue", std::vector<double>{-32767});
      put<float>(file, "u", {frames, 2, rows, columns},
                 filled({frames, 2, rows, columns}, [&](const auto& at) {
                   return value_at(first_frame + at[0], 1 + at[1], at[2], at[3]);
                 }));
      put<float>(file, "orography", {rows, columns}, filled({rows, columns}, [&](const auto& at) {
                   return value_at(100, 0, at[0], at[1]);
                 }));
      file.close();
    }
    attach_scales(path, "t2m",
                  swapped ? std::vector<std::string>{"time", "longitude", "latitude"}
                          : std::vector<std::string>{"time", "latitude", "longitude"});
    attach_scales(path, "u", {"time", "level", "latitude", "longitude"});
    attach_scales(path, "orography", {"latitude", "longitude"});
  }
};

}  // namespace garonne::data::testing
