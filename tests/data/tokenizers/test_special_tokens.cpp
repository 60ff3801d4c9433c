#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "data/scratch.hpp"
#include "data/tokenizers/recorded_tokenizers.hpp"
#include "data/tokenizers/tokenizer.hpp"

namespace garonne::data {
namespace {

using testing::expect_io_error;
using testing::json_of;
using testing::recorded;
using testing::Scratch;
using testing::tokenizer_of;

// An added token as those of the recorded ones.
nlohmann::json added_token(const std::string& content, int id) {
  nlohmann::json token = recorded().at("tokenizers").at("gpt2").at("added_tokens").at(0);
  token["content"] = content;
  token["id"] = id;
  return token;
}

TEST(Tokenizers, BeginTextsWithTheirOwnTokenWhereTheyHaveOne) {
  const Scratch scratch;
  for (const auto& [begin, end] : {std::pair("<|begin_of_text|>", "<|end_of_text|>"),
                                   std::pair("<s>", "</s>"), std::pair("<bos>", "<eos>")}) {
    nlohmann::json whole = json_of("llama3");
    whole["added_tokens"] = nlohmann::json::array({added_token(begin, 640), added_token(end, 641)});
    const auto tokenizer = open_tokenizer(scratch.write("both.json", whole.dump()));
    EXPECT_EQ(tokenizer->begin_of_text(), 640U);
    EXPECT_EQ(tokenizer->end_of_text(), 641U);
    const std::vector<std::pair<std::string, std::string>> special = {{"bos_token", begin},
                                                                      {"eos_token", end}};
    EXPECT_EQ(tokenizer->special_tokens(640, 641), special);
    // No mark, and no token at all.
    EXPECT_TRUE(tokenizer->special_tokens(3, 5000).empty());
  }
  const auto one = tokenizer_of("gpt2", scratch);
  EXPECT_EQ(one->begin_of_text(), 640U);
  EXPECT_EQ(one->end_of_text(), 640U);
}

TEST(Tokenizers, SayWhichIdsStandForNothing) {
  const Scratch scratch;
  nlohmann::json whole = json_of("gpt2");
  for (auto& [token, number] : whole["model"]["vocab"].items()) {
    if (number == 639) number = 700;
  }
  const auto tokenizer = open_tokenizer(scratch.write("gaps.json", whole.dump()));
  EXPECT_EQ(tokenizer->vocabulary(), 701);
  EXPECT_FALSE(tokenizer->has(639));
  EXPECT_TRUE(tokenizer->has(644));
  EXPECT_FALSE(tokenizer->has(645));
  EXPECT_FALSE(tokenizer->has(699));
  EXPECT_TRUE(tokenizer->has(700));
  EXPECT_FALSE(tokenizer->has(701));
  EXPECT_TRUE(open_tokenizer("byte")->has(255));
  EXPECT_FALSE(open_tokenizer("byte")->has(256));
}

TEST(Tokenizers, AreExportedWithoutWhatIsPutAroundTexts) {
  const Scratch scratch;
  const nlohmann::json of_bytes = {{"type", "ByteLevel"}, {"trim_offsets", false}};
  const nlohmann::json around = {{"type", "TemplateProcessing"}, {"single", nullptr}};
  const nlohmann::json roberta = {{"type", "RobertaProcessing"}, {"sep", {"</s>", 2}}};
  const auto sequence = [](const nlohmann::json& parts) {
    return nlohmann::json{{"type", "Sequence"}, {"processors", parts}};
  };
  struct Case {
    nlohmann::json given;
    std::string left_out;
    nlohmann::json kept;
  };
  const nlohmann::json none;
  for (const Case& one :
       {Case{none, "", none}, Case{of_bytes, "", of_bytes},
        Case{around, "TemplateProcessing", none},
        Case{sequence({of_bytes, around}), "TemplateProcessing", of_bytes},
        Case{sequence({around, roberta}), "TemplateProcessing, RobertaProcessing", none},
        Case{sequence(nlohmann::json::array({of_bytes})), "",
             sequence(nlohmann::json::array({of_bytes}))},
        Case{nlohmann::json::object({{"odd", 1}}), "unknown", none},
        Case{{{"type", "Sequence"}, {"processors", 3}}, "unknown", none}}) {
    nlohmann::json whole = json_of("qwen");
    whole["post_processor"] = one.given;
    const std::string text = whole.dump(3);
    const auto tokenizer = open_tokenizer(scratch.write("around.json", text));
    const TokenizerFile file = huggingface_tokenizer(*tokenizer);
    EXPECT_EQ(file.left_out, one.left_out) << one.given;
    if (one.left_out.empty()) {
      EXPECT_EQ(file.content, text) << one.given;
    }
    whole["post_processor"] = one.kept;
    EXPECT_EQ(nlohmann::json::parse(file.content), whole) << one.given;
    const auto exported = open_tokenizer(scratch.write("exported.json", file.content));
    EXPECT_TRUE(same_ids(*exported, *tokenizer));
    EXPECT_EQ(huggingface_tokenizer(*exported).content, file.content);
  }
}

// What an older version has taken from its user.
TEST(Tokenizers, OfRunsAreNotRefusedForWhatThoseOfUsersAre) {
  const Scratch scratch;
  const auto name_of = [](const std::string& text) {
    return "bpe:" + hash_text(text).substr(0, 16);
  };
  const auto refused_of_user = [&](const std::string& text) {
    EXPECT_THROW(open_tokenizer(scratch.write("given.json", text)), ConfigError);
    return make_tokenizer(name_of(text), text, "here");
  };
  const std::uint32_t a = recorded().at("vocab").at("a").get<std::uint32_t>();
  nlohmann::json whole = json_of("gpt2");
  whole["added_tokens"] =
      nlohmann::json::array({added_token("<x>", 641), added_token("<|endoftext|>", 643)});
  const auto gaps = refused_of_user(whole.dump());
  EXPECT_EQ(gaps->vocabulary(), 644);
  EXPECT_EQ(gaps->end_of_text(), 643U);
  EXPECT_EQ(gaps->encode("<x>a<|endoftext|>"), (std::vector<std::uint32_t>{641, a, 643}));
  EXPECT_EQ(gaps->decode(gaps->encode("<x>a")), "<x>a");
  EXPECT_EQ(huggingface_tokenizer(*gaps).content, whole.dump());
  EXPECT_NE(gaps->transformers_difference().find("added_tokens[0].id"), std::string::npos);
  whole["added_tokens"] = nlohmann::json::array({added_token("<x>", 640), added_token("<x>", 641)});
  refused_of_user(whole.dump());
  whole["added_tokens"] = nlohmann::json::array({added_token("<x>", 640), added_token("  ", 641)});
  whole["added_tokens"][0]["rstrip"] = true;
  refused_of_user(whole.dump());

  // Nothing but cutting texts needs the expression.
  whole = json_of("qwen");
  whole["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "[[:alpha:]]+|[^[:alpha:]]";
  const auto uncut = refused_of_user(whole.dump());
  EXPECT_EQ(uncut->decode(std::vector<std::uint32_t>{a}), "a");
  EXPECT_EQ(huggingface_tokenizer(*uncut).content, whole.dump());
  EXPECT_EQ(uncut->transformers_difference(), "");
  EXPECT_TRUE(same_ids(*uncut, *make_tokenizer(name_of(whole.dump(1)), whole.dump(1), "there")));
  expect_io_error("here", "--ids", [&] { uncut->encode("a"); });
}

}  // namespace
}  // namespace garonne::data
