#include "dist/session.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "base/error.hpp"
#include "dist/communication_thread.hpp"

namespace garonne::dist {
namespace {

// Everything once without and once with a communication thread.
class SessionTest : public testing::TestWithParam<bool> {
 protected:
  SessionTest() : session_(Session::start()) {
    if (GetParam()) thread_ = std::make_unique<CommunicationThread>(session_);
  }

  // What agree() throws for this phase.
  template <typename Phase>
  AgreedError agreed(Phase phase) {
    try {
      session_.agree(phase);
    } catch (const AgreedError& error) {
      return error;
    }
    return AgreedError(ExitCode::Done, "no error");
  }

  int last() const { return session_.size() - 1; }

  Session session_;
  std::unique_ptr<CommunicationThread> thread_;
};

INSTANTIATE_TEST_SUITE_P(Thread, SessionTest, testing::Bool());

TEST_P(SessionTest, KnowsItsPlace) {
  EXPECT_FALSE(session_.host().empty());
  EXPECT_EQ(session_.ranks_on_node(), session_.size());  // tests run on one host
  EXPECT_EQ(session_.node_rank(), session_.rank());
  session_.set_coordinates("data 1");
  EXPECT_EQ(session_.place(), "[rank " + std::to_string(session_.rank()) + "/" +
                                  std::to_string(session_.size()) + " " + session_.host() +
                                  " data 1]");
}

TEST_P(SessionTest, BroadcastsTexts) {
  for (const int root : {0, last()}) {
    const std::string text(static_cast<std::size_t>(1000 * root + 5),
                           static_cast<char>('a' + root));
    EXPECT_EQ(session_.broadcast(session_.rank() == root ? text : "else", root), text);
  }
  EXPECT_EQ(session_.broadcast(""), "");
}

TEST_P(SessionTest, ReducesSmallVectors) {
  const std::int64_t rank = session_.rank();
  const std::int64_t n = session_.size();
  const std::vector<std::int64_t> integers{rank, -rank, std::int64_t{1} << 60};
  EXPECT_EQ(session_.all_reduce_max(integers),
            (std::vector<std::int64_t>{n - 1, 0, std::int64_t{1} << 60}));
  EXPECT_EQ(session_.all_reduce_min(integers),
            (std::vector<std::int64_t>{0, 1 - n, std::int64_t{1} << 60}));
  EXPECT_EQ(session_.all_reduce_sum(std::vector<std::int64_t>{rank, 1}),
            (std::vector<std::int64_t>{n * (n - 1) / 2, n}));
  EXPECT_EQ(session_.all_reduce_sum(std::vector<std::int64_t>{}), std::vector<std::int64_t>{});

  double expected = 0.1;
  for (int other = 1; other < n; ++other) expected += 0.1 / (1 + 3 * other);
  const std::vector<double> mine{0.1 / static_cast<double>(1 + 3 * rank)};
  EXPECT_EQ(session_.all_reduce_sum(mine)[0], expected);  // bits of the sum in rank order
  EXPECT_EQ(session_.all_reduce_max(mine)[0], 0.1);
}

TEST_P(SessionTest, GathersTextsInRankOrder) {
  const auto text = [](int rank) { return std::string(static_cast<std::size_t>(rank * 3), 'x'); };
  const std::vector<std::string> all = session_.gather(text(session_.rank()));
  if (session_.rank() != 0) {
    EXPECT_TRUE(all.empty());
    return;
  }
  ASSERT_EQ(all.size(), static_cast<std::size_t>(session_.size()));
  for (int rank = 0; rank < session_.size(); ++rank) {
    EXPECT_EQ(all[static_cast<std::size_t>(rank)], text(rank));
  }
}

TEST_P(SessionTest, ComparesTexts) {
  EXPECT_TRUE(session_.all_agree("same"));
  EXPECT_EQ(session_.all_agree(session_.rank() == last() ? "other" : "same"), session_.size() == 1);
}

TEST_P(SessionTest, AgreesOnSuccess) {
  bool ran = false;
  session_.agree([&] { ran = true; });
  EXPECT_TRUE(ran);
}

TEST_P(SessionTest, EveryRankThrowsTheErrorOfTheFailingOne) {
  const AgreedError error = agreed([&] {
    if (session_.rank() == last()) throw ConfigError("the key is wrong");
  });
  EXPECT_EQ(error.code(), ExitCode::Usage);
  EXPECT_NE(std::string(error.what()).find("the key is wrong"), std::string::npos);
  const std::string named = "on rank " + std::to_string(last()) + " (" + session_.host() + "): ";
  EXPECT_EQ(std::string(error.what()).starts_with(named), session_.size() > 1);
  session_.barrier();  // still usable
}

TEST_P(SessionTest, TheLowestFailingRankSpeaks) {
  const AgreedError error = agreed([&] {
    if (session_.rank() == 0) throw IoError("some file", "cannot be read");
    throw ConfigError("another reason");
  });
  EXPECT_EQ(error.code(), ExitCode::Data);
  EXPECT_NE(std::string(error.what()).find("some file"), std::string::npos);
}

TEST_P(SessionTest, TheSmallestBudgetIsThatOfTheRankThatNeedsMost) {
  const AgreedError error =
      agreed([&] { throw PlanError(1000 + 512 * (session_.rank() % 3), 10, ""); });
  const auto needed = 1000 + 512 * std::min(2, last());
  EXPECT_EQ(error.code(), ExitCode::Infeasible);
  EXPECT_EQ(std::string(error.what()), PlanError(needed, 10, "").what());
}

TEST_P(SessionTest, OtherErrorsPassThrough) {
  // On all ranks: where one alone fails like this, the others wait until it aborts.
  EXPECT_THROW(session_.agree([] { throw RefusedError("no memory"); }), RefusedError);
}

TEST(SingleSession, NeedsNoMpi) {
  Session session = Session::single();
  EXPECT_FALSE(session.uses_mpi());
  EXPECT_EQ(session.size(), 1);
  EXPECT_EQ(session.ranks_on_node(), 1);
  session.barrier();
  EXPECT_EQ(session.broadcast("text"), "text");
  EXPECT_EQ(session.gather("text"), std::vector<std::string>{"text"});
  EXPECT_EQ(session.all_reduce_sum(std::vector<double>{0.5}), std::vector<double>{0.5});
  EXPECT_TRUE(session.all_agree("text"));
  EXPECT_THROW(session.agree([] { throw ConfigError("reason"); }), AgreedError);
  CommunicationThread thread(session);
  bool ran = false;
  thread.run([&] { ran = true; });
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace garonne::dist
