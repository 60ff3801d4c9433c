#include "train/checkpoint/safetensors.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <tuple>

#include <functional>
#include <numeric>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/json_input.hpp"
#include "base/printable.hpp"

namespace garonne::train {
namespace {

constexpr std::int64_t largest_header = 100'000'000;
// Looked at, hashed and copied while they are in the second cache.
constexpr std::size_t bytes_at_a_time = 262'144;

const std::map<std::string, std::int64_t>& element_types() {
  static const std::map<std::string, std::int64_t> types = {{"F32", 4},  {"F64", 8}, {"F16", 2},
                                                            {"BF16", 2}, {"I64", 8}, {"I32", 4},
                                                            {"U8", 1},   {"BOOL", 1}};
  return types;
}

}  // namespace

std::int64_t safetensors_element_bytes(const std::string& type, const std::string& path) {
  const auto found = element_types().find(type);
  if (found == element_types().end())
    throw IoError(path, "holds a tensor of unknown type " + printable(type));
  return found->second;
}

std::string write_safetensors(const std::string& path, const std::vector<TensorSource>& tensors,
                              const std::map<std::string, std::string>& metadata,
                              const TensorWatch& watch) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::int64_t offset = 0;
  for (const auto& tensor : tensors) {
    const std::int64_t bytes =
        std::accumulate(tensor.shape.begin(), tensor.shape.end(),
                        safetensors_element_bytes(tensor.type, path), std::multiplies<>());
    header[tensor.name] = {{"dtype", tensor.type},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // tensors start 8-aligned
  FileWriter file(path);
  const std::uint64_t length = text.size();
  file.write(&length, sizeof(length));
  file.write(text.data(), text.size());
  for (const auto& tensor : tensors) {
    const auto write = [&](std::span<const std::byte> bytes) {
      for (std::size_t begin = 0; begin < bytes.size(); begin += bytes_at_a_time) {
        const auto part = bytes.subspan(begin, std::min(bytes_at_a_time, bytes.size() - begin));
        if (watch) watch(tensor, part);
        file.write(part.data(), part.size());
      }
    };
    if (tensor.bring) {
      tensor.bring(write);
    } else {
      write(tensor.bytes);
    }
  }
  return file.finish();
}

namespace {

// Numbers of a header, none of which may be rounded or wrapped into another one.
std::int64_t integer_of(const nlohmann::json& number, const std::string& path) {
  const bool fits = number.is_number_integer() &&
                    (!number.is_number_unsigned() ||
                     number.get<std::uint64_t>() <= static_cast<std::uint64_t>(INT64_MAX));
  if (!fits) {
    throw IoError(path, "has a header that is not understood: an extent or offset is no integer");
  }
  return number.get<std::int64_t>();
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path) {
  const FileReader file(path);
  const std::int64_t size = file.size();
  std::uint64_t length = 0;
  if (size < 8) throw IoError(path, "is too short for a safetensors file");
  file.read(0, &length, 8);
  if (length > static_cast<std::uint64_t>(largest_header) ||
      static_cast<std::int64_t>(length) > size - 8) {
    throw IoError(
        path,
        fmt::format("says that its header has {} bytes: truncated or no safetensors file", length));
  }
  std::string text(length, '\0');
  file.read(8, text.data(), text.size());
  data_start_ = 8 + static_cast<std::int64_t>(length);
  const auto header = parse_json(text, path, FileOwner::Run);
  if (!header.is_object()) throw IoError(path, "has a header that is no JSON object");
  try {
    for (const auto& [name, item] : header.items()) {
      if (name == "__metadata__") continue;
      TensorEntry entry;
      entry.name = name;
      entry.type = item.at("dtype").get<std::string>();
      for (const auto& extent : item.at("shape").get_ref<const nlohmann::json::array_t&>())
        entry.shape.push_back(integer_of(extent, path));
      entry.begin = integer_of(item.at("data_offsets").at(0), path);
      entry.end = integer_of(item.at("data_offsets").at(1), path);
      std::int64_t bytes = safetensors_element_bytes(entry.type, path);
      for (const std::int64_t extent : entry.shape) {
        if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) {
          throw IoError(path, printable(name) + " has an impossible shape");
        }
      }
      std::int64_t between = 0;
      if (__builtin_sub_overflow(entry.end, entry.begin, &between) || between != bytes)
        throw IoError(path, printable(name) + ": shape and offsets do not agree");
      tensors_.push_back(std::move(entry));
    }
  } catch (const nlohmann::json::exception& error) {
    throw IoError(path, std::string("has a header that is not understood: ") + error.what());
  }
  std::sort(tensors_.begin(), tensors_.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  std::int64_t expected = 0;
  for (const auto& entry : tensors_) {
    if (entry.begin != expected)
      throw IoError(path, printable(entry.name) + " overlaps another tensor or leaves a hole");
    expected = entry.end;
  }
  if (expected != size - data_start_) {
    throw IoError(
        path, fmt::format("has {} bytes where its header needs {} and {}: truncated or appended "
                          "to",
                          size, data_start_, expected));
  }
}

const TensorEntry& SafetensorsFile::find(const std::string& name) const {
  for (const auto& entry : tensors_) {
    if (entry.name == name) return entry;
  }
  throw IoError(path_, "has no tensor " + printable(name));
}

void SafetensorsFile::read(const TensorEntry& tensor, std::int64_t offset,
                           std::span<std::byte> destination) const {
  if (offset < 0 ||
      offset + static_cast<std::int64_t>(destination.size()) > tensor.end - tensor.begin) {
    throw IoError(path_, printable(tensor.name) + " is shorter than what is wanted of it");
  }
  FileReader(path_).read(data_start_ + tensor.begin + offset, destination.data(),
                         destination.size());
}

}  // namespace garonne::train
