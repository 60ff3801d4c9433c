#include "data/fields/field_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/error.hpp"
#include "base/printable.hpp"

namespace garonne::data {
namespace {

constexpr std::int64_t smallest_cache = 1 << 20;
constexpr std::int64_t cache_of_a_file = 64 << 20;
// Groups of samples would otherwise leave thousands of datasets open.
constexpr std::size_t open_datasets = 32;
constexpr float no_value = std::numeric_limits<float>::quiet_NaN();

// Whether `next` is the channel after `place` of the same dataset, `steps` further.
bool follows(const FieldPlace& place, const FieldPlace& next, std::int64_t steps) {
  if (place.fixed.empty() || next.fixed.size() != place.fixed.size() ||
      place.dataset != next.dataset || place.source != next.source || !place.plain() ||
      !next.plain()) {
    return false;
  }
  if (!std::equal(place.fixed.begin(), place.fixed.end() - 1, next.fixed.begin())) return false;
  return next.fixed.back() ==
         std::pair(place.fixed.back().first, place.fixed.back().second + steps);
}

// [points, channels] to [channels, points].
void uncross(std::span<const float> crossed, std::int64_t channels, float* values) {
  const auto points = static_cast<std::int64_t>(crossed.size()) / channels;
  for (std::int64_t channel = 0; channel < channels; ++channel) {
    for (std::int64_t point = 0; point < points; ++point) {
      values[channel * points + point] =
          crossed[static_cast<std::size_t>(point * channels + channel)];
    }
  }
}

// Whether no value is infinite or none, in a loop that vectors take.
bool all_finite(std::span<const float> values) {
  constexpr std::uint32_t exponent = 0x7F800000;
  std::uint32_t found = 0;
  for (const float value : values)
    found |=
        static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(value) & exponent) == exponent);
  return found == 0;
}

[[noreturn]] void refuse_changed(const FieldSource& source, std::int64_t bytes) {
  throw IoError(source.path,
                fmt::format("the file has changed while it was in use: it had {} bytes "
                            "and has {} now",
                            source.bytes, bytes));
}

// [columns, rows] of each channel to [rows, columns].
void transpose(std::span<const float> turned, std::int64_t rows, std::int64_t columns,
               float* values) {
  const auto planes = static_cast<std::int64_t>(turned.size()) / (rows * columns);
  for (std::int64_t plane = 0; plane < planes; ++plane) {
    const std::int64_t begin = plane * rows * columns;
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = 0; column < columns; ++column) {
        values[begin + row * columns + column] =
            turned[static_cast<std::size_t>(begin + column * rows + row)];
      }
    }
  }
}

}  // namespace

FieldReader::OpenFile& FieldReader::open(const FieldSource& source) {
  const auto found = std::find_if(open_.begin(), open_.end(), [&](const OpenFile& candidate) {
    return candidate.file.path() == source.path;
  });
  if (found != open_.end()) {
    open_.splice(open_.begin(), open_, found);
    return open_.front();
  }
  while (static_cast<int>(open_.size()) >= limit_) open_.pop_back();
  OpenFile& opened = open_.emplace_front(Hdf5File::open_again(source.path));
  if (opened.file.file_bytes() != source.bytes) {
    const std::int64_t bytes = opened.file.file_bytes();
    open_.pop_front();
    refuse_changed(source, bytes);
  }
  return opened;
}

ZarrStore& FieldReader::open_store(const FieldSource& source) {
  const auto found = std::find_if(stores_.begin(), stores_.end(), [&](const ZarrStore& candidate) {
    return candidate.path() == source.path;
  });
  if (found != stores_.end()) {
    stores_.splice(stores_.begin(), stores_, found);
    return stores_.front();
  }
  while (static_cast<int>(stores_.size()) >= limit_) stores_.pop_back();
  ZarrStore store = ZarrStore::open(source.path);
  if (store.metadata_bytes() != source.bytes) refuse_changed(source, store.metadata_bytes());
  stores_.push_front(std::move(store));
  return stores_.front();
}

const Hdf5Dataset& FieldReader::dataset(OpenFile& file, const std::string& name) {
  const auto found = file.datasets.find(name);
  if (found != file.datasets.end()) return found->second;
  if (file.datasets.size() >= open_datasets) file.datasets.clear();
  std::int64_t chunk_bytes = 0;
  {
    // Closed again: a dataset that is open keeps the cache that it was opened with.
    const Hdf5Dataset probe = file.file.dataset(name, VirtualData::Allowed);
    chunk_bytes = probe.chunk_elements() * probe.type().bytes;
  }
  // A frame may be a part of a chunk, of which the rest is wanted soon.
  const std::int64_t cache =
      std::max(chunk_bytes, std::clamp(2 * chunk_bytes, smallest_cache, cache_of_a_file));
  if (cache > cache_of_a_file) {
    // One such chunk at a time; without room for it HDF5 would read it again for each frame in it.
    for (OpenFile& other : open_) other.datasets.clear();
  }
  // What a file may keep is shared by its datasets.
  if (static_cast<std::int64_t>(file.datasets.size() + 1) * cache > cache_of_a_file) {
    file.datasets.clear();
  }
  Hdf5Dataset dataset = file.file.dataset(name, cache, VirtualData::Allowed);
  return file.datasets.emplace(name, std::move(dataset)).first->second;
}

void FieldReader::check_values(const FieldFile& file, const FieldPlace& place,
                               const std::string& dataset, const FrameSlab& slab,
                               std::span<float> values) {
  if (all_finite(values)) return;
  for (std::size_t index = 0; index < values.size(); ++index) {
    if (std::isfinite(values[index])) continue;
    if (mask_) {
      values[index] = no_value;
      continue;
    }
    const auto columns = static_cast<std::int64_t>(values.size()) / slab.rows;
    const auto point = static_cast<std::int64_t>(index);
    std::string where =
        fmt::format("row {}, column {}", slab.first_row + point / columns, point % columns);
    if (file.points.size() == 1) where = fmt::format("point {}", slab.first_row + point);
    throw IoError(
        file.sources[place.source].path,
        fmt::format(
            "dataset \"{}\": channel \"{}\" has no finite value ({}) at {} of frame {}{}; "
            "repair the file, or leave such values out (data.missing = mask, or --missing mask)",
            printable(dataset), place.channel,
            std::isnan(values[index]) ? "missing or NaN" : "infinite", where,
            slab.frame + place.first_frame,
            file.trajectories > 1 ? fmt::format(" of sample {}", slab.trajectory) : ""));
  }
}

void FieldReader::read_together(const FieldFile& file, const FieldPlace& place, std::int64_t count,
                                const FrameSlab& slab, float* values) {
  std::string name = place.dataset;
  if (!file.groups.empty()) {
    name = fmt::format("{}/{}", file.groups[static_cast<std::size_t>(slab.trajectory)], name);
  }
  const FieldSource& origin = file.sources[place.source];
  ZarrStore* const store = origin.zarr ? &open_store(origin) : nullptr;
  const Hdf5Dataset* const source = origin.zarr ? nullptr : &dataset(open(origin), name);
  const std::vector<std::int64_t>& shape = store ? store->array(name).shape : source->shape();
  const std::size_t rank = shape.size();
  std::vector<std::int64_t> first(rank, 0);
  std::vector<std::int64_t> size(rank, 1);
  const auto at = [](int axis) { return static_cast<std::size_t>(axis); };
  if (place.trajectory_axis >= 0) first[at(place.trajectory_axis)] = slab.trajectory;
  if (place.frame_axis >= 0) first[at(place.frame_axis)] = slab.frame + place.first_frame;
  for (const auto& [axis, index] : place.fixed) first[at(axis)] = index;
  if (count > 1) size[at(place.fixed.back().first)] = count;
  std::int64_t plane = slab.rows;
  for (std::size_t axis = 0; axis < file.points.size(); ++axis) {
    const std::size_t dimension = at(place.space_axis) + axis;
    size[dimension] = axis == 0 ? slab.rows : file.points[axis];
    if (axis > 0) plane *= file.points[axis];
  }
  first[at(place.space_axis)] = slab.first_row;
  if (place.transposed) {
    std::swap(size[at(place.space_axis)], size[at(place.space_axis) + 1]);
    std::swap(first[at(place.space_axis)], first[at(place.space_axis) + 1]);
  }
  const auto read_box = [&](auto values_of_box) {
    using Value = typename decltype(values_of_box)::element_type;
    if (store != nullptr) {
      store->read_box<Value>(name, first, size, values_of_box);
    } else {
      source->read_box<Value>(first, size, values_of_box);
    }
  };

  const std::span<float> whole(values, static_cast<std::size_t>(count * plane));
  values_read_ += count * plane;
  if (!place.plain()) {
    stored_.resize(whole.size());
    read_box(std::span<double>(stored_));
    for (std::size_t index = 0; index < whole.size(); ++index) {
      const double value = place.unwrapped(stored_[index]);
      const bool there =
          value >= place.least && value <= place.greatest &&
          std::find(place.missing.begin(), place.missing.end(), value) == place.missing.end();
      whole[index] = there ? static_cast<float>(value * place.scale + place.offset) : no_value;
    }
  } else if (count > 1 && place.fixed.back().first > place.space_axis) {
    crossed_.resize(whole.size());
    read_box(std::span<float>(crossed_));
    uncross(crossed_, count, values);
  } else {
    read_box(whole);
  }
  if (place.transposed) {
    crossed_.assign(whole.begin(), whole.end());
    transpose(crossed_, slab.rows, plane / slab.rows, values);
  }
}

void FieldReader::read(const FieldFile& file, bool targets, std::span<const int> places,
                       const FrameSlab& slab, float* values) {
  const std::vector<FieldPlace>& all = targets && file.pairs() ? file.targets : file.channels;
  std::int64_t plane = slab.rows;
  for (std::size_t axis = 1; axis < file.points.size(); ++axis) plane *= file.points[axis];
  std::size_t begin = 0;
  while (begin < places.size()) {
    const FieldPlace& place = all[static_cast<std::size_t>(places[begin])];
    std::size_t end = begin + 1;
    while (end < places.size() && follows(place, all[static_cast<std::size_t>(places[end])],
                                          static_cast<std::int64_t>(end - begin))) {
      ++end;
    }
    float* destination = values + static_cast<std::int64_t>(begin) * plane;
    read_together(file, place, static_cast<std::int64_t>(end - begin), slab, destination);
    for (; begin < end; ++begin) {
      const int channel = places[begin];
      const std::span<float> values_of_channel(values + static_cast<std::int64_t>(begin) * plane,
                                               static_cast<std::size_t>(plane));
      const auto flag =
          static_cast<std::size_t>(slab.frame) * all.size() + static_cast<std::size_t>(channel);
      if (!file.invalid.empty() && file.invalid[flag]) {
        std::fill(values_of_channel.begin(), values_of_channel.end(), no_value);
      }
      const FieldPlace& one = all[static_cast<std::size_t>(channel)];
      check_values(file, one, one.dataset, slab, values_of_channel);
    }
  }
}

}  // namespace garonne::data
