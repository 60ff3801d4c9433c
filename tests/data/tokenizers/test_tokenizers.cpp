#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "data/hdf5/hdf5.hpp"
#include "data/scratch.hpp"
#include "data/tokenizers/bpe_description.hpp"
#include "data/tokenizers/bpe_tokenizer.hpp"
#include "data/tokenizers/byte_alphabet.hpp"
#include "data/tokenizers/merge_table.hpp"
#include "data/tokenizers/recorded_tokenizers.hpp"
#include "data/tokenizers/tokenizer.hpp"
#include "data/tokenizers/unicode_text.hpp"
#include "data/tokens/token_file.hpp"

namespace garonne::data {
namespace {

using testing::expect_io_error;
using testing::json_of;
using testing::read_bytes;
using testing::recorded;
using testing::Scratch;
using testing::tokenizer_of;
using Ids = std::vector<std::uint32_t>;

std::vector<std::string> kinds() {
  std::vector<std::string> names;
  for (const auto& [name, value] : recorded().at("tokenizers").items()) names.push_back(name);
  return names;
}

std::vector<std::string> texts() {
  std::vector<std::string> all;
  for (const std::string hex : recorded().at("texts")) {
    std::string text;
    for (std::size_t i = 0; i < hex.size(); i += 2)
      text += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    all.push_back(text);
  }
  return all;
}

Ids in_blocks(const Tokenizer& tokenizer, const std::string& text, int threads,
              std::mt19937& generator, std::size_t largest) {
  const auto encoder = tokenizer.encoder(threads);
  Ids ids;
  for (std::size_t place = 0; place < text.size();) {
    const std::size_t bytes = std::min(text.size() - place, 1 + generator() % largest);
    encoder->add(std::as_bytes(std::span(text).subspan(place, bytes)), ids);
    place += bytes;
  }
  encoder->finish(ids);
  return ids;
}

TEST(Tokenizers, HaveTheIdsOfHuggingFace) {
  const Scratch scratch;
  ASSERT_EQ(kinds().size(), 10U);
  for (const std::string& kind : kinds()) {
    const auto tokenizer = tokenizer_of(kind, scratch);
    const auto all = texts();
    for (std::size_t i = 0; i < all.size(); ++i)
      EXPECT_EQ(tokenizer->encode(all[i]), recorded().at("ids").at(kind)[i].get<Ids>())
          << kind << ", text " << i << ": " << all[i];
  }
}

TEST(Tokenizers, AreTheSameInBlocksAndThreads) {
  const Scratch scratch;
  std::mt19937 generator(7);
  // Long enough that threads share it, with documents and stretches without a newline in it.
  std::string text;
  while (text.size() < (1U << 20)) {
    for (const std::string& part : texts()) {
      if (generator() % 3 == 0) text += part;
      if (generator() % 7 == 0) text += '\n';
      if (generator() % 200 == 0) text += std::string(generator() % 3000, "a \n7"[generator() % 4]);
    }
  }
  for (const std::string& kind : kinds()) {
    const auto tokenizer = tokenizer_of(kind, scratch);
    const Ids whole = tokenizer->encode(text);
    for (const int threads : {1, 3}) {
      EXPECT_EQ(in_blocks(*tokenizer, text, threads, generator, 1U << 20), whole) << kind;
      EXPECT_EQ(in_blocks(*tokenizer, text, threads, generator, 5000), whole) << kind;
    }
    const std::string part = text.substr(0, 3000);
    EXPECT_EQ(in_blocks(*tokenizer, part, 2, generator, 3), tokenizer->encode(part)) << kind;
  }
}

TEST(Tokenizers, DecodeWhatTheyEncode) {
  const Scratch scratch;
  for (const std::string kind : {"gpt2", "llama3"}) {
    const auto tokenizer = tokenizer_of(kind, scratch);
    for (const std::string& text : texts()) {
      std::string valid;
      append_valid_utf8(text, /*follows=*/false, valid);
      // White space that an added token takes is gone.
      if (text.find("<left>") == std::string::npos) {
        EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), valid);
      }
    }
    const auto vocabulary = static_cast<std::uint32_t>(tokenizer->vocabulary());
    EXPECT_THROW((void)tokenizer->decode(Ids{vocabulary}), ConfigError);
  }
}

// The definition, as slowly as it reads: of all neighbours that can be merged the earliest merge,
// the leftmost of these, again and again.
Ids slow_merges(const std::string& word, const std::map<std::string, std::uint32_t>& vocabulary,
                const std::vector<std::pair<std::string, std::string>>& merges) {
  std::vector<std::string> parts;
  for (const char byte : word) parts.push_back(to_byte_letters({&byte, 1}));
  while (true) {
    bool merged = false;
    for (std::size_t rank = 0; rank < merges.size() && !merged; ++rank) {
      for (std::size_t i = 0; i + 1 < parts.size() && !merged; ++i) {
        if (parts[i] != merges[rank].first || parts[i + 1] != merges[rank].second) continue;
        parts[i] += parts[i + 1];
        parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        merged = true;
      }
    }
    if (!merged) break;
  }
  Ids ids;
  for (const std::string& part : parts) ids.push_back(vocabulary.at(part));
  return ids;
}

TEST(MergeTable, MergesAsTheDefinitionSays) {
  // Random merges over few bytes, in any order, so that some come before what they are made of.
  for (unsigned seed = 0; seed < 30; ++seed) {
    std::mt19937 generator(seed);
    std::map<std::string, std::uint32_t> vocabulary;
    std::vector<std::uint32_t> bytes;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const char text = static_cast<char>(byte);
      bytes.push_back(byte);
      vocabulary[to_byte_letters({&text, 1})] = byte;
    }
    std::vector<std::string> made = {"a", "b", "c"};
    std::vector<std::pair<std::string, std::string>> pairs;
    for (int i = 0; i < 40; ++i) {
      const std::string left = made[generator() % made.size()];
      const std::string right = made[generator() % made.size()];
      if (std::find(pairs.begin(), pairs.end(), std::pair(left, right)) != pairs.end()) continue;
      pairs.emplace_back(left, right);
      if (vocabulary.emplace(left + right, static_cast<std::uint32_t>(vocabulary.size())).second &&
          left.size() + right.size() < 9)
        made.push_back(left + right);
    }
    std::shuffle(pairs.begin(), pairs.end(), generator);
    std::vector<MergeTable::Merge> merges;
    for (const auto& [left, right] : pairs)
      merges.push_back({vocabulary.at(left), vocabulary.at(right), vocabulary.at(left + right)});
    const MergeTable table(bytes, merges);
    WordCache cache(table);
    for (const std::size_t length : {1U, 2U, 3U, 7U, 20U, 63U, 64U, 65U, 66U, 150U}) {
      std::string word;
      for (std::size_t i = 0; i < length; ++i) word += "abc"[generator() % 3];
      const Ids expected = slow_merges(word, vocabulary, pairs);
      Ids direct;
      table.encode(word, direct);
      EXPECT_EQ(direct, expected) << word;
      Ids twice;
      cache.encode(word, twice);
      cache.encode(word, twice);
      Ids both = expected;
      both.insert(both.end(), expected.begin(), expected.end());
      EXPECT_EQ(twice, both) << word;
    }
  }
}

TEST(WordCache, ForgetsAndStaysRight) {
  std::vector<std::uint32_t> bytes(256);
  for (unsigned byte = 0; byte < 256; ++byte) bytes[byte] = byte;
  const std::vector<MergeTable::Merge> merges = {{'1', '2', 256}};
  const MergeTable table(bytes, merges);
  WordCache cache(table);
  // More words than it keeps.
  for (int i = 0; i < 1'100'000; ++i) {
    const std::string word = std::to_string(i);
    Ids cached;
    cache.encode(word, cached);
    if (i % 10007 != 0 && i < 1'048'570) continue;
    Ids direct;
    table.encode(word, direct);
    ASSERT_EQ(cached, direct) << word;
  }
}

TEST(UnicodeText, ReplacesWhatIsNoCharacter) {
  const std::string mark = "\xEF\xBF\xBD";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a\xff"
       "b",
       "a" + mark + "b"},
      {"\xe2\x82", mark},
      {"\xe2\x82z", mark + "z"},
      {"\xf0\x9f\x98\xe2\x82\xac", mark + "\xe2\x82\xac"},
      {"\xc0\xaf", mark + mark},
      {"\xed\xa0\x80", mark + mark + mark},
      {"\xf4\x90\x80\x80", mark + mark + mark + mark},
      {"\xe0\x9f\xbf", mark + mark + mark},
      {"\xf8\x88", mark + mark}};
  for (const auto& [broken, repaired] : cases) {
    std::string valid;
    EXPECT_EQ(append_valid_utf8(broken, /*follows=*/false, valid), broken.size());
    EXPECT_EQ(valid, repaired);
  }
  std::string valid;
  EXPECT_EQ(append_valid_utf8("ab\xf0\x9f\x98", /*follows=*/true, valid), 2U);
  EXPECT_EQ(valid, "ab");
}

TEST(UnicodeText, WhatIsAlwaysNormalNeverChanges) {
  // By Unicode's tables: a character that changes, that is reordered, or that something is composed
  // with from behind, is none of them.
  std::vector<bool> changes(0x110000, false);
  for (utf8proc_int32_t character = 0; character < 0x110000; ++character) {
    if (utf8proc_category(character) == UTF8PROC_CATEGORY_CS) continue;
    const auto place = static_cast<std::size_t>(character);
    if (utf8proc_get_property(character)->combining_class != 0) changes[place] = true;
    utf8proc_int32_t parts[8];
    int boundary = 0;
    const auto count = utf8proc_decompose_char(character, parts, 8, UTF8PROC_DECOMPOSE, &boundary);
    for (utf8proc_ssize_t i = 1; i < count; ++i) changes[static_cast<std::size_t>(parts[i])] = true;
    char bytes[8];
    const auto size = utf8proc_encode_char(character, reinterpret_cast<utf8proc_uint8_t*>(bytes));
    utf8proc_uint8_t* composed = nullptr;
    const auto length =
        utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(bytes), size, &composed,
                     static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (length != size || std::memcmp(composed, bytes, static_cast<std::size_t>(size)) != 0)
      changes[place] = true;
    std::free(composed);
  }
  int normal = 0;
  for (char32_t character = 0; character < 0x110000; ++character) {
    if (!always_normal(character)) continue;
    ++normal;
    EXPECT_FALSE(changes[character]) << std::hex << static_cast<unsigned>(character);
  }
  EXPECT_GT(normal, 30000);
}

TEST(Tokenizers, TwoFilesOfGpt2AreOne) {
  const Scratch scratch;
  nlohmann::json vocabulary = recorded().at("vocab");
  vocabulary["<|endoftext|>"] = vocabulary.size();
  std::string merges = "#version: 0.2\n";
  for (const auto& pair : recorded().at("merges"))
    merges += pair[0].get<std::string>() + " " + pair[1].get<std::string>() + "\n";
  scratch.write("vocab.json", vocabulary.dump());
  scratch.write("merges.txt", merges);
  const auto tokenizer = open_tokenizer(scratch.path(""));
  ASSERT_TRUE(tokenizer->end_of_text());
  EXPECT_EQ(*tokenizer->end_of_text(), 640U);
  EXPECT_EQ(tokenizer->vocabulary(), 641);
  const auto all = texts();
  for (std::size_t i = 0; i < 20; ++i)
    EXPECT_EQ(tokenizer->encode(all[i]), recorded().at("ids").at("gpt2")[i].get<Ids>());
  const auto again = make_tokenizer(tokenizer->name(), tokenizer->description());
  EXPECT_EQ(again->encode(all[0]), tokenizer->encode(all[0]));
  EXPECT_EQ(again->name(), tokenizer->name());

  // A tokenizer.json beside them is to say the same, however it looks for its token.
  nlohmann::json whole = json_of("gpt2");
  whole["model"]["vocab"] = vocabulary;
  whole["added_tokens"] = {
      {{"id", 640}, {"content", "<|endoftext|>"}, {"normalized", true}, {"special", true}}};
  scratch.write("tokenizer.json", whole.dump());
  EXPECT_EQ(open_tokenizer(scratch.path("vocab.json"))->name(), tokenizer->name());
  const auto expect_refused = [&](const std::string& content, const std::string& part) {
    scratch.write("tokenizer.json", content);
    for (const char* file : {"vocab.json", "merges.txt"}) {
      try {
        open_tokenizer(scratch.path(file));
        ADD_FAILURE() << "not refused: " << part;
      } catch (const ConfigError& error) {
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      }
    }
  };
  whole["normalizer"] = {{"type", "NFC"}};
  expect_refused(whole.dump(), "makes other ids");
  expect_refused("{}", "cannot be taken");
}

TEST(Tokenizers, AreOneWhereTheyMakeTheSameIds) {
  const Scratch scratch;
  const auto made = [&](const nlohmann::json& json, int indent) {
    return open_tokenizer(scratch.write("one.json", json.dump(indent)));
  };
  const nlohmann::json whole = json_of("gpt2");
  const auto first = made(whole, -1);
  EXPECT_TRUE(same_ids(*first, *first));
  const auto expect_same = [&](bool same, const std::string& what, const nlohmann::json& json) {
    const auto other = made(json, 1);
    EXPECT_NE(other->name(), first->name()) << what;
    EXPECT_EQ(same_ids(*first, *other), same) << what;
  };
  expect_same(true, "spaces", whole);
  for (const char* key : {"post_processor", "decoder", "padding", "more"}) {
    nlohmann::json changed = whole;
    changed[key] = nullptr;
    expect_same(true, key, changed);
  }
  nlohmann::json texts_of_merges = whole;
  for (auto& merge : texts_of_merges["model"]["merges"])
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  expect_same(true, "merges as texts", texts_of_merges);
  const auto patched = [&](const char* path, const nlohmann::json& value) {
    nlohmann::json changed = whole;
    changed[nlohmann::json::json_pointer(path)] = value;
    return changed;
  };
  expect_same(false, "a normaliser", patched("/normalizer", {{"type", "NFC"}}));
  expect_same(false, "whole words", patched("/model/ignore_merges", true));
  expect_same(false, "two merges", patched("/model/merges/0", whole["model"]["merges"][1]));
  expect_same(false, "no added tokens", patched("/added_tokens", nlohmann::json::array()));
  expect_same(false, "white space", patched("/added_tokens/0/lstrip", true));
  nlohmann::json renumbered = whole;
  std::swap(renumbered["added_tokens"][0]["content"], renumbered["added_tokens"][1]["content"]);
  expect_same(false, "ids", renumbered);
  expect_same(false, "a cut",
              patched("/pre_tokenizer",
                      {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}));
  expect_same(false, "a leading space",
              patched("/pre_tokenizer",
                      {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", true}}));
  EXPECT_FALSE(same_ids(*first, *make_tokenizer("byte")));
}

TEST(Tokenizers, BytesAreATokenizerOfHuggingFace) {
  const Scratch scratch;
  const auto bytes = make_tokenizer("byte");
  const std::string content = huggingface_tokenizer(*bytes).content;
  const auto same = make_bpe_tokenizer(content, "bytes.json", FileOwner::User);
  EXPECT_EQ(same->vocabulary(), 256);
  const std::string text = "any text, größer\n\n\tand 日本";
  EXPECT_EQ(same->encode(text), bytes->encode(text));
  // So a model of bytes that was exported goes on with data of bytes; with one token more it is
  // another.
  EXPECT_EQ(open_tokenizer(scratch.write("bytes.json", content))->name(), "byte");
  nlohmann::json more = nlohmann::json::parse(content);
  more["model"]["vocab"]["ab"] = 256;
  EXPECT_NE(open_tokenizer(scratch.write("more.json", more.dump()))->name(), "byte");
  more = nlohmann::json::parse(content);
  std::swap(more["model"]["vocab"]["a"], more["model"]["vocab"]["b"]);
  EXPECT_NE(open_tokenizer(scratch.write("swapped.json", more.dump()))->name(), "byte");
}

TEST(Tokenizers, RefuseByKeyWhatTheyDoNotKnow) {
  const Scratch scratch;
  const auto expect_refused = [&](const nlohmann::json& change, const std::string& part) {
    nlohmann::json whole = json_of("gpt2");
    whole.merge_patch(change);
    const std::string file = scratch.write("changed.json", whole.dump());
    try {
      open_tokenizer(file);
      ADD_FAILURE() << "not refused: " << change;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  expect_refused({{"model", {{"type", "Unigram"}}}}, "model.type");
  expect_refused({{"model", {{"dropout", 0.1}}}}, "model.dropout");
  expect_refused({{"model", {{"end_of_word_suffix", "</w>"}}}}, "end_of_word_suffix");
  expect_refused({{"model", {{"byte_fallback", true}}}}, "byte_fallback");
  expect_refused({{"model", {{"merges", {"a"}}}}}, "model.merges[0]");
  expect_refused({{"model", {{"merges", {"q\xC3\xA9\xC3\xA9 q"}}}}}, "no token of the vocabulary");
  expect_refused({{"model", {{"vocab", {{"a", 4000000}}}}}}, "4000000");
  expect_refused({{"model", {{"vocab", {{"a", -1}}}}}}, "model.vocab");
  expect_refused({{"normalizer", {{"type", "Lowercase"}}}}, "normalizer");
  expect_refused({{"pre_tokenizer", {{"type", "Whitespace"}}}}, "pre_tokenizer");
  expect_refused({{"pre_tokenizer", nullptr}}, "pre_tokenizer");
  nlohmann::json no_byte = json_of("gpt2");
  no_byte["model"]["vocab"].erase("a");
  no_byte["model"]["merges"] = nlohmann::json::array();
  EXPECT_THROW(open_tokenizer(scratch.write("no_byte.json", no_byte.dump())), ConfigError);
  EXPECT_THROW(open_tokenizer(scratch.write("broken.json", "{")), ConfigError);
  EXPECT_THROW(open_tokenizer(scratch.path("missing")), ConfigError);
  EXPECT_THROW(open_tokenizer(scratch.path("")), ConfigError);  // a folder with neither
  EXPECT_THROW(make_tokenizer("words"), ConfigError);
}

TEST(Tokenizers, RefuseIdsOfAddedTokensThatHuggingFaceGivesOtherwise) {
  const Scratch scratch;
  const auto added = [](const nlohmann::json& tokens) {
    nlohmann::json whole = json_of("qwen");
    whole["added_tokens"] = nlohmann::json::array();
    for (const auto& [id, content] : tokens.get<std::vector<std::pair<int, std::string>>>())
      whole["added_tokens"].push_back(
          {{"id", id}, {"content", content}, {"normalized", true}, {"special", false}});
    return whole;
  };
  const auto taken = [&](const nlohmann::json& whole) {
    return open_tokenizer(scratch.write("ids.json", whole.dump()));
  };
  const auto expect_refused = [&](const nlohmann::json& whole, const std::string& key,
                                  const std::string& part) {
    try {
      taken(whole);
      ADD_FAILURE() << "not refused: " << key;
    } catch (const ConfigError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find(key), std::string::npos) << text;
      EXPECT_NE(text.find(part), std::string::npos) << text;
    }
  };
  // The ids of a token of the vocabulary, and of the next ones behind it.
  EXPECT_EQ(taken(added({{640, "<x>"}, {recorded().at("vocab").at("a"), "a"}, {641, "<y>"}}))
                ->encode("<x>a<y>"),
            (Ids{640, recorded().at("vocab").at("a").get<std::uint32_t>(), 641}));
  expect_refused(added({{641, "<x>"}}), "added_tokens[0].id", "640");
  expect_refused(added({{640, "<x>"}, {700, "<y>"}}), "added_tokens[1].id", "641");
  expect_refused(added({{641, "<x>"}, {640, "<y>"}}), "added_tokens[0].id", "640");
  expect_refused(added({{640, "<x>"}, {640, "<y>"}}), "added_tokens[1].id", "641");
  expect_refused(added({{3, "<x>"}}), "added_tokens[0].id", "640");
  expect_refused(added({{640, "a"}}), "added_tokens[0].id", "vocabulary");
  expect_refused(added({{640, "<x>"}, {640, "<x>"}}), "added_tokens[1].content", "before it");
  expect_refused(added({{640, "e\u0301|"}, {641, "\u00e9|"}}), "added_tokens[1].content",
                 "normal form");
  nlohmann::json taking = added({{640, "<x>"}, {641, "  "}});
  taking["added_tokens"][0]["rstrip"] = true;
  expect_refused(taking, "added_tokens[1].content", "rstrip");
  // Where the vocabulary has gaps, the next id may be one of its own.
  nlohmann::json gaps = added({{641, "<x>"}});
  gaps["model"]["vocab"]["zz"] = 641;
  expect_refused(gaps, "added_tokens[0].id", "another token");
}

TEST(TextConverter, KeepsTheTokenizerInTheFile) {
  const Scratch scratch;
  TextConversion conversion;
  conversion.inputs = {scratch.write("one", texts()[0]), scratch.write("two", texts()[13])};
  conversion.validation_inputs = {scratch.write("three", texts()[3])};
  conversion.output = scratch.path("out.h5");
  conversion.tokenizer = scratch.write("t.json", json_of("llama3").dump());
  conversion.threads = 2;
  const TokenFileInfo info = convert_text(conversion);
  const auto tokenizer = read_tokenizer(conversion.output);
  EXPECT_EQ(tokenizer->name(), info.tokenizer);
  EXPECT_EQ(tokenizer->vocabulary(), info.vocabulary);
  const std::uint32_t end = tokenizer->end_of_text().value();
  Ids expected = tokenizer->encode(texts()[0]);
  expected.push_back(end);
  const Ids second = tokenizer->encode(texts()[13]);
  expected.insert(expected.end(), second.begin(), second.end());
  expected.push_back(end);
  const Hdf5File file = Hdf5File::open(conversion.output);
  EXPECT_EQ(file.dataset("tokens").read_all<std::uint32_t>(), expected);
  EXPECT_EQ(info.sources[1].tokens, static_cast<std::int64_t>(second.size()) + 1);

  // A description that is not that of the name.
  EXPECT_EQ(make_tokenizer(info.tokenizer, tokenizer->description())->name(), info.tokenizer);
  expect_io_error("here", "is wanted",
                  [&] { make_tokenizer(info.tokenizer, tokenizer->description() + " ", "here"); });
  expect_io_error("here", "", [&] { make_tokenizer(info.tokenizer, "{}", "here"); });
}

}  // namespace
}  // namespace garonne::data
