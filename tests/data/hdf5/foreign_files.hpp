// Files as other programs write them: the old structures of HDF5 without checksums, texts of
// variable length, compressed chunks. And files that no program should write.
#pragma once

#include <gtest/gtest.h>
#include <hdf5.h>

#include <cstdint>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "data/fields/field_files.hpp"

namespace garonne::data::testing {

// Writes with plain calls; what fails fails the test.
class ForeignFile {
 public:
  using Shape = std::vector<hsize_t>;

  explicit ForeignFile(const std::string& path)
      : file_(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT)) {
    EXPECT_GE(file_, 0) << path;
  }
  ForeignFile(const ForeignFile&) = delete;
  ForeignFile& operator=(const ForeignFile&) = delete;
  ~ForeignFile() { EXPECT_GE(H5Fclose(file_), 0); }

  hid_t get() const { return file_; }

  void group(const std::string& name) {
    H5Gclose(H5Gcreate2(file_, name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  }

  // Declares a dataset; compressed where it has chunks.
  hid_t declare(const std::string& name, hid_t type, const Shape& shape, const Shape& chunk = {}) {
    const hid_t space = H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr);
    const hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    if (!chunk.empty()) {
      H5Pset_chunk(properties, static_cast<int>(chunk.size()), chunk.data());
      H5Pset_shuffle(properties);
      H5Pset_deflate(properties, 4);
    }
    const hid_t dataset =
        H5Dcreate2(file_, name.c_str(), type, space, H5P_DEFAULT, properties, H5P_DEFAULT);
    EXPECT_GE(dataset, 0) << name;
    H5Pclose(properties);
    H5Sclose(space);
    return dataset;
  }
  void declare_only(const std::string& name, hid_t type, const Shape& shape,
                    const Shape& chunk = {}) {
    H5Dclose(declare(name, type, shape, chunk));
  }

  template <typename T>
  void array(const std::string& name, const Shape& shape, const std::vector<T>& values,
             const Shape& chunk = {}) {
    const hid_t type = std::is_same_v<T, float>           ? H5T_NATIVE_FLOAT
                       : std::is_same_v<T, double>        ? H5T_NATIVE_DOUBLE
                       : std::is_same_v<T, std::int16_t>  ? H5T_NATIVE_INT16
                       : std::is_same_v<T, std::uint16_t> ? H5T_NATIVE_UINT16
                                                          : H5T_NATIVE_INT8;
    const hid_t dataset = declare(name, type, shape, chunk);
    EXPECT_GE(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0) << name;
    H5Dclose(dataset);
  }
  void line(const std::string& name, const std::vector<double>& values) {
    array<double>(name, {values.size()}, values);
  }
  // Of variable length, as h5py writes them.
  void texts(const std::string& name, const std::vector<std::string>& values) {
    const hid_t type = text_type();
    const hid_t dataset = declare(name, type, {values.size()});
    const std::vector<const char*> pointers = pointers_of(values);
    EXPECT_GE(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, pointers.data()), 0);
    H5Dclose(dataset);
    H5Tclose(type);
  }
  void attribute(const std::string& object, const std::string& name,
                 const std::vector<std::string>& values) {
    const hid_t type = text_type();
    put_attribute(object, name, type, values.size(), pointers_of(values).data());
    H5Tclose(type);
  }
  void attribute(const std::string& object, const std::string& name, double value) {
    put_attribute(object, name, H5T_NATIVE_DOUBLE, 1, &value);
  }
  void truth(const std::string& object, const std::string& name, bool value) {
    const hid_t type = H5Tenum_create(H5T_NATIVE_INT8);
    const std::int8_t no = 0;
    const std::int8_t yes = 1;
    H5Tenum_insert(type, "FALSE", &no);
    H5Tenum_insert(type, "TRUE", &yes);
    put_attribute(object, name, type, 1, value ? &yes : &no);
    H5Tclose(type);
  }

 private:
  static hid_t text_type() {
    const hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, H5T_VARIABLE);
    return type;
  }
  static std::vector<const char*> pointers_of(const std::vector<std::string>& values) {
    std::vector<const char*> pointers;
    for (const std::string& value : values) pointers.push_back(value.c_str());
    return pointers;
  }
  void put_attribute(const std::string& object, const std::string& name, hid_t type,
                     std::size_t count, const void* values) {
    const hsize_t size = count;
    const hid_t space = H5Screate_simple(1, &size, nullptr);
    const hid_t owner = H5Oopen(file_, object.c_str(), H5P_DEFAULT);
    const hid_t attribute = H5Acreate2(owner, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT);
    EXPECT_GE(H5Awrite(attribute, type, values), 0) << object << " " << name;
    H5Aclose(attribute);
    H5Oclose(owner);
    H5Sclose(space);
  }

  hid_t file_;
};

inline std::vector<float> waves(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t index = 0; index < count; ++index) {
    values[index] = static_cast<float>(index * 7919 % 1000) / 10;
  }
  return values;
}

inline void write_foreign_yearly(const std::string& path) {
  ForeignFile file(path);
  file.array<float>("fields", {6, 3, 5, 8}, waves(6 * 3 * 5 * 8), {1, 3, 5, 8});
  file.line("timestamp", line(YearlyFile::begin, YearlyFile::step, 6));
  file.line("lat", line(90, -45, 5));
  file.line("lon", line(0, 45, 8));
  file.texts("channel", {"u10", "t2m", "z500"});
  file.array<std::int8_t>("valid_data", {6, 3}, std::vector<std::int8_t>(18, 1));
  file.attribute("/", "description", std::vector<std::string>{"reanalysis of nowhere"});
}

inline void write_foreign_darcy(const std::string& path) {
  ForeignFile file(path);
  file.array<float>("nu", {6, 8, 8}, waves(6 * 64), {2, 8, 8});
  file.array<float>("tensor", {6, 1, 8, 8}, waves(6 * 64), {2, 1, 8, 8});
  file.line("x-coordinate", line(0, 0.1, 8));
  file.line("y-coordinate", line(0, 0.1, 8));
  file.attribute("/", "grid", std::vector<std::string>{"box"});
  file.attribute("/", "beta", 1.0);
}

inline void write_foreign_groups(const std::string& path) {
  ForeignFile file(path);
  for (const char* group : {"0000", "0001", "0002"}) {
    const std::string name = group;
    file.group(name);
    file.group(name + "/grid");
    file.array<float>(name + "/data", {4, 6, 6, 2}, waves(4 * 36 * 2), {1, 6, 6, 2});
    file.line(name + "/grid/x", line(0, 0.1, 6));
    file.line(name + "/grid/y", line(0, 0.1, 6));
    file.line(name + "/grid/t", line(0, 0.5, 4));
    file.attribute(name, "config", std::vector<std::string>{"seed: 3\nviscosity: 0.01\n"});
  }
}

inline void write_foreign_well(const std::string& path) {
  ForeignFile file(path);
  for (const char* group : {"dimensions", "t0_fields", "t1_fields", "t2_fields",
                            "boundary_conditions", "boundary_conditions/x_periodic"}) {
    file.group(group);
  }
  file.attribute("dimensions", "spatial_dims", std::vector<std::string>{"x", "y"});
  file.attribute("boundary_conditions/x_periodic", "bc_type", std::vector<std::string>{"PERIODIC"});
  for (const char* axis : {"dimensions/x", "dimensions/y"}) {
    file.line(axis, line(0, 0.1, 6));
    file.truth(axis, "sample_varying", false);
    file.truth(axis, "time_varying", false);
  }
  file.line("dimensions/time", line(0, 1, 4));
  file.array<float>("t0_fields/density", {2, 4, 6, 6}, waves(2 * 4 * 36), {1, 1, 6, 6});
  file.array<float>("t1_fields/velocity", {2, 4, 6, 6, 2}, waves(2 * 4 * 36 * 2));
  for (const char* field : {"t0_fields/density", "t1_fields/velocity"}) {
    file.truth(field, "sample_varying", true);
    file.truth(field, "time_varying", true);
  }
}

inline void write_foreign_netcdf(const std::string& path) {
  {
    ForeignFile file(path);
    file.line("time", line(0, 24, 5));
    file.attribute("time", "units", std::vector<std::string>{"hours since 1980-01-01"});
    file.attribute("time", "calendar", std::vector<std::string>{"standard"});
    file.line("lat", line(-60, 30, 5));
    file.attribute("lat", "units", std::vector<std::string>{"degrees_north"});
    file.line("lon", line(0, 60, 6));
    file.attribute("lon", "units", std::vector<std::string>{"degrees_east"});
    std::vector<std::int16_t> packed(5 * 5 * 6);
    std::iota(packed.begin(), packed.end(), std::int16_t{0});
    file.array<std::int16_t>("tas", {5, 5, 6}, packed, {1, 5, 6});
    file.attribute("tas", "scale_factor", 0.1);
    file.attribute("tas", "_FillValue", -32767.0);
    file.attribute("tas", "long_name", std::vector<std::string>{"near-surface temperature"});
    file.array<float>("psl", {5, 5, 6}, waves(5 * 5 * 6));
  }
  attach_scales(path, "tas", {"time", "lat", "lon"});
  attach_scales(path, "psl", {"time", "lat", "lon"});
}

inline void write_foreign_tokens(const std::string& path) {
  ForeignFile file(path);
  file.array<std::uint16_t>("tokens", {20000}, std::vector<std::uint16_t>(20000, 65), {4096});
  file.attribute("/", "format", std::vector<std::string>{"garonne.tokens"});
  file.attribute("/", "tokenizer", std::vector<std::string>{"byte"});
  for (const auto& [name, value] : {std::pair("format_version", 1), std::pair("vocabulary", 256)}) {
    const hid_t space = H5Screate(H5S_SCALAR);
    const hid_t attribute =
        H5Acreate2(file.get(), name, H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT);
    EXPECT_GE(H5Awrite(attribute, H5T_NATIVE_INT, &value), 0);
    H5Aclose(attribute);
    H5Sclose(space);
  }
}

}  // namespace garonne::data::testing
