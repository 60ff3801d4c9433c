// Steps whose masters and states are on a lower tier between their updates, or whose parameters and
// gradients are there between their uses: the bits of the step that keeps them, and on each tier
// the bytes that replay says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "exec/gpt_rank.hpp"
#include "exec/stored_part.hpp"
#include "plan/offload/gradient_offload.hpp"
#include "plan/offload/host_update.hpp"
#include "plan/offload/offload.hpp"
#include "plan/offload/paging.hpp"
#include "plan/offload/random_offloads.hpp"
#include "plan/offload/rotated_updates.hpp"
#include "plan/offload/state_offload.hpp"
#include "plan/offload/weight_offload.hpp"
#include "plan/program/proofs.hpp"

namespace garonne::exec {
namespace {

namespace fs = std::filesystem;

// With as little of the device as can be, or with room for all of them.
plan::Program with_states_on(Tier tier, const plan::Program& program, bool tight) {
  const std::vector<plan::StateGroup> groups = plan::state_groups(program, 0);
  std::int64_t bytes = 0;
  for (const plan::StateGroup& group : groups) bytes += group.bytes;
  std::int64_t budget = plan::replay(program).peak_bytes;
  if (tight) budget -= bytes;
  for (;; budget += 1024) {
    auto moved = plan::with_states_below(program, groups, tier, {}, budget);
    if (moved) return std::move(*moved);
  }
}

enum Pages { weights, gradients, all_pages };

// With as little of the device as can be, or with some room.
plan::Program with_pages_on(Tier tier, plan::Program program, Pages pages, bool tight) {
  if (pages != weights) program = plan::with_divided_squares(std::move(program));
  std::vector<int> buffers;
  const auto add = [&](const std::vector<int>& some) {
    buffers.insert(buffers.end(), some.begin(), some.end());
  };
  if (pages != gradients) add(plan::movable_weights(program, 0));
  if (pages != weights) add(plan::movable_gradients(program, 0));
  for (const plan::StateGroup& group : plan::state_groups(program, 0)) {
    if (pages == all_pages) add(group.buffers);
  }
  const plan::Prediction before = plan::replay(program);
  std::vector<std::int64_t> bytes = before.during_bytes;
  const std::vector<std::int64_t> idle = plan::idle_bytes(program, buffers);
  for (std::size_t place = 0; place < idle.size(); ++place) bytes[place] -= idle[place];
  std::int64_t budget = *std::max_element(bytes.begin(), bytes.end());
  if (!tight) budget += (before.peak_bytes - budget) / 2;
  auto moved = plan::with_paging(std::move(program), buffers, tier, {}, budget);
  return std::move(*moved);
}

plan::Program with_all_updates_on_host(const plan::Program& program, bool early) {
  return plan::with_updates_on_host(
      program, plan::state_groups(program, 0), {}, 1e9,
      early ? plan::GradientCopies::WhenComplete : plan::GradientCopies::AtTheEnd);
}

// They take turns.
std::string optimizer_of(unsigned seed) {
  const std::vector<std::string> all = {"adamw", "lamb", "lars", "adafactor", "sgd", "lion"};
  return all[seed % all.size()];
}

class StateCopies : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::current_path() / "states-test-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    EXPECT_TRUE(fs::is_empty(folder_)) << "a file is left on the disk";
    fs::remove_all(folder_);
  }

  // Beside some values and records where `seed` is odd. `updates`: on the host, where they last.
  Setting moving(Setting setting, unsigned seed, Tier tier, bool updates = false) const {
    setting.disk_folder = tier == Tier::Disk ? folder_ : "";
    setting.change = [seed, tier, updates](plan::Program program) {
      if (seed % 2 == 1) {
        std::mt19937 random(seed);
        const auto offloads = plan::test::random_offloads(program, random, 3, {tier});
        program = plan::with_offloads(std::move(program), offloads, {{tier, {}}});
      }
      if (updates) return with_all_updates_on_host(program, seed % 3 != 0);
      return with_states_on(tier, program, seed % 3 != 0);
    };
    return setting;
  }

  static Setting beside_next_step(Setting setting) {
    setting.change = [within = setting.change](plan::Program program) {
      return plan::with_rotated_updates(within(std::move(program))).value();
    };
    return setting;
  }

  // Ranks that keep all and ranks with updates on the host, on lanes that are late or not. Which
  // optimizer is the first says `optimizer`.
  void for_each_with_updates(unsigned optimizer, bool beside,
                             const std::function<void(Rank& keeping, Rank& moving)>& use) const {
    unsigned seed = 0;
    for (const Precision precision : precisions) {
      for (const std::optional<std::uint64_t> late :
           {std::optional<std::uint64_t>(), std::optional<std::uint64_t>(1),
            std::optional<std::uint64_t>(2)}) {
        Setting setting;
        setting.precision = precision;
        setting.plan = seed % 2 == 0 ? "keep-all" : "any 7";
        setting.micro_batches = 2;
        setting.clip_norm = seed % 2 == 0 ? 0 : 0.1;
        setting.optimizer = optimizer_of(seed + optimizer);
        SCOPED_TRACE(setting.text());
        Rank keeping(setting);
        Setting host = moving(setting, ++seed, Tier::Host, true);
        if (beside) host = beside_next_step(std::move(host));
        host.emulated_seed = late;
        Rank moving(host);
        use(keeping, moving);
      }
    }
  }

  Setting paging(Setting setting, Pages pages, unsigned seed, Tier tier) const {
    setting.disk_folder = tier == Tier::Disk ? folder_ : "";
    setting.change = [pages, seed, tier](plan::Program program) {
      if (seed % 2 == 1) {
        std::mt19937 random(seed);
        const auto offloads = plan::test::random_offloads(program, random, 3, {tier});
        program = plan::with_offloads(std::move(program), offloads, {{tier, {}}});
      }
      return with_pages_on(tier, std::move(program), pages, seed % 3 != 0);
    };
    return setting;
  }

  std::string folder_;
};

std::vector<std::byte> bytes_of(const StoredPart& part) {
  std::vector<std::byte> all;
  part.read(0, part.elements(), [&](std::span<const std::byte> piece) {
    all.insert(all.end(), piece.begin(), piece.end());
  });
  return all;
}

void expect_the_same_state(const ModelState& a, const ModelState& b) {
  ASSERT_EQ(a.pieces.size(), b.pieces.size());
  const auto same = [&](const BufferPart& one, const BufferPart& other) {
    EXPECT_EQ(one.shape, other.shape) << one.buffer;
    EXPECT_EQ(bytes_of(StoredPart(a, one)), bytes_of(StoredPart(b, other))) << one.buffer;
  };
  for (std::size_t p = 0; p < a.pieces.size(); ++p) {
    const TrainedPiece& one = a.pieces[p];
    const TrainedPiece& other = b.pieces[p];
    same(one.parameter, other.parameter);
    same(one.trained(), other.trained());
    ASSERT_EQ(one.states.size(), other.states.size());
    for (std::size_t k = 0; k < one.states.size(); ++k) same(one.states[k], other.states[k]);
  }
}

void expect_the_same_steps(Rank& keeping, Rank& moving, Tier tier) {
  EXPECT_NO_THROW(plan::prove(moving.program(), moving.model().graph));
  expect_the_same_state(keeping.state(), moving.state());
  const std::int64_t lasting = moving.prediction().of(tier).static_bytes;
  EXPECT_GT(moving.prediction().of(tier).peak_bytes, 0);
  for (std::int64_t number = 1; number <= 3; ++number) {
    const StepOutputs wanted = keeping.step(number);
    const StepOutputs found = moving.step(number);
    EXPECT_EQ(found.loss, wanted.loss);
    EXPECT_EQ(found.gradient_norm, wanted.gradient_norm);
    EXPECT_EQ(moving.gradients(), keeping.gradients());
    expect_predicted_bytes(moving, found);
    EXPECT_EQ(found.live_bytes_below.at(tier), moving.prediction().of(tier).live_bytes);
    EXPECT_EQ(moving.live_bytes(tier), lasting);
    EXPECT_EQ(moving.evaluate().loss, keeping.evaluate().loss);
  }
  expect_the_same_state(keeping.state(), moving.state());
}

TEST_F(StateCopies, ChangeNoBit) {
  unsigned seed = 0;
  for (const Precision precision : precisions) {
    for (const char* plan : {"keep-all", "any 7"}) {
      Setting setting;
      setting.precision = precision;
      setting.plan = plan;
      setting.micro_batches = 2;
      for (const Tier tier : {Tier::Host, Tier::Disk}) {
        setting.optimizer = optimizer_of(++seed);
        SCOPED_TRACE(setting.text() + " " + std::string(to_string(tier)));
        Rank keeping(setting);
        Rank moving(this->moving(setting, seed, tier));
        expect_the_same_steps(keeping, moving, tier);
      }
    }
  }
}

TEST_F(StateCopies, ChangeNoBitHoweverLateLanesAre) {
  for (const Precision precision : {Precision::Float32, Precision::BFloat16}) {
    for (unsigned seed = 0; seed < 6; ++seed) {
      SCOPED_TRACE(seed);
      Setting setting;
      setting.precision = precision;
      setting.clip_norm = seed % 2 == 0 ? 0 : 0.1;
      const Tier tier = seed % 4 < 2 ? Tier::Host : Tier::Disk;
      Rank keeping(setting);
      Setting late = moving(setting, seed, tier);
      late.emulated_seed = seed;
      Rank moving(late);
      expect_the_same_steps(keeping, moving, tier);
    }
  }
}

TEST_F(StateCopies, UpdatesOnTheHostChangeNoBit) {
  for_each_with_updates(1, false, [](Rank& keeping, Rank& moving) {
    expect_the_same_steps(keeping, moving, Tier::Host);
  });
}

// Three steps, the state behind them, and three more: the first and the fourth follow none that has
// left anything.
void expect_the_same_rotated_steps(Rank& keeping, Rank& rotated) {
  EXPECT_TRUE(plan::is_rotated(rotated.program()));
  EXPECT_NO_THROW(plan::prove(rotated.program(), rotated.model().graph));
  const plan::Prediction& predicted = rotated.prediction();
  const std::int64_t lasting = predicted.host.static_bytes;
  for (std::int64_t number = 1; number <= 6; ++number) {
    const double rate = 1e-3 * static_cast<double>(number);
    const StepOutputs wanted = keeping.step(number, rate);
    const StepOutputs found = rotated.step(number, rate);
    EXPECT_EQ(found.loss, wanted.loss);
    EXPECT_EQ(found.gradient_norm, wanted.gradient_norm);
    EXPECT_EQ(rotated.gradients(), keeping.gradients());
    EXPECT_LE(found.peak_bytes, predicted.peak_bytes);
    const std::vector<std::int64_t>& below = found.live_bytes_below.at(Tier::Host);
    if (number % 3 == 1) {
      EXPECT_LE(*std::max_element(below.begin(), below.end()), predicted.host.peak_bytes);
    } else {
      expect_predicted_bytes(rotated, found);
      EXPECT_EQ(below, predicted.host.live_bytes);
    }
    EXPECT_GT(rotated.live_bytes(Tier::Host), lasting) << "nothing is left";
    if (number % 3 != 0) continue;
    rotated.flush();
    EXPECT_EQ(rotated.live_bytes(Tier::Host), lasting);
    EXPECT_EQ(rotated.evaluate().loss, keeping.evaluate().loss);
    expect_the_same_state(keeping.state(), rotated.state());
    rotated.flush();  // nothing is left
  }
  expect_the_same_state(keeping.state(), rotated.state());
}

TEST_F(StateCopies, UpdatesBesideTheNextStepChangeNoBit) {
  for_each_with_updates(0, true, expect_the_same_rotated_steps);
}

// What the last step has left goes with its executor.
TEST_F(StateCopies, UpdatesThatAreLeftAreGivenBack) {
  Rank rank(beside_next_step(moving({}, 2, Tier::Host, true)));
  const std::int64_t lasting = rank.live_bytes(Tier::Host);
  rank.step(1);
  EXPECT_GT(rank.live_bytes(Tier::Host), lasting);
  rank.forget_steps();
  EXPECT_EQ(rank.live_bytes(Tier::Host), lasting);
}

TEST_F(StateCopies, OfPagesChangeNoBit) {
  unsigned seed = 0;
  for (const Precision precision : precisions) {
    for (const Pages pages : {weights, gradients, all_pages}) {
      Setting setting;
      setting.precision = precision;
      setting.plan = seed % 2 == 0 ? "keep-all" : "any 5";
      setting.micro_batches = 2;
      setting.clip_norm = seed % 2 == 0 ? 0.1 : 0;
      setting.optimizer = optimizer_of(seed + 1);
      SCOPED_TRACE(setting.text() + ", pages " + std::to_string(pages));
      ++seed;
      for (const Tier tier : {Tier::Host, Tier::Disk}) {
        SCOPED_TRACE(to_string(tier));
        Rank keeping(setting);
        Rank moving(paging(setting, pages, seed, tier));
        expect_the_same_steps(keeping, moving, tier);
      }
    }
  }
}

TEST_F(StateCopies, OfPagesChangeNoBitHoweverLateLanesAre) {
  for (unsigned seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE(seed);
    Setting setting;
    setting.precision = seed % 2 == 0 ? Precision::Float32 : Precision::BFloat16;
    setting.micro_batches = 2;
    Rank keeping(setting);
    const Tier tier = seed % 4 < 2 ? Tier::Host : Tier::Disk;
    Setting late = paging(setting, static_cast<Pages>(seed % 3), seed, tier);
    late.emulated_seed = seed;
    Rank moving(late);
    expect_the_same_steps(keeping, moving, tier);
  }
}

// Beside memory to which the same is done.
TEST_F(StateCopies, PartsAreFilledAndRead) {
  for (const Tier tier : {Tier::Host, Tier::Disk}) {
    Rank rank(moving({}, 2, tier));
    std::mt19937 random(1);
    for (const TrainedPiece& piece : rank.state().pieces) {
      const StoredPart part(rank.state(), piece.states[0]);
      EXPECT_EQ(part.data() != nullptr, tier == Tier::Host);
      std::vector<std::byte> wanted = bytes_of(part);
      const std::int64_t size = part.element_bytes();
      for (int k = 0; k < 4; ++k) {
        const auto first =
            static_cast<std::int64_t>(random() % static_cast<unsigned>(part.elements()));
        const auto count = 1 + static_cast<std::int64_t>(
                                   random() % static_cast<unsigned>(part.elements() - first));
        std::vector<std::byte> some(static_cast<std::size_t>(count * size));
        for (std::byte& byte : some) byte = static_cast<std::byte>(random());
        part.fill(first, count, [&](std::int64_t at, std::span<std::byte> to) {
          std::memcpy(to.data(), some.data() + at, to.size());
        });
        std::memcpy(wanted.data() + first * size, some.data(), some.size());
        EXPECT_EQ(bytes_of(part), wanted);
        std::vector<std::byte> read;
        part.read(first, count, [&](std::span<const std::byte> from) {
          read.insert(read.end(), from.begin(), from.end());
        });
        EXPECT_EQ(read, some);
      }
    }
    const BufferPart state = rank.state().pieces[0].states[0];
    EXPECT_THROW(rank.state().buffers.tensor(state.buffer), InternalError);
    EXPECT_THROW(rank.state().parameter(0), InternalError);
    EXPECT_THROW(StoredPart(rank.state(), {state.buffer, 1, state.shape}), InternalError);
  }
}

}  // namespace
}  // namespace garonne::exec
