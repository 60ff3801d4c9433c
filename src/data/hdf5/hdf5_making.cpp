// New datasets of files that this program writes: plain arrays, rows that grow, texts.
#include <string>
#include <vector>

#include "data/hdf5/foreign_reader.hpp"
#include "data/hdf5/hdf5_internal.hpp"

namespace garonne::data {

template <typename T>
Hdf5Dataset Hdf5File::create_growing(const std::string& name, std::int64_t chunk_elements) {
  const LibraryLock lock;
  const std::string label = labelled("dataset", name);
  const hsize_t none = 0;
  const hsize_t unlimited = H5S_UNLIMITED;
  const hsize_t chunk = static_cast<hsize_t>(chunk_elements);
  const Hdf5Handle space = own(H5Screate_simple(1, &none, &unlimited), H5Sclose, path_, label);
  const Hdf5Handle properties = creation_properties(H5P_DATASET_CREATE, path_, label);
  check(H5Pset_chunk(properties.get(), 1, &chunk), path_, label);
  check(H5Pset_fletcher32(properties.get()), path_, label);
  Hdf5Handle dataset = own(H5Dcreate2(handle_.get(), name.c_str(), stored_type<T>(), space.get(),
                                      H5P_DEFAULT, properties.get(), H5P_DEFAULT),
                           H5Dclose, path_, label);
  return Hdf5Dataset(std::move(dataset), path_, name, handle_.get(), file_bytes_, foreign_);
}

template <typename T>
Hdf5Dataset Hdf5File::create_array(const std::string& name, std::span<const std::int64_t> shape,
                                   std::span<const std::int64_t> chunk) {
  const LibraryLock lock;
  const std::string label = labelled("dataset", name);
  const std::vector<hsize_t> extent(shape.begin(), shape.end());
  const Hdf5Handle space =
      own(H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr), H5Sclose,
          path_, label);
  const Hdf5Handle properties = creation_properties(H5P_DATASET_CREATE, path_, label);
  if (!chunk.empty()) {
    const std::vector<hsize_t> sizes(chunk.begin(), chunk.end());
    check(H5Pset_chunk(properties.get(), static_cast<int>(sizes.size()), sizes.data()), path_,
          label);
    check(H5Pset_fletcher32(properties.get()), path_, label);
  }
  const Hdf5Handle links = own(H5Pcreate(H5P_LINK_CREATE), H5Pclose, path_, label);
  check(H5Pset_create_intermediate_group(links.get(), 1), path_, label);
  Hdf5Handle dataset = own(H5Dcreate2(handle_.get(), name.c_str(), stored_type<T>(), space.get(),
                                      links.get(), properties.get(), H5P_DEFAULT),
                           H5Dclose, path_, label);
  return Hdf5Dataset(std::move(dataset), path_, name, handle_.get(), file_bytes_, foreign_);
}

void Hdf5File::create_texts(const std::string& name, const std::vector<std::string>& texts) {
  const LibraryLock lock;
  const std::string label = labelled("dataset", name);
  std::size_t width = 1;
  for (const std::string& text : texts) width = std::max(width, text.size());
  std::string bytes;
  for (const std::string& text : texts) bytes += text + std::string(width - text.size(), '\0');
  const Hdf5Handle type = own(H5Tcopy(H5T_C_S1), H5Tclose, path_, label);
  check(H5Tset_size(type.get(), width), path_, label);
  check(H5Tset_strpad(type.get(), H5T_STR_NULLPAD), path_, label);
  const hsize_t count = texts.size();
  const Hdf5Handle space = own(H5Screate_simple(1, &count, nullptr), H5Sclose, path_, label);
  const Hdf5Handle properties = creation_properties(H5P_DATASET_CREATE, path_, label);
  const Hdf5Handle dataset = own(H5Dcreate2(handle_.get(), name.c_str(), type.get(), space.get(),
                                            H5P_DEFAULT, properties.get(), H5P_DEFAULT),
                                 H5Dclose, path_, label);
  if (count == 0) return;
  check(H5Dwrite(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()), path_,
        label);
}

#define GARONNE_FOR_ELEMENT(T)                                                        \
  template Hdf5Dataset Hdf5File::create_growing<T>(const std::string&, std::int64_t); \
  template Hdf5Dataset Hdf5File::create_array<T>(                                     \
      const std::string&, std::span<const std::int64_t>, std::span<const std::int64_t>);
GARONNE_FOR_ELEMENT(std::uint8_t)
GARONNE_FOR_ELEMENT(std::uint16_t)
GARONNE_FOR_ELEMENT(std::uint32_t)
GARONNE_FOR_ELEMENT(std::int32_t)
GARONNE_FOR_ELEMENT(std::int64_t)
GARONNE_FOR_ELEMENT(float)
GARONNE_FOR_ELEMENT(double)
#undef GARONNE_FOR_ELEMENT

}  // namespace garonne::data
