// Replay against peaks that were added up by hand, and every refusal that the table of operations
// has.
#include "plan/chain/chain_replay.hpp"

#include <gtest/gtest.h>

namespace garonne::plan::test {
namespace {

constexpr auto discard = ChainOperationKind::ForwardDiscard;
constexpr auto checkpoint = ChainOperationKind::ForwardCheckpoint;
constexpr auto keep = ChainOperationKind::ForwardKeep;
constexpr auto drop = ChainOperationKind::Drop;
constexpr auto backward = ChainOperationKind::Backward;

// Values of 10, 20, 30 and 0 bytes.
Chain three_blocks() {
  Chain chain;
  chain.input_bytes = 10;
  chain.blocks = {
      {"a", 20, 0, {1, 3}, {{"keep", 50, {1.5, 4}, {2, 5}}, {"lean", 20, {1, 0}, {4, 0}}}},
      {"b", 30, 7, {2, 0}, {{"keep", 60, {2, 0}, {4, 100}}}},
      {"c", 0, 0, {3, 0}, {{"keep", 9, {3, 1}, {6, 2}}}}};
  return chain;
}

TEST(ChainReplay, AddsUpByHand) {
  const Chain chain = three_blocks();
  // 10 → 10+50 → +60 → +9 = 129 live; backward c: 129 + 30 + 2; then 10+50+60+30 = 150;
  // backward b: 150 + 20 + 7 + 100 = 277.
  const ChainReplay all = replay_chain(
      chain,
      {{keep, 0, 0}, {keep, 1, 0}, {keep, 2, 0}, {backward, 2}, {backward, 1}, {backward, 0}});
  EXPECT_EQ(all.peak_bytes, 277);
  EXPECT_DOUBLE_EQ(all.seconds, 1.5 + 2 + 3 + 6 + 4 + 2);
  // Value 1 dropped and made again: backward b at 10 + 20 + 60 + 30 live, + 127.
  const ChainReplay lean = replay_chain(chain, {{checkpoint, 0},
                                                {checkpoint, 1},
                                                {drop, 1},
                                                {keep, 2, 0},
                                                {backward, 2},
                                                {checkpoint, 0},
                                                {keep, 1, 0},
                                                {backward, 1},
                                                {keep, 0, 1},
                                                {backward, 0}});
  EXPECT_EQ(lean.peak_bytes, 247);
  EXPECT_DOUBLE_EQ(lean.seconds, 1 + 2 + 3 + 6 + 1 + 2 + 4 + 1 + 4);
}

TEST(ChainReplay, CountsTheStart) {
  Chain chain;
  chain.input_bytes = 1000;
  chain.blocks = {{"a", 0, 0, {1, 0}, {{"keep", 0, {1, 0}, {1, 0}}}}};
  EXPECT_EQ(replay_chain(chain, {{keep, 0, 0}, {backward, 0}}).peak_bytes, 2000);
}

void expect_refused(const std::vector<ChainOperation>& operations, std::size_t at,
                    const std::string& reason) {
  try {
    replay_chain(three_blocks(), operations);
    ADD_FAILURE() << "accepted where it should say: " << reason;
  } catch (const ChainReplayError& error) {
    EXPECT_EQ(error.operation(), at) << error.what();
    EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
  }
}

TEST(ChainReplay, RefusesWithTheOperation) {
  expect_refused({{checkpoint, 1}}, 0, "input value is not live");
  expect_refused({{keep, 1, 0}}, 0, "input value is not live");
  expect_refused({{discard, 0}, {checkpoint, 0}}, 1, "input value is not live");
  expect_refused({{checkpoint, 0}, {checkpoint, 0}}, 1, "live already");
  expect_refused({{checkpoint, 0}, {keep, 0, 0}}, 1, "live already");
  expect_refused({{keep, 0, 0}, {checkpoint, 0}}, 1, "live already");
  expect_refused({{keep, 0, 0}, {keep, 0, 1}}, 1, "live already");
  expect_refused({{keep, 0, 2}}, 0, "no such option");
  expect_refused({{keep, 0, -1}}, 0, "no such option");
  expect_refused({{checkpoint, 3}}, 0, "no such block");
  expect_refused({{checkpoint, -1}}, 0, "no such block");
  expect_refused({{drop, 4}}, 0, "no such value");
  expect_refused({{drop, 1}}, 0, "not live by itself");
  expect_refused({{keep, 0, 0}, {drop, 1}}, 1, "not live by itself");
  expect_refused({{keep, 0, 0}, {backward, 0}}, 1, "gradient of its output");
  expect_refused({{checkpoint, 0}, {checkpoint, 1}, {backward, 2}}, 2, "saved bytes");
  expect_refused({{checkpoint, 0}, {discard, 1}, {keep, 2, 0}, {drop, 2}, {backward, 2}}, 4,
                 "input value is not live");
  expect_refused({{keep, 0, 0}, {keep, 1, 0}, {keep, 2, 0}, {backward, 2}, {backward, 2}}, 4,
                 "gradient of its output");
  expect_refused({{keep, 0, 0}, {keep, 1, 0}, {keep, 2, 0}, {backward, 2}}, 4, "never made");
}

}  // namespace
}  // namespace garonne::plan::test
