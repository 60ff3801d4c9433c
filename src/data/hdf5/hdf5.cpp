#include "data/hdf5/hdf5.hpp"

#include <fmt/ranges.h>
#include <link.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <mutex>
#include <set>

#include "base/printable.hpp"
#include "data/hdf5/foreign_reader.hpp"
#include "data/hdf5/hdf5_internal.hpp"
#include "data/hdf5/hdf5_reason.hpp"

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

// In any encoding that has ASCII's letters.
bool is_of_text(unsigned char byte) {
  constexpr unsigned char first_letter = 0x20;
  return byte >= first_letter || byte == '\t' || byte == '\n' || byte == '\r';
}

// Says in plain words what HDF5 would say in its own, and keeps obviously foreign files from it.
// Returns the bytes of the file.
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
    std::string message = "not an HDF5 file";
    if (count >= 4 && std::memcmp(head, "CDF", 3) == 0) {
      message +=
          ", but netCDF-3; `nccopy -k nc4 OLD NEW` makes a netCDF-4 file of it, which is one";
    } else if (count >= 4 && std::memcmp(head, "GRIB", 4) == 0) {
      message += ", but GRIB; `cdo -f nc4 copy OLD NEW` makes a netCDF-4 file of it, which is one";
    } else if (std::all_of(head, head + count, is_of_text)) {
      message +=
          ", but text; `garonne data text FILE --output tokens.h5` makes a file of tokens of it";
    }
    throw IoError(path, message);
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
  H5dont_atexit();  // before any other call
  check_one_library();
  H5open();
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  H5PLset_loading_state(0);
  register_lzf();
  ready = true;
}

// MPI's and the serial flavour have different names, so the loader lets both in where a further
// library was linked to the other one.
void check_one_library() {
  std::set<std::string> libraries;
  dl_iterate_phdr(
      [](dl_phdr_info* library, std::size_t, void* found) {
        const std::filesystem::path path = library->dlpi_name;
        const std::string name = path.filename().string();
        // libhdf5.so, libhdf5_openmpi.so.103, libhdf5_serial.so.103, …; not those that are on top
        // of it.
        if (name.rfind("libhdf5", 0) != 0 || name.find("_hl") != std::string::npos ||
            name.find("_cpp") != std::string::npos || name.find("fortran") != std::string::npos) {
          return 0;
        }
        std::error_code ignored;
        const std::filesystem::path real = std::filesystem::canonical(path, ignored);
        static_cast<std::set<std::string>*>(found)->insert((ignored ? path : real).string());
        return 0;
      },
      &libraries);
  if (libraries.size() > 1) {
    throw Error(
        ExitCode::Other,
        fmt::format("there are two HDF5 libraries in this process, {}, which would read with "
                    "each other's functions; build with one, or take the other out of "
                    "LD_PRELOAD and LD_LIBRARY_PATH",
                    fmt::join(libraries, " and ")));
  }
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  H5get_libversion(&major, &minor, &release);
  if (major == H5_VERS_MAJOR && minor == H5_VERS_MINOR) return;
  throw Error(ExitCode::Other,
              fmt::format("built with HDF5 {}.{}, but {}.{}.{} was loaded{}; build again, or set "
                          "LD_LIBRARY_PATH to the one that it was built with",
                          H5_VERS_MAJOR, H5_VERS_MINOR, major, minor, release,
                          libraries.empty() ? "" : " from " + *libraries.begin()));
}

std::string stack_reason() {
  const std::string reason = innermost_description();
  H5Eclear2(H5E_DEFAULT);
  return reason_in_words(reason);
}

std::string reason_in_words(const std::string& reason) {
  // Failed system calls come with times, addresses and offsets; people need what happened and why.
  const std::size_t quote = reason.find("error message = '");
  if (quote != std::string::npos) {
    const std::size_t begin = quote + std::strlen("error message = '");
    return fmt::format("{}: {}", reason.substr(0, reason.find_first_of(":,")),
                       reason.substr(begin, reason.find('\'', begin) - begin));
  }
  if (reason.empty()) return "HDF5 gave no reason";
  if (reason.find("letcher32") != std::string::npos) {
    return "a Fletcher-32 checksum is wrong: the file is damaged";
  }
  if (reason.find("bad version number") != std::string::npos) {
    return fmt::format(
        "it was written for a newer HDF5 than this one, {}.{}.{}, or is damaged (\"{}\"); in "
        "h5py libver=(\"v110\", \"v110\") instead of \"latest\" makes one that is read",
        H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE, printable(reason, 100));
  }
  return fmt::format("the file is damaged or of a kind that is not read (\"{}\")",
                     printable(reason, 100));
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

Hdf5File Hdf5File::open(const std::string& path, std::shared_ptr<ForeignReader> foreign) {
  const std::int64_t bytes = check_before_opening(path);
  if (!foreign) foreign = std::make_shared<ForeignReader>();
  // Checksums, of structures from 1.10 on, keep out what happened, not what was made.
  const std::string refused = foreign->try_structure(path);
  if (!refused.empty())
    throw IoError(path, fmt::format("cannot open: {}", reason_in_words(refused)));
  return open_tried(path, bytes, std::move(foreign));
}

Hdf5File Hdf5File::open_again(const std::string& path) {
  return open_tried(path, check_before_opening(path), nullptr);
}

Hdf5File Hdf5File::open_tried(const std::string& path, std::int64_t file_bytes,
                              std::shared_ptr<ForeignReader> foreign) {
  const LibraryLock lock;
  const Hdf5Handle access = own(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, path, "file access");
#if H5_VERSION_GE(1, 10, 7) && !(H5_VERS_MAJOR == 1 && H5_VERS_MINOR == 12 && H5_VERS_RELEASE == 0)
  // Readers share a file that nobody writes, and parallel file systems often refuse the lock.
  H5Pset_file_locking(access.get(), false, true);
#endif
  Hdf5Handle file =
      own(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose, path, "cannot open");
  return Hdf5File(std::move(file), path, file_bytes, std::move(foreign));
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
  return Hdf5File(std::move(file), path, 0, std::make_shared<ForeignReader>());
}

void Hdf5File::close() {
  const LibraryLock lock;
  check(H5Fflush(handle_.get(), H5F_SCOPE_GLOBAL), path_, "cannot write");
  if (!handle_.close()) throw IoError(path_, fmt::format("cannot close: {}", stack_reason()));
}

}  // namespace garonne::data
