// How far what steps leave to one another reaches, against steps that are carried out one by one.
#include "exec/tier_room.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "plan/program/rotated_step.hpp"

namespace garonne::exec {
namespace {

// Blocks by their beginnings; a new one is in the shortest gap that it fits, the first of several.
class Blocks {
 public:
  void make(int id, std::int64_t bytes) {
    std::int64_t best = -1;
    std::int64_t shortest = 0;
    std::int64_t begin = 0;
    for (const auto& [at, block] : blocks_) {
      const std::int64_t gap = at - begin;
      if (gap >= bytes && (best < 0 || gap < shortest)) {
        best = begin;
        shortest = gap;
      }
      begin = at + block.second;
    }
    if (best < 0) best = begin;  // behind all, where there is no end
    blocks_[best] = {id, bytes};
    reach_ = std::max(reach_, best + bytes);
  }
  void free(int id) {
    std::erase_if(blocks_, [&](const auto& block) { return block.second.first == id; });
  }
  std::int64_t reach() const { return reach_; }

 private:
  std::map<std::int64_t, std::pair<int, std::int64_t>> blocks_;
  std::int64_t reach_ = 0;
};

// Some buffers are made by a step and freed by the next one, in another order, others within it.
plan::Program random_rotated(unsigned seed) {
  std::mt19937 random(seed);
  plan::Program program;
  const int buffers = 4 + static_cast<int>(random() % 12);
  std::vector<int> carried;
  for (int id = 0; id < buffers; ++id) {
    plan::Buffer buffer;
    buffer.tier = Tier::Host;
    buffer.bytes = 4096 * static_cast<std::int64_t>(1 + random() % 40);
    buffer.carried = id % 4 != 3;
    program.buffers.push_back(buffer);
  }
  std::vector<plan::Instruction> instructions;
  for (int id = 0; id < buffers; ++id) {
    plan::Instruction freed;
    freed.operation = plan::Operation::UpdateHost;
    freed.of_previous_step = true;
    freed.frees = {id};
    plan::Instruction made;
    made.operation = plan::Operation::CopyOut;
    made.writes = {id};
    if (program.buffers[static_cast<std::size_t>(id)].carried) {
      instructions.push_back(freed);
    } else {
      made.frees = {id};
    }
    instructions.push_back(made);
  }
  // What is carried is freed before the same is made again.
  std::stable_sort(instructions.begin(), instructions.end(), [](const auto& a, const auto& b) {
    return a.of_previous_step > b.of_previous_step;
  });
  const auto first_made = std::find_if(instructions.begin(), instructions.end(),
                                       [](const auto& one) { return !one.of_previous_step; });
  std::shuffle(instructions.begin(), first_made, random);
  std::shuffle(first_made, instructions.end(), random);
  // Some of what is freed late, as far as it is not made before.
  for (int swaps = 0; swaps < buffers; ++swaps) {
    const std::size_t i = random() % (instructions.size() - 1);
    auto& a = instructions[i];
    auto& b = instructions[i + 1];
    if (a.of_previous_step && !b.of_previous_step && a.frees != b.writes) std::swap(a, b);
  }
  program.instructions = std::move(instructions);
  return program;
}

std::int64_t reach_of(const plan::Program& program, int steps, std::mt19937& random) {
  Blocks blocks;
  std::int64_t in_a_row = 0;
  const auto step = [&](bool of_previous, bool own) {
    for (const plan::Instruction& one : program.instructions) {
      if (!(one.of_previous_step ? of_previous : own)) continue;
      for (const int id : one.writes)
        blocks.make(id, program.buffers[static_cast<std::size_t>(id)].bytes);
      for (const int id : one.frees) blocks.free(id);
    }
  };
  for (int number = 0; number < steps; ++number) {
    if (in_a_row == most_steps_in_a_row || (in_a_row > 0 && random() % 97 == 0)) {
      step(true, false);
      in_a_row = 0;
    }
    step(in_a_row > 0, true);
    ++in_a_row;
  }
  return blocks.reach();
}

TEST(TierRoom, IsEnoughForStepsInARow) {
  int exact = 0;
  constexpr int programs = 60;
  for (unsigned seed = 0; seed < programs; ++seed) {
    SCOPED_TRACE(seed);
    const plan::Program program = random_rotated(seed);
    ASSERT_TRUE(plan::is_rotated(program));
    std::int64_t all = 0;
    for (const plan::Buffer& buffer : program.buffers) all += buffer.bytes;
    std::mt19937 random(seed);
    const std::int64_t room = tier_room(program, Tier::Host, all);
    const std::int64_t reach = reach_of(program, 1000, random);
    EXPECT_LE(reach, room);
    exact += reach == room;
  }
  EXPECT_GT(exact, programs / 2);
}

}  // namespace
}  // namespace garonne::exec
