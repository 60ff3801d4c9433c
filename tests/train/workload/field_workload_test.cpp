// Streams of fields serve what is asked for, and do not read the rest.
#include "train/workload/field_workload.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <string>

#include "base/error.hpp"
#include "data/fields/field_files.hpp"
#include "data/fields/field_match.hpp"
#include "data/statistics/field_statistics.hpp"
#include "train/evaluation/small_fields.hpp"
#include "train/scratch.hpp"

namespace garonne::train {
namespace {

// Frames whose channel t2m, the target, cannot be read anywhere; u10 is the input.
FieldWorkload workload_with_unreadable_targets(const test::Scratch& scratch) {
  data::testing::YearlyFile().write(scratch.path("1979.h5"), [](std::vector<float>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i / 40 % 3 == 1) values[i] = std::numeric_limits<float>::quiet_NaN();
    }
  });
  RunConfig config;
  config.model.kind = "fno";
  config.data.path = scratch.path("1979.h5");
  config.data.inputs = "u10";
  config.data.targets = "t2m";
  config.data.normalisation = "none";
  return FieldWorkload(config);
}

std::unique_ptr<BatchStream> open(const FieldWorkload& workload, std::vector<std::string> values,
                                  const nn::FieldRows& rows) {
  return workload.open(std::make_shared<data::Reader>(), Part::Training,
                       {.samples_of =
                            [](std::int64_t n) {
                              return std::vector<std::int64_t>{n, n + 1};
                            },
                        .first_ordinal = 0,
                        .end_ordinal = 4,
                        .micro_batches = {0, 1},
                        .rows = rows,
                        .values = std::move(values)});
}

TEST(FieldWorkload, WeighsByLatitudesAndNotByMetres) {
  data::FieldDatasetInfo info;
  info.input_frames = 1;
  info.input_channels = info.target_channels = {"t2m"};
  info.points = {3, 2};
  info.grid = "regional";
  info.axes = {"latitude", "longitude"};
  info.coordinates = {{60, 50, 40}, {0, 10}};
  EXPECT_EQ(field_shape({}, info, {}).area_weights, data::area_weights({60, 50, 40}));
  info.axes = {"y", "x"};
  info.coordinates = {{2e6, 1e6, 0}, {0, 1e6}};
  EXPECT_TRUE(field_shape({}, info, {}).area_weights.empty());
}

// Daily training with six-hourly validation, and a resume on other data.
TEST(FieldWorkload, StepsOfTrainingAndValidationAreAlike) {
  const test::Scratch scratch;
  test::write_frames(scratch.path("daily.h5"), {"a"}, test::random_frames(5, 1));
  test::write_frames(scratch.path("later.h5"), {"a"}, test::random_frames(5, 2), 100);
  test::write_frames(scratch.path("dense.h5"), {"a"}, test::random_frames(5, 3), 100, 0.25);
  const FieldWorkload daily(test::small_config(scratch, "daily.h5", "later.h5"));
  try {
    const FieldWorkload refused(test::small_config(scratch, "daily.h5", "dense.h5"));
    FAIL() << "was not refused";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.key(), "data.validation");
    EXPECT_NE(error.reason().find("has steps of 6 h"), std::string::npos) << error.what();
  }
  const FieldWorkload dense(test::small_config(scratch, "dense.h5", ""));
  nlohmann::json manifest = daily.manifest();
  EXPECT_EQ(daily.difference_from(manifest, "c"), "");
  EXPECT_EQ(dense.difference_from(manifest, "c"), "has steps of 6 h, and c has steps of 24 h");
  EXPECT_TRUE(data::same_step(step_in_manifest(manifest, "c"), data::step_of(daily.info())));
  EXPECT_TRUE(step_in_manifest(manifest, "c").calendar);
  // One of before says no step.
  manifest.erase("frame_step");
  EXPECT_EQ(dense.difference_from(manifest, "c"), "");
  EXPECT_FALSE(step_in_manifest(manifest, "c").known());
}

TEST(FieldWorkload, AreasWantLatitudes) {
  const test::Scratch scratch;
  const auto open = [&](std::int64_t columns, const std::string& loss) {
    data::testing::YearlyFile year;
    year.coordinates = false;
    year.columns = columns;
    year.write(scratch.path("1979.h5"));
    RunConfig config = test::small_config(scratch, "1979.h5", "");
    config.train.loss = loss;
    return FieldWorkload(config).facts().fields.area_weights;
  };
  EXPECT_EQ(open(8, "area-l2"), data::area_weights({90, 45, 0, -45, -90}));
  EXPECT_TRUE(open(9, "squared-l2").empty());
  try {
    open(9, "area-l2");
    FAIL() << "was not refused";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.key(), "train.loss");
    EXPECT_NE(error.reason().find("data.json"), std::string::npos) << error.what();
  }
}

// Statistics of what is trained on: those of validation years would leak into it.
TEST(FieldWorkload, SaysWhatMakesItsStatistics) {
  const test::Scratch scratch;
  test::write_frames(scratch.path("years.h5"), {"a", "b", "c"}, test::random_frames(3 * 40, 1));
  RunConfig config = test::small_config(scratch, "years.h5", "");
  config.data.normalisation = "pointwise";
  config.data.period = "1970-01/1970-01";
  config.data.missing = "mask";
  config.data.lead = 2;
  config.data.inputs = "b,a";
  config.data.targets = "c";
  try {
    const FieldWorkload refused(config);
    FAIL() << "was not refused";
  } catch (const ConfigError& error) {
    EXPECT_NE(
        error.reason().find("years.h5 --output FILE.h5 --period 1970-01/1970-01 --channels b,a,c "
                            "--lead 2 --missing mask --pointwise`"),
        std::string::npos)
        << error.what();
  }
}

TEST(FieldWorkload, SaysWhereValidationIsTrainedOn) {
  const test::Scratch scratch;
  const auto frames = test::random_frames(40, 1);
  test::write_frames(scratch.path("a.h5"), {"a"}, frames);
  test::write_frames(scratch.path("copy.h5"), {"a"}, frames);
  test::write_frames(scratch.path("other.h5"), {"a"}, test::random_frames(40, 2));
  const auto note = [&](const std::string& path, const std::string& period,
                        const std::string& validation, const std::string& of_validation) {
    RunConfig config = test::small_config(scratch, path, validation);
    config.data.period = period;
    config.data.validation_period = of_validation;
    const FieldWorkload workload(config);
    EXPECT_EQ(workload.notes().size(), workload.overlap_note().empty() ? 0 : 1U);
    return workload.overlap_note();
  };
  EXPECT_EQ(note("a.h5", "1970-01/1970-01", "", "1970-02/1970-02"), "");
  EXPECT_EQ(note("a.h5", "", "other.h5", ""), "");
  EXPECT_EQ(note("a.h5", "", "", ""), "");
  EXPECT_NE(note("a.h5", "1970-01/1970-01", "", "1970-01-20/")
                .find("1970-01-20 00:00 to 1970-01-31 00:00"),
            std::string::npos);
  EXPECT_NE(note("a.h5", "", "a.h5", "").find("is trained on, and validated with"),
            std::string::npos);
  EXPECT_NE(note("a.h5", "", "copy.h5", "").find("copy.h5 holds what is trained on"),
            std::string::npos);
}

// A run whose data and statistics stayed elsewhere: what a model has to know is in its manifest.
TEST(FieldWorkload, KnowsWhatItWasTrainedOnWithoutTheFiles) {
  const test::Scratch scratch;
  test::write_frames(scratch.path("train.h5"), {"a", "b"}, test::random_frames(6 * 2, 1));
  RunConfig config = test::small_config(scratch, "train.h5", "");
  config.data.normalisation = "channel";
  config.data.statistics = scratch.path("st.h5");
  config.data.targets = "b";
  config.data.history = 1;
  data::FieldQuery query = field_query(config, Part::Training);
  query.windows = false;
  query.target_channels = {};
  dist::Session session = dist::Session::single();
  data::save_field_summaries(scratch.path("st.h5"), data::summarise_fields(query, false, session));
  const FieldWorkload there(config);
  const nlohmann::json saved = nlohmann::json::parse(there.manifest().dump());
  std::filesystem::rename(scratch.path("st.h5"), scratch.path("moved.h5"));
  EXPECT_EQ(FieldWorkload(config, "data.validation", saved).statistics_hash(),
            there.statistics_hash());
  EXPECT_THROW(const FieldWorkload refused(config), IoError);
  std::filesystem::remove(scratch.path("train.h5"));
  const FieldWorkload gone(config, "data.validation", saved);
  EXPECT_EQ(gone.statistics_hash(), there.statistics_hash());
  EXPECT_EQ(gone.manifest(), saved);
  EXPECT_EQ(gone.facts().fields.area_weights, there.facts().fields.area_weights);
  EXPECT_EQ(gone.facts().fields.input_channels, 4);
  EXPECT_EQ(data::difference_of(data::traits_of(gone.info()), data::traits_of(there.info())), "");
  // Manifests of before say too little, and statistics of each point are not kept.
  nlohmann::json older = saved;
  older.erase("grid");
  EXPECT_THROW(FieldWorkload(config, "data.validation", older), IoError);
  config.data.normalisation = "pointwise";
  EXPECT_THROW(FieldWorkload(config, "data.validation", saved), IoError);
}

TEST(FieldWorkload, ServesWhatIsWantedAndReadsNothingElse) {
  const test::Scratch scratch;
  const FieldWorkload workload = workload_with_unreadable_targets(scratch);
  const nn::FieldRows runs{5, {0, 1, nn::FieldRows::none, 4}};
  for (const nn::FieldRows& rows : {nn::FieldRows(), runs}) {
    const auto middle = open(workload, {}, rows);
    const auto first = open(workload, {"input"}, rows);
    for (int n = 0; n < 4; ++n) {
      EXPECT_TRUE(middle->next(n % 2).fields.empty());
      const exec::HostBatch batch = first->next(n % 2);
      EXPECT_EQ(batch.samples, (std::vector<std::int64_t>{n, n + 1}));
      ASSERT_EQ(batch.fields.size(), 1U);
      const std::vector<float>& input = batch.fields.at("input");
      ASSERT_EQ(input.size(), rows.cut() ? 2 * 4 * 8U : 2 * 5 * 8U);
      EXPECT_EQ(input.back(), data::testing::value_at(n + 1, 0, 4, 7));
    }
    EXPECT_THROW(open(workload, {"input", "target"}, rows)->next(0), IoError);
    EXPECT_THROW(open(workload, {"input"}, rows)->next(1), InternalError);
  }
}

}  // namespace
}  // namespace garonne::train
