#include "data/zarr/zarr_store.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <type_traits>

#include "base/error.hpp"
#include "base/printable.hpp"
#include "data/zarr/zarr_metadata.hpp"

namespace garonne::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_kept_bytes = 64U << 20;

// Compression that did not pay adds little.
constexpr std::int64_t most_overhead = 1 << 20;

// The whole file; empty where there is none.
std::optional<std::vector<std::byte>> read_file(const std::string& path, std::int64_t most) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    throw IoError(path, fmt::format("cannot be opened: {}", std::strerror(errno)));
  }
  struct Closer {
    int descriptor;
    ~Closer() { ::close(descriptor); }
  } const closer{descriptor};
  struct stat status = {};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    throw IoError(path, "is no regular file");
  }
  if (status.st_size > most) {
    throw IoError(path, fmt::format("the chunk is damaged: it has {} bytes, more than its values",
                                    status.st_size));
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(status.st_size));
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = ::read(descriptor, bytes.data() + done, bytes.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw IoError(path, "cannot be read to its end");
    done += static_cast<std::size_t>(got);
  }
  return bytes;
}

void turn_bytes(std::span<std::byte> values, std::size_t size) {
  for (std::size_t i = 0; i + size <= values.size(); i += size)
    std::reverse(values.begin() + static_cast<std::ptrdiff_t>(i),
                 values.begin() + static_cast<std::ptrdiff_t>(i + size));
}

template <typename Stored>
void fill_with(std::span<std::byte> values, double fill) {
  // A number that the type does not have is no undefined one.
  using Whole = std::conditional_t<std::is_integral_v<Stored>, std::int64_t, Stored>;
  const auto value = static_cast<Stored>(static_cast<Whole>(fill));
  for (std::size_t i = 0; i < values.size(); i += sizeof value)
    std::memcpy(values.data() + i, &value, sizeof value);
}

// `action` with a value of the type that is stored.
template <typename Action>
void with_type(NumberType type, const Action& action) {
  const bool with_sign = type.family == NumberFamily::Signed;
  if (type.family == NumberFamily::Floating)
    return type.bytes == 4 ? action(float()) : action(double());
  switch (type.bytes) {
    case 1:
      return with_sign ? action(std::int8_t()) : action(std::uint8_t());
    case 2:
      return with_sign ? action(std::int16_t()) : action(std::uint16_t());
    case 4:
      return with_sign ? action(std::int32_t()) : action(std::uint32_t());
    default:
      return with_sign ? action(std::int64_t()) : action(std::uint64_t());
  }
}

// A line of values to another type; the same one is copied whole.
template <typename Stored, typename T>
void convert(const std::byte* stored, std::int64_t count, T* values) {
  if constexpr (std::same_as<Stored, T>) {
    std::memcpy(values, stored, static_cast<std::size_t>(count) * sizeof(T));
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      Stored value;
      std::memcpy(&value, stored + static_cast<std::size_t>(i) * sizeof value, sizeof value);
      values[i] = static_cast<T>(value);
    }
  }
}

// Counts through a box of numbers; false after the last one.
bool next(std::vector<std::int64_t>& place, std::span<const std::int64_t> first,
          std::span<const std::int64_t> last, std::size_t axes) {
  for (std::size_t axis = axes; axis-- > 0;) {
    if (++place[axis] <= last[axis]) return true;
    place[axis] = first[axis];
  }
  return false;
}

}  // namespace

std::int64_t ZarrArrayInfo::chunk_values() const {
  std::int64_t values = 1;
  for (const std::int64_t size : chunk) values *= size;
  return values;
}

std::vector<std::string> ZarrArrayInfo::dimensions() const {
  const auto found = attributes.find("_ARRAY_DIMENSIONS");
  std::vector<std::string> names;
  if (found == attributes.end() || !found->is_array() || found->size() != shape.size()) return {};
  for (const auto& name : *found) names.push_back(name.is_string() ? name.get<std::string>() : "");
  return names;
}

bool ZarrStore::is_store(const std::string& path) {
  std::error_code error;
  for (const char* name : {"/.zgroup", "/.zmetadata", "/zarr.json"}) {
    if (fs::exists(path + name, error)) return true;
  }
  return false;
}

ZarrStore ZarrStore::open(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path + "/.zgroup", error) && !fs::exists(path + "/.zmetadata", error)) {
    throw IoError(path + "/zarr.json",
                  "is a store of Zarr version 3, which is not read; write version 2 "
                  "(xarray: to_zarr(…, zarr_format=2))");
  }
  ZarrStore store;
  store.path_ = path;
  store.arrays_ = read_zarr_metadata(path, store.metadata_bytes_);
  return store;
}

const ZarrArrayInfo& ZarrStore::array(const std::string& name) const {
  const auto found = arrays_.find(name);
  if (found == arrays_.end()) {
    throw IoError(path_, fmt::format("array \"{}\" is missing", printable(name)));
  }
  return found->second;
}

std::string ZarrStore::chunk_path(const std::string& name, const ZarrArrayInfo& info,
                                  std::span<const std::int64_t> chunk) const {
  const std::string numbers =
      chunk.empty() ? "0" : fmt::format("{}", fmt::join(chunk, std::string(1, info.separator)));
  return fmt::format("{}/{}/{}", path_, name, numbers);
}

const std::vector<std::byte>& ZarrStore::decoded(const std::string& name, const ZarrArrayInfo& info,
                                                 std::span<const std::int64_t> chunk) {
  const std::string file = chunk_path(name, info, chunk);
  const auto known = places_.find(file);
  if (known != places_.end()) {
    kept_.splice(kept_.begin(), kept_, known->second);
    return kept_.front().values;
  }
  const auto size = static_cast<std::size_t>(info.type.bytes);
  const auto bytes = static_cast<std::size_t>(info.chunk_values()) * size;
  while (!kept_.empty() && kept_bytes_ + bytes > most_kept_bytes) {
    kept_bytes_ -= kept_.back().values.size();
    places_.erase(kept_.back().key);
    kept_.pop_back();
  }
  std::vector<std::byte> values(bytes);
  const auto stored = read_file(file, static_cast<std::int64_t>(bytes) + most_overhead);
  if (stored) {
    decode_chunk(info.codec, *stored, values, file);
    const bool host_is_big = std::endian::native == std::endian::big;
    if (size > 1 && info.big_endian != host_is_big) turn_bytes(values, size);
  } else if (info.fill) {
    with_type(info.type, [&](auto value) { fill_with<decltype(value)>(values, *info.fill); });
  } else {
    throw IoError(file, "the chunk is missing, and its array has no fill value");
  }
  kept_.push_front({file, std::move(values)});
  places_[file] = kept_.begin();
  kept_bytes_ += bytes;
  return kept_.front().values;
}

template <typename T>
void ZarrStore::read_box(const std::string& name, std::span<const std::int64_t> first,
                         std::span<const std::int64_t> count, std::span<T> values) {
  const ZarrArrayInfo& info = array(name);
  const std::size_t rank = info.shape.size();
  std::int64_t elements = 1;
  bool inside = first.size() == rank && count.size() == rank;
  for (std::size_t axis = 0; inside && axis < rank; ++axis) {
    inside = first[axis] >= 0 && count[axis] >= 0 && first[axis] <= info.shape[axis] - count[axis];
    elements *= count[axis];
  }
  if (!inside || info.type.family == NumberFamily::Other) {
    throw IoError(path_,
                  fmt::format("array \"{}\": {} elements from {} on asked for, but its "
                              "shape is {}{}",
                              printable(name), shape_text(count), shape_text(first),
                              shape_text(info.shape), inside ? " and it holds no numbers" : ""));
  }
  expect(elements == static_cast<std::int64_t>(values.size()),
         "a box and its values differ in size");
  if (elements == 0) return;
  // Chunks that the box touches, and of each the lines along the last axis.
  std::vector<std::int64_t> first_chunk(rank);
  std::vector<std::int64_t> last_chunk(rank);
  for (std::size_t axis = 0; axis < rank; ++axis) {
    first_chunk[axis] = first[axis] / info.chunk[axis];
    last_chunk[axis] = (first[axis] + count[axis] - 1) / info.chunk[axis];
  }
  std::vector<std::int64_t> chunk = first_chunk;
  std::vector<std::int64_t> begin(rank);
  std::vector<std::int64_t> last(rank);
  do {
    const std::vector<std::byte>& stored = decoded(name, info, chunk);
    for (std::size_t axis = 0; axis < rank; ++axis) {
      const std::int64_t origin = chunk[axis] * info.chunk[axis];
      begin[axis] = std::max(first[axis], origin);
      last[axis] = std::min(first[axis] + count[axis], origin + info.chunk[axis]) - 1;
    }
    std::vector<std::int64_t> place = begin;
    const std::int64_t line = rank == 0 ? 1 : last[rank - 1] - begin[rank - 1] + 1;
    do {
      std::int64_t from = 0;
      std::int64_t to = 0;
      for (std::size_t axis = 0; axis < rank; ++axis) {
        from = from * info.chunk[axis] + place[axis] - chunk[axis] * info.chunk[axis];
        to = to * count[axis] + place[axis] - first[axis];
      }
      with_type(info.type, [&](auto value) {
        convert<decltype(value)>(stored.data() + static_cast<std::size_t>(from) * sizeof value,
                                 line, values.data() + to);
      });
    } while (rank > 0 && next(place, begin, last, rank - 1));
  } while (next(chunk, first_chunk, last_chunk, rank));
}

template <typename T>
std::vector<T> ZarrStore::read_all(const std::string& name, std::int64_t most) {
  const ZarrArrayInfo& info = array(name);
  std::int64_t elements = 1;
  for (const std::int64_t size : info.shape) {
    if (__builtin_mul_overflow(elements, size, &elements) || elements > most) {
      throw IoError(path_,
                    fmt::format("array \"{}\": its shape is {}; at most {} elements are read "
                                "at once",
                                printable(name), shape_text(info.shape), most));
    }
  }
  std::vector<T> values(static_cast<std::size_t>(elements));
  read_box<T>(name, std::vector<std::int64_t>(info.shape.size(), 0), info.shape, values);
  return values;
}

template void ZarrStore::read_box(const std::string&, std::span<const std::int64_t>,
                                  std::span<const std::int64_t>, std::span<float>);
template void ZarrStore::read_box(const std::string&, std::span<const std::int64_t>,
                                  std::span<const std::int64_t>, std::span<double>);
template std::vector<float> ZarrStore::read_all(const std::string&, std::int64_t);
template std::vector<double> ZarrStore::read_all(const std::string&, std::int64_t);

std::string ZarrStore::stored_chunk(const std::string& name, bool last) const {
  const ZarrArrayInfo& info = array(name);
  std::vector<std::int64_t> chunk(info.shape.size(), 0);
  for (std::size_t axis = 0; last && axis < chunk.size(); ++axis)
    chunk[axis] = std::max<std::int64_t>(0, (info.shape[axis] - 1) / info.chunk[axis]);
  const auto bytes = read_file(chunk_path(name, info, chunk), largest_zarr_chunk + most_overhead);
  if (!bytes) return "";
  return {reinterpret_cast<const char*>(bytes->data()), bytes->size()};
}

}  // namespace garonne::data
