#include "data/hdf5/hdf5_output.hpp"

#include <utility>

#include "base/error.hpp"
#include "data/hdf5/hdf5.hpp"

namespace garonne::data {

OutputKind hdf5_output(std::string name, std::string value, std::string attribute) {
  const auto is_one = [value = std::move(value),
                       attribute = std::move(attribute)](const std::string& path) {
    try {
      const Hdf5File file = Hdf5File::open(path);
      return file.has_attribute(attribute) && file.string_attribute(attribute).starts_with(value);
    } catch (const IoError&) {
      return false;
    }
  };
  return {std::move(name), is_one, {"HDF5"}};
}

OutputKind netcdf_output(std::string name, std::string value) {
  OutputKind kind = hdf5_output(std::move(name), std::move(value));
  kind.formats.insert(kind.formats.begin(), "netCDF");
  return kind;
}

}  // namespace garonne::data
