// What the HDF5 sources of this room share: the lock, owners of identifiers, errors. Not for
// others.
#pragma once

#include <fmt/format.h>
#include <hdf5.h>

#include <concepts>
#include <cstdint>
#include <mutex>
#include <string>

#include "base/error.hpp"
#include "data/hdf5/hdf5.hpp"

namespace garonne::data {

static_assert(std::same_as<hid_t, std::int64_t>, "HDF5 1.10 or newer is needed");

// HDF5 keeps its state in globals without locks of its own; this is the lock, taken at the head of
// every function that calls HDF5. Recursive, because handles close themselves inside calls that
// hold it.
class LibraryLock {
 public:
  LibraryLock();

 private:
  std::unique_lock<std::recursive_mutex> lock_;
};

// Error (exit code 1) unless one HDF5 library is in this process, of the version that this was
// built with: two would take each other's functions.
void check_one_library();

// The filter that h5py compresses by as `lzf`: its number in HDF5's list, and whether this build
// can read it (hdf5_lzf.cpp).
inline constexpr H5Z_filter_t lzf_filter = 32000;
bool lzf_is_there();
// Makes it known to HDF5; nothing where it is not there.
void register_lzf();

// Why HDF5 failed, from the innermost description on its stack of errors. Clears the stack.
std::string stack_reason();
// What such a description means to people.
std::string reason_in_words(const std::string& reason);

// IoError with `path`, `what` and HDF5's reason where HDF5 failed.
Hdf5Handle own(hid_t identifier, Hdf5Handle::Close close, const std::string& path,
               const std::string& what);
void check(herr_t status, const std::string& path, const std::string& what);

// `kind "name"` as messages write it: `dataset "a/b"`.
std::string labelled(const char* kind, const std::string& name);

// What HDF5 can read as a number. A type whose bits are not all within its bytes, as damaged files
// have them, is none: HDF5 1.10 takes it as it is and reads or writes elsewhere.
NumberType number_type(hid_t type);

// Whether the object `name` is in the file. IoError where a component of the name is a soft link,
// an external one or one of a user's kind: it could lead anywhere.
bool find_object(hid_t file, const std::string& name, const std::string& path);
// Throws unless find_object.
void require_object(hid_t file, const std::string& name, const std::string& path,
                    const std::string& label);

// Properties to create an object of `kind` (H5P_DATASET_CREATE, …) with that say nothing about
// when.
Hdf5Handle creation_properties(hid_t kind, const std::string& path, const std::string& what);

template <typename T>
hid_t memory_type() {
  if constexpr (std::same_as<T, std::uint8_t>) return H5T_NATIVE_UINT8;
  if constexpr (std::same_as<T, std::uint16_t>) return H5T_NATIVE_UINT16;
  if constexpr (std::same_as<T, std::uint32_t>) return H5T_NATIVE_UINT32;
  if constexpr (std::same_as<T, std::int32_t>) return H5T_NATIVE_INT32;
  if constexpr (std::same_as<T, std::int64_t>) return H5T_NATIVE_INT64;
  if constexpr (std::same_as<T, float>) return H5T_NATIVE_FLOAT;
  if constexpr (std::same_as<T, double>) return H5T_NATIVE_DOUBLE;
}

// Type in a file, little-endian.
template <typename T>
hid_t stored_type() {
  if constexpr (std::same_as<T, std::uint8_t>) return H5T_STD_U8LE;
  if constexpr (std::same_as<T, std::uint16_t>) return H5T_STD_U16LE;
  if constexpr (std::same_as<T, std::uint32_t>) return H5T_STD_U32LE;
  if constexpr (std::same_as<T, std::int32_t>) return H5T_STD_I32LE;
  if constexpr (std::same_as<T, std::int64_t>) return H5T_STD_I64LE;
  if constexpr (std::same_as<T, float>) return H5T_IEEE_F32LE;
  if constexpr (std::same_as<T, double>) return H5T_IEEE_F64LE;
}

}  // namespace garonne::data
