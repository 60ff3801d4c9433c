#include "data/zarr/zarr_metadata.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <limits>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/json_input.hpp"
#include "base/printable.hpp"

namespace garonne::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::int64_t most_dimensions = 32;

// A name that is one folder of the store.
bool plain_name(const std::string& name) {
  return !name.empty() && name[0] != '.' && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

NumberType type_of(const std::string& text, bool& big_endian) {
  NumberType type;
  if (text.size() < 3) return type;
  big_endian = text[0] == '>';
  const std::string bytes = text.substr(2);
  if (bytes != "1" && bytes != "2" && bytes != "4" && bytes != "8") return type;
  const int size = bytes[0] - '0';
  const char kind = text[1];
  if (kind == 'f' && size >= 4) type.family = NumberFamily::Floating;
  if (kind == 'i') type.family = NumberFamily::Signed;
  if (kind == 'u' || (kind == 'b' && size == 1)) type.family = NumberFamily::Unsigned;
  if (type.family != NumberFamily::Other) type.bytes = size;
  return type;
}

ZarrCodec codec_of(const JsonPlace& place) {
  ZarrCodec codec;
  if (place.has("filters") && !place.key("filters").json().is_null()) {
    for (const JsonPlace& filter : place.key("filters").elements()) {
      const std::string id = filter.key("id").text();
      if (id != "shuffle" || codec.shuffled_bytes > 0) {
        filter.refuse(
            fmt::format("the filter \"{}\" is not read; known is shuffle", printable(id)));
      }
      codec.shuffled_bytes = static_cast<int>(filter.key("elementsize").integer(1, 64));
    }
  }
  const JsonPlace compressor = place.key("compressor");
  if (compressor.json().is_null()) return codec;
  codec.name = compressor.key("id").text();
  if (codec.name == "blosc") {
    codec.kind = ZarrCodec::Kind::Blosc;
  } else if (codec.name == "zstd") {
    codec.kind = ZarrCodec::Kind::Zstd;
  } else if (codec.name == "zlib" || codec.name == "gzip") {
    codec.kind = ZarrCodec::Kind::Deflate;
  } else {
    compressor.refuse(
        fmt::format("the compressor \"{}\" is not read; known are blosc, zstd, zlib, gzip and null",
                    printable(codec.name)));
  }
  return codec;
}

std::optional<double> fill_of(const JsonPlace& place) {
  const json& value = place.json();
  if (value.is_number()) return value.get<double>();
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (!value.is_string()) return std::nullopt;
  const auto text = value.get<std::string>();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (text == "Infinity") return infinity;
  if (text == "-Infinity") return -infinity;
  return std::nullopt;
}

// What is no array of numbers is known by name and shape alone.
ZarrArrayInfo array_of(const json& value, const std::string& file) {
  const JsonFile holder(value, file, FileOwner::Run);
  const JsonPlace place = holder.root();
  ZarrArrayInfo info;
  info.metadata = value.dump();
  const std::int64_t version = place.key("zarr_format").integer();
  if (version != 2) place.key("zarr_format").refuse("is not read; known is 2");
  // Sums and products of a few of them still are numbers.
  constexpr std::int64_t most = std::int64_t{1} << 48;
  info.shape = place.key("shape").integers(0, most);
  info.chunk = place.key("chunks").integers(1, most);
  if (info.shape.size() != info.chunk.size() ||
      static_cast<std::int64_t>(info.shape.size()) > most_dimensions) {
    place.key("chunks").refuse(
        fmt::format("has {} dimensions, and the shape {}", info.chunk.size(), info.shape.size()));
  }
  if (!place.key("dtype").json().is_string()) return info;  // a record
  info.type = type_of(place.key("dtype").text(), info.big_endian);
  if (info.type.family == NumberFamily::Other) return info;
  info.codec = codec_of(place);
  info.fill = fill_of(place.key("fill_value"));
  constexpr double most_whole = 9.2e18;
  if (info.fill && info.type.family != NumberFamily::Floating &&
      !(*info.fill >= -most_whole && *info.fill <= most_whole)) {
    place.key("fill_value").refuse("is no value of the type");
  }
  if (place.key("order").text() != "C") place.key("order").refuse("is not read; known is C");
  std::int64_t bytes = info.type.bytes;
  for (const std::int64_t size : info.chunk) {
    if (__builtin_mul_overflow(bytes, size, &bytes) || bytes > largest_zarr_chunk) {
      place.key("chunks").refuse("are larger than 256 MiB");
    }
  }
  if (place.has("dimension_separator")) {
    const std::string text = place.key("dimension_separator").text();
    if (text != "." && text != "/") place.key("dimension_separator").refuse("is neither . nor /");
    info.separator = text[0];
  }
  return info;
}

}  // namespace

std::map<std::string, ZarrArrayInfo> read_zarr_metadata(const std::string& path,
                                                        std::int64_t& bytes) {
  std::map<std::string, ZarrArrayInfo> arrays;
  const auto read = [&](const std::string& file) {
    const std::string text = read_text_file(file);
    bytes += static_cast<std::int64_t>(text.size());
    return parse_json(text, file, FileOwner::Run);
  };
  std::error_code error;
  const std::string consolidated = path + "/.zmetadata";
  if (fs::exists(consolidated, error)) {
    const json all = read(consolidated);
    const JsonFile file(all, consolidated, FileOwner::Run);
    for (const auto& [key, value] : file.root().key("metadata").members()) {
      const std::size_t slash = key.rfind('/');
      if (slash == std::string::npos || !plain_name(key.substr(0, slash))) continue;
      const std::string name = key.substr(0, slash);
      const std::string where = fmt::format("{} ({})", consolidated, printable(key));
      if (key.substr(slash + 1) == ".zarray") {
        nlohmann::json attributes = arrays[name].attributes;
        arrays[name] = array_of(value.json(), where);
        arrays[name].attributes = std::move(attributes);
      } else if (key.substr(slash + 1) == ".zattrs") {
        value.expect_object();
        arrays[name].attributes = value.json();
      }
    }
    // Groups have attributes, too.
    std::erase_if(arrays, [](const auto& entry) { return entry.second.metadata.empty(); });
    return arrays;
  }
  for (const auto& entry : fs::directory_iterator(path, error)) {
    const std::string name = entry.path().filename().string();
    if (!plain_name(name) || entry.is_symlink(error) || !entry.is_directory(error)) continue;
    const std::string array_file = (entry.path() / ".zarray").string();
    if (!fs::exists(array_file, error)) continue;
    ZarrArrayInfo info = array_of(read(array_file), array_file);
    const std::string attributes_file = (entry.path() / ".zattrs").string();
    if (fs::exists(attributes_file, error)) {
      info.attributes = read(attributes_file);
      JsonFile(info.attributes, attributes_file, FileOwner::Run).root().expect_object();
    }
    arrays.emplace(name, std::move(info));
  }
  return arrays;
}

}  // namespace garonne::data
