// Means and deviations of fields: how they are found, kept, and used to normalise.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/fields/field_dataset.hpp"

namespace garonne::dist {
class Session;
}

namespace garonne::data {

// What a pass over some channels finds.
struct FieldSummary {
  std::vector<std::string> channels;
  std::vector<std::string> units;  // of these; empty texts, or none, where nobody says
  std::vector<double> mean;        // [channels], by the area that a point stands for
  std::vector<double> deviation;   // [channels], likewise; of the population; exactly 0 where all
                                   // values are one
  std::vector<double> least;       // [channels]; NaN where there is no value, mean and deviation 0
  std::vector<double> greatest;    // [channels]; likewise
  std::vector<double> missing;     // [channels]: values that are not there
  // Of the change from a frame to the one `lead` later; empty where there is no time.
  std::vector<double> difference_mean;       // [channels]
  std::vector<double> difference_deviation;  // [channels]
  // At each point, over all frames; empty unless asked for.
  std::vector<std::int64_t> points;
  std::vector<double> point_mean;       // [channels, points…]
  std::vector<double> point_deviation;  // [channels, points…]
};

struct FieldSummaries {
  std::int64_t lead = 1;
  std::vector<std::string> axes;                 // of the points; empty where nobody says
  std::vector<std::vector<double>> coordinates;  // of each axis; likewise
  FieldSummary inputs;
  FieldSummary targets;            // of pairs; else without channels, since they are the inputs'
  std::vector<std::string> notes;  // of the data that they are of; not kept in files
};

// Reads every frame of the dataset once. The query's input channels are summarised, for pairs also
// its target channels; missing values are left out under "mask" and refused under "refuse". The
// ranks share the frames; but for those at each point, the numbers are the same for any number of
// ranks. Collective; what is wrong on one rank is thrown on all (Session::agree), as FieldDataset
// says.
FieldSummaries summarise_fields(const FieldQuery& query, bool pointwise, dist::Session& session,
                                bool show_progress = false);

// What a user should know of summaries, a sentence each: notes, channels that are one number
// everywhere, and those without any value.
std::vector<std::string> statistics_warnings(const FieldSummaries& summaries);

// Channels whose statistics such data want: the chosen inputs, then targets that are none of them.
std::vector<std::string> channels_of(const FieldDatasetInfo& info);

// Area that a row of latitude stands for, of mean 1: the sine of the middle to the next row minus
// that to the one before.
std::vector<double> area_weights(const std::vector<double>& latitudes);

// Of some channels, for each of them or for each of their points.
struct FieldMoments {
  std::vector<std::string> channels;
  std::vector<std::int64_t> points;  // empty = one number a channel
  std::vector<float> mean;           // [channels] or [channels, points…]
  std::vector<float>
      deviation;  // as mean; of a point at least 1e-3 of its channel's; never 0 but 1
  // [channels]: deviation of the change from a frame to the one `lead` later; empty = unknown.
  std::vector<float> difference_deviation;

  // Turns values [frames, channels, rows, columns] of a slab that begins at `first_row` and has
  // `plane` points into (value − mean) / deviation. Does nothing without channels. NaN stays NaN.
  void normalise(std::int64_t first_row, std::int64_t plane, std::span<float> values) const;
  // The reverse.
  void restore(std::int64_t first_row, std::int64_t plane, std::span<float> values) const;
};

// "none": values as they are; "channel": one mean and deviation a channel; "pointwise": one at each
// point.
struct FieldStatistics {
  std::string mode = "none";
  FieldMoments inputs;   // of the input channels, in their order
  FieldMoments targets;  // of the target channels, in their order
};

// ConfigError (key "data.normalisation") unless it is none, channel or pointwise.
void check_normalisation(const std::string& mode);

// What `mode` needs of the summaries, for the channels of the dataset. IoError with `source` (where
// the summaries come from) for a channel that they lack, naming those that there are and those that
// are wanted, for what was not computed, and where they say that it was of other units or,
// pointwise, another grid.
FieldStatistics choose_statistics(const FieldSummaries& summaries, const std::string& mode,
                                  const FieldDatasetInfo& info, const std::string& source);

// ConfigError (--output) where save_field_summaries() would replace one of the files `inputs`, or
// what is no statistics of Garonne (base/output_file.hpp). Local to the rank.
void expect_statistics_output(const std::string& path, const std::vector<std::string>& inputs = {});
// Writes a `garonne.field-statistics` file, or, where `path` ends neither in .h5 nor in .hdf5,
// makani's folder of .npy files (means of all times only if pointwise). Errors are those of
// expect_statistics_output, and IoError.
void save_field_summaries(const std::string& path, const FieldSummaries& summaries);
// Reads either, or The Well's stats.yaml. Arrays without names are those of `info.channels`;
// IoError where their numbers differ, with both. `foreign` as Hdf5File::open takes it.
FieldSummaries load_field_summaries(const std::string& path, const FieldDatasetInfo& info,
                                    std::int64_t lead = 1,
                                    std::shared_ptr<ForeignReader> foreign = nullptr);

}  // namespace garonne::data
