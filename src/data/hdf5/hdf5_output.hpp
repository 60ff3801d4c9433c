// HDF5 files that commands write: base/output_file.hpp.
#pragma once

#include <string>

#include "base/output_file.hpp"

namespace garonne::data {

// Files whose attribute `attribute` of the root begins with `value`. By their names they may be
// netCDF too where they follow CF.
OutputKind hdf5_output(std::string name, std::string value, std::string attribute = "format");
OutputKind netcdf_output(std::string name, std::string value);

}  // namespace garonne::data
