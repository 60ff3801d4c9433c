// Files that hold different channels of the same times, as one: climate models write a file a
// variable, often cut into parts of some years. For the sources of this room.
#pragma once

#include <cstdint>
#include <vector>

#include "data/layouts/field_layout.hpp"

namespace garonne::data {

// IoError unless the points and coordinates of `file` are those of `first`.
void check_same_points(const FieldFile& file, const FieldFile& first);

// Whether some of the files have no channel in common, those that stay aside.
bool channels_are_apart(const std::vector<FieldFile>& files);

struct JoinedFields {
  // In the order of time; each is a stretch within which no file ends. Their channels are those of
  // all files in the order given, then those that do not change.
  std::vector<FieldFile> files;
  std::int64_t left_out = 0;  // times that only some of the channels have
};

// Puts files (as described, one source each) together. Frames are the times that all channels have;
// files of the same channels follow each other in time; channels that do not change may be in any
// of them or in files without time. Without a channel that changes the files come back as they are.
// IoError with the paths: files that share some channels but not all, files of the same channels
// and times (as members of an ensemble have), other points, calendars or numbers of trajectories,
// and no time in common.
JoinedFields join_channels(std::vector<FieldFile> files);

}  // namespace garonne::data
