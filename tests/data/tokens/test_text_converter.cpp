#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/hdf5/hdf5.hpp"
#include "data/scratch.hpp"
#include "data/tokenizers/recorded_tokenizers.hpp"
#include "data/tokenizers/tokenizer.hpp"

namespace garonne::data {
namespace {

using testing::expect_io_error;
using testing::json_of;
using testing::left_beside;
using testing::make_token_file;
using testing::random_text;
using testing::read_bytes;
using testing::Scratch;

std::string stored_text(const std::string& path, const std::string& name) {
  const Hdf5File file = Hdf5File::open(path);
  const Hdf5Dataset dataset = file.dataset(name);
  std::vector<std::uint32_t> tokens(static_cast<std::size_t>(dataset.shape()[0]));
  dataset.read(0, std::span<std::uint32_t>(tokens));
  return make_tokenizer("byte")->decode(tokens);
}

TEST(Tokenizer, BytesThereAndBack) {
  const auto tokenizer = make_tokenizer("byte");
  EXPECT_EQ(tokenizer->vocabulary(), 256);
  const std::string text = random_text(1000, 1);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  EXPECT_THROW(tokenizer->decode(std::vector<std::uint32_t>{256}), ConfigError);
  EXPECT_THROW(make_tokenizer("bytes"), ConfigError);
}

TEST(TextConverter, RoundTripOfSeveralFiles) {
  const Scratch scratch;
  // Sizes around the blocks of the converter and the chunks of the file, with and without newlines.
  const std::string one = random_text(32768, 1);
  const std::string two = "no newline at all " + std::string((3U << 20) + 5, 'x');
  const std::string three = random_text((1U << 20), 3) + "\nlast";
  const std::string four = "x";
  TextConversion conversion;
  conversion.inputs = {scratch.write("one", one), scratch.write("two", two),
                       scratch.write("three", three)};
  conversion.validation_inputs = {scratch.write("four", four)};
  conversion.output = scratch.path("out.h5");
  const TokenFileInfo info = convert_text(conversion);

  EXPECT_EQ(stored_text(conversion.output, "tokens"), one + "\n\n" + two + "\n\n" + three);
  EXPECT_EQ(stored_text(conversion.output, "validation"), four);
  EXPECT_FALSE(left_beside(conversion.output));
  EXPECT_EQ(info.tokens, static_cast<std::int64_t>(one.size() + two.size() + three.size() + 4));
  EXPECT_EQ(info.validation_tokens, 1);
  EXPECT_EQ(info.vocabulary, 256);
  EXPECT_EQ(info.tokenizer, "byte");
  EXPECT_EQ(info.format_version, 1);
  EXPECT_EQ(info.bytes_per_token, 2);
  EXPECT_EQ(info.chunk_tokens, token_file_chunk);
  EXPECT_TRUE(info.checksummed);
  ASSERT_EQ(info.sources.size(), 4U);
  EXPECT_EQ(info.sources[0].name, "one");
  EXPECT_EQ(info.sources[0].tokens, 32770);
  EXPECT_EQ(info.sources[2].tokens, static_cast<std::int64_t>(three.size()));
  EXPECT_EQ(info.sources[3].dataset, "validation");
  EXPECT_NO_THROW(verify_token_file(conversion.output));

  const std::string text = describe(inspect_token_file(conversion.output));
  EXPECT_NE(text.find("vocabulary 256"), std::string::npos) << text;
  const nlohmann::json json = token_file_json(info);
  EXPECT_EQ(json.at("tokens"), info.tokens);
  EXPECT_EQ(json.at("sources").size(), 4U);
}

TEST(TextConverter, SaysWhatItReplacedAndWhatEndsAText) {
  const Scratch scratch;
  TextConversion conversion;
  // Latin-1, and a character of four bytes over the edge of two blocks.
  std::string broken((2U << 20) - 2, 'x');
  broken += "\xF0\x9F\x98\x80 caf\xE9 na\xEFve";
  conversion.inputs = {scratch.write("good", "caf\xC3\xA9"), scratch.write("broken", broken)};
  conversion.output = scratch.path("out.h5");
  std::vector<std::string> notes;
  conversion.note = [&](const std::string& note) { notes.push_back(note); };
  conversion.threads = 1;
  conversion.tokenizer = scratch.write("t.json", json_of("gpt2").dump());
  convert_text(conversion);
  ASSERT_EQ(notes.size(), 2U);
  EXPECT_NE(notes[0].find(scratch.path("broken") + " has 2 parts that are no UTF-8"),
            std::string::npos)
      << notes[0];
  EXPECT_NE(notes[1].find(", <|endoftext|>, ends each text"), std::string::npos) << notes[1];
  // A byte is a token of its own.
  notes.clear();
  conversion.tokenizer = "byte";
  convert_text(conversion);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_NE(notes[0].find("an empty line stands between texts"), std::string::npos) << notes[0];
  notes.clear();
  conversion.inputs.pop_back();
  convert_text(conversion);
  EXPECT_TRUE(notes.empty());
}

TEST(TextConverter, ManySourcesFitTheHeader) {
  const Scratch scratch;
  TextConversion conversion;
  for (int index = 0; index < 2000; ++index) {
    // A name that is not UTF-8, too.
    const std::string name = "source_\xFF_" + std::string(60, 'n') + std::to_string(index);
    conversion.inputs.push_back(scratch.write(name, "ab"));
  }
  conversion.output = scratch.path("out.h5");
  const TokenFileInfo info = convert_text(conversion);
  EXPECT_EQ(info.tokens, 2000 * 4 - 2);
  EXPECT_LT(info.sources.size(), 2000U);
  EXPECT_EQ(info.sources.back().name, "others");
  std::int64_t total = 0;
  for (const TokenSource& source : info.sources) total += source.tokens;
  EXPECT_EQ(total, info.tokens);
}

TEST(TextConverter, RefusesBadInputsBeforeWriting) {
  const Scratch scratch;
  const std::string good = scratch.write("good", "text");
  const std::string empty = scratch.write("empty", "");
  TextConversion conversion;
  conversion.output = scratch.path("out.h5");
  const auto run = [&] { convert_text(conversion); };

  EXPECT_THROW(run(), ConfigError);  // nothing to convert
  conversion.inputs = {good, scratch.path("missing")};
  expect_io_error(conversion.inputs[1], "no such file", run);
  conversion.inputs = {empty};
  expect_io_error(empty, "empty", run);
  conversion.inputs = {scratch.path("")};
  expect_io_error(conversion.inputs[0], "not a regular file", run);
  conversion.inputs = {good};
  conversion.validation_inputs = {scratch.path("./good")};
  EXPECT_THROW(run(), ConfigError);  // the same file by another name
  conversion.validation_inputs.clear();
  conversion.tokenizer = "words";
  EXPECT_THROW(run(), ConfigError);
  conversion.tokenizer = "byte";
  conversion.output = good;
  EXPECT_THROW(run(), ConfigError);
  EXPECT_EQ(read_bytes(good), "text");
  conversion.output = scratch.path("no/such/folder.h5");
  EXPECT_THROW(run(), ConfigError);
  EXPECT_FALSE(std::filesystem::exists(scratch.path("out.h5")));
}

TEST(TextConverter, FullDiskLeavesTheOldFile) {
  const Scratch scratch;
  const std::string output = make_token_file(scratch, "the old text");
  const std::string before = read_bytes(output);
  TextConversion conversion;
  conversion.inputs = {scratch.write("large", random_text(4U << 20, 1))};
  conversion.output = output;
  // A limit on the size of files refuses writes as a full disk does. In a child, which must also
  // end well: HDF5 tries again to write what it holds when a process exits.
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {1U << 20, 1U << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      convert_text(conversion);
    } catch (const IoError& error) {
      std::fprintf(stderr, "full disk: %s\n", error.what());
      std::exit(static_cast<int>(error.code()));
    }
    std::exit(100);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "killed by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 5);
  EXPECT_EQ(read_bytes(output), before);
  EXPECT_FALSE(left_beside(output));
}

TEST(TextConverter, ConstantMemory) {
  const Scratch scratch;
  // In a child, whose high-water mark is its own.
  {
    std::ofstream stream(scratch.path("large"), std::ios::binary);
    const std::string block = random_text(1U << 20, 1);
    for (int index = 0; index < 256; ++index) stream << block;
  }
  TextConversion conversion;
  conversion.inputs = {scratch.path("large")};
  conversion.output = scratch.path("out.h5");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    try {
      convert_text(conversion);
    } catch (...) {
      std::exit(1);
    }
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("VmHWM")) std::printf("256 MiB of text converted, %s\n", line.c_str());
    }
    std::exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(inspect_token_file(conversion.output).tokens, std::int64_t{256} << 20);
}

}  // namespace
}  // namespace garonne::data
