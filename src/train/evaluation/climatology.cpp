#include "train/evaluation/climatology.hpp"

#include <fmt/format.h>

#include <Eigen/Cholesky>
#include <algorithm>
#include <cmath>
#include <cstring>
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

std::string choose_kind(const std::string& kind, const data::FieldDatasetInfo& info,
                        const std::vector<TimedFrame>& frames) {
  if (kind != "auto" && kind != "mean" && kind != "annual") {
    throw ConfigError("--climatology", kind, "known are auto, mean, annual");
  }
  bool cycle = info.has_times && !info.pairs && info.frame_seconds > 0;
  if (cycle) {
    const auto [first, last] = std::minmax_element(
        frames.begin(), frames.end(),
        [](const TimedFrame& a, const TimedFrame& b) { return a.seconds < b.seconds; });
    const double year = year_seconds(info.calendar);
    cycle = last->seconds - first->seconds + 2 * info.frame_seconds >= year &&
            info.frame_seconds * frames_of_a_year <= year;
  }
  if (kind == "annual" && !cycle) {
    throw ConfigError(
        "--climatology", kind,
        fmt::format("wants dated frames of at least a year, eight or more of each; {} "
                    "has none such; use mean",
                    info.path));
  }
  return kind == "mean" || !cycle ? "mean" : "annual";
}

// What of a dataset a climatology is made of: its frames, one by one.
data::FieldQuery every_frame(data::FieldQuery query) {
  query.history = query.push_forward = 0;
  query.lead = query.rollout = query.stride = 1;
  return query;
}

// The coefficients of all basis functions, all [functions][values]. Times are shared by all points,
// and with them the matrix of the normal equations.
void solve(const Eigen::MatrixXd& products, const std::vector<std::vector<double>>& sums,
           std::vector<std::vector<float>>& coefficients) {
  const Eigen::MatrixXd inverse =
      products.ldlt().solve(Eigen::MatrixXd::Identity(products.rows(), products.cols()));
  for (std::size_t one = 0; one < sums.size(); ++one) {
    for (std::size_t i = 0; i < sums[one].size(); ++i) {
      double coefficient = 0;
      for (std::size_t other = 0; other < sums.size(); ++other) {
        coefficient += inverse(static_cast<Eigen::Index>(one), static_cast<Eigen::Index>(other)) *
                       sums[other][i];
      }
      coefficients[one][i] = static_cast<float>(coefficient);
    }
  }
}

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
  choose_kind(kind, dataset.info(), frames_of(dataset));
}

Climatology Climatology::of(const data::FieldQuery& query, const std::string& kind,
                            dist::Session& session, bool show_progress) {
  std::optional<data::FieldDataset> dataset;
  std::vector<TimedFrame> frames;
  Climatology made;
  made.path_ = query.path;
  session.agree([&] {
    dataset.emplace(data::FieldDataset::open(every_frame(query)));
    frames = frames_of(*dataset);
    made.kind_ = choose_kind(kind, dataset->info(), frames);
  });
  const data::FieldDatasetInfo& info = dataset->info();
  made.year_seconds_ = made.kind_ == "annual" ? year_seconds(info.calendar) : 0;
  const auto all = static_cast<std::int64_t>(frames.size());
  std::int64_t step = (all + most_frames - 1) / most_frames;
  // Every fourth frame of six-hourly data would always be the same hour of the day.
  if (step % 2 == 0) ++step;
  made.frames_ = (all + step - 1) / step;
  const auto frame_at = [&](std::int64_t place) {
    return frames[static_cast<std::size_t>(place * step)];
  };

  const auto functions = basis_at(0, made.year_seconds_).size();
  const auto values = static_cast<std::size_t>(info.target_values(info.points[0]));
  std::vector<std::vector<double>> sums(functions);
  if (session.rank() == 0) sums.assign(functions, std::vector<double>(values));
  Eigen::MatrixXd products = Eigen::MatrixXd::Zero(static_cast<Eigen::Index>(functions),
                                                   static_cast<Eigen::Index>(functions));
  data::make_and_take(
      session, "climatology", show_progress, made.frames_,
      [&](std::int64_t place) {
        data::MadeSample read{std::vector<float>(values), {}};
        dataset->read_frame(frame_at(place).frame, {}, nullptr, read.values.data());
        return read;
      },
      [&](std::int64_t place, const data::MadeSample& state) {
        const Basis basis = basis_at(frame_at(place).seconds, made.year_seconds_);
        for (std::size_t one = 0; one < functions; ++one) {
          for (std::size_t i = 0; i < values; ++i) {
            sums[one][i] += basis[one] * static_cast<double>(state.values[i]);
          }
          for (std::size_t other = 0; other < functions; ++other) {
            products(static_cast<Eigen::Index>(one), static_cast<Eigen::Index>(other)) +=
                basis[one] * basis[other];
          }
        }
      });
  made.coefficients_.assign(functions, std::vector<float>(values));
  if (session.rank() == 0) solve(products, sums, made.coefficients_);
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
