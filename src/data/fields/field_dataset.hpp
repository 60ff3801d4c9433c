// Fields on grids from many files as one dataset of samples, whatever layout the files have.
//
// A frame is the state of all channels at one time. Frames that follow each other at the dataset's
// step form a run; a run may go on from one file to the next, but never across a gap in time, nor
// from one trajectory to another. A sample is a window within a run:
//   inputs   frames t − history·lead, …, t − lead, t
//   targets  frames t + (p + 1)·lead, …, t + (p + rollout)·lead, p being push_forward
// so that a network fed with its own outputs goes on in the same steps, whose first p ones are
// compared with nothing. Where a file holds pairs (a coefficient and the solution that belongs to
// it) a sample is one pair.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/fields/cf_time.hpp"
#include "data/fields/field_period.hpp"

namespace garonne::data {

class ForeignReader;  // data/hdf5/foreign_reader.hpp
struct FileIdentity;  // data/file_identity.hpp

// What to open.
struct FieldQuery {
  std::string path;             // a file, a folder, or a pattern with * in its last part
  std::string layout = "auto";  // or one of field_layout_names()
  FieldPeriod period;           // of the frames; all of a window lie within it
  std::vector<std::string> input_channels;   // in this order; empty = all that change in time
  std::vector<std::string> target_channels;  // in this order; empty = all that change in time
  std::int64_t history = 0;                  // input frames before t
  std::int64_t lead = 1;                     // frames of a step in time
  std::int64_t push_forward = 0;             // steps after t without a target
  std::int64_t rollout = 1;                  // target frames, of the steps after those
  std::int64_t stride = 1;                   // frames from one sample of a run to the next
  std::string missing = "refuse";  // or "mask": what to do about values that are not there
  bool windows = true;             // false: frames are wanted, no window needs to fit
};

struct FieldFileInfo {
  std::string path;
  std::int64_t bytes = 0;
  std::int64_t trajectories = 1;
  std::int64_t frames = 0;  // of each trajectory
  double first_time = 0;    // seconds, meaningful where the dataset has times
  double last_time = 0;
  std::string storage;  // "float32, contiguous", "int16, chunks [1, 181, 360], deflate"
};

// A variable on a grid that is no channel, and why, for people.
struct LeftOutVariable {
  std::string name;
  std::string reason;
  auto operator<=>(const LeftOutVariable&) const = default;
};

// What files say of an axis whose coordinates are no latitudes or longitudes of the Earth: those of
// a projection, or of a rotated pole.
struct AxisTexts {
  std::string name;
  std::vector<std::pair<std::string, std::string>> attributes;  // names and texts
};

// How such coordinates lie on the Earth, as a `grid_mapping` of the CF Conventions says it.
struct GridMapping {
  std::string name;  // of its variable; empty = nobody says
  std::vector<std::pair<std::string, std::string>> texts;
  std::vector<std::pair<std::string, std::vector<double>>> numbers;
};

struct FieldDatasetInfo {
  std::string path;
  std::string layout;
  std::vector<std::string> channels;           // all that the files hold
  std::vector<std::string> input_channels;     // of a frame, as chosen
  std::vector<std::string> target_channels;    // of a frame, as chosen
  std::vector<std::string> input_units;        // of these; empty texts where the files tell none
  std::vector<std::string> target_units;       // likewise
  std::vector<std::string> input_long_names;   // as "pressure" of PDEBench's channel "tensor";
  std::vector<std::string> target_long_names;  // empty texts where the files tell none
  std::vector<std::string> target_standard_names;  // of the CF Conventions; likewise
  std::vector<std::string> constant_inputs;        // input channels that are the same in all frames
  std::vector<std::int64_t> points;                // [rows, columns]; one or three for such grids
  std::vector<std::string> axes;                   // names of the axes of points
  std::vector<std::vector<double>> coordinates;  // of each axis; degrees on a sphere; may be empty
  // Of each axis where they are not the Earth's latitudes and longitudes, else empty; `axes` calls
  // rotated ones latitude and longitude, too, since areas go by them.
  std::vector<AxisTexts> axis_texts;
  GridMapping grid_mapping;
  // "periodic", "box", "regional" (a part of the sphere), or one of sphere_grid_name: rows are
  // latitudes of the whole sphere.
  std::string grid;
  std::string grid_reason;   // why it is "regional"; empty else
  bool pairs = false;        // inputs and targets belong together without a step in time
  std::int64_t samples = 0;  // usable windows
  std::int64_t frames = 0;   // of all runs
  std::int64_t runs = 0;
  bool has_times = false;    // seconds since 1970 of `calendar`
  double frame_seconds = 0;  // from a frame to the next; a mean where months differ; 0 = unknown
  bool in_seconds = false;   // false: the files do not say what times are counted in
  Calendar calendar = Calendar::Gregorian;
  double first_time = 0;  // of the frames, where there are times
  double last_time = 0;
  std::int64_t left_out = 0;  // times of files that only some of the channels have
  std::vector<LeftOutVariable> left_out_variables;
  std::vector<std::string> notes;  // what a user should know of the files, a sentence each
  std::string statistics;  // folder or file of statistics found beside the data; empty = none
  std::vector<FieldFileInfo> files;

  std::int64_t input_frames = 1;                         // history + 1
  std::int64_t between_frames = 0;                       // push_forward
  std::int64_t target_frames = 1;                        // rollout
  std::int64_t input_values(std::int64_t rows) const;    // floats that read() writes to `input`
  std::int64_t between_values(std::int64_t rows) const;  // to `between`
  std::int64_t target_values(std::int64_t rows) const;   // and to `target`
  // Points of one channel in `rows` rows of the first axis.
  std::int64_t plane(std::int64_t rows) const;
};

// Rows of the first axis of points that a rank reads; rows < 0 = all from first_row on.
struct FieldSlab {
  std::int64_t first_row = 0;
  std::int64_t rows = -1;
};

std::vector<std::string> field_layout_names();

// An opened dataset. At most `open_file_limit` files are open at once, whatever their number (and
// those of one frame, where its channels are in files of their own), and memory does not grow with
// what has been read. For one thread at a time: the reader's in training.
class FieldDataset {
 public:
  static constexpr int open_file_limit = 4;

  // Describes all files, reading their headers only. ConfigError: a query that cannot be (unknown
  // layout or policy, numbers below their least). IoError with file and dataset: nothing there, a
  // file of no known layout, truncated, of another shape, grid or channels than the first one,
  // swapped axes, times that do not ascend or overlap, a channel that is not there, files of
  // different channels that cannot be joined (data/fields/field_join.hpp), or no window that fits.
  // ConfigError with the period's key for a period of files without dates, or without a frame.
  // `foreign` as Hdf5File::open takes it.
  static FieldDataset open(const FieldQuery& query,
                           std::shared_ptr<ForeignReader> foreign = nullptr);
  // The same dataset with files of its own to open; nothing is described again. Any thread may call
  // this and info() while one reads.
  FieldDataset again() const;
  FieldDataset(FieldDataset&&) noexcept;
  FieldDataset& operator=(FieldDataset&&) noexcept;
  ~FieldDataset();

  const FieldDatasetInfo& info() const;
  // Of the files, and of the channels that are used in them. IoError.
  std::vector<FileIdentity> identity() const;
  // Whether it was opened with missing = "mask".
  bool masks() const;

  // Reads a slab of a sample; nothing else is read from the files but the rest of chunks touched.
  //   input    [input_frames, input channels, rows, columns], oldest frame first
  //   target   [target_frames, target channels, rows, columns]
  //   between  [between_frames, target channels, rows, columns], of the steps before the targets
  // each may be null, and is not read then. IoError naming file, dataset, channel, frame and place
  // of a value that is missing or not finite under "refuse"; under "mask" such values are NaN.
  void read(std::int64_t sample, FieldSlab slab, float* input, float* target,
            float* between = nullptr);

  // One frame by its number in [0, info().frames), runs after each other; channels as above.
  void read_frame(std::int64_t frame, FieldSlab slab, float* input, float* target);
  // Frames that follow `frame` in its run.
  std::int64_t frames_after(std::int64_t frame) const;
  // Time of the frame t of a sample, seconds since 1970 of the calendar; NaN without times.
  double sample_time(std::int64_t sample) const;
  // Of a frame, likewise.
  double frame_time(std::int64_t frame) const;

  // For tests and reports.
  int open_files() const;
  std::int64_t values_read() const;

 private:
  struct Description;
  struct Parts;
  explicit FieldDataset(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace garonne::data
