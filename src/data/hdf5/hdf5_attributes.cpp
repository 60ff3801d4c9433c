#include <fmt/format.h>

#include <algorithm>

#include "base/printable.hpp"
#include "data/hdf5/foreign_reader.hpp"
#include "data/hdf5/hdf5_internal.hpp"

namespace garonne::data {
namespace {

constexpr std::size_t largest_attribute_bytes = 1U << 20;

std::string up_to_null(const char* text, std::size_t width) {
  return {text, static_cast<std::size_t>(std::find(text, text + width, '\0') - text)};
}

// Of an attribute with elements of `element_bytes` in the file.
std::size_t elements_of(hid_t attribute, std::size_t element_bytes, const std::string& path,
                        const std::string& label) {
  const Hdf5Handle space = own(H5Aget_space(attribute), H5Sclose, path, label);
  const hssize_t count = H5Sget_simple_extent_npoints(space.get());
  const std::size_t most =
      largest_attribute_bytes / std::max<std::size_t>(element_bytes, sizeof(double));
  if (count < 0 || static_cast<std::size_t>(count) > most) {
    throw IoError(path, fmt::format("{} is longer than 1 MiB", label));
  }
  return static_cast<std::size_t>(count);
}

// Of one length each.
std::vector<std::string> read_strings(hid_t attribute, hid_t type, const std::string& path,
                                      const std::string& label) {
  const std::size_t width = H5Tget_size(type);
  const std::size_t count = elements_of(attribute, width, path, label);
  std::vector<std::string> texts;
  if (count == 0) return texts;
  std::string bytes(width * count, '\0');
  check(H5Aread(attribute, type, bytes.data()), path, label);
  for (std::size_t index = 0; index < count; ++index) {
    texts.push_back(up_to_null(bytes.data() + index * width, width));
  }
  return texts;
}

void write_text(hid_t object, const std::string& path, const std::string& label,
                const std::string& name, const std::string& value) {
  const Hdf5Handle type = own(H5Tcopy(H5T_C_S1), H5Tclose, path, label);
  check(H5Tset_size(type.get(), value.size() + 1), path, label);
  check(H5Tset_cset(type.get(), H5T_CSET_UTF8), path, label);
  const Hdf5Handle space = own(H5Screate(H5S_SCALAR), H5Sclose, path, label);
  const Hdf5Handle attribute =
      own(H5Acreate2(object, name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT),
          H5Aclose, path, label);
  check(H5Awrite(attribute.get(), type.get(), value.c_str()), path, label);
}

}  // namespace

// --- of any object ---

std::string Hdf5Attributes::label(const std::string& name) const {
  const std::string attribute = labelled("attribute", name);
  return object_name_ == "/" ? attribute
                             : fmt::format("{} of \"{}\"", attribute, printable(object_name_));
}

bool Hdf5Attributes::has(const std::string& name) const {
  const LibraryLock lock;
  const htri_t exists = H5Aexists(object_.get(), name.c_str());
  check(exists, path_, label(name));
  return exists > 0;
}

bool Hdf5Attributes::has_text(const std::string& name) const {
  const LibraryLock lock;
  if (!has(name)) return false;
  const Hdf5Handle attribute = open(name);
  const Hdf5Handle type = own(H5Aget_type(attribute.get()), H5Tclose, path_, label(name));
  return H5Tget_class(type.get()) == H5T_STRING;
}

Hdf5Handle Hdf5Attributes::open(const std::string& name) const {
  if (!has(name)) throw IoError(path_, fmt::format("{} is missing", label(name)));
  return own(H5Aopen(object_.get(), name.c_str(), H5P_DEFAULT), H5Aclose, path_, label(name));
}

std::vector<std::string> Hdf5Attributes::texts(const std::string& name) const {
  const LibraryLock lock;
  const Hdf5Handle attribute = open(name);
  const Hdf5Handle type = own(H5Aget_type(attribute.get()), H5Tclose, path_, label(name));
  if (H5Tget_class(type.get()) != H5T_STRING) {
    throw IoError(path_, fmt::format("{} is not a string", label(name)));
  }
  if (H5Tis_variable_str(type.get()) <= 0) {
    return read_strings(attribute.get(), type.get(), path_, label(name));
  }
  // As other programs write them.
  expect(foreign_ != nullptr, "texts of a file that was opened again");
  elements_of(attribute.get(), H5Tget_size(type.get()), path_, label(name));
  return foreign_->ask(ForeignKind::AttributeTexts, path_, object_name_, name, label(name));
}

std::string Hdf5Attributes::text(const std::string& name) const {
  const std::vector<std::string> all = texts(name);
  if (all.empty()) throw IoError(path_, fmt::format("{} is empty", label(name)));
  return all[0];
}

std::vector<double> Hdf5Attributes::numbers(const std::string& name) const {
  const LibraryLock lock;
  const Hdf5Handle attribute = open(name);
  const Hdf5Handle type = own(H5Aget_type(attribute.get()), H5Tclose, path_, label(name));
  const std::size_t element_bytes = H5Tget_size(type.get());
  std::vector<double> values(elements_of(attribute.get(), element_bytes, path_, label(name)));
  if (values.empty()) return values;
  if (H5Tget_class(type.get()) == H5T_ENUM && element_bytes == 1) {  // truth values of h5py
    std::vector<signed char> truths(values.size());
    check(H5Aread(attribute.get(), type.get(), truths.data()), path_, label(name));
    std::copy(truths.begin(), truths.end(), values.begin());
    return values;
  }
  if (number_type(type.get()).family == NumberFamily::Other) {
    throw IoError(path_, fmt::format("{} is not a number", label(name)));
  }
  check(H5Aread(attribute.get(), H5T_NATIVE_DOUBLE, values.data()), path_, label(name));
  return values;
}

double Hdf5Attributes::number(const std::string& name) const {
  const std::vector<double> all = numbers(name);
  if (all.size() != 1) throw IoError(path_, fmt::format("{} is not a single value", label(name)));
  return all[0];
}

bool Hdf5Attributes::truth(const std::string& name, bool otherwise) const {
  return has(name) ? number(name) != 0 : otherwise;
}

void Hdf5Attributes::write(const std::string& name, const std::string& value) {
  const LibraryLock lock;
  write_text(object_.get(), path_, label(name), name, value);
}

void Hdf5Attributes::write(const std::string& name, std::span<const double> values) {
  const LibraryLock lock;
  const hsize_t count = values.size();
  const Hdf5Handle space = own(H5Screate_simple(1, &count, nullptr), H5Sclose, path_, label(name));
  const Hdf5Handle attribute = own(H5Acreate2(object_.get(), name.c_str(), H5T_IEEE_F64LE,
                                              space.get(), H5P_DEFAULT, H5P_DEFAULT),
                                   H5Aclose, path_, label(name));
  check(H5Awrite(attribute.get(), H5T_NATIVE_DOUBLE, values.data()), path_, label(name));
}

// --- of the file ---

bool Hdf5File::has_attribute(const std::string& name) const {
  return attributes("/").has(name);
}

std::string Hdf5File::string_attribute(const std::string& name) const {
  const std::vector<std::string> all = attributes("/").texts(name);
  if (all.size() != 1) {
    throw IoError(path_, fmt::format("{} is not a single value", labelled("attribute", name)));
  }
  return all[0];
}

std::int64_t Hdf5File::integer_attribute(const std::string& name) const {
  const LibraryLock lock;
  const std::string label = labelled("attribute", name);
  if (!has_attribute(name)) throw IoError(path_, fmt::format("{} is missing", label));
  const Hdf5Handle attribute =
      own(H5Aopen(handle_.get(), name.c_str(), H5P_DEFAULT), H5Aclose, path_, label);
  const Hdf5Handle type = own(H5Aget_type(attribute.get()), H5Tclose, path_, label);
  if (H5Tget_class(type.get()) != H5T_INTEGER ||
      number_type(type.get()).family == NumberFamily::Other) {
    throw IoError(path_, fmt::format("{} is not an integer", label));
  }
  if (elements_of(attribute.get(), H5Tget_size(type.get()), path_, label) != 1) {
    throw IoError(path_, fmt::format("{} is not a single value", label));
  }
  std::int64_t value = 0;
  check(H5Aread(attribute.get(), H5T_NATIVE_INT64, &value), path_, label);
  return value;
}

void Hdf5File::write_attribute(const std::string& name, const std::string& value) {
  const LibraryLock lock;
  write_text(handle_.get(), path_, fmt::format("attribute \"{}\"", name), name, value);
}

void Hdf5File::write_attribute(const std::string& name, std::int64_t value) {
  const LibraryLock lock;
  const std::string label = fmt::format("attribute \"{}\"", name);
  const Hdf5Handle space = own(H5Screate(H5S_SCALAR), H5Sclose, path_, label);
  const Hdf5Handle attribute = own(
      H5Acreate2(handle_.get(), name.c_str(), H5T_STD_I64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT),
      H5Aclose, path_, label);
  check(H5Awrite(attribute.get(), H5T_NATIVE_INT64, &value), path_, label);
}

}  // namespace garonne::data
