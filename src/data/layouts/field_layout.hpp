// How the layouts of field files describe themselves to the one reader of them all. For the sources
// of this room: a layout is one file and one line in the table of field_layout.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/fields/cf_time.hpp"
#include "data/fields/field_dataset.hpp"
#include "data/hdf5/hdf5.hpp"

namespace garonne::data {

inline constexpr double no_least = -1e300;
inline constexpr double no_greatest = 1e300;

// Where the values of one channel lie: a dataset, and what each of its dimensions is.
struct FieldPlace {
  std::string channel;
  std::size_t source = 0;        // in which of the file's sources
  std::int64_t first_frame = 0;  // frame of the dataset that is the file's first one
  std::string dataset;           // under the trajectory's group, where a file has such groups
  int trajectory_axis = -1;      // -1 = there is no such dimension
  int frame_axis = -1;
  // Dimension → index in it, for the channel's or component's number; the last one varies fastest
  // from channel to channel.
  std::vector<std::pair<int, std::int64_t>> fixed;
  int space_axis = 0;         // the first dimension of space; the others follow it
  bool transposed = false;    // of two dimensions of space the rows are the second
  bool constant = false;      // the same in all frames: never a target, an input only when named
  std::string units;          // as the file says; empty = it does not
  bool usual_units = false;   // they are those that such a name has; the file does not say
  std::string long_name;      // what it is, as the file says; empty = it does not
  std::string standard_name;  // of the CF Conventions; likewise

  // Integers that stand for ones of the other sign (netCDF's `_Unsigned`): 2^bits is added to
  // stored values below 0, or taken, where it is negative here, from those of half of it and above.
  // 0 = they stand for themselves.
  double wrap = 0;
  double unwrapped(double value) const {
    return (wrap > 0 && value < 0) || (wrap < 0 && value >= -wrap / 2) ? value + wrap : value;
  }
  // value = stored · scale + offset; stored values, unwrapped, that are listed in `missing` or
  // outside [least, greatest] are no values.
  double scale = 1;
  double offset = 0;
  std::vector<double> missing;
  double least = no_least;
  double greatest = no_greatest;
  bool plain() const {
    return wrap == 0 && scale == 1 && offset == 0 && missing.empty() && least <= no_least &&
           greatest >= no_greatest;
  }
};

// A file on the disk.
struct FieldSource {
  std::string path;
  std::int64_t bytes = 0;  // of a store of many files, of its metadata
  bool zarr = false;       // a Zarr store, which is a folder; else an HDF5 file
};

// What one file holds, or several that hold different channels at the same times
// (data/fields/field_join.hpp).
struct FieldFile {
  std::vector<FieldSource> sources;  // one, but where files were joined
  std::vector<FieldPlace> channels;
  std::vector<FieldPlace> targets;  // of pairs only; else the channels are both
  std::vector<std::int64_t> points;
  std::vector<std::string> axes;
  std::vector<std::vector<double>> coordinates;  // of each axis, or empty
  std::vector<AxisTexts> axis_texts;             // as FieldDatasetInfo has them
  GridMapping grid_mapping;
  std::string grid;
  std::string grid_reason;  // why it is "regional"; empty else
  std::int64_t trajectories = 1;
  std::vector<std::string> groups;  // of the trajectories, where each has one
  std::int64_t frames = 0;          // of each trajectory
  std::vector<double> times;        // of each frame, or empty
  bool dated = false;               // times are seconds since 1970 of `calendar`
  bool in_seconds = false;          // or are known to be seconds from a start of their own
  Calendar calendar = Calendar::Gregorian;
  double frame_seconds = 0;     // where there are no times; 0 = unknown
  std::int64_t run_length = 0;  // frames after which another trajectory begins; 0 = all are one
  // [frame · channels + channel] whether the file calls it invalid; empty = it says nothing.
  std::vector<bool> invalid;
  std::string storage;
  std::string statistics;
  std::vector<LeftOutVariable> left_out;
  std::vector<std::string> notes;  // as FieldDatasetInfo has them

  bool pairs() const { return !targets.empty(); }
  const std::string& path() const { return sources[0].path; }
};

struct FieldLayout {
  std::string_view name;
  std::string_view summary;  // what tells its files
  // Looks at names only.
  bool (*recognises)(const Hdf5File& file);
  // IoError with dataset for a file that is not of this layout after all.
  FieldFile (*describe)(const Hdf5File& file);
  // Whether a file may go on where another one ends; overlapping files are then an error.
  bool continues;
  // Whether files of other channels at the same times are put together.
  bool joins = false;
};

std::span<const FieldLayout> field_layouts();
// The layout `name`, or with "auto" the one that recognises the file. ConfigError, IoError.
const FieldLayout& choose_field_layout(const std::string& name, const Hdf5File& file);

const FieldLayout& yearly_layout();
const FieldLayout& pdebench_layout();
const FieldLayout& well_layout();
const FieldLayout& netcdf_layout();
const FieldLayout& zarr_layout();
// What a Zarr store holds, whose path that is. IoError; ConfigError for another layout than auto or
// zarr.
FieldFile describe_zarr(const std::string& path, const std::string& layout);

// --- for layouts ---

// IoError: dataset "name" of the file `what`.
[[noreturn]] void refuse_dataset(const Hdf5File& file, const std::string& name,
                                 const std::string& what);
// A dataset of numbers with `rank` dimensions; refused with `expected` ("[time, …]") else.
Hdf5Dataset open_array(const Hdf5File& file, const std::string& name, std::size_t rank,
                       const std::string& expected);
// Channels of a file, and values of one of its coordinates: what is more is refused by name.
inline constexpr std::int64_t most_channels = 1 << 14;
inline constexpr std::int64_t most_coordinates = 1 << 20;
// IoError unless `count` channels of the dataset `name` can be described.
void check_channel_count(const std::string& path, const std::string& name, std::int64_t count);
// A one-dimensional dataset of numbers as it is, at most `most_coordinates` of them.
std::vector<double> read_line(const Hdf5File& file, const std::string& name);
// Refuses `name` unless its dimensions from `first` on are as long as the coordinates; says so
// where they would be in another order.
void check_axes(const std::string& path, const std::string& name,
                std::span<const std::int64_t> shape, std::size_t first,
                const std::vector<std::string>& axes,
                const std::vector<std::vector<double>>& coordinates);
// The grid of latitudes and longitudes in degrees: one of sphere_grid_name, or "regional" and, for
// people, why.
struct SphereGridFound {
  std::string grid;
  std::string reason;
};
SphereGridFound sphere_grid_of(const std::vector<double>& latitudes,
                               const std::vector<double>& longitudes);
void set_sphere_grid(FieldFile& described);  // of its coordinates
// "float32, chunks [1, 2], deflate", "float32, virtual of 2 files".
std::string storage_text(const Hdf5Dataset& dataset);
// A place beside the file where a file or folder of this name is: in its folder, or in the one
// above; empty = none.
std::string find_beside(const std::string& path, const std::string& name);

}  // namespace garonne::data
