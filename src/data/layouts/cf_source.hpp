// Arrays with named dimensions and attributes, as netCDF-4 files and Zarr stores have them, and the
// fields that the CF Conventions find among them. For the sources of this room.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/hdf5/hdf5.hpp"
#include "data/layouts/field_layout.hpp"

namespace garonne::data {

struct CfArray {
  std::vector<std::int64_t> shape;
  NumberType type;
  std::string storage;         // for people, as storage_text
  std::optional<double> fill;  // what stands where nothing was written, if the format says so
};

// Everything that is not as it should be is an IoError with the path.
class CfSource {
 public:
  virtual ~CfSource() = default;
  virtual const std::string& path() const = 0;
  // Of all arrays, in alphabetical order.
  virtual std::vector<std::string> names() const = 0;
  virtual bool has(const std::string& name) const = 0;
  // Names of the dimensions of an array; "" for one without, empty where none is named.
  virtual std::vector<std::string> dimensions(const std::string& name) const = 0;
  // An attribute; "" where it is absent or no text.
  virtual std::string text(const std::string& name, const char* attribute) const = 0;
  // Likewise; empty where it is absent.
  virtual std::vector<double> numbers(const std::string& name, const char* attribute) const = 0;
  // An array of numbers with `rank` dimensions; refused with `expected` else.
  virtual CfArray array(const std::string& name, std::size_t rank,
                        const std::string& expected) const = 0;
  // A one-dimensional one as it is.
  virtual std::vector<double> line(const std::string& name) const = 0;
  // Whether longitude may come before latitude.
  virtual bool transposes() const { return false; }
};

// Every array on the latitudes and longitudes that most are on is a channel, or one a level.
// Dimensions are known by the attributes of their coordinates (CF Conventions 1.11, chapters 2.5, 4
// and 8.1); packed and missing values are taken as those say.
FieldFile describe_cf(const CfSource& source);

}  // namespace garonne::data
