#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "base/error.hpp"
#include "data/scratch.hpp"
#include "data/tokenizers/sentencepiece_encoder.hpp"
#include "data/tokenizers/tokenizer.hpp"
#include "data/tokens/text_converter.hpp"

namespace garonne::data {
namespace {

using testing::read_bytes;
using testing::Scratch;
using Ids = std::vector<std::uint32_t>;

const std::string& folder() {
  static const std::string path =
      std::string(GARONNE_SOURCE_DIR) + "/tests/data/tokenizers/sentencepiece";
  return path;
}

// What SentencePiece's package made (tests/peer/make_sentencepiece_values.py).
const nlohmann::json& recorded_sentencepieces() {
  static const nlohmann::json values = nlohmann::json::parse(read_bytes(folder() + "/ids.json"));
  return values;
}

std::vector<std::string> sentencepiece_kinds() {
  std::vector<std::string> names;
  for (const auto& [name, ids] : recorded_sentencepieces().at("ids").items()) names.push_back(name);
  return names;
}

std::string bytes_of(const std::string& kind) {
  return read_bytes(folder() + "/" + kind + ".model");
}

std::unique_ptr<Tokenizer> tokenizer_of(const std::string& kind) {
  return open_tokenizer(folder() + "/" + kind + ".model");
}

std::vector<std::string> sentencepiece_texts() {
  std::vector<std::string> all;
  for (const std::string hex : recorded_sentencepieces().at("texts")) {
    std::string text;
    for (std::size_t i = 0; i < hex.size(); i += 2)
      text += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    all.push_back(text);
  }
  return all;
}

// Long enough that it is cut many times.
std::string long_text(std::mt19937& generator) {
  std::string text;
  while (text.size() < (1U << 20)) {
    for (const std::string& part : sentencepiece_texts()) {
      if (generator() % 3 == 0) text += part;
      if (generator() % 3 == 0) text += " \n"[generator() % 2];
      if (generator() % 200 == 0) text += std::string(generator() % 3000, "a =7"[generator() % 4]);
    }
  }
  return text;
}

TEST(SentencePieces, HaveTheIdsOfSentencePiece) {
  ASSERT_EQ(sentencepiece_kinds().size(), 7U);
  for (const std::string& kind : sentencepiece_kinds()) {
    const auto tokenizer = tokenizer_of(kind);
    const auto all = sentencepiece_texts();
    for (std::size_t i = 0; i < all.size(); ++i)
      EXPECT_EQ(tokenizer->encode(all[i]),
                recorded_sentencepieces().at("ids").at(kind)[i].get<Ids>())
          << kind << ", text " << i << ": " << all[i];
  }
}

TEST(SentencePieces, AreTheSameInBlocksAndThreads) {
  std::mt19937 generator(7);
  const std::string text = long_text(generator);
  for (const std::string& kind : sentencepiece_kinds()) {
    const auto tokenizer = tokenizer_of(kind);
    const Ids whole = tokenizer->encode(text);
    for (const int threads : {1, 3}) {
      const auto encoder = tokenizer->encoder(threads);
      Ids ids;
      for (const std::size_t most : {std::size_t{1} << 20, std::size_t{9000}}) {
        // The same encoder, for one text after the other.
        ids.clear();
        for (std::size_t place = 0; place < text.size();) {
          const std::size_t bytes = std::min(text.size() - place, 1 + generator() % most);
          encoder->add(std::as_bytes(std::span(text).subspan(place, bytes)), ids);
          place += bytes;
        }
        encoder->finish(ids);
        EXPECT_EQ(ids, whole) << kind << " " << threads << " threads";
      }
    }
  }
}

// A text in one piece, which sections must not show through: merges are the same in both, and what
// a unigram model takes for the likeliest is, where sums have no digits to lose.
TEST(SentencePieces, CutsChangeNothing) {
  std::mt19937 generator(8);
  const std::string text = long_text(generator).substr(0, 400000);
  for (const std::string& kind : sentencepiece_kinds()) {
    const SentencePieceRules rules(read_sentencepiece(bytes_of(kind), kind, FileOwner::User));
    const bool merges = rules.model.algorithm == SentencePieceModel::Algorithm::Bpe;
    SectionEncoder encoder(rules);
    std::size_t cuts = 0;
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{50}, std::size_t{5000}}) {
      const std::string_view part = std::string_view(text).substr(0, bytes * 2000);
      Ids whole;
      encoder.encode(part, {}, whole);
      Ids in_sections;
      for (std::size_t begin = 0; begin < part.size();) {
        const auto cut = rules.normaliser.find_cut(part, begin + bytes, /*complete=*/true);
        const std::size_t end = cut.value_or(part.size());
        Ids ids;
        encoder.encode(part.substr(begin, end - begin), {begin == 0, !cut}, ids);
        in_sections.insert(in_sections.end(), ids.begin(), ids.end());
        begin = end;
        ++cuts;
      }
      if (merges) {
        EXPECT_EQ(in_sections, whole) << kind << ", sections of " << bytes;
      } else {
        double likely[2] = {0, 0};
        for (const std::uint32_t id : whole) likely[0] += double{rules.model.pieces[id].score};
        for (const std::uint32_t id : in_sections)
          likely[1] += double{rules.model.pieces[id].score};
        EXPECT_NEAR(likely[1] / likely[0], 1, 1e-6) << kind << ", sections of " << bytes;
      }
    }
    EXPECT_GT(cuts, 200U) << kind;
  }
}

TEST(SentencePieces, DecodeWhatTheyEncode) {
  const std::string text = "The river, größer and 日本: 12345\n\tiver  <left> e\u0301";
  for (const std::string kind : {"bpe-bytes"}) {
    const auto tokenizer = tokenizer_of(kind);
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), " " + text);
    // Token by token, as they are generated.
    std::string made;
    for (const std::uint32_t id : tokenizer->encode(text)) made += tokenizer->decode(Ids{id});
    EXPECT_EQ(made, " " + text);
  }
  const auto tokenizer = tokenizer_of("unigram");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("a  \u24d0 b")), " a  \u2047  b");
  EXPECT_EQ(tokenizer->decode(Ids{1, 2}), "");
  EXPECT_EQ(tokenizer->begin_of_text(), 1U);
  EXPECT_EQ(tokenizer->end_of_text(), 2U);
  const auto vocabulary = static_cast<std::uint32_t>(tokenizer->vocabulary());
  EXPECT_THROW((void)tokenizer->decode(Ids{vocabulary}), ConfigError);
}

TEST(SentencePieces, TravelInTheTokensFile) {
  const Scratch scratch;
  TextConversion conversion;
  conversion.inputs = {scratch.write("text.txt", sentencepiece_texts()[0]),
                       scratch.write("b.txt", sentencepiece_texts()[1])};
  conversion.output = scratch.path("tokens.h5");
  conversion.tokenizer = folder() + "/bpe-bytes.model";
  conversion.show_progress = false;
  const TokenFileInfo info = convert_text(conversion);
  EXPECT_EQ(info.tokenizer.substr(0, 14), "sentencepiece:");
  EXPECT_EQ(info.vocabulary, 556);
  const auto tokenizer = read_tokenizer(conversion.output);
  EXPECT_EQ(tokenizer->description(), bytes_of("bpe-bytes"));
  EXPECT_EQ(tokenizer->name(), info.tokenizer);
  EXPECT_EQ(tokenizer_file(info.tokenizer), "tokenizer.model");
  // A token that ends a text behind each file.
  EXPECT_EQ(static_cast<std::size_t>(info.tokens),
            tokenizer->encode(sentencepiece_texts()[0]).size() +
                tokenizer->encode(sentencepiece_texts()[1]).size() + 2);
  EXPECT_EQ(huggingface_tokenizer(*tokenizer).name, "tokenizer.model");
}

TEST(SentencePieces, AreFoundInFolders) {
  const Scratch scratch;
  scratch.write("tokenizer.model", bytes_of("bpe"));
  scratch.write("tokenizer.json", "{}");
  EXPECT_EQ(open_tokenizer(scratch.path(""))->name(), tokenizer_of("bpe")->name());
  // The ranks of another program, by the same name.
  scratch.write("tokenizer.model", "IQ== 0\nIg== 1\n");
  EXPECT_THROW(open_tokenizer(scratch.path("")), ConfigError);
  try {
    open_tokenizer(scratch.path("tokenizer.model"));
    ADD_FAILURE();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("none of its models"), std::string::npos);
  }
}

TEST(SentencePieces, OfAFolderAreAllThatItsFilesName) {
  const Scratch scratch;
  scratch.write("tokenizer.model", bytes_of("bpe"));
  const auto expect_refused = [&](const std::string& part) {
    try {
      open_tokenizer(scratch.path(""));
      ADD_FAILURE() << "not refused: " << part;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
    // The model by itself is what the user names.
    EXPECT_EQ(open_tokenizer(scratch.path("tokenizer.model"))->name(), tokenizer_of("bpe")->name());
  };
  const std::string known = R"({"id": 0, "content": "<unk>"}, {"id": 1, "content": "<s>"})";
  scratch.write("tokenizer.json", R"({"added_tokens": [)" + known + "]}");
  scratch.write("added_tokens.json", R"({"</s>": 2})");
  EXPECT_EQ(open_tokenizer(scratch.path(""))->name(), tokenizer_of("bpe")->name());
  scratch.write("added_tokens.json", R"({"</s>": 2, "<|im_start|>": 32000})");
  expect_refused("added_tokens.json has the token \"<|im_start|>\" with the id 32000");
  scratch.write("added_tokens.json", R"({"</s>": 3})");
  expect_refused("tokenizer.model has it as 2");
  scratch.write("added_tokens.json", "{}");
  scratch.write("tokenizer.json",
                R"({"added_tokens": [)" + known + R"(, {"id": 32000, "content": "[PAD]"}]})");
  expect_refused("tokenizer.json has the token \"[PAD]\"");
}

// Fields that are appended to a message are merged with those before.
TEST(SentencePieces, RefuseByKeyWhatTheyDoNotKnow) {
  const auto expect_refused = [](const std::string& more, const std::string& part) {
    try {
      read_sentencepiece(bytes_of("unigram") + more, "some.model", FileOwner::User);
      ADD_FAILURE() << "not refused: " << part;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  using namespace std::string_literals;
  const auto message = [](char field, const std::string& content) {
    return std::string{static_cast<char>(field << 3 | 2), static_cast<char>(content.size())} +
           content;
  };
  const std::string piece = message(1, "~~~");
  expect_refused(message(2, "\x18\x03"), "trainer_spec.model_type");
  expect_refused(message(1, piece + "\x18\x07"), "pieces[300].type");
  expect_refused(message(1, "\x18\x01"), "pieces[300].piece");
  expect_refused(message(1, piece + "\x18\x02"), "second unknown");
  expect_refused(message(1, message(1, "<0x41>") + "\x18\x06"), "byte");
  expect_refused(message(1, piece + "\x15\x00\x00\xc0\x7f"s), "score");
  expect_refused(message(1, piece) + message(1, piece), "pieces[301].piece");
  expect_refused(message(5, message(2, "abc")), "denormalizer_spec");
  expect_refused(message(3, message(2, "\x04\x00\x00\x00zz"s)), "precompiled_charsmap");
  expect_refused("\x0a\x7f"s, "damaged");
  EXPECT_THROW(read_sentencepiece("", "empty.model", FileOwner::Run), IoError);
}

// Whatever a byte is changed to: refused, or a tokenizer whose tokens are in its vocabulary.
TEST(SentencePieces, DamagedModelsAreRefusedOrWork) {
  std::mt19937 generator(5);
  const auto all = sentencepiece_texts();
  int refused = 0;
  int worked = 0;
  for (const std::string& kind : sentencepiece_kinds()) {
    const std::string whole = bytes_of(kind);
    for (int i = 0; i < 400; ++i) {
      std::string damaged = whole;
      for (auto changes = 1 + generator() % 3; changes > 0; --changes)
        damaged[generator() % damaged.size()] = static_cast<char>(generator());
      if (generator() % 8 == 0) damaged.resize(generator() % damaged.size());
      try {
        const SentencePieceRules rules(read_sentencepiece(damaged, kind, FileOwner::Run));
        SectionEncoder encoder(rules);
        Ids ids;
        for (const std::string& text : all) encoder.encode(text, {}, ids);
        for (const std::uint32_t id : ids) ASSERT_LT(id, rules.model.pieces.size());
        ++worked;
      } catch (const IoError&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(worked, 100);
}

}  // namespace
}  // namespace garonne::data
