// How the chunks of Zarr arrays are compressed. For the sources of this room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace garonne::data {

// What Zarr's metadata calls compressor and filters: none, or one of blosc, zstd, zlib, gzip;
// before it bytes may be shuffled.
struct ZarrCodec {
  enum class Kind { None, Blosc, Zstd, Deflate };
  Kind kind = Kind::None;
  std::string name = "none";  // for people
  int shuffled_bytes = 0;     // elements of the shuffle filter; 0 = there is none
};

// Turns what is stored into the `values` of a chunk, of which the number of bytes is known, so that
// nothing can grow beyond it. IoError with `path` (of the file that was read) where the bytes are
// damaged or of another number.
void decode_chunk(const ZarrCodec& codec, std::span<const std::byte> stored,
                  std::span<std::byte> values, const std::string& path);

}  // namespace garonne::data
