#include "data/hdf5/hdf5_chunks.hpp"

#include <fmt/format.h>
#include <libdeflate.h>

#include <algorithm>
#include <memory>

#include "base/error.hpp"
#include "data/hdf5/hdf5_internal.hpp"

namespace garonne::data {
namespace {

constexpr std::int64_t checksum_bytes = 4;
constexpr std::int64_t most_known = std::int64_t{1} << 28;
// In an index with a place for each, whose places alone would be a petabyte.
constexpr hsize_t most_places = hsize_t{1} << 47;
// Of compression that did not pay.
constexpr std::int64_t most_filter_overhead = 4096;

// False where it is no stream of zlib's, or one of more than `room` bytes.
bool inflate(const std::vector<std::byte>& stored, std::int64_t room,
             std::vector<std::byte>& values) {
  struct Free {
    void operator()(libdeflate_decompressor* one) const { libdeflate_free_decompressor(one); }
  };
  const std::unique_ptr<libdeflate_decompressor, Free> decompressor(
      libdeflate_alloc_decompressor());
  if (decompressor == nullptr) throw InternalError("libdeflate does not start");
  values.resize(static_cast<std::size_t>(room));
  std::size_t taken = 0;
  std::size_t made = 0;
  const libdeflate_result result =
      libdeflate_zlib_decompress_ex(decompressor.get(), stored.data(), stored.size(), values.data(),
                                    values.size(), &taken, &made);
  values.resize(made);
  return result == LIBDEFLATE_SUCCESS;
}

}  // namespace

ChunkCheck::ChunkCheck(std::vector<std::int64_t> shape, std::vector<std::int64_t> chunk,
                       std::int64_t chunk_bytes, std::vector<Filter> filters)
    : shape_(std::move(shape)),
      chunk_(std::move(chunk)),
      chunk_bytes_(chunk_bytes),
      filters_(std::move(filters)) {
  std::int64_t chunks = 1;
  for (std::size_t axis = 0; axis < shape_.size(); ++axis) {
    const std::int64_t along = std::max<std::int64_t>((shape_[axis] - 1) / chunk_[axis] + 1, 1);
    if (along > most_known / chunks) return;
    chunks *= along;
  }
  known_.resize(static_cast<std::size_t>(chunks));
}

std::string ChunkCheck::check(std::int64_t dataset, const Hdf5Box& box) {
  const std::size_t rank = chunk_.size();
  std::vector<std::int64_t> first(rank);
  std::vector<std::int64_t> last(rank);
  for (std::size_t axis = 0; axis < rank; ++axis) {
    if (box.count[axis] < 1) return "";
    first[axis] = box.first[axis] / chunk_[axis];
    last[axis] = (box.first[axis] + (box.count[axis] - 1) * box.step[axis]) / chunk_[axis];
  }
  std::vector<std::int64_t> at = first;
  std::vector<std::int64_t> corner(rank);
  while (true) {
    std::size_t number = 0;
    for (std::size_t axis = 0; axis < rank; ++axis) {
      corner[axis] = at[axis] * chunk_[axis];
      number = number * static_cast<std::size_t>((shape_[axis] - 1) / chunk_[axis] + 1) +
               static_cast<std::size_t>(at[axis]);
    }
    if (known_.empty() || !known_[number]) {
      std::string wrong = check_chunk(dataset, corner);
      if (!wrong.empty()) return wrong;
      if (!known_.empty()) known_[number] = true;
    }
    std::size_t axis = rank;
    while (axis > 0 && ++at[axis - 1] > last[axis - 1]) {
      at[axis - 1] = first[axis - 1];
      --axis;
    }
    if (axis == 0) return "";
  }
}

std::string wrong_with_growth(std::int64_t dataset, const std::vector<std::int64_t>& shape,
                              const std::vector<std::int64_t>& chunk) {
  const Hdf5Handle space(H5Dget_space(dataset), H5Sclose);
  std::vector<hsize_t> most(shape.size());
  H5D_chunk_index_t index = H5D_CHUNK_IDX_BTREE;
  if (H5Sget_simple_extent_dims(space.get(), nullptr, most.data()) < 0 ||
      H5Dget_chunk_index_type(dataset, &index) < 0) {
    return fmt::format("does not say how it may grow: {}", stack_reason());
  }
  std::size_t unlimited = 0;
  hsize_t places = 1;
  for (std::size_t axis = 0; axis < most.size(); ++axis) {
    if (most[axis] == H5S_UNLIMITED) {
      ++unlimited;
      continue;
    }
    if (most[axis] < static_cast<hsize_t>(shape[axis])) {
      return fmt::format("has the shape {} and may grow to {} along axis {}", shape_text(shape),
                         most[axis], axis);
    }
    const hsize_t along = most[axis] / static_cast<hsize_t>(chunk[axis]) + 1;
    places = along > most_places / places ? most_places : places * along;
  }
  const bool searched = index == H5D_CHUNK_IDX_BTREE || index == H5D_CHUNK_IDX_BT2;
  const std::size_t most_unlimited = index == H5D_CHUNK_IDX_EARRAY ? 1 : 0;
  if (searched || (unlimited <= most_unlimited && places < most_places)) return "";
  return "may grow to more chunks than their index has places for";
}

std::string ChunkCheck::check_chunk(std::int64_t dataset,
                                    const std::vector<std::int64_t>& corner) const {
  const std::vector<hsize_t> offset(corner.begin(), corner.end());
  const std::string where = fmt::format("its chunk at {}", shape_text(corner));
  hsize_t taken = 0;
  if (H5Dget_chunk_storage_size(dataset, offset.data(), &taken) < 0)
    return fmt::format("{} is not found: {}", where, stack_reason());
  if (taken == 0) return "";  // it was never written
  const auto count_of = [&](Filter filter) {
    return std::count(filters_.begin(), filters_.end(), filter);
  };
  const std::int64_t checksums = count_of(Filter::Fletcher32) * checksum_bytes;
  const bool compressed = count_of(Filter::Deflate) + count_of(Filter::Lzf) > 0;
  const auto stored = static_cast<std::int64_t>(
      std::min<hsize_t>(taken, static_cast<hsize_t>(2 * chunk_bytes_ + 2 * most_filter_overhead)));
  if (!compressed && stored == chunk_bytes_ + checksums) return "";
  std::int64_t bytes = stored;
  if (stored <= chunk_bytes_ + chunk_bytes_ / 8 + most_filter_overhead) {
    std::vector<std::byte> content(static_cast<std::size_t>(stored));
    std::uint32_t left_out = 0;
    if (H5Dread_chunk(dataset, H5P_DEFAULT, offset.data(), &left_out, content.data()) < 0)
      return fmt::format("{} cannot be read: {}", where, stack_reason());
    const std::string wrong = decoded_bytes(std::move(content), left_out, bytes);
    if (!wrong.empty()) return fmt::format("{} {}; the file is damaged", where, wrong);
  }
  if (bytes == chunk_bytes_) return "";
  return fmt::format("{} holds {} bytes where {} are expected; the file is damaged", where, bytes,
                     chunk_bytes_);
}

std::string ChunkCheck::decoded_bytes(std::vector<std::byte> stored, std::uint32_t left_out,
                                      std::int64_t& bytes) const {
  std::vector<std::byte> values;
  for (std::size_t number = filters_.size(); number-- > 0;) {
    // A chunk may do without some of the filters.
    if (number < 32 && (left_out >> number & 1U) != 0) continue;
    switch (filters_[number]) {
      case Filter::Shuffle:
        break;
      case Filter::Fletcher32:
        if (stored.size() < checksum_bytes)
          return fmt::format("has {} bytes, fewer than its checksum", stored.size());
        stored.resize(stored.size() - checksum_bytes);
        break;
      case Filter::Deflate:
        if (!inflate(stored, chunk_bytes_ + most_filter_overhead, values))
          return "cannot be inflated to the bytes of a chunk";
        stored.swap(values);
        break;
      case Filter::Lzf:
        // The filter itself makes so many or fails (hdf5_lzf.cpp).
        stored.resize(static_cast<std::size_t>(chunk_bytes_));
        break;
    }
  }
  bytes = static_cast<std::int64_t>(stored.size());
  return "";
}

}  // namespace garonne::data
