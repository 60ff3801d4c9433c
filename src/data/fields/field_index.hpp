// The files of a dataset, checked against each other, and the runs of frames in them. For the
// sources of this room.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/fields/field_period.hpp"
#include "data/layouts/field_layout.hpp"

namespace garonne::data {

// A place in time: frame `frame` of trajectory `trajectory` of file `file`.
struct FramePlace {
  std::size_t file = 0;
  std::int64_t trajectory = 0;
  std::int64_t frame = 0;
};

// Frames that follow each other in one file; a run is one or more of them.
struct FieldSegment {
  FramePlace begin;
  std::int64_t frames = 0;
  std::int64_t first_of_run = 0;  // place of its first frame in the run
};

struct FieldRun {
  std::size_t first_segment = 0;
  std::size_t segments = 0;
  std::int64_t frames = 0;
  std::int64_t first_frame = 0;  // counted over all runs
};

struct FieldIndex {
  const FieldLayout* layout = nullptr;
  std::vector<FieldFile> files;  // in the order of time, where there are times
  std::vector<FieldSegment> segments;
  std::vector<FieldRun> runs;
  std::vector<FieldFile> listed;   // as they are on the disk; other than `files` where those joined
  std::int64_t left_out = 0;       // times that only some channels have
  std::vector<std::string> notes;  // as FieldDatasetInfo has them
  double frame_seconds = 0;
  std::int64_t frames = 0;

  // Place of frame `offset` of a run.
  FramePlace place(const FieldRun& run, std::int64_t offset) const;
  // The run that frame number `frame`, counted over all runs, belongs to.
  const FieldRun& run_of(std::int64_t frame) const;
  // Its time, NaN where files have none.
  double time(const FramePlace& place) const;
};

// The data files that `path` stands for, in alphabetical order. IoError where there is none.
std::vector<std::string> list_field_files(const std::string& path);

// Describes the files, joins them, and finds the runs of frames within the period. Errors as
// FieldDataset::open says. `foreign` as Hdf5File::open takes it.
FieldIndex index_field_files(const std::string& path, const std::string& layout,
                             const FieldPeriod& period,
                             std::shared_ptr<ForeignReader> foreign = nullptr);

}  // namespace garonne::data
