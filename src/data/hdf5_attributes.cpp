#include <fmt/format.h>

#include <algorithm>

#include "data/hdf5_internal.hpp"

namespace garonne::data {
namespace {

constexpr std::size_t largest_attribute_bytes = 1U << 20;

std::string up_to_null(const char* text, std::size_t width) {
  return {text, static_cast<std::size_t>(std::find(text, text + width, '\0') - text)};
}

std::size_t elements_of(hid_t attribute, const std::string& path, const std::string& label) {
  const Hdf5Handle space = own(H5Aget_space(attribute), H5Sclose, path, label);
  const hssize_t count = H5Sget_simple_extent_npoints(space.get());
  if (count < 0 || static_cast<std::size_t>(count) > largest_attribute_bytes / 8) {
    throw IoError(path, fmt::format("{} is longer than 1 MiB", label));
  }
  return static_cast<std::size_t>(count);
}

std::vector<std::string> read_strings(hid_t attribute, const std::string& path,
                                      const std::string& label) {
  const Hdf5Handle type = own(H5Aget_type(attribute), H5Tclose, path, label);
  if (H5Tget_class(type.get()) != H5T_STRING) {
    throw IoError(path, fmt::format("{} is not a string", label));
  }
  const std::size_t count = elements_of(attribute, path, label);
  std::vector<std::string> texts;
  if (count == 0) return texts;
  if (H5Tis_variable_str(type.get()) > 0) {  // as other programs write them
    std::vector<char*> pointers(count, nullptr);
    check(H5Aread(attribute, type.get(), pointers.data()), path, label);
    for (char* pointer : pointers) {
      texts.emplace_back(pointer == nullptr ? "" : pointer);
      H5free_memory(pointer);
    }
    return texts;
  }
  const std::size_t width = H5Tget_size(type.get());
  if (width > largest_attribute_bytes / count) {
    throw IoError(path, fmt::format("{} is longer than 1 MiB", label));
  }
  std::string bytes(width * count, '\0');
  check(H5Aread(attribute, type.get(), bytes.data()), path, label);
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
  return object_name_ == "/" ? fmt::format("attribute \"{}\"", name)
                             : fmt::format("attribute \"{}\" of \"{}\"", name, object_name_);
}

bool Hdf5Attributes::has(const std::string& name) const {
  const LibraryLock lock;
  const bool exists = H5Aexists(object_.get(), name.c_str()) > 0;
  H5Eclear2(H5E_DEFAULT);
  return exists;
}

Hdf5Handle Hdf5Attributes::open(const std::string& name) const {
  if (!has(name)) throw IoError(path_, fmt::format("{} is missing", label(name)));
  return own(H5Aopen(object_.get(), name.c_str(), H5P_DEFAULT), H5Aclose, path_, label(name));
}

std::vector<std::string> Hdf5Attributes::texts(const std::string& name) const {
  const LibraryLock lock;
  return read_strings(open(name).get(), path_, label(name));
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
  const H5T_class_t kind = H5Tget_class(type.get());
  std::vector<double> values(elements_of(attribute.get(), path_, label(name)));
  if (values.empty()) return values;
  if (kind == H5T_ENUM && H5Tget_size(type.get()) == 1) {  // truth values of h5py
    std::vector<signed char> truths(values.size());
    check(H5Aread(attribute.get(), type.get(), truths.data()), path_, label(name));
    std::copy(truths.begin(), truths.end(), values.begin());
    return values;
  }
  if (kind != H5T_INTEGER && kind != H5T_FLOAT) {
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

Hdf5Attributes Hdf5File::attributes(const std::string& name) const {
  const LibraryLock lock;
  return {own(H5Oopen(handle_.get(), name.c_str(), H5P_DEFAULT), H5Oclose, path_,
              fmt::format("\"{}\"", name)),
          path_, name};
}

// --- of the file ---

bool Hdf5File::has_attribute(const std::string& name) const {
  return attributes("/").has(name);
}

std::string Hdf5File::string_attribute(const std::string& name) const {
  const std::vector<std::string> all = attributes("/").texts(name);
  if (all.size() != 1) {
    throw IoError(path_, fmt::format("attribute \"{}\" is not a single value", name));
  }
  return all[0];
}

std::int64_t Hdf5File::integer_attribute(const std::string& name) const {
  const LibraryLock lock;
  const std::string label = fmt::format("attribute \"{}\"", name);
  if (!has_attribute(name)) throw IoError(path_, fmt::format("{} is missing", label));
  const Hdf5Handle attribute =
      own(H5Aopen(handle_.get(), name.c_str(), H5P_DEFAULT), H5Aclose, path_, label);
  if (elements_of(attribute.get(), path_, label) != 1) {
    throw IoError(path_, fmt::format("{} is not a single value", label));
  }
  const Hdf5Handle type = own(H5Aget_type(attribute.get()), H5Tclose, path_, label);
  if (H5Tget_class(type.get()) != H5T_INTEGER) {
    throw IoError(path_, fmt::format("{} is not an integer", label));
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
