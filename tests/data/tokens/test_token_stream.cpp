#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

#include "data/hdf5/hdf5.hpp"
#include "data/sample_order.hpp"
#include "data/scratch.hpp"
#include "data/tokens/token_stream.hpp"

namespace garonne::data {
namespace {

using testing::expect_io_error;
using testing::make_token_file;
using testing::random_text;
using testing::read_bytes;
using testing::Scratch;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

TEST(TokenStream, EqualsTheTextOverEpochs) {
  const Scratch scratch;
  const std::string text = random_text(150001, 1);
  const std::string path = make_token_file(scratch, text);
  const std::int64_t sequence = 77;  // does not divide a chunk
  const std::int64_t samples = windows(150001, sequence);
  const SampleOrder order(samples, 3, 20, 4);
  const std::int64_t batch = 12;
  const std::int64_t steps = 2 * samples / batch + 3;
  TokenStream stream(
      path, "tokens", sequence, [&](std::int64_t step) { return order.step_samples(step, batch); },
      1, steps);
  EXPECT_EQ(stream.samples().samples(), samples);
  EXPECT_EQ(stream.samples().vocabulary(), 256);
  for (std::int64_t step = 1; step < steps; ++step) {
    const MicroBatch got = stream.next();
    ASSERT_EQ(got.ordinal, step);
    ASSERT_EQ(got.samples, order.step_samples(step, batch));
    for (std::size_t row = 0; row < got.samples.size(); ++row) {
      for (std::size_t column = 0; column < static_cast<std::size_t>(sequence); ++column) {
        const std::size_t position = static_cast<std::size_t>(got.samples[row] * sequence) + column;
        const std::size_t place = row * static_cast<std::size_t>(sequence) + column;
        ASSERT_EQ(got.tokens[place], static_cast<unsigned char>(text[position]));
        ASSERT_EQ(got.targets[place], static_cast<unsigned char>(text[position + 1]));
      }
    }
    if (step % 50 == 1) {
      const MicroBatch reference = read_micro_batch(path, "tokens", sequence, got.samples);
      ASSERT_EQ(reference.tokens, got.tokens);
      ASSERT_EQ(reference.targets, got.targets);
    }
  }
  EXPECT_THROW(stream.next(), InternalError);
  EXPECT_THROW(stream.next(), InternalError);
}

// Which rank reads a sample, and in what company, does not change it.
TEST(TokenStream, PartsOfTheSamples) {
  const Scratch scratch;
  const std::string path = make_token_file(scratch, random_text(2001, 1));
  const auto order = [](std::int64_t n) { return std::vector<std::int64_t>{3 * n, 19 - n}; };
  TokenStream whole(path, "tokens", 100, order, 0, 5);
  TokenStream first(path, "tokens", 100, order, 0, 5, {.tokens = true, .targets = false});
  TokenStream last(path, "tokens", 100, order, 0, 5, {.tokens = false, .targets = true});
  for (int n = 0; n < 5; ++n) {
    const MicroBatch wanted = whole.next();
    const MicroBatch tokens = first.next();
    const MicroBatch targets = last.next();
    EXPECT_EQ(tokens.tokens, wanted.tokens);
    EXPECT_EQ(targets.targets, wanted.targets);
    EXPECT_TRUE(tokens.targets.empty() && targets.tokens.empty());
    EXPECT_EQ(tokens.samples, wanted.samples);
    EXPECT_EQ(targets.samples, wanted.samples);
  }
}

TEST(TokenStream, IndependentOfTheGrid) {
  const Scratch scratch;
  const std::string path = make_token_file(scratch, random_text(60000, 2));
  const SampleOrder order(windows(60000, 50), 3, 16, 4);
  const auto part = [&](std::int64_t rank, std::int64_t ranks) {
    const std::int64_t count = 24 / ranks;
    return [&order, rank, count](std::int64_t step) {
      const std::vector<std::int64_t> all = order.step_samples(step, 24);
      return std::vector<std::int64_t>(all.begin() + rank * count,
                                       all.begin() + (rank + 1) * count);
    };
  };
  const auto reader = std::make_shared<Reader>();
  TokenStream whole(reader, path, "tokens", 50, part(0, 1), 1);
  std::vector<TokenStream> parts;
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    parts.emplace_back(reader, path, "tokens", 50, part(rank, 3), 1);
  }
  for (int step = 0; step < 100; ++step) {
    const MicroBatch expected = whole.next();
    std::vector<std::int64_t> tokens;
    for (TokenStream& stream : parts) {
      const MicroBatch got = stream.next();
      tokens.insert(tokens.end(), got.tokens.begin(), got.tokens.end());
    }
    ASSERT_EQ(tokens, expected.tokens);
  }
}

TEST(TokenStream, TwoStreamsShareOneReader) {
  const Scratch scratch;
  const std::string validation = random_text(3000, 5);
  const std::string path = make_token_file(scratch, random_text(40000, 4), validation);
  const auto reader = std::make_shared<Reader>();
  const auto in_order = [](std::int64_t ordinal) { return std::vector<std::int64_t>{ordinal}; };
  TokenStream training(reader, path, "tokens", 100, in_order, 0, 300);
  for (int round = 0; round < 5; ++round) {
    TokenStream held_out(reader, path, "validation", 100, in_order, 0, 29);
    for (int index = 0; index < 29; ++index) {
      EXPECT_EQ(held_out.next().tokens[0],
                static_cast<unsigned char>(validation[static_cast<std::size_t>(index) * 100]));
      EXPECT_EQ(training.next().samples[0], round * 29 + index);
    }
  }
}

// A stream without an end: what is read when it goes is what was taken, what may lie ahead of it, and
// the one that is being read.
TEST(TokenStream, DestructorIsPromptWhateverTheState) {
  const Scratch scratch;
  const std::string path = make_token_file(scratch, random_text(40000, 4));
  for (int taken = 0; taken < 50; ++taken) {
    std::atomic<int> read = 0;
    const auto in_order = [&read](std::int64_t ordinal) {
      ++read;
      return std::vector<std::int64_t>{ordinal % 300};
    };
    const int depth = 1 + taken % 5;
    const int used = taken % 7;
    {
      TokenStream stream(path, "tokens", 100, in_order, 0, -1, {}, depth);
      for (int index = 0; index < used; ++index) stream.next();
    }
    EXPECT_LE(read, used + depth + 1) << depth << " ahead";
  }
}

TEST(TokenStream, ErrorsOfTheThreadSurface) {
  const Scratch scratch;
  const std::string text = random_text(200000, 1);
  const std::string path = make_token_file(scratch, text);
  const auto in_order = [](std::int64_t ordinal) { return std::vector<std::int64_t>{ordinal}; };
  {
    TokenStream stream(path, "tokens", 100, in_order, 1995, -1, {}, 2);
    for (int index = 0; index < 4; ++index) EXPECT_NO_THROW(stream.next());
    EXPECT_THROW(stream.next(), InternalError);  // sample 1999 of 1999
    EXPECT_THROW(stream.next(), InternalError);
  }
  {
    TokenStream stream(
        path, "tokens", 100,
        [](std::int64_t) -> std::vector<std::int64_t> { throw ConfigError("a reason"); }, 0);
    EXPECT_THROW(stream.next(), ConfigError);
  }
  std::string bytes = read_bytes(path);
  std::string stored;
  for (std::size_t index = 100000; index < 100016; ++index) stored += {text[index], '\0'};
  bytes[bytes.find(stored)] ^= 1;
  scratch.write("tokens.h5", bytes);
  {
    TokenStream stream(path, "tokens", 100, in_order, 0);
    // Chunk 3 begins at token 98304: sample 983 is the first that needs it.
    for (int index = 0; index < 983; ++index) ASSERT_NO_THROW(stream.next()) << index;
    expect_io_error(path, "\"tokens\"", [&] { stream.next(); });
    expect_io_error(path, "\"tokens\"", [&] { stream.next(); });
  }
  {
    // Where nothing of the samples is wanted, nothing is read that could be wrong.
    TokenStream stream(path, "tokens", 100, in_order, 980, 990,
                       {.tokens = false, .targets = false});
    for (std::int64_t sample = 980; sample < 990; ++sample) {
      const MicroBatch batch = stream.next();
      EXPECT_EQ(batch.samples, std::vector<std::int64_t>{sample});
      EXPECT_TRUE(batch.tokens.empty() && batch.targets.empty());
    }
  }
  expect_io_error(scratch.path("no"), "no such file",
                  [&] { TokenStream(scratch.path("no"), "tokens", 100, in_order, 0); });
}

TEST(TokenStream, FileThatShrinksWhileOpen) {
  const Scratch scratch;
  const std::string path = make_token_file(scratch, random_text(400000, 1));
  const auto in_order = [](std::int64_t ordinal) { return std::vector<std::int64_t>{ordinal}; };
  TokenStream stream(path, "tokens", 100, in_order, 0, -1, {}, 1);
  EXPECT_NO_THROW(stream.next());
  std::filesystem::resize_file(path, 200000);
  expect_io_error(path, "\"tokens\"", [&] {
    for (int index = 0; index < 3000; ++index) stream.next();
  });
}

// HDF5 is not thread-safe: synchronous reads beside a running stream must not disturb it.
TEST(TokenStream, SynchronousReadsBesideIt) {
  const Scratch scratch;
  const std::string path = make_token_file(scratch, random_text(3000000, 1));
  const SampleOrder order(windows(3000000, 100), 1, 8);
  TokenStream stream(
      path, "tokens", 100, [&](std::int64_t step) { return order.step_samples(step, 8); }, 1);
  std::atomic<bool> stop = false;
  std::thread other([&] {
    const std::vector<std::int64_t> samples = {1, 2, 3};
    while (!stop) read_micro_batch(path, "tokens", 100, samples);
  });
  for (int step = 0; step < 2000; ++step) stream.next();
  stop = true;
  other.join();
}

TEST(TokenStream, Throughput) {
  const Scratch scratch;
  {
    std::ofstream stream(scratch.path("training.txt"), std::ios::binary);
    const std::string block = random_text(1U << 20, 1);
    for (int index = 0; index < 128; ++index) stream << block;
  }
  TextConversion conversion;
  conversion.inputs = {scratch.path("training.txt")};
  conversion.output = scratch.path("tokens.h5");
  conversion.show_progress = false;
  auto start = Clock::now();
  const TokenFileInfo info = convert_text(conversion);
  std::printf("convert: %.2f GB/s of text\n", 134.2e-3 / seconds_since(start));
  for (const std::int64_t sequence : {128, 1024}) {
    const SampleOrder order(windows(info.tokens, sequence), 1, shuffle_block(sequence));
    const std::int64_t batch = 8192 / sequence;
    const std::int64_t steps = order.samples() / batch;
    TokenStream stream(
        conversion.output, "tokens", sequence,
        [&](std::int64_t step) { return order.step_samples(step, batch); }, 1);
    start = Clock::now();
    for (std::int64_t step = 1; step <= steps; ++step) stream.next();
    const double taken = seconds_since(start);
    const double tokens = static_cast<double>(steps * batch * sequence);
    std::printf("one shuffled epoch, sequence %d: %.0f million tokens/s, %.2f GB/s of the file\n",
                static_cast<int>(sequence), tokens / taken * 1e-6, tokens * 2 / taken * 1e-9);
  }
}

}  // namespace
}  // namespace garonne::data
