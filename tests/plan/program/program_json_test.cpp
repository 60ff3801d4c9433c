// Program files: what is written is read and replayed alike, what is not understood is named.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "plan/program/program.hpp"
#include "plan/program/replay.hpp"
#include "plan/step/graphs.hpp"

namespace garonne::plan::test {
namespace {

Program program_of(unsigned seed, const char* plan = "full", int ranks = 2) {
  const ModelGraph graph = random_graph(seed);
  Program program = make_training_program(graph, step_shape(2, ranks, 300),
                                          same_for_all(schedule_of(graph, plan), 2));
  program.name = plan;
  program.rank = 1;
  program.coordinates = {.data = 1, .pipeline = 0, .tensor = 0};
  program.tier(Tier::Device).budget_bytes = 123456;
  program.peak_bytes = replay(program).peak_bytes;
  program.seconds = replay(program).seconds;
  return program;
}

void expect_equal(const Prediction& a, const Prediction& b) {
  EXPECT_EQ(a.peak_bytes, b.peak_bytes);
  EXPECT_EQ(a.static_bytes, b.static_bytes);
  EXPECT_EQ(a.peak_instruction, b.peak_instruction);
  EXPECT_EQ(a.peak_transient_bytes, b.peak_transient_bytes);
  EXPECT_EQ(a.peak_by_kind, b.peak_by_kind);
  EXPECT_EQ(a.seconds, b.seconds);
  EXPECT_EQ(a.live_bytes, b.live_bytes);
  EXPECT_EQ(a.during_bytes, b.during_bytes);
}

TEST(ProgramJson, ReadAgainReplaysAlike) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    for (const int ranks : {1, 3}) {
      const Program program = program_of(seed, seed % 2 == 0 ? "full" : "keep-all", ranks);
      // Through text, as through a file.
      const std::string text = to_json(program, {0, 1}, {}).dump(1);
      const Program again = program_from_json(nlohmann::json::parse(text), "p.json");
      expect_equal(replay(again), replay(program));
      EXPECT_EQ(program_hash(again), program_hash(program));
      EXPECT_EQ(again.name, program.name);
      EXPECT_EQ(again.rank, program.rank);
      EXPECT_EQ(again.coordinates, program.coordinates);
      EXPECT_EQ(again.tiers, program.tiers);
      EXPECT_EQ(again.peak_bytes, program.peak_bytes);
      EXPECT_EQ(again.seconds, program.seconds);
      EXPECT_EQ(again.micro_batches, program.micro_batches);
      EXPECT_EQ(to_json(again, {0, 1}, {}).dump(1), text);
    }
  }
}

TEST(ProgramJson, SaysWhatATierCountsInWhereThatIsNotTheCpus) {
  Program program = program_of(3);
  EXPECT_FALSE(to_json(program, {0, 1}, {}).contains("granularity"));
  const std::string hash = program_hash(program);
  program.tier(Tier::Device) = {123456, 512};
  program.tier(Tier::Disk) = {1 << 20, 4096};
  const nlohmann::json json = nlohmann::json(to_json(program, {0, 1}, {}));
  EXPECT_EQ(json["granularity"], (nlohmann::json{{"device", 512}, {"disk", 4096}}));
  const Program again = program_from_json(json, "p.json");
  EXPECT_EQ(again.tiers, program.tiers);
  EXPECT_EQ(program_hash(again), hash) << "budgets and tiers are the machine's";
  for (const auto& wrong : {nlohmann::json(0), nlohmann::json(-64), nlohmann::json("64")}) {
    nlohmann::json broken = json;
    broken["granularity"]["disk"] = wrong;
    EXPECT_THROW(program_from_json(broken, "p.json"), ConfigError) << wrong;
  }
  nlohmann::json unknown = json;
  unknown["granularity"]["tape"] = 64;
  EXPECT_THROW(program_from_json(unknown, "p.json"), ConfigError);
}

TEST(ProgramJson, SaysTheBlocksOfStatesWhereThereAreSome) {
  EXPECT_FALSE(to_json(program_of(3), {0, 1}, {}).contains("state_blocks"));
  const ModelGraph graph = random_graph(3);
  StepShape step = step_shape(2, 2, 300);
  step.optimizer_states = {{.name = "first_moment"}, {.name = "scales", .blocks = {256, 1}}};
  const Program program =
      make_training_program(graph, step, same_for_all(schedule_of(graph, "full"), 2));
  const auto json = to_json(program, {0, 1}, {});
  EXPECT_EQ(json.at("state_blocks").dump(), "[[1,1],[256,1]]");
  const Program again = program_from_json(json, "p.json");
  EXPECT_EQ(again.state_blocks, program.state_blocks);
  EXPECT_EQ(program_hash(again), program_hash(program));
  EXPECT_NO_THROW(replay(again));
  for (const auto& broken : {nlohmann::json{1}, nlohmann::json{0, 1}, nlohmann::json{1, "2"}}) {
    auto other = json;
    other["state_blocks"][1] = broken;
    EXPECT_THROW(program_from_json(other, "p.json"), ConfigError) << broken.dump();
  }
  Program wrong = program;
  wrong.state_blocks[1].numbers = 2;
  EXPECT_THROW(replay(wrong), ReplayError);
}

TEST(ProgramJson, SaysWhatItIsFirst) {
  const auto json = to_json(program_of(3), {0, 1}, {});
  auto item = json.begin();
  EXPECT_EQ(item.key(), "format");
  EXPECT_EQ((++item).key(), "version");
  EXPECT_EQ(json["ranks"], (std::vector<int>{0, 1}));
}

TEST(ProgramJson, CarriesWhatWasMeasured) {
  const Program program = program_of(3);
  std::vector<Measurement> measured(program.instructions.size());
  for (std::size_t i = 0; i < measured.size(); ++i) {
    measured[i] = {0.5 * static_cast<double>(i), static_cast<std::int64_t>(i),
                   2 * static_cast<std::int64_t>(i)};
  }
  const auto json = to_json(program, {0}, measured);
  for (std::size_t i = 0; i < measured.size(); ++i) {
    EXPECT_EQ(json["instructions"][i]["measured_seconds"], measured[i].seconds);
    EXPECT_EQ(json["instructions"][i]["measured_live_bytes"], measured[i].live_bytes);
    EXPECT_EQ(json["instructions"][i]["measured_peak_bytes"], measured[i].peak_bytes);
  }
  EXPECT_NO_THROW(program_from_json(json, "p.json")) << "what train writes is read";
  measured.pop_back();
  EXPECT_THROW(to_json(program, {0}, measured), InternalError);
}

// Breaks a good file and expects the error to hold `part`.
void expect_refused(const std::string& part, const std::function<void(nlohmann::json&)>& breaks) {
  nlohmann::json json = nlohmann::json::parse(to_json(program_of(3), {0, 1}, {}).dump());
  breaks(json);
  try {
    program_from_json(json, "p.json");
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    return;
  }
  ADD_FAILURE() << "read; expected: " << part;
}

TEST(ProgramJson, OtherFormatVersionOrOperation) {
  expect_refused("garonne.program", [](auto& json) { json["format"] = "garonne.costs"; });
  expect_refused("p.json", [](auto& json) { json["format"] = 7; });
  expect_refused("version", [](auto& json) { json["version"] = 1; });
  expect_refused("version", [](auto& json) { json["version"] = "1"; });
  expect_refused("operation = teleport",
                 [](auto& json) { json["instructions"][2]["operation"] = "teleport"; });
  expect_refused("kind = imaginary", [](auto& json) { json["buffers"][2]["kind"] = "imaginary"; });
  expect_refused("tier = moon", [](auto& json) { json["buffers"][2]["tier"] = "moon"; });
}

TEST(ProgramJson, MissingOrMistypedKeys) {
  for (const char* key : {"format", "version", "rank", "coordinates", "budget_bytes", "peak_bytes",
                          "seconds", "micro_batches", "buffers", "pieces", "instructions"}) {
    expect_refused(key, [&](auto& json) { json.erase(key); });
  }
  for (const char* key : {"operation", "node", "reads", "writes", "frees", "transient_bytes"}) {
    expect_refused(key, [&](auto& json) { json["instructions"][1].erase(key); });
  }
  for (const char* key : {"name", "kind", "bytes"}) {
    expect_refused(key, [&](auto& json) { json["buffers"][1].erase(key); });
  }
  expect_refused("p.json", [](auto& json) { json["instructions"][1]["reads"] = {"a"}; });
  expect_refused("p.json", [](auto& json) { json["instructions"][1]["operation"] = 3; });
  expect_refused("p.json", [](auto& json) { json["buffers"][1]["bytes"] = "many"; });
  expect_refused("p.json", [](auto& json) { json["buffers"] = 3; });
  expect_refused("p.json", [](auto& json) { json = nlohmann::json::array(); });
}

// Each is a size that may be, but sums of them would be no numbers.
TEST(ProgramJson, SizesWhoseSumIsTooLarge) {
  const auto buffer = [](std::int64_t bytes) {
    return nlohmann::json{{"name", "large"}, {"kind", "value"}, {"bytes", bytes}};
  };
  const std::int64_t largest = std::int64_t{1} << 48;
  const auto add = [&](nlohmann::json& json, int count) {
    for (int i = 0; i < count; ++i) json["buffers"].push_back(buffer(largest));
  };
  const std::size_t there = program_of(3).buffers.size();
  nlohmann::json most = nlohmann::json::parse(to_json(program_of(3), {0, 1}, {}).dump());
  add(most, 16383);
  EXPECT_NO_THROW(program_from_json(most, "p.json"));
  expect_refused(fmt::format("buffers[{}].bytes", there + 16383),
                 [&](auto& json) { add(json, 16384); });
  expect_refused("2^62", [&](auto& json) { add(json, 40000); });

  const nlohmann::json channel = {
      {"kind", "c"}, {"group", "data"}, {"members", {0, 1}}, {"bytes", largest}};
  expect_refused("channel.bytes", [&](auto& json) {
    nlohmann::json message = json["instructions"][1];
    message["channel"] = channel;
    for (int i = 0; i < 16385; ++i) json["instructions"].push_back(message);
  });
}

// A reader refuses what it does not know and says which key.
TEST(ProgramJson, UnknownKeys) {
  expect_refused("surprise", [](auto& json) { json["surprise"] = 1; });
  expect_refused("surprise", [](auto& json) { json["buffers"][0]["surprise"] = 1; });
  expect_refused("surprise", [](auto& json) { json["instructions"][0]["surprise"] = 1; });
}

TEST(ProgramHash, SeesEverythingButTheRank) {
  const Program program = program_of(5);
  const std::string hash = program_hash(program);
  EXPECT_EQ(hash, program_hash(program_of(5)));
  Program moved = program;
  moved.rank = 3;
  moved.coordinates.data = 3;
  EXPECT_EQ(program_hash(moved), hash);

  std::set<std::string> hashes = {hash};
  const auto changed = [&](const std::function<void(Program&)>& change) {
    Program other = program;
    change(other);
    EXPECT_TRUE(hashes.insert(program_hash(other)).second) << "change " << hashes.size();
  };
  changed([](Program& p) { p.buffers[0].bytes += 64; });
  changed([](Program& p) { p.buffers[0].live_at_end = false; });
  changed([](Program& p) { p.instructions[2].reads.push_back(0); });
  changed([](Program& p) { p.instructions[2].transient_bytes += 1; });
  changed([](Program& p) { p.instructions[2].micro_batch = 7; });
  changed([](Program& p) { p.instructions[2].recompute = true; });
  changed([](Program& p) { p.buffers[0].elements += 1; });
  changed([](Program& p) { p.buffers[0].element_bytes += 1; });
  changed([](Program& p) { p.micro_batches += 1; });
  changed([](Program& p) { p.pieces[0].parameter += 1; });
  changed([](Program& p) { p.pieces[0].first += 1; });
  changed([](Program& p) { p.pieces[0].gradient.offset += 1; });
  changed([](Program& p) { p.pieces[0].trained.offset += 1; });
  changed([](Program& p) { p.pieces[0].states.pop_back(); });
  changed([](Program& p) { p.pieces[0].compute_copy = {0, 0, 1}; });
  changed([](Program& p) { p.pieces[0].counted = !p.pieces[0].counted; });
  changed([](Program& p) { p.instructions[2].arguments.staging = 0; });
  changed([](Program& p) { p.instructions[2].arguments.value = 0; });
  changed([](Program& p) { p.instructions[2].arguments.part = {0, 0, 1}; });
  changed([](Program& p) { p.instructions[2].arguments.pieces = {0}; });
  changed([](Program& p) { p.instructions[2].arguments.zeroed = {{0, 0, 1}}; });
  changed([](Program& p) { p.instructions[2].bucket = 0; });
  changed([](Program& p) { p.instructions[2].arguments.gradient = true; });
  changed([](Program& p) { p.instructions[2].arguments.drops_loss = true; });
  changed([](Program& p) { p.instructions[2].arguments.loaded = {{0, 0}}; });
  changed([](Program& p) { p.instructions[2].arguments.placements = {Placement::Fresh}; });
  changed([](Program& p) { p.instructions[2].arguments.placements = {Placement::Alias}; });
  changed([](Program& p) { std::swap(p.instructions[1], p.instructions[2]); });
  changed([](Program& p) { p.instructions.pop_back(); });
  changed([](Program& p) {
    for (auto& instruction : p.instructions) {
      if (instruction.channel) instruction.channel->tag += 1;
    }
  });
  for (unsigned seed = 6; seed < 30; ++seed) {
    EXPECT_TRUE(hashes.insert(program_hash(program_of(seed))).second) << seed;
  }
}

}  // namespace
}  // namespace garonne::plan::test
