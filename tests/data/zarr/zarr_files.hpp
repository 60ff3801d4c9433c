// Small Zarr stores, written chunk by chunk with the libraries themselves.
#pragma once

#include <blosc.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <zlib.h>
#include <zstd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace garonne::data::testing {

inline void write_text(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

inline std::string compressed(const std::string& codec, const std::string& bytes, int size) {
  std::string out(bytes.size() + 1024, '\0');
  if (codec == "blosc") {
    const int made =
        blosc_compress_ctx(5, BLOSC_SHUFFLE, static_cast<std::size_t>(size), bytes.size(),
                           bytes.data(), out.data(), out.size(), "lz4", 0, 1);
    out.resize(static_cast<std::size_t>(made));
  } else if (codec == "zstd") {
    out.resize(ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), 3));
  } else if (codec == "zlib") {
    uLongf length = out.size();
    compress2(reinterpret_cast<Bytef*>(out.data()), &length,
              reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(), 6);
    out.resize(length);
  } else {
    return bytes;
  }
  return out;
}

struct ZarrArray {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> chunk;
  std::vector<std::string> dimensions;
  std::string codec = "none";
  std::string type = "<f4";
  nlohmann::json fill = nullptr;
  nlohmann::json attributes = nlohmann::json::object();
  std::string separator = ".";
};

// A store in the folder `path`; arrays are added, and `consolidate` writes what it has so far.
class ZarrWriter {
 public:
  explicit ZarrWriter(std::string path) : path_(std::move(path)) {
    put(".zgroup", {{"zarr_format", 2}});
  }

  // Values as Stored, row-major; what a chunk has beyond the array is 0.
  template <typename Stored>
  void add(const ZarrArray& array, const std::vector<Stored>& values) {
    nlohmann::json compressor = nullptr;
    if (array.codec != "none") compressor = {{"id", array.codec}};
    nlohmann::json about = {{"zarr_format", 2},      {"shape", array.shape},
                            {"chunks", array.chunk}, {"dtype", array.type},
                            {"order", "C"},          {"fill_value", array.fill},
                            {"filters", nullptr},    {"compressor", compressor}};
    if (array.separator != ".") about["dimension_separator"] = array.separator;
    put(array.name + "/.zarray", about);
    nlohmann::json attributes = array.attributes;
    attributes["_ARRAY_DIMENSIONS"] = array.dimensions;
    put(array.name + "/.zattrs", attributes);
    const std::size_t rank = array.shape.size();
    std::vector<std::int64_t> chunks;
    std::int64_t in_chunk = 1;
    std::int64_t all = 1;
    for (std::size_t axis = 0; axis < rank; ++axis) {
      chunks.push_back((array.shape[axis] + array.chunk[axis] - 1) / array.chunk[axis]);
      in_chunk *= array.chunk[axis];
      all *= chunks.back();
    }
    for (std::int64_t number = 0; number < all; ++number) {
      std::vector<std::int64_t> place(rank);
      std::int64_t rest = number;
      for (std::size_t axis = rank; axis-- > 0; rest /= chunks[axis])
        place[axis] = rest % chunks[axis];
      std::vector<Stored> part(static_cast<std::size_t>(in_chunk));
      for (std::int64_t i = 0; i < in_chunk; ++i) {
        std::int64_t left = i;
        std::vector<std::int64_t> index(rank);
        bool inside = true;
        for (std::size_t axis = rank; axis-- > 0; left /= array.chunk[axis]) {
          index[axis] = place[axis] * array.chunk[axis] + left % array.chunk[axis];
          inside = inside && index[axis] < array.shape[axis];
        }
        if (!inside) continue;
        std::int64_t from = 0;
        for (std::size_t axis = 0; axis < rank; ++axis)
          from = from * array.shape[axis] + index[axis];
        part[static_cast<std::size_t>(i)] = values[static_cast<std::size_t>(from)];
      }
      const std::string bytes(reinterpret_cast<const char*>(part.data()),
                              part.size() * sizeof(Stored));
      write_text(fmt::format("{}/{}/{}", path_, array.name, fmt::join(place, array.separator)),
                 compressed(array.codec, bytes, sizeof(Stored)));
    }
  }

  void consolidate() const {
    const nlohmann::json all = {{"zarr_consolidated_format", 1}, {"metadata", metadata_}};
    write_text(path_ + "/.zmetadata", all.dump(2));
  }

 private:
  void put(const std::string& key, const nlohmann::json& value) {
    metadata_[key] = value;
    write_text(path_ + "/" + key, value.dump(2));
  }

  std::string path_;
  nlohmann::json metadata_ = nlohmann::json::object();
};

}  // namespace garonne::data::testing
