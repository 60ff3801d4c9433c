// Finding objects of a file by name, without following links.
#include <fmt/format.h>

#include <algorithm>

#include "base/printable.hpp"
#include "data/hdf5/foreign_reader.hpp"
#include "data/hdf5/hdf5_internal.hpp"

namespace garonne::data {
namespace {

constexpr const char* scales_attribute = "DIMENSION_LIST";

bool is_group(hid_t file, const std::string& name, const std::string& path) {
  const Hdf5Handle object =
      own(H5Oopen(file, name.c_str(), H5P_DEFAULT), H5Oclose, path, labelled("object", name));
  return H5Iget_type(object.get()) == H5I_GROUP;
}

const char* kind_of(H5L_type_t type) {
  if (type == H5L_TYPE_SOFT) return "a soft link";
  return type == H5L_TYPE_EXTERNAL ? "a link to another file" : "a link of an unknown kind";
}

struct Listing {
  H5I_type_t wanted;
  std::vector<std::string> names;
};

// Opened only where it lies in this file: a link elsewhere is not followed.
herr_t list_child(hid_t group, const char* name, const H5L_info_t* link, void* data) {
  auto& listing = *static_cast<Listing*>(data);
  if (link->type != H5L_TYPE_HARD) return 0;
  const hid_t object = H5Oopen(group, name, H5P_DEFAULT);
  if (object < 0) return -1;
  if (H5Iget_type(object) == listing.wanted) listing.names.emplace_back(name);
  H5Oclose(object);
  return 0;
}

std::vector<std::string> children(hid_t file, const std::string& group, H5I_type_t wanted,
                                  const std::string& path) {
  const LibraryLock lock;
  const std::string label = labelled("group", group);
  require_object(file, group, path, label);
  const Hdf5Handle handle = own(H5Gopen2(file, group.c_str(), H5P_DEFAULT), H5Gclose, path, label);
  Listing listing{wanted, {}};
  hsize_t place = 0;
  check(H5Literate(handle.get(), H5_INDEX_NAME, H5_ITER_INC, &place, list_child, &listing), path,
        label);
  return std::move(listing.names);
}

}  // namespace

std::string labelled(const char* kind, const std::string& name) {
  return fmt::format("{} \"{}\"", kind, printable(name));
}

bool find_object(hid_t file, const std::string& name, const std::string& path) {
  std::size_t begin = 0;
  while (begin < name.size()) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    if (end == begin) {  // the root, or two slashes
      ++begin;
      continue;
    }
    const std::string before = name.substr(0, end);
    const htri_t there = H5Lexists(file, before.c_str(), H5P_DEFAULT);
    check(there, path, labelled("object", before));
    if (there == 0) return false;
    H5L_info_t link = {};
    check(H5Lget_info(file, before.c_str(), &link, H5P_DEFAULT), path, labelled("object", before));
    if (link.type != H5L_TYPE_HARD) {
      throw IoError(path, fmt::format("{} is {}, which is refused: it could lead to another file",
                                      labelled("object", before), kind_of(link.type)));
    }
    begin = end + 1;
    if (begin < name.size() && !is_group(file, before, path)) return false;
  }
  return true;
}

void require_object(hid_t file, const std::string& name, const std::string& path,
                    const std::string& label) {
  if (!find_object(file, name, path)) throw IoError(path, fmt::format("{} is missing", label));
}

bool Hdf5File::has_dataset(const std::string& name) const {
  const LibraryLock lock;
  return find_object(handle_.get(), name, path_);
}

Hdf5Dataset Hdf5File::dataset(const std::string& name, std::int64_t cache_bytes,
                              VirtualData virtual_data) const {
  const LibraryLock lock;
  const std::string label = labelled("dataset", name);
  require_object(handle_.get(), name, path_, label);
  if (virtual_data == VirtualData::Allowed && foreign_) {
    foreign_->ask(ForeignKind::Opening, path_, name, "", label);
  }
  const Hdf5Handle access = own(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose, path_, label);
  // Slots: a prime well above the chunks that fit. Chunks read whole are the first to go (1.0).
  check(H5Pset_chunk_cache(access.get(), 10007, static_cast<std::size_t>(cache_bytes), 1.0), path_,
        label);
  Hdf5Handle dataset =
      own(H5Dopen2(handle_.get(), name.c_str(), access.get()), H5Dclose, path_, label);
  return Hdf5Dataset(std::move(dataset), path_, name, handle_.get(), file_bytes_, foreign_,
                     virtual_data);
}

std::vector<std::string> Hdf5File::datasets(const std::string& group) const {
  return children(handle_.get(), group, H5I_DATASET, path_);
}

std::vector<std::string> Hdf5File::groups(const std::string& group) const {
  return children(handle_.get(), group, H5I_GROUP, path_);
}

bool Hdf5File::has_group(const std::string& name) const {
  const LibraryLock lock;
  return find_object(handle_.get(), name, path_) && is_group(handle_.get(), name, path_);
}

void Hdf5File::create_group(const std::string& name) {
  const LibraryLock lock;
  const std::string label = labelled("group", name);
  const Hdf5Handle properties = creation_properties(H5P_GROUP_CREATE, path_, label);
  own(H5Gcreate2(handle_.get(), name.c_str(), H5P_DEFAULT, properties.get(), H5P_DEFAULT), H5Gclose,
      path_, label);
}

Hdf5Attributes Hdf5File::attributes(const std::string& name) const {
  const LibraryLock lock;
  const std::string label = labelled("object", name);
  require_object(handle_.get(), name, path_, label);
  return {own(H5Oopen(handle_.get(), name.c_str(), H5P_DEFAULT), H5Oclose, path_, label), path_,
          name, foreign_};
}

// The HDF5 Dimension Scales specification keeps, in an attribute of a dataset, a list of references
// to scales for each dimension.
std::vector<std::string> Hdf5File::dimension_scales(const std::string& dataset) const {
  const LibraryLock lock;
  const Hdf5Attributes attributes = this->attributes(dataset);
  if (!attributes.has(scales_attribute)) return {};
  expect(foreign_ != nullptr, "scales of a file that was opened again");
  return foreign_->ask(ForeignKind::Scales, path_, dataset, scales_attribute,
                       fmt::format("the dimension scales of \"{}\"", printable(dataset)));
}

}  // namespace garonne::data
