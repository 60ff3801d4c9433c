#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "data/file_identity.hpp"
#include "data/sample_order.hpp"
#include "data/scratch.hpp"
#include "data/tokens/foreign_tokens.hpp"
#include "data/tokens/token_input.hpp"
#include "data/tokens/token_samples.hpp"
#include "data/tokens/token_stream.hpp"

namespace garonne::data {
namespace {

using testing::expect_io_error;
using testing::make_token_file;
using testing::Scratch;

template <typename T>
std::string bytes_of(std::initializer_list<T> values) {
  return {reinterpret_cast<const char*>(std::data(values)), values.size() * sizeof(T)};
}

template <typename T>
std::string counting(std::int64_t count, std::int64_t modulus) {
  std::string bytes;
  for (std::int64_t i = 0; i < count; ++i) bytes += bytes_of<T>({static_cast<T>(i % modulus)});
  return bytes;
}

std::string llmc(std::int32_t magic, std::int32_t version, std::int32_t tokens) {
  std::string header = bytes_of<std::int32_t>({magic, version, tokens});
  header.resize(1024, '\0');
  return header;
}

struct Megatron {
  std::string magic = std::string("MMIDIDX\0\0", 9);
  std::uint64_t version = 1;
  std::uint8_t code = 8;
  std::vector<std::int32_t> lengths = {4, 0, 6};
  std::vector<std::int64_t> pointers = {0, 8, 8};
  std::vector<std::int64_t> documents = {0, 2, 3};
  std::string tail;
  std::string tokens = counting<std::uint16_t>(10, 1000);

  std::string write(const Scratch& scratch) const {
    std::string index = magic + bytes_of<std::uint64_t>({version}) + static_cast<char>(code) +
                        bytes_of<std::int64_t>({static_cast<std::int64_t>(lengths.size()),
                                                static_cast<std::int64_t>(documents.size())});
    for (const std::int32_t length : lengths) index += bytes_of<std::int32_t>({length});
    for (const std::int64_t pointer : pointers) index += bytes_of<std::int64_t>({pointer});
    for (const std::int64_t document : documents) index += bytes_of<std::int64_t>({document});
    scratch.write("m.bin", tokens);
    return scratch.write("m.idx", index + tail);
  }
};

std::vector<std::int64_t> all_of(const std::string& path, std::int64_t vocabulary = 0) {
  const auto input = open_token_input(path, "tokens", vocabulary, 0);
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(input->tokens()));
  input->copy(0, tokens);
  return tokens;
}

TEST(ForeignTokens, OfLlmc) {
  const Scratch scratch;
  const std::string gpt2 =
      scratch.write("a.bin", llmc(20240520, 1, 70000) + counting<std::uint16_t>(70000, 50257));
  const TokenFileInfo info = inspect_token_file(gpt2);
  EXPECT_EQ(info.format, "llm.c");
  EXPECT_EQ(info.tokens, 70000);
  EXPECT_EQ(info.vocabulary, 50257);
  EXPECT_EQ(info.bytes_per_token, 2);
  const auto tokens = all_of(gpt2);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    ASSERT_EQ(tokens[i], static_cast<std::int64_t>(i % 50257));
  const std::string llama =
      scratch.write("b.bin", llmc(20240801, 7, 3) + bytes_of<std::uint32_t>({1, 128255, 70000}));
  EXPECT_EQ(all_of(llama), (std::vector<std::int64_t>{1, 128255, 70000}));
  EXPECT_EQ(inspect_token_file(llama).vocabulary, 128256);
  EXPECT_NE(identify_token_file(gpt2).contents, identify_token_file(llama).contents);
}

TEST(ForeignTokens, OfNanogpt) {
  const Scratch scratch;
  const std::string path = scratch.write("train.bin", bytes_of<std::uint16_t>({7, 65535, 0, 3}));
  EXPECT_EQ(inspect_token_file(path).format, "nanogpt");
  EXPECT_EQ(inspect_token_file(path).vocabulary, 0);
  EXPECT_EQ(all_of(path), (std::vector<std::int64_t>{7, 65535, 0, 3}));
  expect_io_error(path, "token 65535 at 1", [&] { all_of(path, 50257); });
  EXPECT_EQ(verify_token_file(path), 65535);
}

TEST(ForeignTokens, OfMegatron) {
  const Scratch scratch;
  const Megatron good;
  const std::string index = good.write(scratch);
  const std::vector<std::int64_t> expected = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  for (const std::string& name : {index, scratch.path("m.bin"), scratch.path("m")}) {
    EXPECT_EQ(all_of(name), expected);
    EXPECT_EQ(inspect_token_file(name).documents, 2);
    EXPECT_EQ(inspect_token_file(name).format, "megatron");
  }
  // Numbers of other sizes; signed ones that are no tokens are refused.
  for (const auto& [code, tokens] :
       std::map<std::uint8_t, std::string>{{1, counting<std::uint8_t>(10, 1000)},
                                           {2, counting<std::int8_t>(10, 1000)},
                                           {3, counting<std::int16_t>(10, 1000)},
                                           {4, counting<std::int32_t>(10, 1000)},
                                           {5, counting<std::int64_t>(10, 1000)}}) {
    Megatron other;
    other.code = code;
    other.tokens = tokens;
    const auto size = static_cast<std::int64_t>(tokens.size()) / 10;
    other.pointers = {0, 4 * size, 4 * size};
    other.tail = std::string(3, '\0');  // a mode for each sequence
    EXPECT_EQ(all_of(other.write(scratch)), expected) << int{code};
  }
  Megatron negative;
  negative.code = 3;
  negative.tokens = bytes_of<std::int16_t>({0, 1, -5, 3, 4, 5, 6, 7, 8, 9});
  const std::string path = negative.write(scratch);
  expect_io_error(scratch.path("m.bin"), "token -5 at 2", [&] { all_of(path); });
}

TEST(ForeignTokens, RefusesDamagedHeaders) {
  const Scratch scratch;
  const auto refused = [&](const std::string& bytes, const std::string& part) {
    const std::string path = scratch.write("x.bin", bytes);
    expect_io_error(path, part, [&] { inspect_token_file(path); });
  };
  const std::string tokens = counting<std::uint16_t>(10, 1000);
  refused(llmc(20240520, 2, 10) + tokens, "version 2");
  refused(llmc(20240520, 1, 11) + tokens, "11 tokens");
  refused(llmc(20240520, 1, 9) + tokens, "9 tokens");
  refused(llmc(20240520, 1, -1) + tokens, "-1 tokens");
  refused(llmc(20240520, 1, 10).substr(0, 100), "cut off");
  refused(llmc(20240522, 1, 10) + tokens, "questions");
  refused(llmc(20240326, 3, 10) + tokens, "a model of llm.c");
  refused("", "0 bytes");
  refused("abc", "3 bytes");
  const std::string missing = scratch.path("none.bin");
  expect_io_error(missing, "no such file", [&] { inspect_token_file(missing); });
}

TEST(ForeignTokens, RefusesDamagedIndices) {
  const Scratch scratch;
  const auto refused = [&](auto damage, const std::string& part) {
    Megatron damaged;
    damage(damaged);
    const std::string path = damaged.write(scratch);
    expect_io_error(path, part, [&] { inspect_token_file(path); });
  };
  refused([](Megatron& m) { m.magic[3] = 'x'; }, "MMIDIDX");
  refused([](Megatron& m) { m.version = 2; }, "version 2");
  refused([](Megatron& m) { m.code = 6; }, "code 6");
  refused([](Megatron& m) { m.code = 7; }, "code 7");
  refused([](Megatron& m) { m.code = 0; }, "code 0");
  refused([](Megatron& m) { m.tail = "abcd"; }, "bytes");
  refused([](Megatron& m) { m.documents.pop_back(); }, "last document");
  refused([](Megatron& m) { m.documents.clear(); }, "no end of a document");
  refused([](Megatron& m) { m.documents = {1, 2, 3}; }, "document 0");
  refused([](Megatron& m) { m.documents = {0, 3, 2, 3}; }, "document 2");
  refused([](Megatron& m) { m.documents = {0, 9, 3}; }, "document 1");
  refused([](Megatron& m) { m.lengths[1] = -1; }, "sequence 1");
  refused([](Megatron& m) { m.pointers[2] = 10; }, "sequence 2");
  refused([](Megatron& m) { m.lengths[2] = 7; }, "sequence 2");
  refused([](Megatron& m) { m.lengths[2] = 5; }, "describes 18 bytes");
  refused([](Megatron& m) { m.tokens += "x"; }, "describes 20 bytes");
  // Every shorter index.
  const std::string path = Megatron().write(scratch);
  const std::string whole = testing::read_bytes(path);
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    scratch.write("m.idx", whole.substr(0, bytes));
    expect_io_error(path, "", [&] { inspect_token_file(path); });
  }
  scratch.write("m.idx", whole);
  std::filesystem::remove(scratch.path("m.bin"));
  expect_io_error(scratch.path("m.bin"), "no such file", [&] { inspect_token_file(path); });
}

TEST(TokenSamples, BlendsInProportion) {
  const Scratch scratch;
  // 100, 30 and 7 windows of 8 tokens, told apart by their tokens.
  std::string of_b;
  for (int i = 0; i < 30 * 8 + 1; ++i) of_b += bytes_of<std::uint16_t>({100});
  std::string of_c;
  for (int i = 0; i < 7 * 8 + 5; ++i) of_c += bytes_of<std::uint16_t>({200});
  const std::string a = scratch.write("a.bin", counting<std::uint16_t>(100 * 8 + 1, 50));
  const std::string b = scratch.write("b.bin", of_b);
  const std::string c = scratch.write("c.bin", of_c);
  const auto files = parse_blend("data.path", "0.5*" + a + ", 0.3 * " + b + ",0.2*" + c);
  const TokenSamples samples("data.path", files, "tokens", 8, 300);
  ASSERT_EQ(samples.parts().size(), 3U);
  EXPECT_EQ(samples.parts()[0].samples, 100);
  EXPECT_EQ(samples.parts()[1].samples, 60);
  EXPECT_EQ(samples.parts()[2].samples, 40);
  EXPECT_EQ(samples.samples(), 200);
  EXPECT_EQ(samples.vocabulary(), 300);
  // An epoch has every window, and any stretch of it the proportions.
  std::map<std::pair<std::size_t, std::int64_t>, int> times;
  const SampleOrder order(samples.samples(), 3, 1);
  std::map<std::int64_t, int> first_half;
  for (std::int64_t i = 0; i < samples.samples(); ++i) {
    const std::int64_t sample = order.sample(i);
    ++times[samples.place(sample)];
    const std::vector<std::int64_t> wanted = {sample};
    const MicroBatch batch = read_micro_batch(samples, wanted);
    const std::int64_t token = batch.tokens[0];
    const auto [part, window] = samples.place(sample);
    EXPECT_EQ(token, part == 0 ? window * 8 % 50 : static_cast<std::int64_t>(part) * 100);
    if (i < 100) ++first_half[part == 0 ? 0 : token];
  }
  EXPECT_EQ(times.size(), 137U);
  EXPECT_NEAR(first_half[0], 50, 20);
  EXPECT_NEAR(first_half[100], 30, 18);
  EXPECT_NEAR(first_half[200], 20, 15);
  EXPECT_THROW((void)samples.place(200), InternalError);
  EXPECT_THROW((void)samples.place(-1), InternalError);
}

TEST(TokenSamples, RefusesWhatDoesNotGoTogether) {
  const Scratch scratch;
  const std::string bytes = make_token_file(scratch, std::string(500, 'x'));
  const std::string gpt2 =
      scratch.write("a.bin", llmc(20240520, 1, 100) + counting<std::uint16_t>(100, 50257));
  const std::string raw = scratch.write("raw.bin", counting<std::uint16_t>(100, 200));
  EXPECT_THROW(TokenSamples("data.path", {{1, bytes}, {1, gpt2}}, "tokens", 8), ConfigError);
  // One that does not say its vocabulary has that of the other.
  EXPECT_EQ(TokenSamples("data.path", {{1, raw}, {1, bytes}}, "tokens", 8).vocabulary(), 256);
  expect_io_error(raw, "has 100 tokens", [&] {
    TokenSamples("data.path", {{1, bytes}, {1, raw}}, "tokens", 100);
  });
  // What has no header has 16 bits.
  EXPECT_EQ(TokenSamples("data.path", {{1, raw}}, "tokens", 8, 65664).vocabulary(), 65664);
  try {
    TokenSamples("data.path", {{1, raw}}, "tokens", 8, 128256);
    ADD_FAILURE() << "tokens of 16 bits named 128256";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("cannot name a vocabulary of 128256"),
              std::string::npos)
        << error.what();
  }
  for (const char* text : {"0*a.bin, 1*b.bin", "-1*a.bin,b.bin", "x*a.bin,b.bin", "1*a.bin,",
                           "nan*a.bin, b.bin", "1*", ", a.bin"})
    EXPECT_THROW(parse_blend("data.path", text), ConfigError) << text;
  EXPECT_EQ(parse_blend("data.path", "a.bin")[0].path, "a.bin");
  EXPECT_EQ(parse_blend("data.path", "a.bin, 2*b.bin")[0].weight, 1);
  // A comma in the name of a file that is there.
  const std::string odd = scratch.write("a,b.bin", counting<std::uint16_t>(100, 200));
  EXPECT_EQ(parse_blend("data.path", odd).size(), 1U);
}

TEST(TextConverter, TakesTokensOfOtherPrograms) {
  const Scratch scratch;
  TextConversion conversion;
  conversion.inputs = {Megatron().write(scratch),
                       scratch.write("b.bin", counting<std::uint16_t>(40000, 256))};
  conversion.output = scratch.path("out.h5");
  const TokenFileInfo info = convert_text(conversion);
  EXPECT_EQ(info.tokens, 40010);
  std::vector<std::int64_t> expected = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  for (std::int64_t i = 0; i < 40000; ++i) expected.push_back(i % 256);
  EXPECT_EQ(all_of(conversion.output), expected);
  conversion.inputs = {scratch.write("c.bin", bytes_of<std::uint16_t>({1, 256}))};
  expect_io_error(conversion.inputs[0], "token 256 at 1", [&] { convert_text(conversion); });
  // Tokens alone have no end that was put behind them.
  std::vector<std::string> notes;
  conversion.note = [&](const std::string& note) { notes.push_back(note); };
  conversion.inputs = {Megatron().write(scratch),
                       scratch.write("e.bin", bytes_of<std::uint16_t>({1}))};
  convert_text(conversion);
  EXPECT_TRUE(notes.empty());
  EXPECT_EQ(why_not_of_vocabulary("nanogpt", 65536), "");
  EXPECT_NE(why_not_of_vocabulary("nanogpt", 128256), "");
  EXPECT_EQ(why_not_of_vocabulary("megatron", 128256), "");
  // Whose tokens they are its header says.
  conversion.inputs = {
      scratch.write("d.bin", llmc(20240520, 1, 100) + counting<std::uint16_t>(100, 100))};
  expect_io_error(conversion.inputs[0], "vocabulary of 50257", [&] { convert_text(conversion); });
}

}  // namespace
}  // namespace garonne::data
