// Forecasts beside evaluations of the same states, and beside themselves after an end.
#include "train/evaluation/field_forecast.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <optional>
#include <tuple>

#include "base/error.hpp"
#include "base/file.hpp"
#include "train/evaluation/field_evaluation.hpp"
#include "train/evaluation/small_fields.hpp"

namespace garonne::train::test {
namespace {

struct Made {
  data::ForecastSetting setting;
  std::int64_t made = 0;
  std::int64_t found = 0;
};

Made forecast(const RunConfig& config, const FieldForecastOptions& options,
              const std::string& path) {
  TrainedModel trained = initial_model(config);
  const FieldWorkload workload(trained.config);
  FieldForecast making(trained, workload, config.run.directory, options);
  dist::Session session = dist::Session::single();
  {
    data::ForecastFile file(path, making.setting());
    making.run(session, &file, false);
    file.publish();
  }
  EXPECT_LE(making.peak_bytes(), making.planned_peak_bytes());
  return {making.setting(), making.made(), making.found()};
}

std::vector<float> read_field(const std::string& path, const std::string& name) {
  return data::Hdf5File::open(path).dataset(name).read_all<float>();
}

struct TwoChannels {
  TwoChannels() : test(random_frames(9 * 2, 2)) {
    write_frames(scratch.path("train.h5"), {"a", "b"}, random_frames(5 * 2, 1));
    write_frames(scratch.path("test.h5"), {"a", "b"}, test, 100);
    config = small_config(scratch, "train.h5", "test.h5");
    config.data.history = 1;
  }
  Scratch scratch;
  std::vector<float> test;
  RunConfig config;
};

TEST(FieldForecast, ErrorsAreThoseOfTheEvaluation) {
  const TwoChannels data;
  FieldEvaluationOptions wanted;
  wanted.lead_steps = 3;
  wanted.samples = 3;
  TrainedModel trained = initial_model(data.config);
  const FieldWorkload workload(trained.config);
  FieldEvaluation evaluation(trained, workload, "run", wanted);
  dist::Session session = dist::Session::single();
  const data::SkillResults skill = evaluation.run(session, [](auto&&...) {});
  const data::SkillSetting& setting = evaluation.setting();
  ASSERT_EQ(setting.start_times.size(), 3U);

  FieldForecastOptions options;
  options.steps = 3;
  for (const double seconds : setting.start_times)
    options.from.push_back(data::format_time(seconds, data::Calendar::Gregorian));
  const std::string path = data.scratch.path("x.nc");
  const Made made = forecast(data.config, options, path);
  EXPECT_EQ(made.made, 9);
  for (std::size_t channel = 0; channel < 2; ++channel) {
    // [start, lead, rows, columns]
    const std::vector<float> fields = read_field(path, channel == 0 ? "a" : "b");
    ASSERT_EQ(fields.size(), 9 * plane);
    for (std::size_t lead = 0; lead < 3; ++lead) {
      double squares = 0;
      for (std::size_t start = 0; start < 3; ++start) {
        const auto frame = static_cast<std::size_t>(made.setting.frames[start]) + lead + 1;
        EXPECT_EQ(made.setting.valid_times[start * 3 + lead],
                  (100 + static_cast<double>(frame)) * day);
        for (std::size_t i = 0; i < plane; ++i) {
          const double apart = static_cast<double>(fields[(start * 3 + lead) * plane + i]) -
                               static_cast<double>(data.test[(frame * 2 + channel) * plane + i]);
          squares += setting.row_weights[i / columns] * apart * apart;
        }
      }
      EXPECT_NEAR(skill.rmse[lead * 2 + channel], std::sqrt(squares / (3 * plane)), 1e-6);
    }
  }
}

TEST(FieldForecast, TheLastFrameLeadsIntoTheFuture) {
  const TwoChannels data;
  FieldForecastOptions options;
  options.steps = 2;
  const std::string path = data.scratch.path("x.nc");
  const Made made = forecast(data.config, options, path);
  EXPECT_EQ(made.setting.frames, (std::vector<std::int64_t>{8}));
  EXPECT_EQ(made.setting.valid_times, (std::vector<double>{109 * day, 110 * day}));
  // From one step of it on, as data, the second step is the first.
  std::vector<float> longer = data.test;
  for (const char* channel : {"a", "b"}) {
    const std::vector<float> field = read_field(path, channel);
    longer.insert(longer.end(), field.begin(), field.begin() + plane);
  }
  write_frames(data.scratch.path("longer.h5"), {"a", "b"}, longer, 100);
  FieldForecastOptions on;
  on.steps = 1;
  on.data = data.scratch.path("longer.h5");
  forecast(data.config, on, data.scratch.path("y.nc"));
  for (const char* channel : {"a", "b"}) {
    const std::vector<float> field = read_field(path, channel);
    EXPECT_EQ(read_field(data.scratch.path("y.nc"), channel),
              std::vector<float>(field.begin() + plane, field.end()));
  }
}

TEST(FieldForecast, GoesOnWhereItWasEnded) {
  const TwoChannels data;
  FieldForecastOptions options;
  options.steps = 5;
  options.members = 3;
  options.from = {"3", "5"};
  const std::string whole = data.scratch.path("whole.nc");
  forecast(data.config, options, whole);
  const std::vector<float> wanted = read_field(whole, "a");
  // Ended after `kept` writes, amid members and leads.
  for (const int kept : {0, 1, 4, 17, 29}) {
    const std::string path = data.scratch.path("ended.nc");
    TrainedModel trained = initial_model(data.config);
    const FieldWorkload workload(trained.config);
    FieldForecast making(trained, workload, data.config.run.directory, options);
    {
      data::ForecastFile file(path, making.setting());
      std::vector<float> state(2 * plane);
      for (int number = 0; number < kept; ++number) {
        const auto member = static_cast<std::size_t>(number / 5 % 3);
        const auto start = static_cast<std::size_t>(number / 15);
        for (std::size_t channel = 0; channel < 2; ++channel) {
          const std::vector<float> field = read_field(whole, channel == 0 ? "a" : "b");
          std::copy_n(
              field.begin() +
                  static_cast<std::ptrdiff_t>(
                      ((member * 2 + start) * 5 + static_cast<std::size_t>(number % 5)) * plane),
              plane, state.begin() + static_cast<std::ptrdiff_t>(channel * plane));
        }
        file.write(start, member, state);
      }
      file.keep();
    }
    const Made made = forecast(data.config, options, path);
    EXPECT_EQ(made.found, kept);
    EXPECT_EQ(made.made, 30 - kept);
    EXPECT_EQ(read_field(path, "a"), wanted) << kept;
    EXPECT_FALSE(std::filesystem::exists(path + ".part"));
  }
}

TEST(FieldForecast, MembersDifferByTheirNoise) {
  const TwoChannels data;
  FieldForecastOptions options;
  options.steps = 1;
  const std::string alone = data.scratch.path("alone.nc");
  forecast(data.config, options, alone);
  options.members = 3;
  options.noise = 1e-3;
  const std::string ensemble = data.scratch.path("ensemble.nc");
  forecast(data.config, options, ensemble);
  const std::vector<float> one = read_field(alone, "a");
  const std::vector<float> all = read_field(ensemble, "a");
  ASSERT_EQ(all.size(), 3 * one.size());
  const auto apart = [&](std::size_t first, std::size_t other) {
    double largest = 0;
    for (std::size_t i = 0; i < plane; ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(all[first * plane + i]) -
                                           static_cast<double>(all[other * plane + i])));
    }
    return largest;
  };
  EXPECT_TRUE(std::equal(one.begin(), one.end(), all.begin()));
  for (const double difference : {apart(0, 1), apart(0, 2), apart(1, 2)}) {
    EXPECT_GT(difference, 1e-6);
    EXPECT_LT(difference, 0.1);
  }
  options.seed = 2;
  forecast(data.config, options, data.scratch.path("other.nc"));
  EXPECT_NE(read_field(data.scratch.path("other.nc"), "a"), all);
}

TEST(FieldForecast, WhatComesFromTheDataHasToBeThere) {
  const TwoChannels data;
  RunConfig config = data.config;
  config.data.inputs = "a,b";
  config.data.targets = "a";
  const auto refused = [&](const FieldForecastOptions& options, const std::string& key) {
    try {
      forecast(config, options, data.scratch.path("x.nc"));
      FAIL() << "was not refused";
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(key), std::string::npos) << error.what();
    }
  };
  FieldForecastOptions options;
  options.steps = 2;
  refused(options, "--steps = 2: is more than 1");
  options.steps = 1;
  forecast(config, options, data.scratch.path("one.nc"));
  options.from = {"0"};
  refused(options, "data.history");
  options.from = {"9"};
  refused(options, "is no frame");
  options.from = {"1970-05-01"};
  refused(options, "the nearest is 1970-04-19 00:00");
  options.from = {"1970-02-30"};
  refused(options, "is no date");
  options.from = {"3", "3"};
  refused(options, "is given twice");
}

std::string refusal_of(const RunConfig& config, const FieldForecastOptions& options,
                       const std::string& path) {
  try {
    forecast(config, options, path);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "none";
}

void has(const std::string& text, const char* words) {
  EXPECT_NE(text.find(words), std::string::npos) << text;
}

// The step is that of the training data, whatever the states to start from are.
TEST(FieldForecast, StepsAreThoseOfTheTrainingData) {
  TwoChannels data;
  data.config.data.history = 0;
  const auto from = [&](const std::string& name, std::int64_t frames, double step) {
    write_frames(data.scratch.path(name), {"a", "b"}, random_frames(frames * 2, 3), 200, step);
    FieldForecastOptions options;
    options.steps = 2;
    options.from = {"0"};
    options.data = data.scratch.path(name);
    return forecast(data.config, options, data.scratch.path(name + ".nc")).setting;
  };
  // One frame, frames of two analyses, and ones four times as dense.
  for (const auto& [name, frames, step] :
       {std::tuple{"one.h5", 1, 1.0}, {"two.h5", 2, 60.0}, {"dense.h5", 8, 0.25}}) {
    const data::ForecastSetting setting = from(name, frames, step);
    EXPECT_EQ(setting.valid_times, (std::vector<double>{201 * day, 202 * day})) << name;
    EXPECT_EQ(setting.lead_seconds, day) << name;
  }
  // With frames before the start, or channels that come from the data, those have to fit.
  FieldForecastOptions options;
  options.steps = 2;
  options.data = data.scratch.path("dense.h5");
  options.from = {"2"};
  RunConfig config = data.config;
  config.data.history = 1;
  has(refusal_of(config, options, data.scratch.path("x.nc")),
      "has steps of 6 h, and the model takes frames before its start (data.history) in steps of "
      "24 h");
  config = data.config;
  config.data.targets = "a";
  config.data.inputs = "a,b";
  has(refusal_of(config, options, data.scratch.path("x.nc")),
      "which have steps of 6 h where the model has steps of 24 h");
  options.steps = 1;
  EXPECT_EQ(refusal_of(config, options, data.scratch.path("x.nc")), "none");
}

// A checkpoint keeps the step, for when the data are no longer what they were.
TEST(FieldForecast, StepsAreThoseOfTheManifest) {
  TwoChannels data;
  data.config.data.history = 0;
  TrainedModel trained = initial_model(data.config);
  const FieldWorkload workload(trained.config);
  trained.data = workload.manifest();
  EXPECT_EQ(trained.data["frame_step"]["length"], day);
  trained.data["frame_step"]["length"] = 7 * day;
  FieldForecastOptions options;
  options.steps = 1;
  const FieldForecast making(trained, workload, "run", options);
  EXPECT_EQ(making.setting().valid_times, (std::vector<double>{115 * day}));
  trained.data["frame_step"]["calendar"] = "moons";
  EXPECT_THROW(FieldForecast(trained, workload, "run", options), IoError);
}

// Inputs that are not predicted are of the data, whether or not others are predicted.
TEST(FieldForecast, WhatIsNotPredictedIsOfTheData) {
  TwoChannels data;
  data.config.data.history = 0;
  data.config.data.inputs = "a";
  data.config.data.targets = "b";
  FieldForecastOptions options;
  options.steps = 3;
  options.from = {"6"};
  EXPECT_EQ(refusal_of(data.config, options, data.scratch.path("x.nc")), "none");
  options.steps = 4;
  has(refusal_of(data.config, options, data.scratch.path("y.nc")), "is more than 3: some input");
}

// Frames without dates whose file says how far apart they are.
TEST(FieldForecast, LeadsHaveALengthWhereItIsKnown) {
  const Scratch scratch;
  auto file = data::Hdf5File::create(scratch.path("train.h5"));
  put<float>(file, "fields", {4, 1, rows, columns}, random_frames(4, 1));
  file.close();
  RunConfig config = small_config(scratch, "train.h5", "");
  FieldForecastOptions options;
  options.steps = 2;
  EXPECT_EQ(forecast(config, options, scratch.path("steps.nc")).setting.lead_seconds, 0);
  write_file_durably(scratch.path("data.json"), R"({"dhours": 6})");
  EXPECT_EQ(forecast(config, options, scratch.path("x.nc")).setting.lead_seconds, 6 * 3600);
  const auto written = data::Hdf5File::open(scratch.path("x.nc"));
  EXPECT_EQ(written.dataset("lead").read_all<std::int64_t>(), (std::vector<std::int64_t>{6, 12}));
  EXPECT_EQ(written.attributes("lead").texts("units")[0], "hours");
}

// What another model, or the same one from other states at that path, left is not gone on with.
TEST(FieldForecast, AnotherModelsPartIsRefused) {
  const TwoChannels data;
  FieldForecastOptions options;
  options.steps = 2;
  const std::string path = data.scratch.path("x.nc");
  TrainedModel trained = initial_model(data.config);
  trained.identity = "one";
  const auto open = [&] {
    const FieldWorkload workload(trained.config);
    const FieldForecast making(trained, workload, "run", options);
    const data::ForecastFile file(path, making.setting());
  };
  const auto refusal = [&] {
    try {
      open();
    } catch (const IoError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  open();
  EXPECT_EQ(refusal(), "none");
  trained.identity = "other";
  has(refusal(), "is of another forecast: its model is \"one\"");
  trained.identity = "one";
  auto changed = data.test;
  changed[0] += 1;
  write_frames(data.scratch.path("test.h5"), {"a", "b"}, changed, 100);
  has(refusal(), "its contents is");
}

// The members of `eval` are those of `forecast`, and their scores those of the fields.
TEST(FieldForecast, EnsemblesAreThoseOfTheEvaluation) {
  const TwoChannels data;
  FieldEvaluationOptions wanted;
  wanted.lead_steps = 2;
  wanted.samples = 2;
  wanted.members = 3;
  wanted.noise = 0.3;
  wanted.seed = 9;
  TrainedModel trained = initial_model(data.config);
  const FieldWorkload workload(trained.config);
  FieldEvaluation evaluation(trained, workload, "run", wanted);
  dist::Session session = dist::Session::single();
  const data::SkillResults skill = evaluation.run(session, [](auto&&...) {});
  const data::SkillSetting& setting = evaluation.setting();
  ASSERT_EQ(setting.sources.back(), "ensemble mean");

  FieldForecastOptions options;
  options.steps = 2;
  options.members = 3;
  options.noise = 0.3;
  options.seed = 9;
  for (const double seconds : setting.start_times)
    options.from.push_back(data::format_time(seconds, data::Calendar::Gregorian));
  const std::string path = data.scratch.path("x.nc");
  const Made made = forecast(data.config, options, path);
  const std::vector<float> fields = read_field(path, "b");  // [member, start, lead, points]
  for (std::size_t lead = 0; lead < 2; ++lead) {
    double crps = 0;
    double variance = 0;
    double squares = 0;
    for (std::size_t start = 0; start < 2; ++start) {
      const auto frame = static_cast<std::size_t>(made.setting.frames[start]) + lead + 1;
      for (std::size_t i = 0; i < plane; ++i) {
        const double weight = setting.row_weights[i / columns] / (2 * plane);
        const auto y = static_cast<double>(data.test[(frame * 2 + 1) * plane + i]);
        const auto x = [&](std::size_t member) {
          return static_cast<double>(fields[((member * 2 + start) * 2 + lead) * plane + i]);
        };
        const double mean = (x(0) + x(1) + x(2)) / 3;
        squares += weight * (mean - y) * (mean - y);
        for (std::size_t member = 0; member < 3; ++member) {
          const double other = x((member + 1) % 3);
          crps += weight * (std::abs(x(member) - y) / 3 - std::abs(x(member) - other) / 6);
          variance += weight * (x(member) - mean) * (x(member) - mean) / 2;
        }
      }
    }
    EXPECT_NEAR(skill.crps[lead * 2 + 1], crps, 1e-6);
    EXPECT_NEAR(skill.spread[lead * 2 + 1], std::sqrt(variance), 1e-6);
    EXPECT_NEAR(skill.spread_skill_ratio[lead * 2 + 1], std::sqrt(4.0 / 3 * variance / squares),
                1e-6);
    // Source 3 of 4; the mean was rounded once more.
    EXPECT_NEAR(skill.rmse[(3 * 2 + lead) * 2 + 1], std::sqrt(squares), 1e-6);
    double all = 0;
    for (std::size_t rank = 0; rank < 4; ++rank) all += skill.ranks[(lead * 2 + 1) * 4 + rank];
    EXPECT_NEAR(all, 1, 1e-12);
  }
}

}  // namespace
}  // namespace garonne::train::test
