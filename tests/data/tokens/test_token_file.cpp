#include <gtest/gtest.h>

#include <functional>

#include "data/hdf5/hdf5.hpp"
#include "data/scratch.hpp"
#include "data/tokenizers/tokenizer.hpp"
#include "data/tokens/token_stream.hpp"

namespace garonne::data {
namespace {

using testing::expect_io_error;
using testing::make_token_file;
using testing::random_text;
using testing::read_bytes;
using testing::Scratch;

// What every consumer does first.
std::function<void()> inspect(const std::string& path) {
  return [path] { inspect_token_file(path); };
}

TEST(TokenFile, WindowsLeaveRoomForTheLastTarget) {
  EXPECT_EQ(windows(0, 4), 0);
  EXPECT_EQ(windows(4, 4), 0);
  EXPECT_EQ(windows(5, 4), 1);
  EXPECT_EQ(windows(9, 4), 2);
}

TEST(TokenFile, MissingEmptyOrForeign) {
  const Scratch scratch;
  expect_io_error(scratch.path("no"), "no such file", inspect(scratch.path("no")));
  expect_io_error(scratch.path("no/no"), "no such file", inspect(scratch.path("no/no")));
  expect_io_error(scratch.path(""), "not a regular file", inspect(scratch.path("")));
  const std::string empty = scratch.write("empty", "");
  expect_io_error(empty, "empty", inspect(empty));
  const std::string text = scratch.write("text", "To be, or not to be: that is the question.");
  expect_io_error(text, "not an HDF5 file", inspect(text));
  const std::string brief = scratch.write("brief", "x");
  expect_io_error(brief, "not an HDF5 file", inspect(brief));
}

TEST(TokenFile, TruncatedAnywhere) {
  const Scratch scratch;
  const std::string path = make_token_file(scratch, random_text(200000, 1));
  const std::string whole = read_bytes(path);
  const std::string cut = scratch.path("cut.h5");
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{4}, std::size_t{8}, std::size_t{12}, std::size_t{30},
        std::size_t{47}, std::size_t{96}, std::size_t{800}, std::size_t{2048}, whole.size() / 3,
        whole.size() / 2, whole.size() * 9 / 10, whole.size() - 1}) {
    scratch.write("cut.h5", whole.substr(0, bytes));
    expect_io_error(cut, "truncated", inspect(cut));
  }
}

TEST(TokenFile, FlippedByteIsCaughtByTheChecksum) {
  const Scratch scratch;
  const std::string text = random_text(200000, 1);
  const std::string path = make_token_file(scratch, text);
  std::string bytes = read_bytes(path);
  // The stored form of a piece of the text, which tells where its chunk lies.
  std::string stored;
  for (std::size_t index = 100000; index < 100016; ++index) stored += {text[index], '\0'};
  const std::size_t position = bytes.find(stored);
  ASSERT_NE(position, std::string::npos);
  bytes[position] = static_cast<char>(bytes[position] ^ 1);
  scratch.write("tokens.h5", bytes);
  EXPECT_NO_THROW(inspect_token_file(path));
  const std::string message = expect_io_error(path, "tokens", [&] { verify_token_file(path); });
  EXPECT_NE(message.find("letcher"), std::string::npos) << message;
  const std::vector<std::int64_t> samples = {0, 999};
  expect_io_error(path, "\"tokens\"", [&] { read_micro_batch(path, "tokens", 100, samples); });
  const std::vector<std::int64_t> elsewhere = {0, 1, 2};
  EXPECT_NO_THROW(read_micro_batch(path, "tokens", 100, elsewhere));
}

// Damage anywhere in the file is an IoError or harmless, never a wrong token, a crash or a hang.
TEST(TokenFile, RandomDamageNeverGivesWrongTokens) {
  const Scratch scratch;
  const std::string text = random_text(50000, 1);
  const std::string path = make_token_file(scratch, text);
  const std::string whole = read_bytes(path);
  std::mt19937 generator(7);
  int refused = 0;
  for (int attempt = 0; attempt < 200; ++attempt) {
    std::string damaged = whole;
    // Half of the attempts in the metadata at the front.
    const std::size_t range = attempt % 2 == 0 ? 4096 : whole.size();
    for (int byte = 0; byte < 3; ++byte) {
      damaged[generator() % range] = static_cast<char>(generator() & 0xFFU);
    }
    scratch.write("tokens.h5", damaged);
    try {
      const std::vector<std::int64_t> samples = {0, 1, 2, 3, 4};
      inspect_token_file(path);
      const MicroBatch batch = read_micro_batch(path, "tokens", 9999, samples);
      for (std::size_t index = 0; index < batch.tokens.size(); ++index) {
        ASSERT_EQ(batch.tokens[index], static_cast<unsigned char>(text[index])) << attempt;
      }
    } catch (const IoError& error) {
      EXPECT_EQ(error.path(), path);
      ++refused;
    }
  }
  EXPECT_GT(refused, 10);
}

// Writes a file that is right but for what `spoil` leaves out or does wrong.
struct Contents {
  std::string format = token_file_format;
  std::int64_t version = 1;
  std::int64_t vocabulary = 256;
  bool with_vocabulary = true;
  bool vocabulary_as_text = false;
  std::string dataset = "tokens";
  std::string sources = {};
  std::vector<std::uint16_t> tokens = std::vector<std::uint16_t>(1000, 65);
};

std::string write(const Scratch& scratch, const Contents& contents) {
  const std::string path = scratch.path("own.h5");
  Hdf5File file = Hdf5File::create(path);
  file.write_attribute("format", contents.format);
  file.write_attribute("format_version", contents.version);
  file.write_attribute("tokenizer", "byte");
  if (contents.vocabulary_as_text) {
    file.write_attribute("vocabulary", "many");
  } else if (contents.with_vocabulary) {
    file.write_attribute("vocabulary", contents.vocabulary);
  }
  if (!contents.sources.empty()) file.write_attribute("sources", contents.sources);
  {
    Hdf5Dataset dataset = file.create_growing<std::uint16_t>(contents.dataset, 4096);
    dataset.append(std::span<const std::uint16_t>(contents.tokens));
  }
  file.close();
  return path;
}

TEST(TokenFile, ForeignHdf5) {
  const Scratch scratch;
  const std::string path = scratch.path("own.h5");
  EXPECT_NO_THROW(inspect_token_file(write(scratch, {})));
  write(scratch, {.format = "weather"});
  expect_io_error(path, "\"format\" is \"weather\"", inspect(path));
  write(scratch, {.version = 2});
  expect_io_error(path, "\"format_version\" is 2", inspect(path));
  write(scratch, {.vocabulary = 0});
  expect_io_error(path, "\"vocabulary\" is 0", inspect(path));
  write(scratch, {.with_vocabulary = false});
  expect_io_error(path, "attribute \"vocabulary\" is missing", inspect(path));
  write(scratch, {.vocabulary_as_text = true});
  expect_io_error(path, "attribute \"vocabulary\" is not an integer", inspect(path));
  write(scratch, {.dataset = "words"});
  expect_io_error(path, "dataset \"tokens\" is missing", inspect(path));
  write(scratch, {.sources = "{\"a\": 1}"});
  expect_io_error(path, "\"sources\"", inspect(path));
  write(scratch, {.sources = "not json"});
  expect_io_error(path, "\"sources\"", inspect(path));
  {
    Hdf5File file = Hdf5File::create(path);
    file.close();
  }
  expect_io_error(path, "attribute \"format\" is missing", inspect(path));
}

TEST(TokenFile, WrongDatasetOrTooShort) {
  const Scratch scratch;
  const std::string path = write(scratch, {});
  const std::vector<std::int64_t> samples = {0};
  expect_io_error(path, "no dataset \"test\"", [&] { read_micro_batch(path, "test", 9, samples); });
  expect_io_error(path, "\"validation\" has 0 tokens",
                  [&] { read_micro_batch(path, "validation", 9, samples); });
  expect_io_error(path, "\"tokens\" has 1000 tokens",
                  [&] { read_micro_batch(path, "tokens", 1000, samples); });
  EXPECT_NO_THROW(read_micro_batch(path, "tokens", 999, samples));
  EXPECT_THROW(read_micro_batch(path, "tokens", 0, samples), ConfigError);
  const std::vector<std::int64_t> beyond = {999};
  EXPECT_THROW(read_micro_batch(path, "tokens", 9, beyond), InternalError);
}

TEST(TokenFile, TokenOutsideTheVocabulary) {
  const Scratch scratch;
  Contents contents;
  contents.tokens[777] = 256;
  const std::string path = write(scratch, contents);
  EXPECT_NO_THROW(inspect_token_file(path));
  expect_io_error(path, "token 256 at 777", [&] { verify_token_file(path); });
}

TEST(TokenFile, Wide) {
  const Scratch scratch;
  const std::string path = scratch.path("wide.h5");
  Hdf5File file = Hdf5File::create(path);
  file.write_attribute("format", token_file_format);
  file.write_attribute("format_version", 1);
  file.write_attribute("tokenizer", "other");
  file.write_attribute("vocabulary", 100000);
  std::vector<std::uint32_t> tokens(20001);
  for (std::size_t index = 0; index < tokens.size(); ++index) {
    tokens[index] = static_cast<std::uint32_t>(index * 4);
  }
  {
    Hdf5Dataset dataset = file.create_growing<std::uint32_t>("tokens", 5000);
    dataset.append(std::span<const std::uint32_t>(tokens));
  }
  file.close();
  EXPECT_EQ(inspect_token_file(path).bytes_per_token, 4);
  // Tokens of what is not known here are tokens all the same.
  EXPECT_EQ(inspect_token_file(path).tokenizer, "other");
  EXPECT_EQ(read_tokenizer(path), nullptr);
  const std::vector<std::int64_t> samples = {19, 0};
  const MicroBatch batch = read_micro_batch(path, "tokens", 1000, samples);
  EXPECT_EQ(batch.tokens[0], 19000 * 4);
  EXPECT_EQ(batch.targets[999], 20000 * 4);
  EXPECT_EQ(batch.tokens[1000], 0);
}

}  // namespace
}  // namespace garonne::data
