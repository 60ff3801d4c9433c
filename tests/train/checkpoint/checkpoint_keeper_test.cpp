// Which checkpoints stay and which go.
#include "train/checkpoint/checkpoint_keeper.hpp"

#include <algorithm>

#include "train/models.hpp"
#include "train/scratch.hpp"

namespace garonne::train::test {
namespace {

namespace fs = std::filesystem;

using Steps = std::vector<std::int64_t>;

struct Directory {
  Scratch scratch;
  SmallModel model{Precision::Float32, 1};
  std::vector<std::string> warnings;
  std::vector<CheckpointKeeper> keepers;

  explicit Directory(const Steps& steps) {
    for (const std::int64_t step : steps) model.save(scratch.path(), step);
    start_again();
  }
  // As another process would.
  void start_again() {
    keepers.clear();
    warnings.clear();
    keepers.emplace_back(scratch.path(),
                         [this](const std::string& text) { warnings.push_back(text); });
  }
  CheckpointKeeper& keeper() { return keepers.back(); }
  void save(std::int64_t step, std::int64_t keep) {
    model.save(scratch.path(), step);
    keeper().saved(step, keep);
  }
  // As at a time by somebody's clock.
  void save_at(std::int64_t step, std::int64_t minutes, std::int64_t keep,
               std::int64_t keep_minutes, std::int64_t seconds = 0) {
    Manifest manifest = model.manifest(step);
    manifest.saved_at = 1'000'000 + 60 * minutes + seconds;
    save_checkpoint(scratch.path(), model.model, moments, model.state, manifest,
                    CollectivePhases());
    keeper().saved(step, keep, keep_minutes);
  }
  std::string folder(std::int64_t step) const { return checkpoint_path(scratch.path(), step); }
  void damage(std::int64_t step, const std::string& name = "rank_0.safetensors") const {
    const std::string path = folder(step) + "/" + name;
    std::string bytes = read_bytes(path);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    write_bytes(path, bytes);
  }
  Steps steps() const { return list_checkpoints(scratch.path()); }
  int warnings_of(const std::string& name) const {
    return static_cast<int>(std::count_if(
        warnings.begin(), warnings.end(),
        [&](const std::string& text) { return text.find("/" + name + " ") != std::string::npos; }));
  }
};

TEST(CheckpointKeeper, TheNewestStay) {
  Directory run({1, 2, 3});
  run.save(10, 5);
  EXPECT_EQ(run.steps(), (Steps{1, 2, 3, 10}));
  run.save(11, 2);
  EXPECT_EQ(run.steps(), (Steps{10, 11}));
  run.save(12, 1);
  EXPECT_EQ(run.steps(), (Steps{12}));
  EXPECT_TRUE(run.warnings.empty());
  std::vector<fs::path> left(fs::directory_iterator(run.scratch.path("checkpoints")),
                             fs::directory_iterator());
  EXPECT_EQ(left.size(), 1U) << "nothing hidden stays";
}

// A start removes what the save before it could not.
TEST(CheckpointKeeper, AStartPrunesWhatIsOlderThanItsCheckpoint) {
  Directory run({2, 4, 6, 8});
  run.keeper().started_from(8);
  run.keeper().prune(8, 9);
  EXPECT_EQ(run.steps(), (Steps{2, 4, 6, 8}));
  run.damage(6);
  run.start_again();
  run.keeper().started_from(8);
  run.keeper().prune(8, 2);
  EXPECT_EQ(run.steps(), (Steps{4, 6, 8})) << "the damaged one does not count";
  // Of later ones, damaged by all that is known, none counts and none goes.
  run.start_again();
  run.keeper().started_from(4);
  run.keeper().prune(4, 1);
  EXPECT_EQ(run.steps(), (Steps{4, 6, 8}));
  EXPECT_TRUE(run.warnings.empty());
}

// The run goes on from 4, since 6 and 8 are damaged: they are newer than what it writes next.
TEST(CheckpointKeeper, DamagedOnesPushNoWholeOnesOut) {
  Directory run({2, 4, 6, 8});
  run.damage(6);
  run.damage(8);
  run.keeper().started_from(4);
  run.save(5, 2);
  EXPECT_EQ(run.steps(), (Steps{4, 5, 6, 8}));
  EXPECT_EQ(run.warnings_of("step-6"), 1);
  EXPECT_EQ(run.warnings_of("step-8"), 1);
  run.save(6, 2);
  EXPECT_EQ(run.steps(), (Steps{5, 6, 8}));
  EXPECT_EQ(run.warnings_of("step-8"), 1) << "once";
  EXPECT_NO_THROW(verify_checkpoint_of_step(run.scratch.path(), 6));
}

TEST(CheckpointKeeper, DamagedOnesDoNotCount) {
  for (const char* file : {"rank_0.safetensors", "manifest.json"}) {
    Directory run({1, 2, 3, 4});
    run.damage(3, file);
    run.save(5, 3);
    EXPECT_EQ(run.steps(), (Steps{2, 3, 4, 5})) << file;
    run.save(6, 3);
    EXPECT_EQ(run.steps(), (Steps{4, 5, 6})) << "a damaged one goes with its age";
  }
  // All the older ones are damaged: what was just written is the only whole one.
  Directory run({1, 2, 3});
  for (const std::int64_t step : {1, 2, 3}) run.damage(step);
  run.save(4, 2);
  EXPECT_EQ(run.steps(), (Steps{1, 2, 3, 4}));
}

TEST(CheckpointKeeper, WhatItDoesNotKnowIsLeftAndNamedOnce) {
  Directory run({1, 2, 3});
  const auto copy = [&](std::int64_t step, const std::string& name) {
    fs::copy(run.folder(step), run.scratch.path("checkpoints/" + name));
  };
  copy(1, "step--5");
  copy(1, "step-007");
  copy(1, "step-+4");
  copy(1, "step-1x");
  copy(1, "step-99999999999999999999");
  copy(2, "step-900");
  fs::remove_all(run.folder(1));
  copy(2, "step-1");
  for (const std::int64_t step : {4, 5, 6}) run.save(step, 1);
  EXPECT_EQ(run.steps(), (Steps{1, 6, 900}));
  for (const char* name : {"step--5", "step-007", "step-+4", "step-1x", "step-99999999999999999999",
                           "step-900", "step-1"}) {
    EXPECT_TRUE(fs::exists(run.scratch.path("checkpoints/" + std::string(name)))) << name;
    EXPECT_EQ(run.warnings_of(name), 1) << name;
  }
  // A copy counts for none, either.
  run.start_again();
  copy(6, "step-7");
  run.save(8, 2);
  EXPECT_EQ(run.steps(), (Steps{1, 6, 7, 8, 900}));
  EXPECT_EQ(run.warnings_of("step-7"), 1);
}

TEST(CheckpointKeeper, RemembersThatThereWasOne) {
  Directory run({});
  EXPECT_FALSE(has_saved_checkpoints(run.scratch.path()));
  run.save(3, 2);
  EXPECT_TRUE(has_saved_checkpoints(run.scratch.path()));
  fs::remove_all(run.scratch.path("checkpoints"));
  EXPECT_TRUE(has_saved_checkpoints(run.scratch.path()));
  // A run of before this was remembered.
  Directory older({3});
  EXPECT_FALSE(has_saved_checkpoints(older.scratch.path()));
  older.keeper().started_from(3);
  EXPECT_TRUE(has_saved_checkpoints(older.scratch.path()));
}

TEST(CheckpointKeeper, OneOfEverySoManyMinutesStays) {
  Directory run({});
  // One every four minutes; the step is the minute.
  for (std::int64_t minute = 0; minute <= 60; minute += 4) run.save_at(minute, minute, 2, 10);
  // Of 0 … 9, of 10 … 19 and so on the first, and the newest two.
  EXPECT_EQ(run.steps(), (Steps{0, 12, 20, 32, 40, 52, 56, 60}));
  // The bounds of minutes are those of the run's first checkpoint, to the second.
  run.save_at(61, 69, 1, 10, 59);
  run.save_at(62, 70, 1, 10);
  run.save_at(63, 71, 1, 10);
  EXPECT_EQ(run.steps(), (Steps{0, 12, 20, 32, 40, 52, 60, 62, 63}));
  EXPECT_TRUE(run.warnings.empty());
}

TEST(CheckpointKeeper, WhatStaysForGoodStaysInLaterStartsOfTheRun) {
  Directory run({});
  for (std::int64_t minute = 0; minute <= 40; minute += 5) run.save_at(minute, minute, 1, 20);
  EXPECT_EQ(run.steps(), (Steps{0, 20, 40}));
  run.start_again();
  // A night later, and the first one is gone: the beginning of the run is what it was.
  fs::remove_all(run.folder(0));
  for (std::int64_t minute = 619; minute <= 640; minute += 3) run.save_at(minute, minute, 1, 20);
  EXPECT_EQ(run.steps(), (Steps{20, 40, 619, 622, 640}));
  // Without the key they go; with another one fewer stay.
  run.save_at(700, 700, 1, 400);
  EXPECT_EQ(run.steps(), (Steps{20, 619, 700}));
  run.save_at(701, 701, 1, 0);
  EXPECT_EQ(run.steps(), (Steps{701}));
}

TEST(CheckpointKeeper, ADamagedOneStandsForNoMinutes) {
  Directory run({});
  run.save_at(1, 0, 1, 10);
  run.save_at(2, 11, 1, 10);
  run.save_at(3, 12, 3, 10);
  EXPECT_EQ(run.steps(), (Steps{1, 2, 3}));
  run.damage(2);
  run.start_again();
  run.save_at(4, 25, 1, 10);
  EXPECT_EQ(run.steps(), (Steps{1, 3, 4})) << "3 is the first whole one of its minutes";
}

TEST(CheckpointKeeper, ClocksThatGoBackAndManifestsWithoutATimeDoNoHarm) {
  Directory run({1, 2, 3});  // of an earlier version
  run.save_at(4, 100, 1, 10);
  EXPECT_EQ(run.steps(), (Steps{4}));
  run.save_at(5, 30, 1, 10);
  run.save_at(6, 31, 1, 10);
  run.save_at(7, 115, 1, 10);
  run.save_at(8, 116, 1, 10);
  EXPECT_EQ(run.steps(), (Steps{4, 5, 7, 8})) << "each minute that was, once";
  run.model.save(run.scratch.path(), 9);
  run.keeper().saved(9, 1, 10);
  run.save_at(10, 130, 1, 10);
  EXPECT_EQ(run.steps(), (Steps{4, 5, 7, 10}));
}

// A run of a version that remembered no time begins with the oldest that has one.
TEST(CheckpointKeeper, TheBeginningIsRememberedWhereItWasNot) {
  Directory run({1});
  run.keeper().started_from(1);
  run.start_again();
  for (std::int64_t minute = 103; minute <= 130; minute += 3) run.save_at(minute, minute, 1, 10);
  EXPECT_EQ(run.steps(), (Steps{103, 115, 124, 130}));
  run.start_again();
  fs::remove_all(run.folder(103));
  run.save_at(133, 133, 1, 10);
  run.save_at(136, 136, 1, 10);
  EXPECT_EQ(run.steps(), (Steps{115, 124, 133, 136}));
}

}  // namespace
}  // namespace garonne::train::test
