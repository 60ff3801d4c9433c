#include "dist/fact_agreement.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>

#include "base/error.hpp"

namespace garonne::dist {
namespace {

class FactAgreement : public testing::Test {
 protected:
  // What all ranks are told; empty where they agree.
  std::optional<AgreedError> refusal(const std::function<Facts()>& find) {
    try {
      agree_on(session_, find);
    } catch (const AgreedError& error) {
      EXPECT_TRUE(session_.all_agree(error.what()));
      EXPECT_TRUE(session_.all_agree(std::to_string(static_cast<int>(error.code()))));
      return error;
    }
    return std::nullopt;
  }

  std::string message(const std::function<Facts()>& find) {
    const auto error = refusal(find);
    if (!error) return "";
    EXPECT_EQ(error->code(), ExitCode::Usage);
    return error->what();
  }

  bool is_last() const { return session_.rank() == session_.size() - 1; }

  Session session_ = Session::start();
};

const Remedy any_remedy = advise("do something");

TEST_F(FactAgreement, AlikeRanksGoOn) {
  EXPECT_EQ(message([] { return Facts{}; }), "");
  EXPECT_EQ(message([] {
              return Facts{{"a", "1", any_remedy, ""}, {"b", "", any_remedy, ""}};
            }),
            "");
  // Neither where a rank has a value from nor the order of the list is a difference.
  EXPECT_EQ(message([&] {
              const Fact one{"a", "1", any_remedy, fmt::format("/copy/{}", session_.rank())};
              const Fact other{"b", "2", any_remedy, ""};
              return is_last() ? Facts{other, one} : Facts{one, other};
            }),
            "");
}

TEST_F(FactAgreement, OneRankHasAnotherValue) {
  const int last = session_.size() - 1;
  const std::string said = message([&] {
    return Facts{{"same", "x", any_remedy, ""},
                 {"rate", is_last() ? "2e-3" : "1e-3", advise("give the same file"),
                  fmt::format("/node{}/run.toml", session_.rank())}};
  });
  const std::string others = last == 1   ? "rank 0 has"
                             : last == 2 ? "ranks 0 and 1 have"
                                         : fmt::format("ranks 0 to {} have", last - 1);
  EXPECT_EQ(said, fmt::format("rate: {} 1e-3 (/node0/run.toml), rank {} has 2e-3 "
                              "(/node{}/run.toml); give the same file",
                              others, last, last));
  session_.barrier();  // still usable
  EXPECT_EQ(message([] { return Facts{}; }), "");
}

TEST_F(FactAgreement, RanksWithOtherFactsAreNamed) {
  const std::string missing = message([&] {
    Facts facts{{"a", "1", any_remedy, ""}, {"b", "2", any_remedy, ""}};
    if (is_last()) facts.erase(facts.begin());
    return facts;
  });
  EXPECT_NE(missing.find("a: "), std::string::npos) << missing;
  EXPECT_NE(missing.find(fmt::format("rank {} has none; do something", session_.size() - 1)),
            std::string::npos)
      << missing;
  EXPECT_EQ(missing.find("b: "), std::string::npos) << missing;
  // Rank 0, which puts the message together, has less than the others.
  const std::string more = message([&] {
    return session_.rank() == 0 ? Facts{} : Facts{{"only", "", any_remedy, ""}};
  });
  EXPECT_EQ(more.find("only: rank 0 has none, "), 0U) << more;
  EXPECT_NE(more.find("\"\""), std::string::npos) << more;
}

TEST_F(FactAgreement, TheRemedySeesTheValuesOfAllRanks) {
  const std::string said = message([&] {
    return Facts{{"set", is_last() ? "baseline" : "avx2",
                  [](const std::vector<std::string>& values) { return "of " + values.at(1); }, ""}};
  });
  EXPECT_NE(said.find("; of baseline"), std::string::npos) << said;
}

TEST_F(FactAgreement, AFactThatCannotBeFoundIsAnErrorOfAll) {
  const auto error = refusal([&]() -> Facts {
    if (is_last()) throw IoError("tokens.h5", "no such file");
    return {};
  });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ExitCode::Data);
  EXPECT_NE(std::string(error->what()).find("tokens.h5"), std::string::npos);
}

// Lists with random changes on random ranks: what is named is what a comparison of each with each
// finds.
TEST_F(FactAgreement, NamesWhatDiffersAndNothingElse) {
  const int ranks = session_.size();
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);  // the same on all ranks
    const auto below = [&](int most) {
      return static_cast<int>(random() % static_cast<unsigned>(most));
    };
    std::vector<Facts> all(static_cast<std::size_t>(ranks));
    const int count = 1 + below(12);
    std::vector<std::string> different;
    for (int fact = 0; fact < count; ++fact) {
      const std::string name = fmt::format("fact{}x", fact);
      std::vector<std::string> values;
      for (int rank = 0; rank < ranks; ++rank) {
        const bool changed = below(10) == 0;
        const bool there = below(20) != 0;
        // Any bytes, lengths to and fro what separates texts.
        std::string value = changed ? fmt::format("{}:{}", rank, std::string(1, '\0')) : "3:abc";
        if (there) all[static_cast<std::size_t>(rank)].push_back({name, value, any_remedy, ""});
        values.push_back(there ? value : "missing");
      }
      for (const auto& value : values) {
        if (value == values[0]) continue;
        different.push_back(name);
        break;
      }
    }
    const Facts& mine = all[static_cast<std::size_t>(session_.rank())];
    const std::string said = message([&] { return mine; });
    const bool fits = said.find("more that differ") == std::string::npos;
    EXPECT_EQ(said.empty(), different.empty()) << seed;
    for (int fact = 0; fact < count; ++fact) {
      const std::string name = fmt::format("fact{}x", fact);
      const bool differs = std::count(different.begin(), different.end(), name) > 0;
      const bool named = said.find(name + ": ") != std::string::npos;
      if (!fits && differs) continue;
      EXPECT_EQ(named, differs) << seed << " " << name << "\n" << said;
    }
    EXPECT_LE(said.size(), 2000U) << seed;
  }
}

TEST(SingleRank, HasNothingToCompare) {
  Session session = Session::single();
  agree_on(session, []() -> Facts { throw InternalError("nobody wants to know"); });
}

TEST(Differences, ManyRanksAreShownInGroups) {
  std::vector<Facts> ranks(64, Facts{{"key", "1", any_remedy, ""}});
  EXPECT_EQ(describe_differences(ranks), "");
  ranks[63][0].value = "2";
  EXPECT_EQ(describe_differences(ranks), "key: ranks 0 to 62 have 1, rank 63 has 2; do something");
  ranks[5][0].value = "2";
  EXPECT_EQ(describe_differences(ranks),
            "key: ranks 0, 1 and 60 more have 1, ranks 5 and 63 have 2; do something");
  for (std::size_t rank = 0; rank < 64; ++rank) ranks[rank][0].value = std::to_string(rank);
  EXPECT_EQ(describe_differences(ranks),
            "key: rank 0 has 0, rank 1 has 1, rank 2 has 2, others 61 more values; do something");
}

TEST(Differences, LongValuesAreShownWhereTheyPart) {
  const std::string long_text(5000, 'x');
  std::vector<Facts> ranks = {{{"key", long_text + "one" + long_text, any_remedy, ""}},
                              {{"key", long_text + "two" + long_text, any_remedy, ""}}};
  const std::string said = describe_differences(ranks);
  EXPECT_NE(said.find("xone"), std::string::npos) << said;
  EXPECT_NE(said.find("xtwo"), std::string::npos) << said;
  EXPECT_LT(said.size(), 400U);
  for (int key = 0; key < 100; ++key) {
    for (std::size_t rank = 0; rank < 2; ++rank) {
      ranks[rank].push_back({fmt::format("key {}", key),
                             fmt::format("{}\x1b[2J{}", rank, long_text), any_remedy, ""});
    }
  }
  const std::string many = describe_differences(ranks);
  EXPECT_LE(many.size(), 2000U);
  EXPECT_NE(many.find("more that differ"), std::string::npos) << many;
  EXPECT_EQ(many.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace garonne::dist
