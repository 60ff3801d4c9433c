// Copies of chains: replay against bytes and seconds that were added up by hand, and every refusal
// that the table of operations has for them.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/json_input.hpp"
#include "plan/chain/chain_json.hpp"
#include "plan/chain/chain_replay.hpp"
#include "plan/chain/copied_chains.hpp"

namespace garonne::plan::test {
namespace {

using enum ChainOperationKind;
constexpr auto value = ChainItem::Value;
constexpr auto saved = ChainItem::Saved;
constexpr auto weights = ChainItem::Weights;

ChainOperation copy(ChainOperationKind kind, ChainItem item, int index) {
  return {kind, index, -1, item};
}

// Values of one byte, saved bytes of two; a byte goes out in one second and comes in in half of it.
Chain three_equal_blocks() {
  return with_links(equal_blocks(3), 1, 2);
}

TEST(CopyReplay, AddsUpByHand) {
  const Chain chain = three_equal_blocks();
  // The input goes from 0 to 1, the first saved bytes from 1 to 3.
  const std::vector<ChainOperation> operations = {
      copy(CopyOut, value, 0), {ForwardKeep, 0, 0},      // to 1; 2 + 2 = 4 live
      copy(CopyOut, saved, 0), copy(WaitOut, value, 0),  // has ended
      copy(Drop, value, 0),                              // 3
      {ForwardKeep, 1, 0},                               // to 2; 5
      copy(WaitOut, saved, 0),                           // to 3
      copy(Drop, saved, 0),                              // 3
      {ForwardKeep, 2, 0},                               // to 4; 5
      {Backward, 2},                            // to 6; 6 during it, then 5 + 1 - 1 - 2 = 3
      copy(CopyIn, saved, 0),                   // 6 to 7; 5
      copy(CopyIn, value, 0),                   // 7 to 7.5; 6
      copy(WaitIn, saved, 0),                   // to 7
      {Backward, 1},                            // to 9; 7 during it, then 6 + 1 - 1 - 2 = 4
      copy(WaitIn, value, 0),  {Backward, 0}};  // to 11; 5
  std::vector<std::int64_t> during;
  const ChainReplay replay = replay_chain(chain, operations, &during);
  EXPECT_EQ(during, (std::vector<std::int64_t>{2, 4, 4, 4, 3, 5, 5, 3, 5, 6, 5, 6, 6, 7, 4, 5}));
  EXPECT_EQ(replay.peak_bytes, 7);
  EXPECT_DOUBLE_EQ(replay.seconds, 11);
  EXPECT_DOUBLE_EQ(replay.waiting_seconds, 2);
  EXPECT_EQ(replay.out_bytes, 3);
  EXPECT_EQ(replay.in_bytes, 3);
  EXPECT_EQ(replay.peak_below_bytes, 3);
}

// Weights of three bytes that are below at the start do not count there.
TEST(CopyReplay, WeightsComeAndGoAsTheStepBegan) {
  Chain chain = with_links(equal_blocks(1), 1, 3);
  chain.blocks[0].weight_bytes = 3;
  std::vector<ChainOperation> operations = {{ForwardKeep, 0, 0}, {Backward, 0}};
  EXPECT_EQ(replay_chain(chain, operations).peak_bytes, 8);
  operations = {copy(Drop, weights, 0),   copy(CopyIn, weights, 0),
                copy(WaitIn, weights, 0), {ForwardKeep, 0, 0},
                copy(Drop, weights, 0),   copy(CopyIn, weights, 0),
                copy(WaitIn, weights, 0), {Backward, 0}};
  EXPECT_THROW(replay_chain(chain, operations), ChainReplayError);  // they were not there
  operations.push_back(copy(Drop, weights, 0));
  const ChainReplay replay = replay_chain(chain, operations);
  EXPECT_EQ(replay.peak_bytes, 8);
  EXPECT_DOUBLE_EQ(replay.seconds, 1 + 1 + 1 + 2);
  EXPECT_EQ(replay.in_bytes, 6);
  EXPECT_EQ(replay.out_bytes, 0);
}

void expect_copies_refused(const std::vector<ChainOperation>& operations, std::size_t at,
                           const std::string& reason, const Chain& chain = three_equal_blocks()) {
  try {
    replay_chain(chain, operations);
    ADD_FAILURE() << "accepted where it should say: " << reason;
  } catch (const ChainReplayError& error) {
    EXPECT_EQ(error.operation(), at) << error.what();
    EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
  }
}

TEST(CopyReplay, RefusesWithTheOperation) {
  const auto out = [](ChainItem item, int index) { return copy(CopyOut, item, index); };
  const auto wait_out = [](ChainItem item, int index) { return copy(WaitOut, item, index); };
  const auto in = [](ChainItem item, int index) { return copy(CopyIn, item, index); };
  const auto wait_in = [](ChainItem item, int index) { return copy(WaitIn, item, index); };
  const auto drop = [](ChainItem item, int index) { return copy(Drop, item, index); };
  const ChainOperation keep0{ForwardKeep, 0, 0};
  const ChainOperation keep1{ForwardKeep, 1, 0};
  expect_copies_refused({out(value, 0)}, 0, "no bandwidths", equal_blocks(3));
  expect_copies_refused({out(value, 4)}, 0, "no such value");
  expect_copies_refused({out(saved, 3)}, 0, "no such block");
  expect_copies_refused({out(value, 1)}, 0, "not live");
  expect_copies_refused({out(saved, 0)}, 0, "not live");
  expect_copies_refused({out(weights, 0)}, 0, "copy below already");
  expect_copies_refused({out(value, 0), out(value, 0)}, 1, "not live");
  expect_copies_refused({out(value, 0), wait_out(value, 0), out(value, 0)}, 2,
                        "copy below already");
  expect_copies_refused({wait_out(value, 0)}, 0, "no such copy");
  expect_copies_refused({out(value, 0), wait_in(value, 0)}, 1, "no such copy");
  expect_copies_refused({out(value, 0), drop(value, 0)}, 1, "not waited for");
  expect_copies_refused({out(value, 0), {ForwardDiscard, 0}}, 1, "not waited for");
  expect_copies_refused({keep0, out(saved, 0), drop(saved, 0)}, 2, "no copy of it below");
  expect_copies_refused({keep0, drop(saved, 0)}, 1, "no copy of it below");
  expect_copies_refused({drop(weights, 0)}, 0, "no copy of it below", equal_blocks(3));
  expect_copies_refused({drop(weights, 0), keep0}, 1, "weights are not live");
  expect_copies_refused({in(value, 0)}, 0, "no copy below");
  expect_copies_refused({out(value, 0), in(value, 0)}, 1, "no copy below");
  expect_copies_refused({out(value, 0), wait_out(value, 0), in(value, 0)}, 2, "live already");
  expect_copies_refused({out(value, 0), wait_out(value, 0), drop(value, 0), keep0}, 3, "not live");
  expect_copies_refused({out(value, 0), wait_out(value, 0), drop(value, 0), in(value, 0), keep0}, 4,
                        "not live");
  expect_copies_refused(
      {keep0, out(saved, 0), wait_out(saved, 0), drop(saved, 0), in(saved, 0), keep1}, 5,
      "input value is not live");
  expect_copies_refused({keep0, keep1, {ForwardKeep, 2, 0}, out(saved, 2), {Backward, 2}}, 4,
                        "not waited for");
  const std::vector<ChainOperation> whole = {keep0,         keep1,         {ForwardKeep, 2, 0},
                                             {Backward, 2}, {Backward, 1}, {Backward, 0}};
  std::vector<ChainOperation> left = whole;
  left.insert(left.begin(), drop(weights, 2));
  left.insert(left.begin() + 1, in(weights, 2));
  expect_copies_refused(left, 4, "weights are not live");
  left.insert(left.begin() + 2, wait_in(weights, 2));
  expect_copies_refused(left, left.size(), "not where they were at the start");
}

TEST(CopyReplay, FilesHaveBandwidthsAndCopies) {
  Chain chain = three_equal_blocks();
  chain.blocks[1].weight_bytes = 5;
  const std::string text = to_json(chain).dump();
  const Chain again = chain_from_json(parse_json(text, "file"), "file");
  EXPECT_EQ(to_json(again).dump(), text);
  EXPECT_EQ(again.links->in_bytes_per_second, 2);
  EXPECT_EQ(again.blocks[1].weight_bytes, 5);
  const auto refused = [&](const std::string& from, const std::string& to, const char* key) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    try {
      chain_from_json(parse_json(changed, "file"), "file");
      ADD_FAILURE() << "accepted: " << changed;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(key), std::string::npos) << error.what();
    }
  };
  refused(R"("out_bytes_per_second":1.0,)", "", "out_bytes_per_second");
  refused(R"("out_bytes_per_second":1.0)", R"("out_bytes_per_second":0)", "out_bytes_per_second");
  refused(R"("in_bytes_per_second":2.0)", R"("in_bytes_per_second":-1)", "in_bytes_per_second");
  refused(R"("weight_bytes":5)", R"("weight_bytes":0.5)", "weight_bytes");
  ChainSchedule schedule;
  schedule.operations = {copy(CopyOut, saved, 2), copy(Drop, value, 1), copy(Drop, saved, 2)};
  EXPECT_EQ(to_json(schedule)["operations"].dump(),
            R"([["copy-out","saved",2],["drop",1],["drop","saved",2]])");
}

}  // namespace
}  // namespace garonne::plan::test
