#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <thread>

#include "data/fields/field_files.hpp"
#include "data/fields/field_stream.hpp"
#include "data/scratch.hpp"

namespace garonne::data {
namespace {

using testing::expect_io_error;
using testing::query_of;
using testing::Scratch;
using testing::value_at;
using testing::YearlyFile;

// Micro-batch n has the samples 2n and 2n + 1.
std::vector<std::int64_t> pairs(std::int64_t ordinal) {
  return {2 * ordinal, 2 * ordinal + 1};
}

TEST(FieldStream, BatchesAreNormalisedSamplesInOrder) {
  const Scratch scratch;
  YearlyFile year;
  year.frames = 12;
  year.write(scratch.path("1979.h5"));
  FieldQuery query = query_of(scratch.path("1979.h5"));
  query.history = 1;
  query.rollout = 2;
  query.input_channels = {"u10", "z500"};
  query.target_channels = {"z500"};
  FieldStatistics statistics;
  statistics.mode = "channel";
  statistics.inputs.channels = query.input_channels;
  statistics.inputs.mean = {10, 20};
  statistics.inputs.deviation = {2, 4};
  statistics.targets.channels = query.target_channels;
  statistics.targets.mean = {20};
  statistics.targets.deviation = {4};
  const FieldSlab slab{1, 3};
  FieldStream stream(std::make_shared<Reader>(), query, slab, statistics, pairs, 1, 4);
  EXPECT_EQ(stream.info().samples, 9);
  for (std::int64_t ordinal = 1; ordinal < 4; ++ordinal) {
    const FieldBatch batch = stream.next();
    EXPECT_EQ(batch.ordinal, ordinal);
    EXPECT_EQ(batch.samples, pairs(ordinal));
    EXPECT_TRUE(batch.mask.empty());
    std::vector<float> input;
    std::vector<float> target;
    const auto add = [](std::vector<float>& values, std::int64_t frame, std::int64_t channel,
                        float mean, float deviation) {
      for (std::int64_t point = 0; point < 24; ++point) {
        values.push_back((value_at(frame, channel, 1 + point / 8, point % 8) - mean) / deviation);
      }
    };
    for (const std::int64_t sample : batch.samples) {
      for (std::int64_t frame = sample; frame < sample + 2; ++frame) {
        add(input, frame, 0, 10, 2);
        add(input, frame, 2, 20, 4);
      }
    }
    for (std::int64_t step = 0; step < 2; ++step) {
      for (const std::int64_t sample : batch.samples) add(target, sample + 2 + step, 2, 20, 4);
    }
    EXPECT_EQ(batch.input, input);
    EXPECT_EQ(batch.target, target);
  }
  EXPECT_THROW(stream.next(), InternalError);
}

TEST(FieldStream, MaskTellsWhatWasMissing) {
  const Scratch scratch;
  const std::string path = scratch.path("1979.h5");
  const std::size_t spoilt = ((1 * 3 + 2) * 5 + 4) * 8 + 6;  // frame 1, z500, row 4, column 6
  YearlyFile().write(path, [&](std::vector<float>& values) {
    values[spoilt] = std::numeric_limits<float>::quiet_NaN();
  });
  FieldQuery query = query_of(path);
  query.missing = "mask";
  FieldStream stream(std::make_shared<Reader>(), query, {}, {}, pairs, 0, 2);
  const FieldBatch batch = stream.next();  // samples 0 and 1
  ASSERT_EQ(batch.mask.size(), batch.target.size());
  const std::size_t of_target = (2 * 5 + 4) * 8 + 6;       // of sample 0
  const std::size_t of_input = 120 + (2 * 5 + 4) * 8 + 6;  // of sample 1
  for (std::size_t index = 0; index < batch.mask.size(); ++index) {
    EXPECT_EQ(batch.mask[index], index == of_target ? 0.0F : 1.0F);
  }
  EXPECT_EQ(batch.target[of_target], 0.0F);
  EXPECT_EQ(batch.input[of_input], 0.0F);
  EXPECT_EQ(batch.input[of_input + 1], value_at(1, 2, 4, 7));
}

// Frames that no loss looks at are read for the mask alone.
TEST(FieldStream, StepsWithoutATarget) {
  const Scratch scratch;
  const std::string path = scratch.path("1979.h5");
  const std::size_t spoilt = ((1 * 3 + 2) * 5 + 4) * 8 + 6;  // frame 1, z500, row 4, column 6
  YearlyFile().write(path, [&](std::vector<float>& values) {
    values[spoilt] = std::numeric_limits<float>::quiet_NaN();
  });
  FieldQuery query = query_of(path);
  query.push_forward = 1;
  query.rollout = 2;
  query.input_channels = {"t2m"};
  query.target_channels = {"z500"};
  const auto only = [](std::int64_t ordinal) { return std::vector<std::int64_t>{ordinal}; };
  // Of sample 0 frame 1 is between.
  FieldStream refusing(std::make_shared<Reader>(), query, {}, {}, only, 0, 1);
  const FieldBatch batch = refusing.next();
  ASSERT_EQ(batch.target.size(), 2 * 40U);
  for (std::int64_t step = 0; step < 2; ++step) {
    for (std::int64_t point = 0; point < 40; ++point) {
      EXPECT_EQ(batch.target[static_cast<std::size_t>(step * 40 + point)],
                value_at(2 + step, 2, point / 8, point % 8));
    }
  }
  EXPECT_TRUE(batch.mask.empty());
  query.missing = "mask";
  FieldStream masking(std::make_shared<Reader>(), query, {}, {}, only, 0, 1);
  const FieldBatch masked = masking.next();
  EXPECT_EQ(masked.target, batch.target);
  ASSERT_EQ(masked.mask.size(), 3 * 40U);
  for (std::size_t index = 0; index < masked.mask.size(); ++index) {
    EXPECT_EQ(masked.mask[index], index == 4 * 8 + 6 ? 0.0F : 1.0F);
  }
}

// What is not wanted is neither read nor in the batch, and the rest is what it is with all of it.
TEST(FieldStream, PartsOfTheSamples) {
  const Scratch scratch;
  const std::string path = scratch.path("1979.h5");
  YearlyFile().write(path, [&](std::vector<float>& values) {
    values[((2 * 3 + 1) * 5 + 3) * 8 + 2] = std::numeric_limits<float>::quiet_NaN();  // t2m
  });
  FieldQuery query = query_of(path);
  query.push_forward = 1;
  query.rollout = 2;
  query.input_channels = {"u10", "t2m"};
  query.target_channels = {"t2m"};
  query.missing = "mask";
  FieldDataset dataset = FieldDataset::open(query);
  const auto read = [&](FieldParts parts, std::int64_t values) {
    const std::int64_t before = dataset.values_read();
    FieldBatch batch = read_field_batch(dataset, {1, 3}, {}, {2, 1}, parts);
    EXPECT_EQ(dataset.values_read() - before, 2 * values * 3 * 8);
    EXPECT_EQ(batch.samples, (std::vector<std::int64_t>{2, 1}));
    return batch;
  };
  const FieldBatch all = read({}, 2 + 3);
  EXPECT_EQ(std::count(all.mask.begin(), all.mask.end(), 0.0F), 1);
  const FieldBatch nothing = read({false, false, false}, 0);
  EXPECT_TRUE(nothing.input.empty() && nothing.target.empty() && nothing.mask.empty());
  const FieldBatch first = read({true, false, false}, 2);
  EXPECT_EQ(first.input, all.input);
  EXPECT_TRUE(first.target.empty() && first.mask.empty());
  const FieldBatch last = read({false, true, false}, 2);
  EXPECT_EQ(last.target, all.target);
  EXPECT_TRUE(last.input.empty() && last.mask.empty());
  const FieldBatch mask = read({false, false, true}, 3);
  EXPECT_EQ(mask.mask, all.mask);
  EXPECT_TRUE(mask.input.empty() && mask.target.empty());

  // A stream hands it on.
  FieldStream stream(std::make_shared<Reader>(), dataset, {1, 3}, {}, pairs, 0, 1,
                     {.input = true, .target = false, .mask = false});
  const FieldBatch streamed = stream.next();
  EXPECT_EQ(streamed.input, read_field_batch(dataset, {1, 3}, {}, {0, 1}).input);
  EXPECT_TRUE(streamed.target.empty() && streamed.mask.empty());
}

TEST(FieldStream, AnErrorComesWhenItsTurnComes) {
  const Scratch scratch;
  const std::string path = scratch.path("1979.h5");
  YearlyFile().write(path, [&](std::vector<float>& values) {
    values.back() = std::numeric_limits<float>::quiet_NaN();
  });
  FieldStream stream(std::make_shared<Reader>(), query_of(path), {}, {}, pairs, 0);
  EXPECT_NO_THROW(stream.next());
  EXPECT_NO_THROW(stream.next());
  for (int again = 0; again < 2; ++again) {
    expect_io_error(path, "\"fields\"", [&] { stream.next(); });
  }
}

// Batches are read before anybody asks for them, and no more than `depth` of them.
TEST(FieldStream, ReadsAheadOfUse) {
  const Scratch scratch;
  YearlyFile year;
  year.frames = 21;
  year.write(scratch.path("1979.h5"));
  std::atomic<std::int64_t> begun = 0;
  const auto counting = [&](std::int64_t ordinal) {
    ++begun;
    return pairs(ordinal);
  };
  FieldStream stream(std::make_shared<Reader>(), query_of(scratch.path("1979.h5")), {}, {},
                     counting, 0, 10, {}, 3);
  const auto reaches = [&](std::int64_t wanted) {
    for (int wait = 0; wait < 2000 && begun < wanted; ++wait) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return begun == wanted;
  };
  for (std::int64_t taken = 0; taken < 7; ++taken) {
    EXPECT_TRUE(reaches(taken + 3)) << begun;
    EXPECT_EQ(stream.next().samples, pairs(taken));
  }
}

// What was described is not described again, and must be what it was.
TEST(FieldStream, ReadsADatasetAgain) {
  const Scratch scratch;
  const std::string path = scratch.path("1979.h5");
  YearlyFile().write(path);
  FieldDataset dataset = FieldDataset::open(query_of(path));
  EXPECT_EQ(dataset.open_files(), 0);
  FieldStream stream(std::make_shared<Reader>(), dataset, {}, {}, pairs, 0, 2);
  for (const std::int64_t ordinal : {0, 1}) {
    const FieldBatch batch = stream.next();
    const FieldBatch expected = read_field_batch(dataset, {}, {}, pairs(ordinal));
    EXPECT_EQ(batch.input, expected.input);
    EXPECT_EQ(batch.target, expected.target);
  }
  EXPECT_EQ(stream.info().samples, dataset.info().samples);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) + 1);
  expect_io_error(path, "has changed", [&] {
    FieldStream(std::make_shared<Reader>(), dataset, {}, {}, pairs, 0).next();
  });
}

TEST(FieldStream, OpensOnTheReadersThreadAndThrowsHere) {
  const Scratch scratch;
  expect_io_error(scratch.path("no.h5"), "no such file", [&] {
    FieldStream(std::make_shared<Reader>(), query_of(scratch.path("no.h5")), {}, {}, pairs, 0);
  });
}

}  // namespace
}  // namespace garonne::data
