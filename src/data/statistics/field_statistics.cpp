#include "data/statistics/field_statistics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>

#include "base/error.hpp"
#include "base/progress.hpp"
#include "data/file_identity.hpp"
#include "dist/session.hpp"

namespace garonne::data {
namespace {

// Moments of weighted values, of which two sets can be joined (Chan, Golub, LeVeque 1983).
struct Moments {
  double weight = 0;
  double mean = 0;
  double squares = 0;  // Σ weight · (value − mean)²
  double least = std::numeric_limits<double>::infinity();
  double greatest = -std::numeric_limits<double>::infinity();
  double missing = 0;

  void join(const Moments& other) {
    least = std::min(least, other.least);
    greatest = std::max(greatest, other.greatest);
    missing += other.missing;
    if (other.weight == 0) return;
    if (weight == 0) {
      // As it is: a mean of equal values stays that value.
      weight = other.weight;
      mean = other.mean;
      squares = other.squares;
      return;
    }
    const double total = weight + other.weight;
    const double apart = other.mean - mean;
    mean += apart * other.weight / total;
    squares += other.squares + apart * apart * weight * other.weight / total;
    weight = total;
  }
};
constexpr std::size_t moment_numbers = 6;

// Of the values of one channel in one frame, minus `before` where that is given; each row of
// `columns` values counts with its weight.
Moments moments_of(const float* values, const float* before, std::span<const double> weights,
                   std::int64_t columns) {
  Moments moments;
  const auto value_at = [&](std::int64_t index) {
    return before == nullptr
               ? static_cast<double>(values[index])
               : static_cast<double>(values[index]) - static_cast<double>(before[index]);
  };
  const auto each = [&](auto use) {
    for (std::size_t row = 0; row < weights.size(); ++row) {
      const std::int64_t first = static_cast<std::int64_t>(row) * columns;
      for (std::int64_t index = first; index < first + columns; ++index) {
        use(value_at(index), weights[row]);
      }
    }
  };
  double sum = 0;
  each([&](double value, double weight) {
    if (std::isnan(value)) {
      moments.missing += 1;
      return;
    }
    moments.weight += weight;
    sum += weight * value;
    moments.least = std::min(moments.least, value);
    moments.greatest = std::max(moments.greatest, value);
  });
  if (moments.weight == 0) return moments;
  moments.mean = sum / moments.weight;
  each([&](double value, double weight) {
    if (!std::isnan(value))
      moments.squares += weight * (value - moments.mean) * (value - moments.mean);
  });
  return moments;
}

// Mean and squares at each point, over frames.
struct PointMoments {
  std::vector<double> count;
  std::vector<double> mean;
  std::vector<double> squares;

  explicit PointMoments(std::size_t values) : count(values), mean(values), squares(values) {}

  void add(std::span<const float> values) {
    for (std::size_t index = 0; index < values.size(); ++index) {
      if (std::isnan(values[index])) continue;
      const auto value = static_cast<double>(values[index]);
      const double apart = value - mean[index];
      count[index] += 1;
      mean[index] += apart / count[index];
      squares[index] += apart * (value - mean[index]);
    }
  }

  // Joins those of all ranks, in rank order. Collective.
  void join(dist::Session& session) {
    if (session.size() == 1) return;
    constexpr std::size_t piece = 1U << 16;  // numbers at a time, of each rank
    for (std::size_t begin = 0; begin < mean.size(); begin += piece) {
      const std::size_t size = std::min(piece, mean.size() - begin);
      std::vector<double> mine;
      for (const auto* numbers : {&count, &mean, &squares}) {
        const auto first = numbers->begin() + static_cast<std::ptrdiff_t>(begin);
        mine.insert(mine.end(), first, first + static_cast<std::ptrdiff_t>(size));
      }
      const std::vector<double> all = session.all_gather(mine);
      for (std::size_t index = 0; index < size; ++index) {
        Moments joined;
        for (std::size_t rank = 0; rank < static_cast<std::size_t>(session.size()); ++rank) {
          const double* theirs = all.data() + rank * 3 * size + index;
          Moments part;
          part.weight = theirs[0];
          part.mean = theirs[size];
          part.squares = theirs[2 * size];
          joined.join(part);
        }
        count[begin + index] = joined.weight;
        mean[begin + index] = joined.mean;
        squares[begin + index] = joined.squares;
      }
    }
  }
};

// Frames of one side (inputs or targets) of a dataset, and what is found about them block by block.
class Pass {
 public:
  Pass(FieldDataset& dataset, bool targets, std::int64_t lead, bool pointwise)
      : dataset_(dataset),
        info_(dataset.info()),
        targets_(targets),
        lead_(info_.pairs || lead >= info_.frames ? 0 : lead),
        weights_(static_cast<std::size_t>(info_.points[0]), 1.0) {
    if (!info_.coordinates.empty() && info_.axes[0] == "latitude") {
      weights_ = area_weights(info_.coordinates[0]);
    }
    const auto values = static_cast<std::size_t>(channels() * plane());
    kept_.resize(static_cast<std::size_t>(lead_ + 1));
    kept_frame_.assign(kept_.size(), -1);
    if (pointwise) points_.emplace(values);
  }

  std::int64_t channels() const { return static_cast<std::int64_t>(names().size()); }
  const std::vector<std::string>& names() const {
    return targets_ ? info_.target_channels : info_.input_channels;
  }

  // Moments of the frames [begin, end) for each channel, then those of the differences.
  std::vector<Moments> block(std::int64_t begin, std::int64_t end) {
    std::vector<Moments> found(static_cast<std::size_t>(2 * channels()));
    const std::int64_t columns = plane() / info_.points[0];
    for (std::int64_t frame = begin; frame < end; ++frame) {
      const std::vector<float>& now = load(frame);
      if (points_) points_->add(now);
      const bool later = lead_ > 0 && dataset_.frames_after(frame) >= lead_;
      const float* ahead = later ? load(frame + lead_).data() : nullptr;
      for (std::int64_t channel = 0; channel < channels(); ++channel) {
        const float* values = now.data() + channel * plane();
        found[static_cast<std::size_t>(channel)].join(
            moments_of(values, nullptr, weights_, columns));
        if (!later) continue;
        found[static_cast<std::size_t>(channels() + channel)].join(
            moments_of(ahead + channel * plane(), values, weights_, columns));
      }
    }
    return found;
  }

  std::optional<PointMoments>& points() { return points_; }

 private:
  std::int64_t plane() const { return info_.plane(info_.points[0]); }

  // Frames come in ascending order, so that those up to `lead` further are read once.
  const std::vector<float>& load(std::int64_t frame) {
    const auto slot = static_cast<std::size_t>(frame % (lead_ + 1));
    if (kept_frame_[slot] != frame) {
      kept_[slot].resize(static_cast<std::size_t>(channels() * plane()));
      float* values = kept_[slot].data();
      kept_frame_[slot] = -1;
      dataset_.read_frame(frame, {}, targets_ ? nullptr : values, targets_ ? values : nullptr);
      kept_frame_[slot] = frame;
    }
    return kept_[slot];
  }

  FieldDataset& dataset_;
  const FieldDatasetInfo& info_;
  bool targets_;
  std::int64_t lead_;
  std::vector<double> weights_;
  std::vector<std::vector<float>> kept_;
  std::vector<std::int64_t> kept_frame_;
  std::optional<PointMoments> points_;
};

// Where all values are one, sums have left of it what rounding leaves.
double mean_of(const Moments& moments) {
  return moments.least == moments.greatest ? moments.least : moments.mean;
}
double deviation_of(const Moments& moments) {
  if (moments.weight == 0 || moments.least == moments.greatest) return 0;
  return std::sqrt(moments.squares / moments.weight);
}

// Joins the blocks of all ranks in their order, which does not depend on the number of ranks.
std::vector<Moments> join_blocks(const std::vector<Moments>& mine, std::int64_t blocks,
                                 std::size_t kinds, dist::Session& session) {
  // Block b belongs to rank b · ranks / blocks; all send as many as the one with the most.
  const std::vector<std::int64_t> most =
      session.all_reduce_max(std::vector<std::int64_t>{static_cast<std::int64_t>(mine.size())});
  const auto each = static_cast<std::size_t>(most[0]) * moment_numbers;
  std::vector<double> numbers(each, 0);
  std::size_t place = 0;
  for (const Moments& moments : mine) {
    for (const double number : {moments.weight, moments.mean, moments.squares, moments.least,
                                moments.greatest, moments.missing}) {
      numbers[place++] = number;
    }
  }
  const std::vector<double> all = session.all_gather(numbers);
  std::vector<Moments> joined(kinds);
  std::vector<std::size_t> used(static_cast<std::size_t>(session.size()), 0);
  for (std::int64_t block = 0; block < blocks; ++block) {
    const auto rank = static_cast<std::size_t>(block * session.size() / blocks);
    for (std::size_t kind = 0; kind < kinds; ++kind) {
      const double* part = all.data() + rank * each + used[rank];
      used[rank] += moment_numbers;
      joined[kind].join({part[0], part[1], part[2], part[3], part[4], part[5]});
    }
  }
  return joined;
}

FieldSummary summary_of(Pass& pass, const std::vector<Moments>& joined,
                        const FieldDatasetInfo& info) {
  FieldSummary summary;
  summary.channels = pass.names();
  const std::size_t channels = summary.channels.size();
  const bool changes = std::any_of(joined.begin() + static_cast<std::ptrdiff_t>(channels),
                                   joined.end(), [](const Moments& one) { return one.weight > 0; });
  for (std::size_t channel = 0; channel < channels; ++channel) {
    const Moments& moments = joined[channel];
    const bool there = moments.weight > 0;
    summary.mean.push_back(mean_of(moments));
    summary.deviation.push_back(deviation_of(moments));
    summary.least.push_back(there ? moments.least : std::nan(""));
    summary.greatest.push_back(there ? moments.greatest : std::nan(""));
    summary.missing.push_back(moments.missing);
    if (!changes) continue;
    const Moments& difference = joined[channels + channel];
    summary.difference_mean.push_back(mean_of(difference));
    summary.difference_deviation.push_back(deviation_of(difference));
  }
  if (pass.points()) {
    PointMoments& points = *pass.points();
    summary.points = info.points;
    summary.point_mean = points.mean;
    for (std::size_t index = 0; index < points.squares.size(); ++index) {
      summary.point_deviation.push_back(
          points.count[index] == 0 ? 0 : std::sqrt(points.squares[index] / points.count[index]));
    }
  }
  return summary;
}

// What is 0 everywhere in float32 may be no zeros in a file of float64.
void note_lost_in_float32(const FieldSummary& summary, const FieldDatasetInfo& info,
                          std::vector<std::string>& notes) {
  if (info.files.empty() || !info.files[0].storage.starts_with("float64")) return;
  for (std::size_t channel = 0; channel < summary.channels.size(); ++channel) {
    if (summary.least[channel] != 0 || summary.greatest[channel] != 0) continue;
    notes.push_back(fmt::format(
        "channel {} is 0 everywhere as float32, which values are read as, and the files have "
        "float64: what is below 1e-45 in size there is 0 here; scale it where it should not be",
        summary.channels[channel]));
  }
}

}  // namespace

std::vector<double> area_weights(const std::vector<double>& latitudes) {
  const std::size_t rows = latitudes.size();
  const auto sine = [](double degrees) { return std::sin(degrees * std::numbers::pi / 180); };
  // The edge before row `row`; outermost ones as far out as the next one is in, but not beyond a
  // pole.
  const auto edge = [&](std::size_t row) {
    if (row > 0 && row < rows) return 0.5 * (latitudes[row - 1] + latitudes[row]);
    const double at = row == 0 ? latitudes[0] : latitudes[rows - 1];
    if (rows < 2) return at + (row == 0 ? -0.5 : 0.5);
    const double next = row == 0 ? latitudes[1] : latitudes[rows - 2];
    return std::clamp(at + 0.5 * (at - next), -90.0, 90.0);
  };
  std::vector<double> weights;
  double sum = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    weights.push_back(std::abs(sine(edge(row + 1)) - sine(edge(row))));
    sum += weights.back();
  }
  for (double& weight : weights) weight *= static_cast<double>(rows) / sum;
  return weights;
}

FieldSummaries summarise_fields(const FieldQuery& query, bool pointwise, dist::Session& session,
                                bool show_progress) {
  std::optional<FieldDataset> dataset;
  session.agree([&] {
    FieldQuery frames = query;
    frames.windows = false;
    dataset.emplace(FieldDataset::open(frames));
  });
  dist::agree_on(session, [&] { return file_facts("the data", dataset->identity()); });
  const FieldDatasetInfo& info = dataset->info();
  std::vector<Pass> passes;
  passes.emplace_back(*dataset, false, query.lead, pointwise);
  if (info.pairs) passes.emplace_back(*dataset, true, query.lead, pointwise);

  // As many blocks for any number of ranks, so that sums are too.
  const std::int64_t blocks = std::min<std::int64_t>(info.frames, 512);
  const std::int64_t ranks = session.size();
  std::vector<std::vector<Moments>> mine(passes.size());
  session.agree([&] {
    Progress progress("statistics", info.frames, !show_progress || session.rank() != 0);
    std::int64_t done = 0;
    for (std::int64_t block = 0; block < blocks; ++block) {
      if (block * ranks / blocks != session.rank()) continue;
      const std::int64_t begin = block * info.frames / blocks;
      const std::int64_t end = (block + 1) * info.frames / blocks;
      for (std::size_t pass = 0; pass < passes.size(); ++pass) {
        const std::vector<Moments> found = passes[pass].block(begin, end);
        mine[pass].insert(mine[pass].end(), found.begin(), found.end());
      }
      done += end - begin;
      progress.advance_to(std::min(done * ranks, info.frames));
    }
  });
  FieldSummaries summaries;
  summaries.lead = query.lead;
  summaries.notes = info.notes;
  summaries.axes = info.axes;
  summaries.coordinates = info.coordinates;
  for (std::size_t pass = 0; pass < passes.size(); ++pass) {
    const auto kinds = static_cast<std::size_t>(2 * passes[pass].channels());
    const std::vector<Moments> joined = join_blocks(mine[pass], blocks, kinds, session);
    if (passes[pass].points()) passes[pass].points()->join(session);
    FieldSummary& summary = pass == 0 ? summaries.inputs : summaries.targets;
    summary = summary_of(passes[pass], joined, info);
    summary.units = pass == 0 ? info.input_units : info.target_units;
    note_lost_in_float32(summary, info, summaries.notes);
  }
  return summaries;
}

namespace {

// Numbers that programs write where there is no value; no field of the Earth has them.
bool looks_like_no_value(double value) {
  constexpr std::array numbers = {1e20, 9.999e20, 1e30, 1e34, 1e35, 1e36, 9.96920996838687e36};
  return std::any_of(numbers.begin(), numbers.end(), [&](double number) {
    return std::abs(std::abs(value) - number) <= 1e-3 * number;
  });
}

}  // namespace

std::vector<std::string> statistics_warnings(const FieldSummaries& summaries) {
  std::vector<std::string> warnings = summaries.notes;
  for (const FieldSummary* summary : {&summaries.inputs, &summaries.targets}) {
    for (std::size_t channel = 0; channel < summary->least.size(); ++channel) {
      const std::string& name = summary->channels[channel];
      for (const double value : {summary->least[channel], summary->greatest[channel]}) {
        if (!looks_like_no_value(value)) continue;
        warnings.push_back(
            fmt::format("channel {} has values of {:g}, which look like missing ones that the file "
                        "does not call so; give its variable the attribute _FillValue or "
                        "missing_value",
                        name, value));
        break;
      }
      if (std::isnan(summary->least[channel])) {
        warnings.push_back(fmt::format(
            "channel {} has no value anywhere: all {:.0f} are missing; its mean and deviation are "
            "given as 0",
            name, summary->missing[channel]));
      } else if (summary->least[channel] == summary->greatest[channel]) {
        warnings.push_back(
            fmt::format("channel {} is {:g} everywhere; its deviation is 0, which counts as 1 when "
                        "it is normalised",
                        name, summary->least[channel]));
      }
    }
  }
  return warnings;
}

}  // namespace garonne::data
