#include "data/statistics/npy.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <string_view>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/printable.hpp"

namespace garonne::data {
namespace {

static_assert(std::endian::native == std::endian::little, "values are written as they lie");

constexpr std::string_view magic = "\x93NUMPY";
constexpr std::size_t alignment = 64;
constexpr std::size_t largest_header = 1U << 16;
constexpr std::size_t most_npy_dimensions = 32;

struct Header {
  bool is_double = false;
  std::vector<std::int64_t> shape;
  std::int64_t data_offset = 0;
};

// What follows `'key':` in the header, which is the literal of a Python dictionary.
std::string_view value_of(std::string_view header, std::string_view key, const std::string& path) {
  for (const char quote : {'\'', '"'}) {
    const std::string quoted = fmt::format("{}{}{}", quote, key, quote);
    const std::size_t position = header.find(quoted);
    if (position == std::string_view::npos) continue;
    const std::size_t start = header.find_first_not_of(" :", position + quoted.size());
    if (start != std::string_view::npos) return header.substr(start);
  }
  throw IoError(path, fmt::format("the header of the .npy file has no \"{}\"", key));
}

std::vector<std::int64_t> parse_shape(std::string_view text, const std::string& path) {
  const std::size_t end = text.find(')');
  if (text.empty() || text.front() != '(' || end == std::string_view::npos) {
    throw IoError(path, "the shape of the .npy file cannot be understood");
  }
  std::vector<std::int64_t> shape;
  std::string_view rest = text.substr(1, end - 1);
  while (true) {
    const std::size_t start = rest.find_first_not_of(" ,");
    if (start == std::string_view::npos) return shape;
    rest.remove_prefix(start);
    std::int64_t size = 0;
    const auto [stop, error] = std::from_chars(rest.data(), rest.data() + rest.size(), size);
    if (error != std::errc() || size < 0 || shape.size() == most_npy_dimensions) {
      throw IoError(path, "the shape of the .npy file cannot be understood");
    }
    shape.push_back(size);
    rest.remove_prefix(static_cast<std::size_t>(stop - rest.data()));
  }
}

Header read_header(const FileReader& file, const std::string& path) {
  unsigned char head[12] = {};
  const auto available = static_cast<std::size_t>(std::min<std::int64_t>(file.size(), 12));
  file.read(0, head, available);
  if (available < 10 || std::memcmp(head, magic.data(), magic.size()) != 0) {
    throw IoError(path, "no .npy file");
  }
  const int version = head[6];
  if (version < 1 || version > 3) {
    throw IoError(path, fmt::format(".npy version {} is not known; 1 to 3 are", version));
  }
  const std::size_t start = version == 1 ? 10 : 12;
  std::size_t length = head[8] | static_cast<std::size_t>(head[9]) << 8;
  if (version > 1) {
    length |= static_cast<std::size_t>(head[10]) << 16 | static_cast<std::size_t>(head[11]) << 24;
  }
  if (length > largest_header) throw IoError(path, "the header of the .npy file is too long");
  std::string text(length, ' ');
  file.read(static_cast<std::int64_t>(start), text.data(), length);

  Header header;
  const std::string_view type = value_of(text, "descr", path);
  const std::string_view quoted = type.substr(0, type.find_first_of(",}"));
  header.is_double = quoted.find("<f8") != std::string_view::npos;
  if (!header.is_double && quoted.find("<f4") == std::string_view::npos) {
    throw IoError(
        path, fmt::format("its elements are {}; '<f4' and '<f8' are read", printable(quoted, 100)));
  }
  if (value_of(text, "fortran_order", path).starts_with("True")) {
    throw IoError(path, "is in Fortran order; write it with numpy.ascontiguousarray");
  }
  header.shape = parse_shape(value_of(text, "shape", path), path);
  header.data_offset = static_cast<std::int64_t>(start + length);
  return header;
}

}  // namespace

template <typename T>
NpyArray<T> read_npy(const std::string& path) {
  const FileReader file(path);
  const Header header = read_header(file, path);
  const std::int64_t element = header.is_double ? 8 : 4;
  const std::int64_t bytes = file.size() - header.data_offset;
  std::int64_t count = 1;
  for (const std::int64_t size : header.shape) {
    // Compared before multiplying, so that a mad shape cannot overflow.
    if (size > 0 && count > bytes / size) {
      throw IoError(path, fmt::format("is truncated: it has {} bytes for the shape ({})", bytes,
                                      fmt::join(header.shape, ", ")));
    }
    count *= size;
  }
  if (count * element != bytes) {
    throw IoError(path, fmt::format("has {} bytes of values where the shape ({}) wants {}", bytes,
                                    fmt::join(header.shape, ", "), count * element));
  }
  NpyArray<T> array{header.shape, std::vector<T>(static_cast<std::size_t>(count))};
  if (header.is_double == (sizeof(T) == 8)) {
    file.read(header.data_offset, array.values.data(), static_cast<std::size_t>(bytes));
  } else if (header.is_double) {
    std::vector<double> stored(static_cast<std::size_t>(count));
    file.read(header.data_offset, stored.data(), static_cast<std::size_t>(bytes));
    std::transform(stored.begin(), stored.end(), array.values.begin(),
                   [](double value) { return static_cast<T>(value); });
  } else {
    std::vector<float> stored(static_cast<std::size_t>(count));
    file.read(header.data_offset, stored.data(), static_cast<std::size_t>(bytes));
    std::copy(stored.begin(), stored.end(), array.values.begin());
  }
  return array;
}

template <typename T>
void write_npy(const std::string& path, const std::vector<std::int64_t>& shape,
               std::span<const T> values) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  expect(count == static_cast<std::int64_t>(values.size()), "npy: values do not have their shape");
  std::string header = fmt::format("{{'descr': '<f{}', 'fortran_order': False, 'shape': ({}{}), }}",
                                   sizeof(T), fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  // Values begin at a multiple of 64 bytes: magic, version and length are 10, the newline is one.
  const std::size_t unpadded = 10 + header.size() + 1;
  header.append((alignment - unpadded % alignment) % alignment, ' ');
  header.push_back('\n');
  std::string bytes(magic);
  bytes.push_back('\x01');
  bytes.push_back('\0');
  bytes.push_back(static_cast<char>(header.size() & 0xFFU));
  bytes.push_back(static_cast<char>(header.size() >> 8));
  bytes += header;
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  write_file_durably(path, bytes);
}

template NpyArray<float> read_npy(const std::string&);
template NpyArray<double> read_npy(const std::string&);
template void write_npy(const std::string&, const std::vector<std::int64_t>&,
                        std::span<const float>);
template void write_npy(const std::string&, const std::vector<std::int64_t>&,
                        std::span<const double>);

}  // namespace garonne::data
