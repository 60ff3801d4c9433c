// What a used run directory means, and the choice of a plan.
#include "train/run/run_directory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/bytes.hpp"
#include "plan/stage/stage_solver.hpp"
#include "plan/step/rank_program.hpp"
#include "train/checkpoint/checkpoint_keeper.hpp"
#include "train/models.hpp"
#include "train/scratch.hpp"
#include "train/setup/planning.hpp"
#include "train/training_text.hpp"

namespace garonne::train::test {
namespace {

namespace fs = std::filesystem;

RunConfig config_in(const std::string& directory) {
  RunConfig config;
  config.run.directory = directory;
  config.model.layers = 2;
  config.model.hidden = 12;
  return config;
}

void damage(const std::string& path) {
  std::string bytes = read_bytes(path);
  ASSERT_FALSE(bytes.empty());
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
  write_bytes(path, bytes);
}

struct Found {
  StartingPoint start;
  std::vector<std::string> notes;
};
Found look(const RunConfig& config) {
  Found found;
  found.start =
      find_starting_point(config, [&](const std::string& note) { found.notes.push_back(note); });
  return found;
}

TEST(RunDirectory, RemembersWhatItBeganWith) {
  const Scratch scratch;
  const std::string directory = scratch.path("run");
  EXPECT_FALSE(beginning_of_run(directory));
  const Beginning began = {.given = "first",
                           .checkpoint = scratch.path("gone"),
                           .step = 7,
                           .manifest = std::string(32, 'a'),
                           .missing = {"layer.2.*"},
                           .unused = {},
                           .changes = {"model.rope_theta"}};
  save_beginning(directory, began);
  const auto found = beginning_of_run(directory);
  ASSERT_TRUE(found);
  EXPECT_EQ(to_json(*found), to_json(began));
  EXPECT_THROW(open_beginning(directory, *found), IoError);
  const std::string path = directory + "/beginning.json";
  const std::string whole = read_bytes(path);
  for (const char* damaged : {"", "{", "[]", "{\"format\": \"garonne.beginning\", \"version\": 2}",
                              "{\"format\": \"garonne.beginning\", \"version\": 1}"}) {
    write_bytes(path, damaged);
    EXPECT_THROW(beginning_of_run(directory), IoError) << damaged;
  }
  write_bytes(path, whole);
  EXPECT_TRUE(beginning_of_run(directory));
}

TEST(RunDirectory, FreshOnesStartFromTheSeed) {
  const Scratch scratch;
  for (const char* resume : {"auto", "never"}) {
    for (const std::string& directory : {scratch.path("absent"), scratch.path()}) {
      RunConfig config = config_in(directory);
      config.run.resume = resume;
      const Found found = look(config);
      EXPECT_EQ(found.start.step, 0);
      EXPECT_EQ(found.start.checkpoint, "");
      EXPECT_TRUE(found.notes.empty());
    }
  }
}

TEST(RunDirectory, NeverWantsAnEmptyOne) {
  const Scratch scratch;
  RunConfig config = config_in(scratch.path());
  config.run.resume = "never";
  write_bytes(scratch.path("anything"), "");
  try {
    look(config);
    ADD_FAILURE() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.key(), "run.directory");
    EXPECT_NE(std::string(error.what()).find("never"), std::string::npos) << error.what();
  }
  config.run.resume = "auto";
  EXPECT_EQ(look(config).start.step, 0);
}

TEST(RunDirectory, TheNewestThatVerifies) {
  const Scratch scratch;
  const RunConfig config = config_in(scratch.path());
  SmallModel small;
  for (const std::int64_t step : {8, 9, 10})
    small.save(scratch.path(), step, config_to_toml(config));
  EXPECT_EQ(look(config).start.step, 10);
  EXPECT_TRUE(look(config).notes.empty());
  damage(checkpoint_path(scratch.path(), 10) + "/rank_0.safetensors");
  Found found = look(config);
  EXPECT_EQ(found.start.step, 9);
  EXPECT_EQ(found.start.checkpoint, checkpoint_path(scratch.path(), 9));
  EXPECT_EQ(found.start.manifest.step, 9);
  ASSERT_EQ(found.notes.size(), 1U);
  EXPECT_NE(found.notes[0].find("10"), std::string::npos) << found.notes[0];
  EXPECT_NE(found.notes[0].find("rank_0.safetensors"), std::string::npos) << found.notes[0];
  damage(checkpoint_path(scratch.path(), 9) + "/manifest.json");
  found = look(config);
  EXPECT_EQ(found.start.step, 8);
  EXPECT_EQ(found.notes.size(), 2U);
  fs::remove(checkpoint_path(scratch.path(), 8) + "/manifest.json");
  expect_io_error(scratch.path(), "none of them verifies", [&] { look(config); });
}

TEST(RunDirectory, AHalfWrittenCheckpointIsNone) {
  const Scratch scratch;
  const RunConfig config = config_in(scratch.path());
  SmallModel small;
  small.save(scratch.path(), 4, config_to_toml(config));
  fs::copy(checkpoint_path(scratch.path(), 4), scratch.path("checkpoints/.partial-step-5"));
  fs::remove(scratch.path("checkpoints/.partial-step-5/manifest.json"));
  EXPECT_EQ(look(config).start.step, 4);
  EXPECT_TRUE(look(config).notes.empty());
}

TEST(RunDirectory, ACopyOfAnotherStepIsNone) {
  const Scratch scratch;
  const RunConfig config = config_in(scratch.path());
  SmallModel small;
  small.save(scratch.path(), 2, config_to_toml(config));
  small.save(scratch.path(), 4, config_to_toml(config));
  fs::copy(checkpoint_path(scratch.path(), 2), checkpoint_path(scratch.path(), 900));
  const Found found = look(config);
  EXPECT_EQ(found.start.step, 4);
  ASSERT_EQ(found.notes.size(), 1U);
  EXPECT_NE(found.notes[0].find("900"), std::string::npos) << found.notes[0];
  EXPECT_NE(found.notes[0].find("step 2"), std::string::npos) << found.notes[0];
}

TEST(RunDirectory, LostCheckpointsAreNoReasonToStartAnew) {
  const Scratch scratch;
  const RunConfig config = config_in(scratch.path());
  SmallModel small;
  small.save(scratch.path(), 2, config_to_toml(config));
  CheckpointKeeper(scratch.path(), [](const std::string&) {}).saved(2, 1);
  EXPECT_EQ(look(config).start.step, 2);
  fs::remove_all(checkpoint_path(scratch.path(), 2));
  expect_io_error(scratch.path("checkpoints"), "mounted", [&] { look(config); });
  fs::remove_all(scratch.path("checkpoints"));
  expect_io_error(scratch.path("checkpoints"), "mounted", [&] { look(config); });
}

TEST(RunDirectory, ALockAloneIsNothing) {
  const Scratch scratch;
  RunConfig config = config_in(scratch.path());
  config.run.resume = "never";
  write_bytes(scratch.path("lock"), "{}");
  EXPECT_EQ(look(config).start.step, 0);
}

TEST(RunDirectory, NamesThatAreNoUtf8AreRefused) {
  RunConfig config = config_in("runs/münchen");
  EXPECT_NO_THROW(expect_storable(config));
  config.data.path = "u\xff";
  try {
    expect_storable(config);
    ADD_FAILURE() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.key(), "data.path");
  }
}

TEST(RunDirectory, KeysThatMayNotChangeAreNamed) {
  const Scratch scratch;
  const RunConfig config = config_in(scratch.path());
  SmallModel small;
  small.save(scratch.path(), 4, config_to_toml(config));
  const auto refused = [&](const std::string& key, const std::string& value) {
    RunConfig changed = config;
    for (const auto& spec : config_keys()) {
      if (spec.name == key) spec.set(changed, value);
    }
    try {
      look(changed);
      ADD_FAILURE() << key << " may change";
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.key(), key);
      EXPECT_EQ(error.value(), value);
    }
  };
  refused("model.layers", "3");
  refused("model.dropout", "0.5");
  refused("train.seed", "2");
  refused("train.global_batch", "32");
  refused("train.micro_batch", "2");
  refused("train.precision", "bfloat16");
  refused("train.products", "tf32");
  refused("optimizer.learning_rate", "0.001");
  refused("data.path", "other.h5");
}

TEST(RunDirectory, OtherKeysMayChange) {
  const Scratch scratch;
  RunConfig config = config_in(scratch.path());
  SmallModel small;
  small.save(scratch.path(), 4, config_to_toml(config));
  config.train.steps = 999;
  config.train.stop_after = 3;
  config.grid.data = 2;
  config.grid.bucket = 1000;
  config.memory.budget = 12345;
  config.memory.plan = "full";
  config.evaluation.every = 7;
  config.checkpoint.keep = 9;
  config.run.threads = 1;
  config.data.missing = "mask";
  EXPECT_EQ(look(config).start.step, 4);
}

TEST(RunDirectory, RemembersItsConfiguration) {
  const Scratch scratch;
  RunConfig config = config_in(scratch.path("a/b/run"));
  config.data.path = "with \"quotes\" and \\";
  prepare_run_directory(config);
  EXPECT_TRUE(changed_keys(run_directory_config(config.run.directory), config).empty());
  expect_io_error(scratch.path(), "no run directory",
                  [&] { run_directory_config(scratch.path()); });
  write_bytes(scratch.path("file"), "");
  config.run.directory = scratch.path("file");
  EXPECT_THROW(prepare_run_directory(config), IoError);
}

// A run that is read from elsewhere finds its data where it was started, or, once that is gone,
// where it is.
TEST(RunDirectory, DataAreFoundFromElsewhere) {
  const Scratch scratch;
  const fs::path before = fs::current_path();
  fs::create_directories(scratch.path("home/d"));
  fs::create_directories(scratch.path("away"));
  for (const char* name : {"home/d/train.h5", "home/d/a.idx", "home/d/b.h5"})
    write_bytes(scratch.path(name), "");
  RunConfig config = config_in(scratch.path("run"));
  config.data.path = "d/train.h5";
  config.data.validation = "0.25*d/a,0.5*d/b.h5,d/none.h5";
  config.data.statistics = scratch.path("home/d/b.h5");
  fs::current_path(scratch.path("home"));
  prepare_run_directory(config);
  const auto found = [&](const std::string& from) {
    fs::current_path(scratch.path(from));
    return with_found_data(config, config.run.directory).data;
  };
  EXPECT_EQ(found("home").path, "d/train.h5");
  const std::string home = fs::canonical(scratch.path("home")).string();
  EXPECT_EQ(found("away").path, home + "/d/train.h5");
  EXPECT_EQ(found("away").validation, fmt::format("0.25*{0}/d/a,0.5*{0}/d/b.h5,1*d/none.h5", home));
  EXPECT_EQ(found("away").statistics, config.data.statistics);
  config.model.kind = "fno";
  config.data.path = "d/*.h5";
  EXPECT_EQ(found("away").path, home + "/d/*.h5");
  config.data.path = "none/*.h5";
  EXPECT_EQ(found("away").path, "none/*.h5");
  fs::rename(scratch.path("home"), scratch.path("moved"));
  config.data.path = "d/train.h5";
  EXPECT_EQ(found("away").path, "d/train.h5");
  // Runs of before do not say it.
  fs::remove(scratch.path("run/started_in"));
  EXPECT_EQ(found("away").path, "d/train.h5");
  fs::current_path(before);
}

// ---- planning

Setup setup_of(const std::string& plan, std::int64_t ranks = 1) {
  RunConfig config;
  config.model.layers = 6;
  config.model.hidden = 32;
  config.model.sequence = 64;
  config.memory.plan = plan;
  config.grid.data = ranks;
  return make_setup(config, {65, {}, {}}, 2);
}

TEST(Planning, TheSmallestBudgetThatWorksWorksAndNoSmallerOne) {
  for (const char* plan : {"auto", "keep-all", "full"}) {
    const train::Setup setup = setup_of(plan);
    const Choice most = choose_program(setup, std::int64_t{1} << 40);
    EXPECT_EQ(most.program.name, std::string(plan) == "auto" ? "keep-all" : plan);
    EXPECT_TRUE(most.program.seconds > 0);
    std::int64_t needed = 0;
    try {
      choose_program(setup, 1000);
      ADD_FAILURE() << "fits";
    } catch (const PlanError& error) {
      needed = error.needed_bytes();
      EXPECT_EQ(error.available_bytes(), 1000);
    }
    EXPECT_EQ(needed, most.minimum_budget_bytes);
    const Choice least = choose_program(setup, needed);
    EXPECT_LE(least.program.peak_bytes, needed);
    EXPECT_EQ(least.program.budget_bytes(), needed);
    EXPECT_THROW(choose_program(setup, needed - 1), PlanError);
    if (std::string(plan) == "auto") {
      const auto& solvers = plan::stage_solvers();
      EXPECT_EQ(static_cast<std::ptrdiff_t>(least.candidates.size()),
                std::count_if(solvers.begin(), solvers.end(),
                              [](const plan::StageSolver& solver) { return solver.in_auto; }));
      // The fastest that fits: keep-all exactly from its own peak on.
      const std::int64_t all = most.program.peak_bytes;
      EXPECT_EQ(choose_program(setup, all).program.name, "keep-all");
      EXPECT_NE(choose_program(setup, all - 1).program.name, "keep-all");
    }
  }
}

TEST(Planning, EveryRankGetsItsOwnPlaceInTheSameProgram) {
  const train::Setup setup = setup_of("auto", 4);
  const Choice choice = choose_program(setup, std::int64_t{1} << 40);
  std::vector<plan::Program> programs;
  for (int rank = 0; rank < 4; ++rank) {
    programs.push_back(program_of_rank(setup, choice.program, rank));
    EXPECT_EQ(programs.back().rank, rank);
    EXPECT_EQ(programs.back().coordinates.data, rank);
    EXPECT_EQ(plan::program_hash(plan::without_rank(programs.back())),
              plan::program_hash(plan::without_rank(programs.front())));
  }
  EXPECT_NO_THROW(plan::replay_together(programs));
  EXPECT_EQ(choice.program.micro_batches, 1);
}

TEST(Planning, TheMemoryTableAddsUp) {
  const train::Setup setup = setup_of("auto");
  const Choice choice = choose_program(setup, std::int64_t{1} << 40);
  const MemoryTable table = memory_table(choice.prediction, std::int64_t{1} << 40);
  EXPECT_EQ(table.parameters + table.gradients + table.optimizer + table.activations +
                table.communication + table.transients,
            table.peak);
  EXPECT_EQ(table.peak, choice.program.peak_bytes);
  EXPECT_EQ(table.peak + table.free, std::int64_t{1} << 40);
  std::int64_t parameters = 0;
  for (const auto& spec : setup.model.graph.parameters)
    parameters += round_up(spec.elements * 4, 64);
  EXPECT_EQ(table.parameters, parameters);
  EXPECT_EQ(table.optimizer, 2 * parameters);
}

TEST(Planning, RefusesWhatDoesNotFitTogether) {
  RunConfig config;
  config.train.global_batch = 15;
  EXPECT_THROW(make_setup(config, {65, {}, {}}, 1), ConfigError);
  config = RunConfig();
  config.model.vocabulary = 64;
  EXPECT_THROW(make_setup(config, {65, {}, {}}, 1), ConfigError);
  config.model.vocabulary = 128;
  EXPECT_NE(describe_sizes(make_setup(config, {65, {}, {}}, 1)).find("vocabulary 128"),
            std::string::npos);
  config = RunConfig();
  config.model.heads = 3;
  EXPECT_THROW(make_setup(config, {65, {}, {}}, 1), ConfigError);
  config = RunConfig();
  config.memory.plan = "nothing";
  EXPECT_THROW(choose_program(make_setup(config, {65, {}, {}}, 1), 1000), ConfigError);
}

TEST(Messages, WhichCheckpointsCouldGoWhereThereIsNoSpace) {
  const Scratch scratch;
  RunConfig config = config_in(scratch.path());
  for (const int step : {2, 4, 6}) fs::create_directories(checkpoint_path(scratch.path(), step));
  const std::string full = "x: " + std::string(std::strerror(ENOSPC));
  EXPECT_EQ(no_space_advice("x: Input/output error", config), "");
  std::string advice = no_space_advice(full, config);
  EXPECT_NE(advice.find("steps 2, 4 in "), std::string::npos) << advice;
  EXPECT_NE(advice.find("with checkpoint.keep = 1 removes all but"), std::string::npos) << advice;
  // Those stay that are kept for good.
  config.checkpoint.keep_minutes = 60;
  advice = no_space_advice(full, config);
  EXPECT_NE(advice.find("keep = 1 and checkpoint.keep_minutes = 0 removes"), std::string::npos)
      << advice;
}

TEST(Planning, Budgets) {
  RunConfig config;
  config.memory.budget = 12345;
  EXPECT_EQ(resolve_budget(config, 3), 12345);
  config.memory.budget = RunConfig::automatic_budget;
  const std::int64_t alone = resolve_budget(config, 1);
  EXPECT_GT(alone, 1 << 20);
  EXPECT_EQ(alone % 64, 0);
  EXPECT_LT(resolve_budget(config, 4), alone / 3);
}

}  // namespace
}  // namespace garonne::train::test
