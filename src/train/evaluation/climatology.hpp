// What a place is like on average: the forecast that knows no present state, and what anomalies are
// measured from.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/fields/field_dataset.hpp"

namespace garonne::dist {
class Session;
}

namespace garonne::train {

// At each point either the mean over time, or that and an annual cycle: two harmonics of the year,
// by least squares.
class Climatology {
 public:
  static constexpr std::int64_t most_frames = 2000;

  // From at most `most_frames` frames of the target channels of the dataset, evenly spread. `kind`:
  // mean, annual, or auto = annual where the files tell the time and hold at least a year of at
  // least eight frames, and frames at all times of the year; else mean. Each point has that of the
  // frames that have a value there, their mean where they leave out too much of the year, and NaN
  // where there is none. For pairs the mean of the targets. The ranks share the frames,
  // and all get the same bits whatever their number. Throws on all ranks
  // (Session::agree) for an unknown kind, for annual where auto would not choose it, and as
  // FieldDataset. Collective.
  static Climatology of(const data::FieldQuery& query, const std::string& kind,
                        dist::Session& session, bool show_progress = false);

  // Throws as `of` does for what cannot be, before the work; reads headers of files only. Local to
  // the rank.
  static void check(const data::FieldQuery& query, const std::string& kind);

  // "mean", "annual".
  const std::string& kind() const { return kind_; }
  std::int64_t frames() const { return frames_; }
  // For people: what it is and where it comes from.
  std::string description() const;

  // The state [channels, points…] at a time, seconds since 1970 of the dataset's calendar; the time
  // does not matter to a mean.
  void at(double seconds, std::span<float> values) const;

 private:
  std::string kind_;
  std::string path_;
  std::int64_t frames_ = 0;
  double year_seconds_ = 0;
  std::vector<std::vector<float>> coefficients_;  // of each basis function, [channels, points…]
};

// Of a mean tropical year in each calendar.
double year_seconds(data::Calendar calendar);

}  // namespace garonne::train
