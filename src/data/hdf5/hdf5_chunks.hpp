// Looks at stored chunks before HDF5 reads them. For the HDF5 sources of this room.
//
// HDF5 believes that what its filters make of a chunk is as long as a chunk. A shorter one it reads
// beyond its end, and of fewer bytes than a Fletcher-32 checksum has 1.10 crashes. So each chunk is
// looked at once: by the bytes that it takes, or, where it is compressed, by what it holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "data/hdf5/hdf5.hpp"

namespace garonne::data {

class ChunkCheck {
 public:
  enum class Filter { Shuffle, Fletcher32, Deflate, Lzf };

  // `filters` in the order in which they are applied when a chunk is written.
  ChunkCheck(std::vector<std::int64_t> shape, std::vector<std::int64_t> chunk,
             std::int64_t chunk_bytes, std::vector<Filter> filters);

  // What is wrong with the first chunk that is not as it should be, of those with elements of the
  // box; empty = nothing is. Wants the library's lock.
  std::string check(std::int64_t dataset, const Hdf5Box& box);

 private:
  std::string check_chunk(std::int64_t dataset, const std::vector<std::int64_t>& corner) const;
  // The bytes that a chunk has after the filters, or why there are none.
  std::string decoded_bytes(std::vector<std::byte> stored, std::uint32_t left_out,
                            std::int64_t& bytes) const;

  std::vector<std::int64_t> shape_;
  std::vector<std::int64_t> chunk_;
  std::int64_t chunk_bytes_;
  std::vector<Filter> filters_;
  std::vector<bool> known_;  // by number; empty where there are too many
};

// What is wrong with how far a dataset may grow; empty = nothing is. By that HDF5 takes the number
// of a chunk, and looks in the index at whatever place that is. Wants the library's lock.
std::string wrong_with_growth(std::int64_t dataset, const std::vector<std::int64_t>& shape,
                              const std::vector<std::int64_t>& chunk);

}  // namespace garonne::data
