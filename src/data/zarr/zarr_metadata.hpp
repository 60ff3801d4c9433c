// Reads the metadata of Zarr stores. For the sources of this room.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "data/zarr/zarr_store.hpp"

namespace garonne::data {

inline constexpr std::int64_t largest_zarr_chunk = 256LL << 20;

// The arrays of the store at `path`, from .zmetadata (consolidated) or the files beside the arrays.
// `bytes` becomes the size of what was read. IoError.
std::map<std::string, ZarrArrayInfo> read_zarr_metadata(const std::string& path,
                                                        std::int64_t& bytes);

}  // namespace garonne::data
