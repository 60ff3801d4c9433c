// Forecasts and climatologies beside plain sums over the same small files.
#include "train/evaluation/field_evaluation.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <numbers>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "data/hdf5/hdf5.hpp"
#include "data/statistics/npy.hpp"
#include "device/cpu_device.hpp"
#include "nn/compute_session.hpp"
#include "train/evaluation/climatology.hpp"
#include "train/evaluation/small_fields.hpp"

namespace garonne::train::test {
namespace {

struct Kept {
  std::size_t sample;
  std::size_t lead;
  double seconds;
  std::vector<float> truth;
  std::vector<float> forecast;
};

struct Evaluated {
  data::SkillSetting setting;
  data::SkillResults results;
  std::vector<Kept> maps;
  std::int64_t peak_bytes = 0;
  std::int64_t planned_peak_bytes = 0;

  double at(const std::vector<double>& values, std::size_t source, std::size_t lead,
            std::size_t channel) const {
    return values[(source * static_cast<std::size_t>(setting.leads) + lead) *
                      setting.channels.size() +
                  channel];
  }
};

Evaluated evaluate(const RunConfig& config, const FieldEvaluationOptions& options) {
  TrainedModel trained = initial_model(config);
  const FieldWorkload workload(trained.config);
  FieldEvaluation evaluation(trained, workload, config.run.directory, options);
  Evaluated made;
  dist::Session session = dist::Session::single();
  made.results = evaluation.run(session, [&](std::size_t sample, std::size_t lead, double seconds,
                                             std::span<const float> truth,
                                             std::span<const float> forecast) {
    made.maps.push_back(
        {sample, lead, seconds, {truth.begin(), truth.end()}, {forecast.begin(), forecast.end()}});
  });
  made.setting = evaluation.setting();
  made.peak_bytes = evaluation.peak_bytes();
  made.planned_peak_bytes = evaluation.planned_peak_bytes();
  return made;
}

double mean_square(std::span<const float> one, std::span<const float> other,
                   const std::vector<double>& weights) {
  double sum = 0;
  for (std::size_t i = 0; i < one.size(); ++i) {
    const double apart = static_cast<double>(one[i]) - static_cast<double>(other[i]);
    sum += weights[i / columns] * apart * apart;
  }
  return sum / static_cast<double>(one.size());
}

TEST(FieldEvaluation, NumbersAreThoseOfTheFields) {
  const Scratch scratch;
  const auto train = random_frames(5 * 2, 1);
  const auto test = random_frames(7 * 2, 2);
  write_frames(scratch.path("train.h5"), {"a", "b"}, train);
  write_frames(scratch.path("test.h5"), {"a", "b"}, test, 100);
  FieldEvaluationOptions options;
  options.lead_steps = 3;
  options.maps = 100;
  const Evaluated made = evaluate(small_config(scratch, "train.h5", "test.h5"), options);

  EXPECT_EQ(made.setting.samples, 4);
  EXPECT_EQ(made.setting.weighting, "cell-area");
  EXPECT_EQ(made.setting.lead_seconds, day);
  EXPECT_EQ(made.setting.sources,
            (std::vector<std::string>{"model", "persistence", "climatology"}));
  EXPECT_LE(made.peak_bytes, made.planned_peak_bytes);
  EXPECT_GT(made.peak_bytes, 0);
  ASSERT_EQ(made.maps.size(), 12U);
  const auto field = [&](const std::vector<float>& frames, std::size_t frame, std::size_t channel) {
    return std::span(frames).subspan((frame * 2 + channel) * plane, plane);
  };
  for (std::size_t channel = 0; channel < 2; ++channel) {
    std::vector<float> usual(plane);
    for (std::size_t i = 0; i < plane; ++i) {
      double sum = 0;
      for (std::size_t frame = 0; frame < 5; ++frame) {
        sum += static_cast<double>(field(train, frame, channel)[i]);
      }
      usual[i] = static_cast<float>(sum / 5);
    }
    for (std::size_t lead = 0; lead < 3; ++lead) {
      std::vector<double> squares(3);
      for (std::size_t sample = 0; sample < 4; ++sample) {
        const Kept& map = made.maps[sample * 3 + lead];
        EXPECT_EQ(map.sample, sample);
        EXPECT_EQ(map.lead, lead);
        EXPECT_EQ(map.seconds, (101 + static_cast<double>(sample + lead)) * day);
        const auto truth = field(test, sample + lead + 1, channel);
        const auto kept = std::span(map.truth).subspan(channel * plane, plane);
        EXPECT_TRUE(std::equal(truth.begin(), truth.end(), kept.begin()));
        const auto& weights = made.setting.row_weights;
        squares[0] +=
            mean_square(std::span(map.forecast).subspan(channel * plane, plane), truth, weights);
        squares[1] += mean_square(field(test, sample, channel), truth, weights);
        squares[2] += mean_square(usual, truth, weights);
      }
      for (std::size_t source = 0; source < 3; ++source) {
        EXPECT_NEAR(made.at(made.results.rmse, source, lead, channel),
                    std::sqrt(squares[source] / 4), 1e-6);
      }
      EXPECT_TRUE(std::isnan(made.at(made.results.anomaly_correlation, 2, lead, channel)));
    }
  }
}

// Persistence is of what is there at the start; the numbers are sums over those points.
TEST(FieldEvaluation, PersistenceIsOfWhatIsThereAtTheStart) {
  const Scratch scratch;
  auto test = random_frames(4, 2);
  const float nothing = std::numeric_limits<float>::quiet_NaN();
  for (std::size_t i = 0; i < 20; ++i) test[i] = nothing;             // of the first start
  for (std::size_t i = 0; i < plane; ++i) test[plane + i] = nothing;  // all of the second
  test[2 * plane + 30] = nothing;                                     // of its truth at lead 2
  write_frames(scratch.path("train.h5"), {"a"}, random_frames(5, 1));
  write_frames(scratch.path("test.h5"), {"a"}, test, 100);
  RunConfig config = small_config(scratch, "train.h5", "test.h5");
  config.data.missing = "mask";
  FieldEvaluationOptions options;
  options.lead_steps = 2;
  const Evaluated made = evaluate(config, options);
  ASSERT_EQ(made.setting.samples, 2);
  // At lead 2 of the first start.
  double squares = 0;
  double bias = 0;
  double weights = 0;
  for (std::size_t i = 20; i < plane; ++i) {
    if (i == 30) continue;
    const double weight = made.setting.row_weights[i / columns];
    const double apart = static_cast<double>(test[i]) - static_cast<double>(test[2 * plane + i]);
    squares += weight * apart * apart;
    bias += weight * apart;
    weights += weight;
  }
  // The second start has nothing that could persist, and counts in no mean.
  EXPECT_NEAR(made.at(made.results.rmse, 1, 1, 0), std::sqrt(squares / weights), 1e-6);
  EXPECT_NEAR(made.at(made.results.bias, 1, 1, 0), bias / weights, 1e-6);
  // Lead 1 of the first start has no truth, the second no state: nothing to compare.
  EXPECT_TRUE(std::isnan(made.at(made.results.rmse, 1, 0, 0)));
  EXPECT_FALSE(std::isnan(made.at(made.results.rmse, 0, 0, 0)));
}

// The second step of a forecast is the first one of a forecast from where the first step led to.
TEST(FieldEvaluation, ForecastsGoOnFromThemselves) {
  const Scratch scratch;
  // "b" is an input that the model does not predict, and its future is known.
  const auto test = random_frames(4 * 2, 3);
  write_frames(scratch.path("train.h5"), {"a", "b"}, random_frames(6 * 2, 4));
  write_frames(scratch.path("test.h5"), {"a", "b"}, test);
  RunConfig config = small_config(scratch, "train.h5", "test.h5");
  config.data.inputs = "a,b";
  config.data.targets = "a";
  config.data.history = 1;
  FieldEvaluationOptions options;
  options.lead_steps = 2;
  const Evaluated two = evaluate(config, options);
  ASSERT_EQ(two.maps.size(), 2U);

  std::vector<float> gone_on(test.begin() + 2 * plane, test.end());  // from the second frame on
  std::copy(two.maps[0].forecast.begin(), two.maps[0].forecast.end(),
            gone_on.begin() + 2 * plane);  // "a" of the next
  write_frames(scratch.path("on.h5"), {"a", "b"}, gone_on);
  config.data.validation = scratch.path("on.h5");
  config.run.directory = scratch.path("on");
  options.lead_steps = 1;
  const Evaluated one = evaluate(config, options);
  ASSERT_EQ(one.maps.size(), 1U);
  ASSERT_EQ(one.maps[0].truth, two.maps[1].truth);
  EXPECT_EQ(one.maps[0].forecast, two.maps[1].forecast);
  EXPECT_NE(two.maps[0].forecast, two.maps[1].forecast);
}

// Normalised data in, the same model: what comes out has the units of the data.
TEST(FieldEvaluation, ForecastsHaveTheUnitsOfTheData) {
  const Scratch scratch;
  auto frames = random_frames(5, 5);
  write_frames(scratch.path("train.h5"), {"a"}, frames);
  FieldEvaluationOptions options;
  options.lead_steps = 3;
  const Evaluated unscaled = evaluate(small_config(scratch, "train.h5", ""), options);
  EXPECT_EQ(unscaled.setting.data, scratch.path("train.h5"));

  for (float& value : frames) value = 270 + 8 * value;
  write_frames(scratch.path("kelvin.h5"), {"a"}, frames);
  std::filesystem::create_directory(scratch.path("statistics"));
  for (const auto& [name, value] : {std::pair{"global_means", 270.0F}, {"global_stds", 8.0F}}) {
    data::write_npy<float>(scratch.path("statistics/") + name + ".npy", {1, 1, 1, 1},
                           std::vector<float>{value});
  }
  RunConfig config = small_config(scratch, "kelvin.h5", "");
  config.data.normalisation = "channel";
  config.data.statistics = scratch.path("statistics");
  config.run.directory = scratch.path("kelvin");
  const Evaluated scaled = evaluate(config, options);
  ASSERT_EQ(scaled.maps.size(), unscaled.maps.size());
  for (std::size_t map = 0; map < scaled.maps.size(); ++map) {
    for (std::size_t i = 0; i < plane; ++i) {
      EXPECT_NEAR(scaled.maps[map].forecast[i], 270 + 8 * unscaled.maps[map].forecast[i], 2e-3);
    }
  }
  EXPECT_NEAR(scaled.results.rmse[0], 8 * unscaled.results.rmse[0], 1e-3);
}

TEST(FieldEvaluation, PairsHaveOneStepAndNoPersistence) {
  const Scratch scratch;
  const auto inputs = random_frames(6, 7);
  const auto targets = random_frames(6, 8);
  auto file = data::Hdf5File::create(scratch.path("pairs.h5"));
  put<float>(file, "nu", {6, rows, columns}, inputs);
  put<float>(file, "tensor", {6, 1, rows, columns}, targets);
  file.close();
  const RunConfig config = small_config(scratch, "pairs.h5", "");
  const Evaluated made = evaluate(config, {});
  EXPECT_EQ(made.setting.sources, (std::vector<std::string>{"model", "climatology"}));
  EXPECT_EQ(made.setting.leads, 1);
  EXPECT_EQ(made.setting.samples, 6);
  EXPECT_EQ(made.setting.weighting, "uniform");
  ASSERT_EQ(made.maps.size(), 1U);
  EXPECT_TRUE(std::equal(made.maps[0].truth.begin(), made.maps[0].truth.end(), targets.begin()));
  FieldEvaluationOptions two;
  two.lead_steps = 2;
  EXPECT_THROW(evaluate(config, two), ConfigError);
}

TEST(FieldEvaluation, WhatCannotBeIsRefused) {
  const Scratch scratch;
  write_frames(scratch.path("train.h5"), {"a"}, random_frames(5, 9));
  const RunConfig config = small_config(scratch, "train.h5", "");
  const auto with = [](auto change) {
    FieldEvaluationOptions options;
    change(options);
    return options;
  };
  EXPECT_EQ(evaluate(config, {}).setting.leads, 4);
  EXPECT_THROW(evaluate(config, with([](auto& o) { o.lead_steps = 5; })), ConfigError);
  EXPECT_THROW(evaluate(config, with([](auto& o) { o.samples = 0; })), ConfigError);
  EXPECT_THROW(evaluate(config, with([](auto& o) { o.weighting = "quadrature"; })), ConfigError);
  // Before anything is computed.
  for (const char* climatology : {"annual", "usual"}) {
    EXPECT_THROW(evaluate(config, with([&](auto& o) { o.climatology = climatology; })),
                 ConfigError);
  }
}

// --- climatology ---

std::vector<float> days_of(std::int64_t count, const std::function<double(double)>& at_day) {
  std::vector<float> frames;
  for (std::int64_t frame = 0; frame < count; ++frame) {
    for (std::size_t i = 0; i < plane; ++i) {
      frames.push_back(
          static_cast<float>(at_day(static_cast<double>(frame)) + 0.1 * static_cast<double>(i)));
    }
  }
  return frames;
}

TEST(Climatology, AnnualCyclesAreFound) {
  const Scratch scratch;
  const auto cycle = [](double at) {
    const double angle = 2 * std::numbers::pi * at / 365.2425;
    return 280 + 12 * std::cos(angle - 0.7) + 3 * std::sin(2 * angle);
  };
  write_frames(scratch.path("years.h5"), {"a"}, days_of(500, cycle));
  data::FieldQuery query;
  query.path = scratch.path("years.h5");
  dist::Session session = dist::Session::single();
  const Climatology found = Climatology::of(query, "auto", session);
  EXPECT_EQ(found.kind(), "annual");
  EXPECT_EQ(found.frames(), 500);
  std::vector<float> state(plane);
  for (const double at : {0.0, 33.0, 250.5, 700.0}) {
    found.at(at * day, state);
    for (std::size_t i = 0; i < plane; ++i) {
      EXPECT_NEAR(state[i], cycle(at) + 0.1 * static_cast<double>(i), 2e-3);
    }
  }
  const Climatology mean = Climatology::of(query, "mean", session);
  double sum = 0;
  for (int at = 0; at < 500; ++at) sum += cycle(at);
  mean.at(77 * day, state);
  EXPECT_NEAR(state[0], sum / 500, 1e-3);
}

TEST(Climatology, LessThanAYearHasAMean) {
  const Scratch scratch;
  write_frames(scratch.path("days.h5"), {"a"}, days_of(300, [](double at) { return at; }));
  data::FieldQuery query;
  query.path = scratch.path("days.h5");
  dist::Session alone = dist::Session::single();
  const Climatology found = Climatology::of(query, "auto", alone);
  EXPECT_EQ(found.kind(), "mean");
  std::vector<float> state(plane);
  found.at(0, state);
  EXPECT_NEAR(state[0], 149.5, 1e-4);
  for (const char* kind : {"annual", "usual"}) {
    EXPECT_THROW(Climatology::of(query, kind, alone), dist::AgreedError);
    EXPECT_THROW(Climatology::check(query, kind), ConfigError);
  }
  Climatology::check(query, "auto");
}

// Days of a cycle that has no value where `there` says so; a yearly file for each stretch of days.
data::FieldQuery stretches(const Scratch& scratch,
                           const std::vector<std::pair<std::int64_t, std::int64_t>>& days,
                           const std::function<double(double)>& at_day,
                           const std::function<bool(std::int64_t, std::size_t)>& there = {}) {
  std::filesystem::create_directories(scratch.path("stretches"));
  for (const auto& [first, count] : days) {
    std::vector<float> frames = days_of(
        count, [&, from = first](double at) { return at_day(static_cast<double>(from) + at); });
    for (std::size_t i = 0; there && i < frames.size(); ++i) {
      if (!there(first + static_cast<std::int64_t>(i / plane), i % plane))
        frames[i] = std::numeric_limits<float>::quiet_NaN();
    }
    write_frames(scratch.path("stretches/" + std::to_string(10000 + first) + ".h5"), {"a"}, frames,
                 static_cast<double>(first));
  }
  data::FieldQuery query;
  query.path = scratch.path("stretches");
  query.missing = "mask";
  return query;
}

double cycle_at(double at) {
  const double angle = 2 * std::numbers::pi * at / 365.2425;
  return 280 + 12 * std::cos(angle - 0.7) + 3 * std::sin(2 * angle);
}

// The span says nothing: what no frame has seen is not made up.
TEST(Climatology, PartsOfTheYearHaveAMean) {
  struct Case {
    std::vector<std::pair<std::int64_t, std::int64_t>> days;  // first, count
    const char* kind;
    const char* words;
  };
  for (const auto& [days, kind, words] :
       {Case{{{354, 12}, {719, 12}}, "mean", "leave out 354 days in a row"},  // two new years
        Case{{{152, 92}, {517, 92}}, "mean", "leave out 274 days in a row"},  // two summers
        Case{{{0, 273}, {365, 273}}, "mean", "leave out 93 days in a row"},   // no autumn
        Case{{{0, 305}, {365, 305}}, "annual", ""},                           // two months left out
        Case{{{0, 100}, {465, 266}}, "annual", ""}}) {                        // a year in two parts
    const Scratch scratch;
    const data::FieldQuery query = stretches(scratch, days, cycle_at);
    dist::Session session = dist::Session::single();
    const Climatology found = Climatology::of(query, "auto", session);
    EXPECT_EQ(found.kind(), kind);
    std::vector<float> state(plane);
    for (int at = 0; at < 365; at += 13) {
      found.at(at * day, state);
      EXPECT_NEAR(state[0], cycle_at(at), found.kind() == "annual" ? 0.01 : 30) << days[0].second;
    }
    if (*words == 0) {
      EXPECT_NO_THROW(Climatology::check(query, "annual"));
      continue;
    }
    try {
      Climatology::check(query, "annual");
      ADD_FAILURE() << "was not refused";
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.key(), "--climatology");
      EXPECT_NE(error.reason().find(words), std::string::npos) << error.reason();
    }
  }
}

// Each point is that of the frames that have a value there, by a fit of its own.
TEST(Climatology, MissingValuesTakeNothingFromOthers) {
  const Scratch scratch;
  const auto there = [](std::int64_t frame, std::size_t point) {
    if (point == 3) return false;                      // land
    if (point == 4) return frame % 365 < 180;          // ice in half of the year
    if (point == 5) return frame % 7 != 2;             // a satellite's gaps
    if (point == 6 || point == 7) return frame != 31;  // a day
    return frame != 77;                                // a frame
  };
  const data::FieldQuery query = stretches(scratch, {{0, 730}}, cycle_at, there);
  dist::Session session = dist::Session::single();
  const Climatology found = Climatology::of(query, "auto", session);
  EXPECT_EQ(found.kind(), "annual");
  std::vector<float> state(plane);
  double half = 0;
  for (int at = 0; at < 180; ++at) half += (cycle_at(at) + cycle_at(at + 365)) / 360;
  for (const double at : {0.0, 31.0, 77.0, 250.5, 700.0}) {
    found.at(at * day, state);
    for (std::size_t point = 0; point < plane; ++point) {
      const double level = 0.1 * static_cast<double>(point);
      if (point == 3) {
        EXPECT_TRUE(std::isnan(state[point]));
      } else if (point == 4) {
        EXPECT_NEAR(state[point], half + level, 2e-3);
      } else {
        EXPECT_NEAR(state[point], cycle_at(at) + level, 5e-3) << point << " at " << at;
      }
    }
  }
  const Climatology mean = Climatology::of(query, "mean", session);
  mean.at(0, state);
  double sum = 0;
  for (int at = 0; at < 730; ++at) sum += at == 77 ? 0 : cycle_at(at) / 729;
  EXPECT_NEAR(state[0], sum, 1e-3);
  EXPECT_TRUE(std::isnan(state[3]));
}

}  // namespace
}  // namespace garonne::train::test
