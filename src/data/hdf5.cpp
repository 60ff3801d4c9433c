#include "data/hdf5.hpp"

#include <fmt/format.h>
#include <hdf5.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <concepts>
#include <cstring>
#include <fstream>
#include <limits>
#include <mutex>

#include "base/error.hpp"

namespace garonne::data {
namespace {

static_assert(std::same_as<hid_t, std::int64_t>, "HDF5 1.10 or newer is needed");

#if H5_VERSION_GE(1, 10, 2)
constexpr H5F_libver_t oldest_structures = H5F_LIBVER_V110;
#else
constexpr H5F_libver_t oldest_structures = H5F_LIBVER_LATEST;
#endif
constexpr std::int64_t largest_chunk_bytes = 256LL << 20;
constexpr std::size_t largest_attribute_bytes = 1U << 20;

// HDF5 keeps its state in globals without locks of its own; this is the lock. Recursive, because
// handles close themselves inside calls that hold it.
std::recursive_mutex& library_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

// Taken at the head of every function that calls HDF5. The first one readies the library: errors
// are ours to print, and no plugin named in the environment is loaded for a filter of a foreign
// file.
class LibraryLock {
 public:
  LibraryLock() : lock_(library_mutex()) {
    static bool ready = false;
    if (!ready) {
      // After a write failed on a full disk HDF5 would try again when the process exits, and crash.
      // Nothing is left to it: every handle here has an owner.
      H5dont_atexit();
      H5open();
      H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
      H5PLset_loading_state(0);
      ready = true;
    }
  }

 private:
  std::unique_lock<std::recursive_mutex> lock_;
};

// The innermost description on HDF5's error stack, which is where the cause is.
std::string stack_reason() {
  std::string reason;
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned, const H5E_error2_t* entry, void* text) -> herr_t {
        auto& found = *static_cast<std::string*>(text);
        if (found.empty() && entry->desc != nullptr) found = entry->desc;
        return 0;
      },
      &reason);
  H5Eclear2(H5E_DEFAULT);
  // Failed system calls come with times, addresses and offsets; people need what happened and why.
  const std::size_t quote = reason.find("error message = '");
  if (quote != std::string::npos) {
    const std::size_t begin = quote + std::strlen("error message = '");
    reason = fmt::format("{}: {}", reason.substr(0, reason.find_first_of(":,")),
                         reason.substr(begin, reason.find('\'', begin) - begin));
  }
  return reason.empty() ? "HDF5 gave no reason" : reason;
}

Hdf5Handle own(hid_t identifier, Hdf5Handle::Close close, const std::string& path,
               const std::string& what) {
  if (identifier < 0) throw IoError(path, fmt::format("{}: {}", what, stack_reason()));
  return Hdf5Handle(identifier, close);
}

void check(herr_t status, const std::string& path, const std::string& what) {
  if (status < 0) throw IoError(path, fmt::format("{}: {}", what, stack_reason()));
}

template <typename T>
hid_t memory_type() {
  if constexpr (std::same_as<T, std::uint16_t>) return H5T_NATIVE_UINT16;
  if constexpr (std::same_as<T, std::uint32_t>) return H5T_NATIVE_UINT32;
  if constexpr (std::same_as<T, std::int64_t>) return H5T_NATIVE_INT64;
  if constexpr (std::same_as<T, float>) return H5T_NATIVE_FLOAT;
  if constexpr (std::same_as<T, double>) return H5T_NATIVE_DOUBLE;
}

NumberType number_type(hid_t type) {
  NumberType number;
  number.bytes = static_cast<int>(H5Tget_size(type));
  switch (H5Tget_class(type)) {
    case H5T_INTEGER:
      number.family =
          H5Tget_sign(type) == H5T_SGN_NONE ? NumberFamily::Unsigned : NumberFamily::Signed;
      break;
    case H5T_FLOAT:
      number.family = NumberFamily::Floating;
      break;
    default:
      break;
  }
  return number;
}

std::uint64_t little_endian(const unsigned char* bytes, int count) {
  std::uint64_t value = 0;
  for (int index = count - 1; index >= 0; --index) value = value << 8 | bytes[index];
  return value;
}

// Where the superblock says that the file ends; 0 when it is of a kind we do not read ourselves.
std::uint64_t recorded_end(const unsigned char* head, std::size_t count) {
  const unsigned version = head[8];
  const std::size_t version_one_extra = version == 1 ? 4 : 0;
  const std::size_t address_bytes = version < 2 ? head[13] : head[9];
  const std::size_t addresses = version < 2 ? 24 + version_one_extra : 12;
  if (version > 3 || address_bytes == 0 || address_bytes > 8) return 0;
  // Base address, free space or extension, end of file.
  const std::size_t position = addresses + 2 * address_bytes;
  if (position + address_bytes > count) return std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t base = little_endian(head + addresses, static_cast<int>(address_bytes));
  return base + little_endian(head + position, static_cast<int>(address_bytes));
}

// Says in plain words what HDF5 would say in its own, and keeps obviously foreign files from it.
// Returns the size of the file in bytes.
std::int64_t check_before_opening(const std::string& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) {
    const int error = errno;
    throw IoError(path, error == ENOENT ? "no such file" : std::strerror(error));
  }
  if (!S_ISREG(status.st_mode)) throw IoError(path, "not a regular file");
  if (status.st_size == 0) throw IoError(path, "the file is empty");
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw IoError(path, std::strerror(errno));
  unsigned char head[64] = {};
  stream.read(reinterpret_cast<char*>(head), sizeof head);
  const auto count = static_cast<std::size_t>(stream.gcount());
  static constexpr unsigned char signature[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1A, '\n'};
  const std::size_t compared = std::min(count, sizeof signature);
  if (std::memcmp(head, signature, compared) != 0) {
    // A user block before the signature is legal, but nothing that Garonne reads has one.
    throw IoError(path, "not an HDF5 file");
  }
  const std::uint64_t end =
      count < 24 ? std::numeric_limits<std::uint64_t>::max() : recorded_end(head, count);
  const auto bytes = static_cast<std::uint64_t>(status.st_size);
  if (end == std::numeric_limits<std::uint64_t>::max()) {
    throw IoError(path, fmt::format("the file is truncated: it has {} bytes only", bytes));
  }
  if (bytes < end) {
    throw IoError(path, fmt::format("the file is truncated: it has {} of {} bytes", bytes, end));
  }
  return status.st_size;
}

}  // namespace

// --- handles ---

Hdf5Handle& Hdf5Handle::operator=(Hdf5Handle&& other) noexcept {
  if (this != &other) {
    close();
    identifier_ = std::exchange(other.identifier_, -1);
    close_ = other.close_;
  }
  return *this;
}

Hdf5Handle::~Hdf5Handle() {
  close();
}

bool Hdf5Handle::close() {
  if (identifier_ < 0) return true;
  const LibraryLock lock;
  const std::int64_t identifier = std::exchange(identifier_, -1);
  return close_(identifier) >= 0;
}

// --- datasets ---

Hdf5Dataset::Hdf5Dataset(Hdf5Handle handle, std::string path, std::string name, std::int64_t file,
                         std::int64_t file_bytes)
    : handle_(std::move(handle)),
      path_(std::move(path)),
      name_(std::move(name)),
      file_(file),
      file_bytes_(file_bytes) {
  const std::string label = fmt::format("dataset \"{}\"", name_);
  const Hdf5Handle space = own(H5Dget_space(handle_.get()), H5Sclose, path_, label);
  const int rank = H5Sget_simple_extent_ndims(space.get());
  check(rank, path_, label);
  std::vector<hsize_t> extent(static_cast<std::size_t>(rank));
  if (rank > 0) check(H5Sget_simple_extent_dims(space.get(), extent.data(), nullptr), path_, label);
  for (const hsize_t size : extent) shape_.push_back(static_cast<std::int64_t>(size));
  const Hdf5Handle type = own(H5Dget_type(handle_.get()), H5Tclose, path_, label);
  type_ = number_type(type.get());

  const Hdf5Handle properties = own(H5Dget_create_plist(handle_.get()), H5Pclose, path_, label);
  const H5D_layout_t layout = H5Pget_layout(properties.get());
  if (layout == H5D_VIRTUAL || H5Pget_external_count(properties.get()) > 0) {
    fail("its elements lie in other files, which is refused");
  }
  if (layout == H5D_CHUNKED) {
    std::vector<hsize_t> chunk(static_cast<std::size_t>(rank));
    check(H5Pget_chunk(properties.get(), rank, chunk.data()), path_, label);
    chunk_elements_ = 1;
    for (const hsize_t size : chunk) {
      const std::int64_t limit = largest_chunk_bytes / std::max(type_.bytes, 1) / chunk_elements_;
      if (size > static_cast<hsize_t>(limit)) fail("its chunks are larger than 256 MiB");
      chunk_elements_ *= static_cast<std::int64_t>(size);
    }
  }
  const int filters = H5Pget_nfilters(properties.get());
  for (int index = 0; index < filters; ++index) {
    unsigned flags = 0;
    std::size_t values = 0;
    unsigned configuration = 0;
    const H5Z_filter_t filter =
        H5Pget_filter2(properties.get(), static_cast<unsigned>(index), &flags, &values, nullptr, 0,
                       nullptr, &configuration);
    if (filter == H5Z_FILTER_FLETCHER32) {
      checksummed_ = true;
    } else if (filter != H5Z_FILTER_SHUFFLE && filter != H5Z_FILTER_DEFLATE) {
      fail(fmt::format("it uses the HDF5 filter {}; known are shuffle, deflate and Fletcher-32",
                       static_cast<int>(filter)));
    }
  }
}

void Hdf5Dataset::fail(const std::string& what) const {
  throw IoError(path_, fmt::format("dataset \"{}\": {}", name_, what));
}

Hdf5Handle Hdf5Dataset::select(std::int64_t first, std::int64_t count) const {
  if (shape_.size() != 1) fail(fmt::format("has {} dimensions, not 1", shape_.size()));
  if (first < 0 || count < 0 || first > shape_[0] - count) {
    fail(
        fmt::format("elements {} to {} asked for, but it has {}", first, first + count, shape_[0]));
  }
  Hdf5Handle space =
      own(H5Dget_space(handle_.get()), H5Sclose, path_, fmt::format("dataset \"{}\"", name_));
  const hsize_t start = static_cast<hsize_t>(first);
  const hsize_t length = static_cast<hsize_t>(count);
  if (H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, &start, nullptr, &length, nullptr) < 0) {
    fail(stack_reason());
  }
  return space;
}

template <typename T>
void Hdf5Dataset::read(std::int64_t first, std::span<T> values) const {
  if (values.empty()) return;
  const LibraryLock lock;
  const auto count = static_cast<std::int64_t>(values.size());
  const Hdf5Handle file_space = select(first, count);
  const hsize_t length = values.size();
  const Hdf5Handle memory_space =
      own(H5Screate_simple(1, &length, nullptr), H5Sclose, path_, "memory space");
  if (H5Dread(handle_.get(), memory_type<T>(), memory_space.get(), file_space.get(), H5P_DEFAULT,
              values.data()) < 0) {
    fail(fmt::format("cannot read elements {} to {}: {}", first, first + count, stack_reason()));
  }
  // Beyond the end of a file that lost its tail HDF5 reads zeros, whose checksum is zero too.
  void* descriptor = nullptr;
  struct stat status = {};
  if (H5Fget_vfd_handle(file_, H5P_DEFAULT, &descriptor) >= 0 && descriptor != nullptr &&
      fstat(*static_cast<int*>(descriptor), &status) == 0 && status.st_size < file_bytes_) {
    fail(fmt::format("the file is truncated: it has {} of the {} bytes it had when it was opened",
                     status.st_size, file_bytes_));
  }
}

template <typename T>
void Hdf5Dataset::write(std::int64_t first, std::span<const T> values) {
  if (values.empty()) return;
  const LibraryLock lock;
  const Hdf5Handle file_space = select(first, static_cast<std::int64_t>(values.size()));
  const hsize_t length = values.size();
  const Hdf5Handle memory_space =
      own(H5Screate_simple(1, &length, nullptr), H5Sclose, path_, "memory space");
  if (H5Dwrite(handle_.get(), memory_type<T>(), memory_space.get(), file_space.get(), H5P_DEFAULT,
               values.data()) < 0) {
    fail(fmt::format("cannot write: {}", stack_reason()));
  }
}

template <typename T>
void Hdf5Dataset::append(std::span<const T> values) {
  if (values.empty()) return;
  const LibraryLock lock;
  if (shape_.size() != 1) fail(fmt::format("has {} dimensions, not 1", shape_.size()));
  const std::int64_t first = shape_[0];
  const hsize_t grown = static_cast<hsize_t>(first) + values.size();
  if (H5Dset_extent(handle_.get(), &grown) < 0)
    fail(fmt::format("cannot grow: {}", stack_reason()));
  shape_[0] = static_cast<std::int64_t>(grown);
  write(first, values);
}

// --- files ---

Hdf5File Hdf5File::open(const std::string& path) {
  const std::int64_t bytes = check_before_opening(path);
  const LibraryLock lock;
  const Hdf5Handle access = own(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, path, "file access");
#if H5_VERSION_GE(1, 10, 7) && !(H5_VERS_MAJOR == 1 && H5_VERS_MINOR == 12 && H5_VERS_RELEASE == 0)
  // Readers share a file that nobody writes, and parallel file systems often refuse the lock.
  H5Pset_file_locking(access.get(), false, true);
#endif
  Hdf5Handle file =
      own(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose, path, "cannot open");
  return Hdf5File(std::move(file), path, bytes);
}

Hdf5File Hdf5File::create(const std::string& path) {
  const LibraryLock lock;
  const Hdf5Handle access = own(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, path, "file access");
  // The structures of 1.10 carry checksums; older ones do not, and a flipped bit in them gave wrong
  // tokens without an error.
  check(H5Pset_libver_bounds(access.get(), oldest_structures, H5F_LIBVER_LATEST), path,
        "file access");
  Hdf5Handle file = own(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), H5Fclose,
                        path, "cannot create");
  return Hdf5File(std::move(file), path, 0);
}

bool Hdf5File::has_dataset(const std::string& name) const {
  const LibraryLock lock;
  const bool exists = H5Lexists(handle_.get(), name.c_str(), H5P_DEFAULT) > 0;
  H5Eclear2(H5E_DEFAULT);
  return exists;
}

Hdf5Dataset Hdf5File::dataset(const std::string& name, std::int64_t cache_bytes) const {
  const LibraryLock lock;
  const std::string label = fmt::format("dataset \"{}\"", name);
  if (!has_dataset(name)) throw IoError(path_, fmt::format("{} is missing", label));
  H5L_info_t link = {};
  check(H5Lget_info(handle_.get(), name.c_str(), &link, H5P_DEFAULT), path_, label);
  if (link.type != H5L_TYPE_HARD) {
    throw IoError(path_, fmt::format("{} is a link to somewhere else, which is refused", label));
  }
  const Hdf5Handle access = own(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose, path_, label);
  // Slots: a prime well above the chunks that fit. Chunks read whole are the first to go (1.0).
  check(H5Pset_chunk_cache(access.get(), 10007, static_cast<std::size_t>(cache_bytes), 1.0), path_,
        label);
  Hdf5Handle dataset =
      own(H5Dopen2(handle_.get(), name.c_str(), access.get()), H5Dclose, path_, label);
  return Hdf5Dataset(std::move(dataset), path_, name, handle_.get(), file_bytes_);
}

template <typename T>
Hdf5Dataset Hdf5File::create_growing(const std::string& name, std::int64_t chunk_elements) {
  const LibraryLock lock;
  const std::string label = fmt::format("dataset \"{}\"", name);
  const hsize_t none = 0;
  const hsize_t unlimited = H5S_UNLIMITED;
  const hsize_t chunk = static_cast<hsize_t>(chunk_elements);
  const Hdf5Handle space = own(H5Screate_simple(1, &none, &unlimited), H5Sclose, path_, label);
  const Hdf5Handle properties = own(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, path_, label);
  check(H5Pset_chunk(properties.get(), 1, &chunk), path_, label);
  check(H5Pset_fletcher32(properties.get()), path_, label);
  const hid_t stored = sizeof(T) == 2 ? H5T_STD_U16LE : H5T_STD_U32LE;
  Hdf5Handle dataset = own(H5Dcreate2(handle_.get(), name.c_str(), stored, space.get(), H5P_DEFAULT,
                                      properties.get(), H5P_DEFAULT),
                           H5Dclose, path_, label);
  return Hdf5Dataset(std::move(dataset), path_, name, handle_.get(), file_bytes_);
}

// --- attributes ---

bool Hdf5File::has_attribute(const std::string& name) const {
  const LibraryLock lock;
  const bool exists = H5Aexists(handle_.get(), name.c_str()) > 0;
  H5Eclear2(H5E_DEFAULT);
  return exists;
}

namespace {

Hdf5Handle open_attribute(const Hdf5File& file, hid_t identifier, const std::string& name,
                          const std::string& label) {
  if (!file.has_attribute(name)) throw IoError(file.path(), fmt::format("{} is missing", label));
  Hdf5Handle attribute =
      own(H5Aopen(identifier, name.c_str(), H5P_DEFAULT), H5Aclose, file.path(), label);
  const Hdf5Handle space = own(H5Aget_space(attribute.get()), H5Sclose, file.path(), label);
  if (H5Sget_simple_extent_npoints(space.get()) != 1) {
    throw IoError(file.path(), fmt::format("{} is not a single value", label));
  }
  return attribute;
}

}  // namespace

std::string Hdf5File::string_attribute(const std::string& name) const {
  const LibraryLock lock;
  const std::string label = fmt::format("attribute \"{}\"", name);
  const Hdf5Handle attribute = open_attribute(*this, handle_.get(), name, label);
  const Hdf5Handle type = own(H5Aget_type(attribute.get()), H5Tclose, path_, label);
  if (H5Tget_class(type.get()) != H5T_STRING) {
    throw IoError(path_, fmt::format("{} is not a string", label));
  }
  if (H5Tis_variable_str(type.get()) > 0) {  // as other programs write them
    char* text = nullptr;
    check(H5Aread(attribute.get(), type.get(), &text), path_, label);
    const std::string value = text == nullptr ? "" : text;
    H5free_memory(text);
    return value;
  }
  std::string value(H5Tget_size(type.get()), '\0');
  if (value.size() > largest_attribute_bytes) {
    throw IoError(path_, fmt::format("{} is longer than 1 MiB", label));
  }
  check(H5Aread(attribute.get(), type.get(), value.data()), path_, label);
  value.resize(std::min(value.find('\0'), value.size()));
  return value;
}

std::int64_t Hdf5File::integer_attribute(const std::string& name) const {
  const LibraryLock lock;
  const std::string label = fmt::format("attribute \"{}\"", name);
  const Hdf5Handle attribute = open_attribute(*this, handle_.get(), name, label);
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
  const std::string label = fmt::format("attribute \"{}\"", name);
  const Hdf5Handle type = own(H5Tcopy(H5T_C_S1), H5Tclose, path_, label);
  check(H5Tset_size(type.get(), value.size() + 1), path_, label);
  check(H5Tset_cset(type.get(), H5T_CSET_UTF8), path_, label);
  const Hdf5Handle space = own(H5Screate(H5S_SCALAR), H5Sclose, path_, label);
  const Hdf5Handle attribute = own(
      H5Acreate2(handle_.get(), name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT),
      H5Aclose, path_, label);
  check(H5Awrite(attribute.get(), type.get(), value.c_str()), path_, label);
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

void Hdf5File::close() {
  const LibraryLock lock;
  check(H5Fflush(handle_.get(), H5F_SCOPE_GLOBAL), path_, "cannot write");
  if (!handle_.close()) throw IoError(path_, fmt::format("cannot close: {}", stack_reason()));
}

template void Hdf5Dataset::read(std::int64_t, std::span<std::uint16_t>) const;
template void Hdf5Dataset::read(std::int64_t, std::span<std::uint32_t>) const;
template void Hdf5Dataset::read(std::int64_t, std::span<std::int64_t>) const;
template void Hdf5Dataset::read(std::int64_t, std::span<float>) const;
template void Hdf5Dataset::read(std::int64_t, std::span<double>) const;
template void Hdf5Dataset::write(std::int64_t, std::span<const std::uint16_t>);
template void Hdf5Dataset::write(std::int64_t, std::span<const std::uint32_t>);
template void Hdf5Dataset::write(std::int64_t, std::span<const std::int64_t>);
template void Hdf5Dataset::write(std::int64_t, std::span<const float>);
template void Hdf5Dataset::write(std::int64_t, std::span<const double>);
template void Hdf5Dataset::append(std::span<const std::uint16_t>);
template void Hdf5Dataset::append(std::span<const std::uint32_t>);
template Hdf5Dataset Hdf5File::create_growing<std::uint16_t>(const std::string&, std::int64_t);
template Hdf5Dataset Hdf5File::create_growing<std::uint32_t>(const std::string&, std::int64_t);

}  // namespace garonne::data
