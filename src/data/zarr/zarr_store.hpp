// Zarr stores of version 2 in a folder: arrays in compressed chunks, one file each, with attributes
// (zarr-specs.readthedocs.io, "Zarr storage specification version 2"; dimensions are named by the
// attribute `_ARRAY_DIMENSIONS` of xarray). For the sources of this room.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/hdf5/hdf5.hpp"
#include "data/zarr/zarr_codec.hpp"

namespace garonne::data {

// What the metadata of an array say.
struct ZarrArrayInfo {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> chunk;
  NumberType type;  // Other: not a number, and not read
  bool big_endian = false;
  ZarrCodec codec;
  std::optional<double> fill;  // NaN and infinities too
  char separator = '.';        // of the numbers in names of chunks
  nlohmann::json attributes = nlohmann::json::object();
  std::string metadata;  // as it stands in the file, for telling stores from others

  std::int64_t chunk_values() const;
  std::vector<std::string> dimensions() const;  // empty where it does not name them
};

// Arrays of the root group, and what is read of them. Everything that is not as it should be is an
// IoError with the path of the file. Values are not changed: big-endian ones are turned.
//
// What a store says of itself is not believed: chunks above 256 MiB are refused, and names that
// would lead out of it; links are not followed. A chunk that is not there is the fill value.
//
// For one thread at a time.
class ZarrStore {
 public:
  // Whether a folder has metadata of Zarr, of whatever version.
  static bool is_store(const std::string& path);
  static ZarrStore open(const std::string& path);
  ZarrStore(ZarrStore&&) noexcept = default;
  ZarrStore& operator=(ZarrStore&&) noexcept = default;

  const std::string& path() const { return path_; }
  // Bytes of the metadata: it is another store where these are others.
  std::int64_t metadata_bytes() const { return metadata_bytes_; }
  const std::map<std::string, ZarrArrayInfo>& arrays() const { return arrays_; }
  // Refused by name where there is none.
  const ZarrArrayInfo& array(const std::string& name) const;

  // The box of `count` elements from `first` on, in row-major order; T is float or double. Decoded
  // chunks are kept, of all arrays 64 MiB, at least one.
  template <typename T>
  void read_box(const std::string& name, std::span<const std::int64_t> first,
                std::span<const std::int64_t> count, std::span<T> values);
  template <typename T>
  std::vector<T> read_all(const std::string& name, std::int64_t most = 1 << 20);

  // The stored bytes of the first or last chunk; empty where it is not there.
  std::string stored_chunk(const std::string& name, bool last) const;

 private:
  ZarrStore() = default;
  struct Kept {
    std::string key;  // file of the chunk
    std::vector<std::byte> values;
  };
  std::string chunk_path(const std::string& name, const ZarrArrayInfo& info,
                         std::span<const std::int64_t> chunk) const;
  const std::vector<std::byte>& decoded(const std::string& name, const ZarrArrayInfo& info,
                                        std::span<const std::int64_t> chunk);

  std::string path_;
  std::int64_t metadata_bytes_ = 0;
  std::map<std::string, ZarrArrayInfo> arrays_;
  std::list<Kept> kept_;  // used last first
  std::size_t kept_bytes_ = 0;
  std::map<std::string, std::list<Kept>::iterator> places_;
};

}  // namespace garonne::data
