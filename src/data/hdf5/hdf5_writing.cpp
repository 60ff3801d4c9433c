// What files for other programs need beyond plain arrays: compression, texts of any length,
// dimensions of netCDF-4, and files that survive the end of their writer.
#include <fmt/format.h>
#include <hdf5_hl.h>

#include <limits>

#include "data/hdf5/foreign_reader.hpp"
#include "data/hdf5/hdf5_internal.hpp"

namespace garonne::data {

template <typename T>
void Hdf5Attributes::write_value(const std::string& name, T value) {
  const LibraryLock lock;
  const Hdf5Handle space = own(H5Screate(H5S_SCALAR), H5Sclose, path_, label(name));
  const Hdf5Handle attribute = own(H5Acreate2(object_.get(), name.c_str(), stored_type<T>(),
                                              space.get(), H5P_DEFAULT, H5P_DEFAULT),
                                   H5Aclose, path_, label(name));
  check(H5Awrite(attribute.get(), memory_type<T>(), &value), path_, label(name));
}
template void Hdf5Attributes::write_value(const std::string&, std::int64_t);
template void Hdf5Attributes::write_value(const std::string&, float);
template void Hdf5Attributes::write_value(const std::string&, double);

Hdf5Dataset Hdf5File::create_compressed(const std::string& name,
                                        std::span<const std::int64_t> shape,
                                        std::span<const std::int64_t> chunk, int level) {
  const LibraryLock lock;
  const std::string label = labelled("dataset", name);
  const std::vector<hsize_t> extent(shape.begin(), shape.end());
  const std::vector<hsize_t> sizes(chunk.begin(), chunk.end());
  const Hdf5Handle space =
      own(H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr), H5Sclose,
          path_, label);
  const Hdf5Handle properties = creation_properties(H5P_DATASET_CREATE, path_, label);
  const float nothing = std::numeric_limits<float>::quiet_NaN();
  check(H5Pset_chunk(properties.get(), static_cast<int>(sizes.size()), sizes.data()), path_, label);
  check(H5Pset_fill_value(properties.get(), H5T_NATIVE_FLOAT, &nothing), path_, label);
  if (level > 0) {
    check(H5Pset_shuffle(properties.get()), path_, label);
    check(H5Pset_deflate(properties.get(), static_cast<unsigned>(level)), path_, label);
  }
  check(H5Pset_fletcher32(properties.get()), path_, label);
  Hdf5Handle dataset = own(H5Dcreate2(handle_.get(), name.c_str(), stored_type<float>(),
                                      space.get(), H5P_DEFAULT, properties.get(), H5P_DEFAULT),
                           H5Dclose, path_, label);
  return Hdf5Dataset(std::move(dataset), path_, name, handle_.get(), file_bytes_, foreign_);
}

void Hdf5File::create_long_texts(const std::string& name, const std::vector<std::string>& texts) {
  const LibraryLock lock;
  const std::string label = labelled("dataset", name);
  const Hdf5Handle type = own(H5Tcopy(H5T_C_S1), H5Tclose, path_, label);
  check(H5Tset_size(type.get(), H5T_VARIABLE), path_, label);
  check(H5Tset_cset(type.get(), H5T_CSET_UTF8), path_, label);
  const hsize_t count = texts.size();
  const Hdf5Handle space = own(H5Screate_simple(1, &count, nullptr), H5Sclose, path_, label);
  const Hdf5Handle properties = creation_properties(H5P_DATASET_CREATE, path_, label);
  const Hdf5Handle dataset = own(H5Dcreate2(handle_.get(), name.c_str(), type.get(), space.get(),
                                            H5P_DEFAULT, properties.get(), H5P_DEFAULT),
                                 H5Dclose, path_, label);
  if (count == 0) return;
  std::vector<const char*> pointers;
  for (const std::string& text : texts) pointers.push_back(text.c_str());
  check(H5Dwrite(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, pointers.data()), path_,
        label);
}

void Hdf5File::create_dimension(const std::string& name, std::int64_t size) {
  const LibraryLock lock;
  create_array<float>(name, std::vector{size});
  const std::string label = labelled("dataset", name);
  const Hdf5Handle dataset =
      own(H5Dopen2(handle_.get(), name.c_str(), H5P_DEFAULT), H5Dclose, path_, label);
  // The name by which netCDF-4 knows that there are no values.
  const std::string mark =
      fmt::format("This is a netCDF dimension but not a netCDF variable.{:10d}", size);
  check(H5DSset_scale(dataset.get(), mark.c_str()), path_, label);
}

void Hdf5File::begin_safe_writing() {
  const LibraryLock lock;
  check(H5Fstart_swmr_write(handle_.get()), path_, "cannot be written beside readers");
}

void Hdf5File::flush() {
  const LibraryLock lock;
  check(H5Fflush(handle_.get(), H5F_SCOPE_GLOBAL), path_, "cannot write");
}

Hdf5File Hdf5File::open_unfinished(const std::string& path) {
  const LibraryLock lock;
  const Hdf5Handle access = own(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, path, "file access");
#if H5_VERSION_GE(1, 10, 7) && !(H5_VERS_MAJOR == 1 && H5_VERS_MINOR == 12 && H5_VERS_RELEASE == 0)
  H5Pset_file_locking(access.get(), false, true);
#endif
  // The mark of a writer that was ended; the program h5clear takes it away in the same way.
  const hbool_t clear = true;
  check(H5Pset(access.get(), "clear_status_flags", &clear), path, "file access");
  check(H5Pset_libver_bounds(access.get(), H5F_LIBVER_LATEST, H5F_LIBVER_LATEST), path,
        "file access");
  Hdf5Handle file =
      own(H5Fopen(path.c_str(), H5F_ACC_RDWR, access.get()), H5Fclose, path, "cannot open");
  return Hdf5File(std::move(file), path, 0, std::make_shared<ForeignReader>());
}

}  // namespace garonne::data
