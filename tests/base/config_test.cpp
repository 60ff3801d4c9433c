// Configuration: every key through a file, the command line, and what is refused.
#include "base/config.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/choices.hpp"
#include "base/edit_distance.hpp"
#include "base/error.hpp"
#include "base/names_elsewhere.hpp"

namespace garonne {
namespace {

// Runs `action`, expects a ConfigError about `key` whose message holds every one of `parts`.
template <typename Action>
void expect_refused(const std::string& key, const std::vector<std::string>& parts, Action action) {
  try {
    action();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.key(), key) << error.what();
    EXPECT_EQ(error.code(), ExitCode::Usage);
    for (const auto& part : parts) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "no \"" << part << "\" in: " << error.what();
    }
    return;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another error: " << error.what();
    return;
  }
  ADD_FAILURE() << "no error for " << key;
}

RunConfig parse(const std::string& toml, const std::string& name, const Overrides& overrides) {
  return parse_config(toml, name, overrides, test::some_choices());
}

RunConfig load(const std::string& path, const Overrides& overrides) {
  return load_config(path, overrides, test::some_choices());
}

void expect_file_refused(const std::string& toml, const std::string& key,
                         const std::vector<std::string>& parts) {
  SCOPED_TRACE(toml);
  expect_refused(key, parts, [&] { parse(toml, "run.toml", {}); });
}

void expect_override_refused(const std::string& key, const std::string& value,
                             const std::string& part) {
  SCOPED_TRACE(key + " = " + value);
  expect_refused(key, {part}, [&] { parse("", "run.toml", {{key, value}}); });
}

// Whose other values lie too near for the test.
bool fixed(const std::string& key) {
  return key == "grid.zero";
}

// A legal value that is not the default.
std::string other_value(const KeySpec& key) {
  const std::string before = key.get(RunConfig());
  switch (key.type) {
    case KeyType::Integer:
      return std::to_string(std::stoll(before) + 7);
    case KeyType::Bytes:
      return "123456789";
    // Needs all seventeen digits to come back.
    case KeyType::Real:
      if (key.name == "optimizer.minimum_learning_rate") return "1.0000000000000003e-05";
      return key.range.starts_with(">= 1") ? "1.3000000000000003" : "0.30000000000000004";
    case KeyType::Switch:
      return before == "true" ? "false" : "true";
    case KeyType::List:
      return "5,9,12";
    case KeyType::Text:
    case KeyType::Names:
      break;
  }
  if (key.range == "text") return "a \"quoted\" back\\slash, ünïcode #not a comment\tand = more";
  return key.range.find(", ") == std::string::npos ? before
                                                   : key.range.substr(key.range.rfind(", ") + 2);
}

TEST(Config, EveryKeyComesBackFromItsFile) {
  RunConfig config;
  std::size_t changed = 0;
  for (const auto& key : config_keys(test::some_choices())) {
    if (fixed(key.name)) continue;
    const std::string value = other_value(key);
    key.set(config, value);
    EXPECT_EQ(key.get(config), value) << key.name;
    if (value != key.get(RunConfig())) ++changed;
  }
  EXPECT_GE(changed, config_keys(test::some_choices()).size() - 4)
      << "only keys with one choice keep their default";
  EXPECT_EQ(changed_keys(RunConfig(), config).size(), changed);
  const RunConfig again = parse(config_to_toml(config), "run.toml", {});
  EXPECT_EQ(changed_keys(config, again), std::vector<std::string>());
}

TEST(Config, DefaultsComeBackFromTheirFileAndAreLegal) {
  const RunConfig again = parse(config_to_toml(RunConfig()), "run.toml", {});
  EXPECT_EQ(changed_keys(RunConfig(), again), std::vector<std::string>());
  EXPECT_EQ(again.memory.budget, RunConfig::automatic_budget);
  for (const auto& key : config_keys(test::some_choices())) {
    RunConfig config;
    const std::string value = key.get(config);
    EXPECT_NO_THROW(key.set(config, value)) << key.name;
    EXPECT_EQ(key.get(config), value) << key.name;
  }
}

TEST(Config, EveryKeyThroughTheCommandLine) {
  for (const auto& key : config_keys(test::some_choices())) {
    if (fixed(key.name)) continue;
    const std::string value = other_value(key);
    // Of one schedule alone.
    const bool of_decay = key.name == "optimizer.decay_steps";
    Overrides given = {{key.name, value}};
    if (of_decay) given.emplace_back("optimizer.schedule", "warmup-stable-decay");
    const RunConfig config = parse("", "run.toml", given);
    EXPECT_EQ(key.get(config), value) << key.name;
    EXPECT_LE(changed_keys(RunConfig(), config).size(), given.size()) << key.name;
  }
}

// A path may hold any byte but zero; the effective configuration is read again by every restart.
TEST(Config, ControlCharactersInTextComeBack) {
  RunConfig config;
  config.data.path = "two\nlines\x01";
  const std::string toml = config_to_toml(config);
  RunConfig again;
  ASSERT_NO_THROW(again = parse(toml, "run.toml", {})) << toml;
  EXPECT_EQ(again.data.path, config.data.path);
}

// TOML has no integer -0.
TEST(Config, ANegativeZeroIsAZero) {
  const RunConfig config = parse("[optimizer]\nminimum_learning_rate = -0.0\n", "run.toml", {});
  EXPECT_FALSE(std::signbit(config.optimizer.minimum_learning_rate));
  const std::string toml = config_to_toml(config);
  EXPECT_EQ(config_to_toml(parse(toml, "run.toml", {})), toml);
}

TEST(Config, KeysAreDeclaredOnceAndDescribed) {
  std::vector<std::string> names;
  for (const auto& key : config_keys(test::some_choices())) {
    names.push_back(key.name);
    EXPECT_FALSE(key.help.empty()) << key.name;
    EXPECT_FALSE(key.range.empty()) << key.name;
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

TEST(Config, UnknownKeysWithASuggestion) {
  expect_file_refused("[model]\nhiden = 4\n", "model.hiden", {"model.hidden"});
  expect_file_refused("[train]\nmicrobatch = 4\n", "train.microbatch", {"train.micro_batch"});
  expect_file_refused("[memroy]\nbudget = 4\n", "memroy.budget", {"memory.budget"});
  expect_file_refused("steps = 4\n", "steps", {"train.steps"});
  expect_file_refused("[model]\nflux_capacitor = 4\n", "model.flux_capacitor", {"--help"});
  expect_refused("model.hiden", {"model.hidden"}, [] {
    parse("", "run.toml", {{"model.hiden", "4"}});
  });
}

TEST(Config, KeysByTheNamesOfOtherPrograms) {
  expect_file_refused("[model]\nn_embd = 4\n", "model.n_embd", {"did you mean model.hidden?"});
  expect_file_refused("[optimizer]\nlr = 0.1\n", "optimizer.lr",
                      {"did you mean optimizer.learning_rate?"});
  expect_file_refused("[train]\nbatch-size = 4\n", "train.batch-size",
                      {"did you mean train.micro_batch?"});
  expect_file_refused("[train]\nlog_interval = 4\n", "train.log_interval", {"log.every"});
  expect_file_refused("[train]\nwandb_project = 4\n", "train.wandb_project", {"--help"});
}

TEST(Config, NamesOfOtherProgramsAreThoseOfKeys) {
  EXPECT_EQ(name_of_elsewhere("n_embd"), "model.hidden");
  EXPECT_EQ(name_of_elsewhere("--n-embd"), "model.hidden");
  EXPECT_EQ(name_of_elsewhere("--train.n-embd"), "model.hidden");
  EXPECT_EQ(name_of_elsewhere("log_interval"), "log.every");
  for (const char* none : {"", "-", "--", ".", "model.", "hidden", "n_embd.x"})
    EXPECT_EQ(name_of_elsewhere(none), "") << none;
}

TEST(Config, RightKeyInTheWrongSection) {
  expect_file_refused("[model]\nlearning_rate = 0.1\n", "model.learning_rate",
                      {"optimizer.learning_rate"});
  expect_file_refused("[train]\nweight_decay = 0.1\n", "train.weight_decay",
                      {"optimizer.weight_decay"});
}

TEST(Config, WrongTypes) {
  expect_file_refused("[model]\nlayers = \"4\"\n", "model.layers", {"integer", "line 2"});
  expect_file_refused("[model]\nlayers = 4.0\n", "model.layers", {"integer", "line 2"});
  expect_file_refused("\n\n[model]\nlayers = true\n", "model.layers", {"integer", "line 4"});
  expect_file_refused("[model]\nlayers = [4]\n", "model.layers", {"integer"});
  expect_file_refused("[model]\nlayers = 2024-01-01\n", "model.layers", {"integer"});
  expect_file_refused("[model]\nkind = 4\n", "model.kind", {"text"});
  expect_file_refused("[model]\ndropout = \"0.1\"\n", "model.dropout", {"number"});
  expect_file_refused("[model]\ndropout = false\n", "model.dropout", {"number"});
  expect_file_refused("[memory]\nbudget = 1.5\n", "memory.budget", {"bytes"});
  expect_file_refused("[memory]\nbudget = true\n", "memory.budget", {"bytes"});
  EXPECT_EQ(parse("[model]\ndropout = 0\n", "run.toml", {}).model.dropout, 0.0)
      << "an integer is a number";
  expect_override_refused("model.layers", "4.0", "integer");
  expect_override_refused("model.layers", "", "integer");
  expect_override_refused("model.layers", "99999999999999999999", "integer");
  expect_override_refused("model.dropout", "much", "number");
  expect_override_refused("model.dropout", "0.1x", "number");
}

TEST(Config, OutOfRange) {
  expect_file_refused("[model]\nlayers = 0\n", "model.layers", {">= 1", "0"});
  expect_file_refused("[train]\nseed = -1\n", "train.seed", {">= 0"});
  expect_file_refused("[model]\ndropout = 1.0\n", "model.dropout", {"< 1"});
  expect_file_refused("[model]\ndropout = -0.1\n", "model.dropout", {">= 0"});
  expect_file_refused("[model]\nattention_dropout = 1.0\n", "model.attention_dropout", {"< 1"});
  expect_file_refused("[model]\nattention_dropout = -0.1\n", "model.attention_dropout", {">= 0"});
  expect_file_refused("[optimizer]\nlearning_rate = nan\n", "optimizer.learning_rate", {">= 0"});
  expect_file_refused("[optimizer]\nlearning_rate = inf\n", "optimizer.learning_rate", {">= 0"});
  expect_file_refused("[train]\nprecision = \"float23\"\n", "train.precision",
                      {"did you mean float32"});
  expect_file_refused("[train]\nprecision = \"int4\"\n", "train.precision", {"bfloat16"});
  expect_file_refused("[grid]\nsequence_parallel = 1\n", "grid.sequence_parallel", {"true"});
  expect_file_refused("[optimizer]\nlearning_rate = 1e-5\n", "optimizer.minimum_learning_rate",
                      {"optimizer.learning_rate"});
  expect_file_refused("[optimizer]\ndecay_steps = 5\n", "optimizer.decay_steps",
                      {"warmup-stable-decay", "cosine"});
  EXPECT_EQ(parse("[optimizer]\nlearning_rate = 1e-5\nschedule = \"constant\"\n", "run.toml", {})
                .optimizer.learning_rate,
            1e-5);
}

TEST(Config, RegisteredValuesAreThoseHandedIn) {
  expect_file_refused("[memory]\nplan = \"keepall\"\n", "memory.plan",
                      {"must be one of auto, keep-all, full; did you mean keep-all?"});
  expect_file_refused("[memory]\nplan = \"rotor\"\n", "memory.plan", {"auto, keep-all, full"});
  expect_override_refused("model.kind", "gtp", "must be one of gpt, fno; did you mean gpt?");
  expect_override_refused("optimizer.name", "lion", "must be one of adamw");
  Choices more = test::some_choices();
  more["optimizer.name"].push_back("lion");
  EXPECT_EQ(parse_config("", "run.toml", {{"optimizer.name", "lion"}}, more).optimizer.name,
            "lion");
}

TEST(Config, NamesAreATableOfTextsOrOneText) {
  using Names = std::vector<std::string>;
  const auto allowed = [](const std::string& text) {
    return parse("[memory]\nallow = " + text + "\n", "run.toml", {}).memory.allow;
  };
  EXPECT_EQ(allowed("\"auto\""), Names());
  EXPECT_EQ(allowed("[\"recompute\"]"), Names{"recompute"});
  const Names both = {"offload-activations", "recompute"};
  EXPECT_EQ(allowed("[\"offload-activations\", \"recompute\"]"), both);
  EXPECT_EQ(allowed("\"offload-activations,recompute\""), both);
  const RunConfig config = parse("", "run.toml", {{"memory.allow", "recompute"}});
  EXPECT_EQ(parse(config_to_toml(config), "run.toml", {}).memory.allow, Names{"recompute"});
  for (const char* text : {"[]", "[1]", "7", "[[\"recompute\"]]"})
    expect_file_refused(std::string("[memory]\nallow = ") + text + "\n", "memory.allow",
                        {"list of names"});
  for (const char* text : {"recompute,", ",recompute", "", "recompute,auto", "auto,"})
    expect_override_refused("memory.allow", text, "must be auto, or with commas of recompute");
  expect_override_refused("memory.allow", "recomputes", "did you mean recompute?");
  expect_override_refused("memory.allow", "recompute,recompute", "twice");
}

TEST(Config, ChoicesAreOfJustTheRegisteredKeys) {
  for (const auto& [name, values] : test::some_choices()) {
    Choices fewer = test::some_choices();
    fewer.erase(name);
    EXPECT_THROW(config_keys(fewer), InternalError) << name;
    fewer[name] = {};
    EXPECT_THROW(config_keys(fewer), InternalError) << name;
  }
  Choices more = test::some_choices();
  more["run.resume"] = {"never"};
  EXPECT_THROW(config_keys(more), InternalError);
}

TEST(Config, Bytes) {
  EXPECT_EQ(parse("[memory]\nbudget = \"600MiB\"\n", "run.toml", {}).memory.budget, 629145600);
  EXPECT_EQ(parse("[memory]\nbudget = 1000\n", "run.toml", {}).memory.budget, 1000);
  EXPECT_EQ(parse("[memory]\nbudget = \"auto\"\n", "run.toml", {}).memory.budget,
            RunConfig::automatic_budget);
  expect_file_refused("[memory]\nbudget = \"600 MiBs\"\n", "memory.budget", {"600MiB", "auto"});
  expect_file_refused("[memory]\nbudget = -1\n", "memory.budget", {"auto"});
  expect_file_refused("[grid]\nbucket = \"auto\"\n", "grid.bucket", {"bytes"});
  expect_override_refused("memory.budget", "lots", "bytes");
  EXPECT_EQ(parse("", "run.toml", {{"memory.budget", "auto"}}).memory.budget,
            RunConfig::automatic_budget);
}

TEST(Config, Duplicates) {
  expect_file_refused("[model]\nlayers = 1\nlayers = 2\n", "", {"run.toml:3"});
  expect_refused("model.layers", {"twice", "command line"}, [] {
    parse("", "run.toml", {{"model.layers", "1"}, {"model.layers", "1"}});
  });
}

TEST(Config, MalformedFileWithItsLine) {
  expect_file_refused("[model]\nlayers = \n", "", {"run.toml:2"});
  expect_file_refused("[model\n", "", {"run.toml:1"});
}

TEST(Config, CommandLineWinsOverFile) {
  const RunConfig config = parse("[model]\nlayers = 3\nhidden = 12\n", "run.toml",
                                 {{"model.layers", "5"}, {"optimizer.beta1", "0.5"}});
  EXPECT_EQ(config.model.layers, 5);
  EXPECT_EQ(config.model.hidden, 12);
  EXPECT_EQ(config.optimizer.beta1, 0.5);
  EXPECT_EQ(config.model.heads, RunConfig().model.heads);
}

TEST(Config, FromAFile) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("garonne_config_" + std::to_string(::getpid()) + ".toml");
  std::ofstream(path) << "[model]\nlayers = 9\n";
  EXPECT_EQ(load(path.string(), {{"model.hidden", "8"}}).model.layers, 9);
  std::filesystem::remove(path);
  expect_refused(path.string(), {"cannot be read"}, [&] { load(path.string(), {}); });
}

TEST(Config, ChangedKeysAreNamed) {
  RunConfig a;
  RunConfig b;
  b.model.layers = 9;
  b.optimizer.epsilon = 1e-9;
  EXPECT_EQ(changed_keys(a, b), (std::vector<std::string>{"model.layers", "optimizer.epsilon"}));
}

TEST(Config, MicroBatchesDivideOrTheNearestAreNamed) {
  RunConfig config;
  config.grid.data = 2;
  config.train.micro_batch = 3;
  config.train.global_batch = 24;
  EXPECT_EQ(micro_batches_per_rank(config), 4);
  config.train.global_batch = 16;
  expect_refused("train.global_batch", {"16", "2 ranks", "3 samples", "12 and 18"},
                 [&] { micro_batches_per_rank(config); });
  // There is none below.
  config.train.global_batch = 5;
  expect_refused("train.global_batch", {"6"}, [&] { micro_batches_per_rank(config); });
}

// By its definition: what comes of the last letters, of all ways.
std::size_t distance_by_definition(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty()) return a.size() + b.size();
  const std::string c = a.substr(1);
  const std::string d = b.substr(1);
  if (a[0] == b[0]) return distance_by_definition(c, d);
  return 1 + std::min({distance_by_definition(c, b), distance_by_definition(a, d),
                       distance_by_definition(c, d)});
}

TEST(EditDistance, AsItIsDefined) {
  const std::vector<std::string> words = {"", "a", "rank", "ranks", "ark", "cranky", "knar", "lr"};
  for (const std::string& a : words) {
    for (const std::string& b : words)
      EXPECT_EQ(edit_distance(a, b), distance_by_definition(a, b)) << a << " " << b;
  }
}

TEST(NearestWord, NearAndNone) {
  const std::vector<std::string> known = {"keep-all", "full", "auto"};
  EXPECT_EQ(nearest_word("keepall", known), "keep-all");
  EXPECT_EQ(nearest_word("ful", known), "full");
  EXPECT_EQ(nearest_word("atuo", known), "auto");
  EXPECT_EQ(nearest_word("auto", known), "auto");
  EXPECT_EQ(nearest_word("everything", known), "");
  EXPECT_EQ(nearest_word("x", {}), "");
}

}  // namespace
}  // namespace garonne
