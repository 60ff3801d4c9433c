#include "train/evaluation/climatology.hpp"

#include <fmt/format.h>

#include <Eigen/Cholesky>
#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <optional>

#include "base/error.hpp"
#include "data/generate/shared_work.hpp"
#include "dist/session.hpp"

namespace garonne::train {
namespace {

constexpr int harmonics = 2;
constexpr double frames_of_a_year = 8;  // that a cycle of two harmonics can be told from

using Basis = std::vector<double>;

Basis basis_at(double seconds, double year) {
  Basis basis = {1.0};
  if (year == 0) return basis;
  for (int harmonic = 1; harmonic <= harmonics; ++harmonic) {
    const double angle = 2 * std::numbers::pi * harmonic * seconds / year;
    basis.push_back(std::cos(angle));
    basis.push_back(std::sin(angle));
  }
  return basis;
}

// A frame and its time; NaN without.
struct TimedFrame {
  std::int64_t frame = 0;
  double seconds = 0;
};

// Samples of one frame and its successor stand in the order of frames, without the last of each
// run.
std::vector<TimedFrame> frames_of(const data::FieldDataset& dataset) {
  const data::FieldDatasetInfo& info = dataset.info();
  std::vector<TimedFrame> frames;
  std::int64_t sample = 0;
  bool run_begins = true;
  for (std::int64_t frame = 0; frame < info.frames; ++frame) {
    const bool run_ends = info.pairs || dataset.frames_after(frame) == 0;
    double seconds = 0;
    if (!run_ends) {
      seconds = dataset.sample_time(sample++);
    } else if (!run_begins) {
      seconds = frames.back().seconds + info.frame_seconds;
    } else if (info.has_times && !info.pairs) {
      continue;  // nobody tells the time of a frame that stands alone
    }
    frames.push_back({frame, seconds});
    run_begins = run_ends;
  }
  return frames;
}

// Those that are read.
std::vector<TimedFrame> spread(const std::vector<TimedFrame>& frames) {
  const auto all = static_cast<std::int64_t>(frames.size());
  std::int64_t step = (all + Climatology::most_frames - 1) / Climatology::most_frames;
  // Every fourth frame of six-hourly data would always be the same hour of the day.
  if (step % 2 == 0) ++step;
  std::vector<TimedFrame> chosen;
  for (std::int64_t place = 0; place < all; place += step)
    chosen.push_back(frames[static_cast<std::size_t>(place)]);
  return chosen;
}

void add_products(const Basis& basis, Eigen::MatrixXd& products) {
  for (std::size_t one = 0; one < basis.size(); ++one) {
    for (std::size_t other = 0; other < basis.size(); ++other) {
      products(static_cast<Eigen::Index>(one), static_cast<Eigen::Index>(other)) +=
          basis[one] * basis[other];
    }
  }
}

// Whether the times whose products these are tell a cycle at all times of the year. Where they
// leave out a part of it the functions look alike, and small noise becomes large coefficients: with
// 75 days left out of every year the least eigenvalue falls from 1/2 to 0.14, with a quarter to
// 0.08.
bool cover_the_year(const Eigen::MatrixXd& products) {
  constexpr double least = 0.1;
  const double count = products(0, 0);
  if (count < frames_of_a_year) return false;
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(products / count,
                                                              Eigen::EigenvaluesOnly);
  return solver.eigenvalues().minCoeff() >= least;
}

// Days of the longest part of the year without a frame.
double longest_gap_days(const std::vector<TimedFrame>& frames, double year) {
  std::vector<double> phases;
  for (const TimedFrame& frame : frames)
    phases.push_back(frame.seconds - std::floor(frame.seconds / year) * year);
  std::sort(phases.begin(), phases.end());
  double longest = phases.front() + year - phases.back();
  for (std::size_t place = 1; place < phases.size(); ++place)
    longest = std::max(longest, phases[place] - phases[place - 1]);
  return longest / 86400;
}

std::string choose_kind(const std::string& kind, const data::FieldDatasetInfo& info,
                        const std::vector<TimedFrame>& frames) {
  if (kind != "auto" && kind != "mean" && kind != "annual") {
    throw ConfigError("--climatology", kind, "known are auto, mean, annual");
  }
  const double year = year_seconds(info.calendar);
  bool long_enough = info.has_times && !info.pairs && info.frame_seconds > 0 && !frames.empty();
  if (long_enough) {
    const auto [first, last] = std::minmax_element(
        frames.begin(), frames.end(),
        [](const TimedFrame& a, const TimedFrame& b) { return a.seconds < b.seconds; });
    long_enough = last->seconds - first->seconds + 2 * info.frame_seconds >= year &&
                  info.frame_seconds * frames_of_a_year <= year;
  }
  if (kind == "annual" && !long_enough) {
    throw ConfigError(
        "--climatology", kind,
        fmt::format("wants dated frames of at least a year, eight or more of each; {} "
                    "has none such; use mean",
                    info.path));
  }
  if (kind == "mean" || !long_enough) return "mean";
  const auto functions = static_cast<Eigen::Index>(basis_at(0, year).size());
  Eigen::MatrixXd products = Eigen::MatrixXd::Zero(functions, functions);
  for (const TimedFrame& frame : frames) add_products(basis_at(frame.seconds, year), products);
  if (cover_the_year(products)) return "annual";
  if (kind == "annual") {
    throw ConfigError(
        "--climatology", kind,
        fmt::format("wants frames at all times of the year; those of {} leave out {:.0f} days in "
                    "a row, or have few there, of which nothing would be known; use mean",
                    info.path, longest_gap_days(frames, year)));
  }
  return "mean";
}

// What of a dataset a climatology is made of: its frames, one by one.
data::FieldQuery every_frame(data::FieldQuery query) {
  query.history = query.push_forward = 0;
  query.lead = query.rollout = query.stride = 1;
  return query;
}

// Sums of least squares at every point, over the frames that have a value there. Points that lack
// the same frames make a group and share the matrix of its normal equations; where nothing is
// missing that is one.
class PointSums {
 public:
  PointSums(std::size_t functions, std::size_t values)
      : group_of_(values), sums_(functions, std::vector<double>(values)) {
    const auto size = static_cast<Eigen::Index>(functions);
    groups_.push_back({Eigen::MatrixXd::Zero(size, size), values});
  }

  void add(const Basis& basis, std::span<const float> state) {
    if (std::any_of(state.begin(), state.end(), [](float value) { return std::isnan(value); })) {
      split(state);
    } else {
      absent_.assign(groups_.size(), false);
    }
    for (std::size_t group = 0; group < groups_.size(); ++group) {
      if (!absent_[group]) add_products(basis, groups_[group].products);
    }
    for (std::size_t one = 0; one < basis.size(); ++one) {
      for (std::size_t i = 0; i < state.size(); ++i) {
        if (!std::isnan(state[i])) sums_[one][i] += basis[one] * static_cast<double>(state[i]);
      }
    }
  }

  // The coefficients of all basis functions, all [functions][values]. A point whose frames do not
  // tell a cycle has their mean; one without any, NaN.
  void solve(std::vector<std::vector<float>>& coefficients) const {
    std::vector<Eigen::MatrixXd> inverses;
    for (const Group& group : groups_) inverses.push_back(inverse_of(group.products));
    for (std::size_t one = 0; one < sums_.size(); ++one) {
      for (std::size_t i = 0; i < group_of_.size(); ++i) {
        const Eigen::MatrixXd& inverse = inverses[group_of_[i]];
        double coefficient = 0;
        for (std::size_t other = 0; other < sums_.size(); ++other) {
          coefficient += inverse(static_cast<Eigen::Index>(one), static_cast<Eigen::Index>(other)) *
                         sums_[other][i];
        }
        coefficients[one][i] = static_cast<float>(coefficient);
      }
    }
  }

 private:
  struct Group {
    Eigen::MatrixXd products;
    std::size_t points = 0;
  };

  // Points that lack this frame leave those of their group that have it. Marks the groups that do.
  void split(std::span<const float> state) {
    std::vector<std::size_t> lacking(groups_.size());
    for (std::size_t i = 0; i < state.size(); ++i) {
      if (std::isnan(state[i])) ++lacking[group_of_[i]];
    }
    std::vector<std::uint32_t> becomes(groups_.size());
    absent_.assign(groups_.size(), false);
    for (std::size_t group = 0; group < lacking.size(); ++group) {
      becomes[group] = static_cast<std::uint32_t>(group);
      if (lacking[group] == 0) continue;
      if (lacking[group] == groups_[group].points) {
        absent_[group] = true;
        continue;
      }
      becomes[group] = static_cast<std::uint32_t>(groups_.size());
      groups_[group].points -= lacking[group];
      groups_.push_back({groups_[group].products, lacking[group]});
      absent_.push_back(true);
    }
    for (std::size_t i = 0; i < state.size(); ++i) {
      if (std::isnan(state[i])) group_of_[i] = becomes[group_of_[i]];
    }
  }

  static Eigen::MatrixXd inverse_of(const Eigen::MatrixXd& products) {
    const Eigen::Index functions = products.rows();
    if (functions == 1 || !cover_the_year(products)) {
      Eigen::MatrixXd mean = Eigen::MatrixXd::Zero(functions, functions);
      mean(0, 0) =
          products(0, 0) > 0 ? 1 / products(0, 0) : std::numeric_limits<double>::quiet_NaN();
      return mean;
    }
    return products.ldlt().solve(Eigen::MatrixXd::Identity(functions, functions));
  }

  std::vector<std::uint32_t> group_of_;  // [values]
  std::vector<Group> groups_;
  std::vector<bool> absent_;               // groups that lack the frame that is being added
  std::vector<std::vector<double>> sums_;  // [functions][values]
};

}  // namespace

double year_seconds(data::Calendar calendar) {
  constexpr double day = 86400;
  switch (calendar) {
    case data::Calendar::Days360:
      return 360 * day;
    case data::Calendar::Days365:
      return 365 * day;
    case data::Calendar::Days366:
      return 366 * day;
    case data::Calendar::Julian:
      return 365.25 * day;
    case data::Calendar::Standard:
    case data::Calendar::Gregorian:
      break;
  }
  return 365.2425 * day;
}

void Climatology::check(const data::FieldQuery& query, const std::string& kind) {
  const data::FieldDataset dataset = data::FieldDataset::open(every_frame(query));
  choose_kind(kind, dataset.info(), spread(frames_of(dataset)));
}

Climatology Climatology::of(const data::FieldQuery& query, const std::string& kind,
                            dist::Session& session, bool show_progress) {
  std::optional<data::FieldDataset> dataset;
  std::vector<TimedFrame> frames;
  Climatology made;
  made.path_ = query.path;
  session.agree([&] {
    dataset.emplace(data::FieldDataset::open(every_frame(query)));
    frames = spread(frames_of(*dataset));
    made.kind_ = choose_kind(kind, dataset->info(), frames);
  });
  const data::FieldDatasetInfo& info = dataset->info();
  made.year_seconds_ = made.kind_ == "annual" ? year_seconds(info.calendar) : 0;
  made.frames_ = static_cast<std::int64_t>(frames.size());

  const auto functions = basis_at(0, made.year_seconds_).size();
  const auto values = static_cast<std::size_t>(info.target_values(info.points[0]));
  std::optional<PointSums> sums;
  if (session.rank() == 0) sums.emplace(functions, values);
  data::make_and_take(
      session, "climatology", show_progress, made.frames_,
      [&](std::int64_t place) {
        data::MadeSample read{std::vector<float>(values), {}};
        dataset->read_frame(frames[static_cast<std::size_t>(place)].frame, {}, nullptr,
                            read.values.data());
        return read;
      },
      [&](std::int64_t place, const data::MadeSample& state) {
        const double seconds = frames[static_cast<std::size_t>(place)].seconds;
        sums->add(basis_at(seconds, made.year_seconds_), state.values);
      });
  made.coefficients_.assign(functions, std::vector<float>(values));
  if (sums) sums->solve(made.coefficients_);
  for (std::vector<float>& coefficients : made.coefficients_) {
    const std::size_t bytes = values * sizeof(float);
    std::string text(session.rank() == 0 ? bytes : 0, '\0');
    if (!text.empty()) std::memcpy(text.data(), coefficients.data(), bytes);
    text = session.broadcast(text);
    std::memcpy(coefficients.data(), text.data(), bytes);
  }
  return made;
}

std::string Climatology::description() const {
  return fmt::format("{} of {} frames of {}",
                     kind_ == "annual" ? "mean and two annual harmonics" : "mean", frames_, path_);
}

void Climatology::at(double seconds, std::span<float> values) const {
  const Basis basis = basis_at(seconds, year_seconds_);
  expect(values.size() == coefficients_[0].size(), "a climatology of other fields was asked for");
  std::copy(coefficients_[0].begin(), coefficients_[0].end(), values.begin());
  for (std::size_t one = 1; one < basis.size(); ++one) {
    const auto factor = static_cast<float>(basis[one]);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] += factor * coefficients_[one][i];
  }
}

}  // namespace garonne::train
