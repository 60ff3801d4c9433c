#include <hdf5_hl.h>

#include "data/hdf5/hdf5_internal.hpp"

namespace garonne::data {

void Hdf5File::attach_scale(const std::string& dataset, int dimension, const std::string& scale,
                            const std::string& label) {
  const LibraryLock lock;
  const std::string what = fmt::format("dimension scale \"{}\" of \"{}\"", scale, dataset);
  const Hdf5Handle array =
      own(H5Dopen2(handle_.get(), dataset.c_str(), H5P_DEFAULT), H5Dclose, path_, what);
  const Hdf5Handle line =
      own(H5Dopen2(handle_.get(), scale.c_str(), H5P_DEFAULT), H5Dclose, path_, what);
  if (H5DSis_scale(line.get()) <= 0) {
    check(H5DSset_scale(line.get(), scale.c_str()), path_, what);
  }
  const auto number = static_cast<unsigned>(dimension);
  check(H5DSattach_scale(array.get(), line.get(), number), path_, what);
  check(H5DSset_label(array.get(), number, label.c_str()), path_, what);
}

void Hdf5File::make_scale(const std::string& scale) {
  const LibraryLock lock;
  const std::string what = fmt::format("dimension scale \"{}\"", scale);
  const Hdf5Handle line =
      own(H5Dopen2(handle_.get(), scale.c_str(), H5P_DEFAULT), H5Dclose, path_, what);
  check(H5DSset_scale(line.get(), scale.substr(scale.rfind('/') + 1).c_str()), path_, what);
}

void Hdf5File::attach_scale(const std::string& dataset, int dimension, const std::string& scale) {
  const LibraryLock lock;
  const std::string what = fmt::format("dimension scale \"{}\" of \"{}\"", scale, dataset);
  const Hdf5Handle array =
      own(H5Dopen2(handle_.get(), dataset.c_str(), H5P_DEFAULT), H5Dclose, path_, what);
  const Hdf5Handle line =
      own(H5Dopen2(handle_.get(), scale.c_str(), H5P_DEFAULT), H5Dclose, path_, what);
  check(H5DSattach_scale(array.get(), line.get(), static_cast<unsigned>(dimension)), path_, what);
}

}  // namespace garonne::data
