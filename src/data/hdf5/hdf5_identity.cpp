// What of an open file tells whether another one is a copy of it.
#include <fmt/format.h>

#include <algorithm>

#include "base/file.hpp"
#include "base/hash.hpp"
#include "data/hdf5/hdf5_internal.hpp"
#include "data/hdf5/hdf5_virtual.hpp"

#if !H5_VERSION_GE(1, 10, 5)
#error "HDF5 1.10.5 or newer is needed: older ones do not say where a chunk lies"
#endif

namespace garonne::data {
namespace {

constexpr std::int64_t most_hashed_bytes = std::int64_t{1} << 20;
constexpr std::size_t most_attribute_bytes = std::size_t{1} << 20;

// Bytes of the file.
struct Extent {
  std::int64_t offset = 0;
  std::int64_t bytes = 0;  // 0 = nothing was stored
};

// Of what is larger than `most_hashed_bytes` both ends: a checksum is at the end.
std::string hash_of(const std::string& path, Extent extent) {
  const FileReader file(path);
  if (extent.offset < 0 || extent.bytes < 0 || extent.bytes > file.size() - extent.offset)
    throw IoError(path, "the file is damaged: a chunk lies beyond its end");
  const std::int64_t head =
      extent.bytes <= most_hashed_bytes ? extent.bytes : most_hashed_bytes / 2;
  const std::int64_t tail = extent.bytes <= most_hashed_bytes ? 0 : most_hashed_bytes / 2;
  std::string bytes(static_cast<std::size_t>(head + tail), '\0');
  file.read(extent.offset, bytes.data(), static_cast<std::size_t>(head));
  file.read(extent.offset + extent.bytes - tail, bytes.data() + head,
            static_cast<std::size_t>(tail));
  return hash_text(fmt::format("{} B ", extent.bytes) + bytes);
}

// Whether its values lie where its type says and nowhere else.
bool has_fixed_length(hid_t type) {
  switch (H5Tget_class(type)) {
    case H5T_INTEGER:
    case H5T_FLOAT:
    case H5T_BITFIELD:
    case H5T_OPAQUE:
    case H5T_ENUM:
      return true;
    case H5T_STRING:
      return H5Tis_variable_str(type) == 0;
    default:
      return false;
  }
}

std::string stored_attribute(hid_t object, const std::string& name) {
  const hid_t opened = H5Aopen(object, name.c_str(), H5P_DEFAULT);
  const Hdf5Handle attribute(opened, H5Aclose);
  const Hdf5Handle type(opened < 0 ? -1 : H5Aget_type(opened), H5Tclose);
  const Hdf5Handle space(opened < 0 ? -1 : H5Aget_space(opened), H5Sclose);
  const hssize_t count = space.get() < 0 ? -1 : H5Sget_simple_extent_npoints(space.get());
  // Nobody may need it: what cannot be read is refused by those who do.
  if (type.get() < 0 || count < 0) return fmt::format("{}: unreadable\n", name);
  const std::size_t width = H5Tget_size(type.get());
  const auto elements = static_cast<std::size_t>(count);
  std::string text = fmt::format("{}: {} of type {} with {} bytes", name, elements,
                                 static_cast<int>(H5Tget_class(type.get())), width);
  if (has_fixed_length(type.get()) && width > 0 && elements <= most_attribute_bytes / width) {
    std::string values(width * elements, '\0');
    const bool read = H5Aread(attribute.get(), type.get(), values.data()) >= 0;
    text += read ? " " + values : " unreadable";
  }
  return text + "\n";
}

herr_t list_attribute(hid_t, const char* name, const H5A_info_t*, void* data) {
  static_cast<std::vector<std::string>*>(data)->emplace_back(name);
  return 0;
}

// Sorted. HDF5 1.10 puts attributes in order in a table, of which it frees what it has not filled
// where it cannot read one of them: all are read before, by looking for one that is not there, and
// those that lie outside the header are taken in the order of its index, without a table.
std::vector<std::string> attribute_names(hid_t object, const std::string& path,
                                         const std::string& label) {
  const htri_t sought = H5Aexists(object, "\x01 is no name of an attribute");
  check(sought, path, label);
  if (sought > 0) throw IoError(path, fmt::format("{} have a name that is not allowed", label));
  std::vector<std::string> names;
  hsize_t place = 0;
  check(H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_NATIVE, &place, list_attribute, &names), path,
        label);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::string Hdf5Dataset::header_text() const {
  return fmt::format("shape {} type {}{} chunks {} filters{}{}{}", shape_text(shape_),
                     static_cast<int>(type_.family), 8 * type_.bytes, shape_text(chunk_),
                     compressed() ? " " + compression_ : "", checksummed_ ? " fletcher32" : "",
                     virtual_ ? " sources " + virtual_->text() : "");
}

std::string Hdf5Dataset::hash_of_chunk(bool last) const {
  const LibraryLock lock;
  if (std::find(shape_.begin(), shape_.end(), 0) != shape_.end()) return "none";
  if (virtual_) return virtual_->hash_of_chunk(last);
  Extent extent;
  if (!chunk_.empty()) {
    std::vector<hsize_t> place;
    for (std::size_t axis = 0; axis < shape_.size(); ++axis) {
      const std::int64_t element = last ? shape_[axis] - 1 : 0;
      place.push_back(static_cast<hsize_t>(element / chunk_[axis] * chunk_[axis]));
    }
    unsigned filters = 0;
    haddr_t address = HADDR_UNDEF;
    hsize_t bytes = 0;
    if (H5Dget_chunk_info_by_coord(handle_.get(), place.data(), &filters, &address, &bytes) < 0)
      fail(fmt::format("cannot find a chunk: {}", stack_reason()));
    if (address != HADDR_UNDEF)
      extent = {static_cast<std::int64_t>(address), static_cast<std::int64_t>(bytes)};
  } else {
    const haddr_t address = H5Dget_offset(handle_.get());
    H5Eclear2(H5E_DEFAULT);  // of data that lie in the header, or nowhere yet
    if (address == HADDR_UNDEF) return hash_of_header_data();
    const auto all = static_cast<std::int64_t>(H5Dget_storage_size(handle_.get()));
    const std::int64_t bytes = std::min(all, most_hashed_bytes);
    extent = {static_cast<std::int64_t>(address) + (last ? all - bytes : 0), bytes};
  }
  return extent.bytes == 0 ? "none" : hash_of(path_, extent);
}

// Of a dataset that is small enough to lie in its own header; "none" where nothing was stored.
std::string Hdf5Dataset::hash_of_header_data() const {
  const Hdf5Handle type = own(H5Dget_type(handle_.get()), H5Tclose, path_, name_);
  std::string values(H5Dget_storage_size(handle_.get()), '\0');
  if (values.empty()) return "none";
  if (!has_fixed_length(type.get())) return "other";
  if (H5Dread(handle_.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) < 0)
    fail(fmt::format("cannot read: {}", stack_reason()));
  return hash_text(values);
}

std::string Hdf5Attributes::stored_text() const {
  const LibraryLock lock;
  std::string text;
  for (const std::string& name :
       attribute_names(object_.get(), path_, fmt::format("attributes of \"{}\"", object_name_)))
    text += stored_attribute(object_.get(), name);
  H5Eclear2(H5E_DEFAULT);
  return text;
}

}  // namespace garonne::data
