#include "data/hdf5.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <mutex>

#include "data/hdf5_internal.hpp"

namespace garonne::data {
namespace {

#if H5_VERSION_GE(1, 10, 2)
constexpr H5F_libver_t oldest_structures = H5F_LIBVER_V110;
#else
constexpr H5F_libver_t oldest_structures = H5F_LIBVER_LATEST;
#endif

std::recursive_mutex& library_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
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

// --- what the HDF5 sources share ---

LibraryLock::LibraryLock() : lock_(library_mutex()) {
  // The first one readies the library: errors are ours to print, and no plugin named in the
  // environment is loaded for a filter of a foreign file.
  static bool ready = false;
  if (ready) return;
  // After a write failed on a full disk HDF5 would try again when the process exits, and crash.
  // Nothing is left to it: every handle here has an owner.
  H5dont_atexit();
  H5open();
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  H5PLset_loading_state(0);
  ready = true;
}

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

Hdf5Handle creation_properties(hid_t kind, const std::string& path, const std::string& what) {
  Hdf5Handle properties = own(H5Pcreate(kind), H5Pclose, path, what);
  check(H5Pset_obj_track_times(properties.get(), false), path, what);
  return properties;
}

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
  const Hdf5Handle properties = creation_properties(H5P_FILE_CREATE, path, "file properties");
  Hdf5Handle file = own(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, properties.get(), access.get()),
                        H5Fclose, path, "cannot create");
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

namespace {

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
  const std::string label = fmt::format("group \"{}\"", group);
  const Hdf5Handle handle = own(H5Gopen2(file, group.c_str(), H5P_DEFAULT), H5Gclose, path, label);
  Listing listing{wanted, {}};
  hsize_t place = 0;
  check(H5Literate(handle.get(), H5_INDEX_NAME, H5_ITER_INC, &place, list_child, &listing), path,
        label);
  return std::move(listing.names);
}

}  // namespace

std::vector<std::string> Hdf5File::datasets(const std::string& group) const {
  return children(handle_.get(), group, H5I_DATASET, path_);
}

std::vector<std::string> Hdf5File::groups(const std::string& group) const {
  return children(handle_.get(), group, H5I_GROUP, path_);
}

bool Hdf5File::has_group(const std::string& name) const {
  const LibraryLock lock;
  if (!has_dataset(name)) return false;  // which asks for a link of any kind
  const hid_t object = H5Oopen(handle_.get(), name.c_str(), H5P_DEFAULT);
  const bool group = object >= 0 && H5Iget_type(object) == H5I_GROUP;
  if (object >= 0) H5Oclose(object);
  H5Eclear2(H5E_DEFAULT);
  return group;
}

void Hdf5File::create_group(const std::string& name) {
  const LibraryLock lock;
  const std::string label = fmt::format("group \"{}\"", name);
  const Hdf5Handle properties = creation_properties(H5P_GROUP_CREATE, path_, label);
  own(H5Gcreate2(handle_.get(), name.c_str(), H5P_DEFAULT, properties.get(), H5P_DEFAULT), H5Gclose,
      path_, label);
}

// The HDF5 Dimension Scales specification keeps, in the attribute DIMENSION_LIST of a dataset, a
// list of references to scales for each dimension.
std::vector<std::string> Hdf5File::dimension_scales(const std::string& dataset) const {
  const LibraryLock lock;
  const std::string label = fmt::format("dimension scales of \"{}\"", dataset);
  const Hdf5Handle object =
      own(H5Oopen(handle_.get(), dataset.c_str(), H5P_DEFAULT), H5Oclose, path_, label);
  if (H5Aexists(object.get(), "DIMENSION_LIST") <= 0) {
    H5Eclear2(H5E_DEFAULT);
    return {};
  }
  const Hdf5Handle attribute =
      own(H5Aopen(object.get(), "DIMENSION_LIST", H5P_DEFAULT), H5Aclose, path_, label);
  const Hdf5Handle space = own(H5Aget_space(attribute.get()), H5Sclose, path_, label);
  const Hdf5Handle stored = own(H5Aget_type(attribute.get()), H5Tclose, path_, label);
  const hssize_t count = H5Sget_simple_extent_npoints(space.get());
  if (H5Tget_class(stored.get()) != H5T_VLEN || count < 0 || count > H5S_MAX_RANK) {
    throw IoError(path_, fmt::format("{} cannot be understood", label));
  }
  const Hdf5Handle element = own(H5Tget_super(stored.get()), H5Tclose, path_, label);
  if (H5Tget_class(element.get()) != H5T_REFERENCE ||
      H5Tget_size(element.get()) != sizeof(hobj_ref_t)) {
    throw IoError(path_, fmt::format("{} cannot be understood", label));
  }
  std::vector<hvl_t> lists(static_cast<std::size_t>(count));
  check(H5Aread(attribute.get(), stored.get(), lists.data()), path_, label);
  std::vector<std::string> names;
  bool readable = true;
  for (const hvl_t& list : lists) {
    std::string name;
    if (list.len > 0) {
      const hid_t scale = H5Rdereference2(object.get(), H5P_DEFAULT, H5R_OBJECT, list.p);
      char text[1024] = {};
      readable = readable && scale >= 0 && H5Iget_name(scale, text, sizeof text) > 0;
      if (scale >= 0) H5Oclose(scale);
      name = text[0] == '/' ? text + 1 : text;
    }
    names.push_back(std::move(name));
  }
  H5Dvlen_reclaim(stored.get(), space.get(), H5P_DEFAULT, lists.data());
  if (!readable) throw IoError(path_, fmt::format("{} cannot be read", label));
  return names;
}

void Hdf5File::close() {
  const LibraryLock lock;
  check(H5Fflush(handle_.get(), H5F_SCOPE_GLOBAL), path_, "cannot write");
  if (!handle_.close()) throw IoError(path_, fmt::format("cannot close: {}", stack_reason()));
}

}  // namespace garonne::data
