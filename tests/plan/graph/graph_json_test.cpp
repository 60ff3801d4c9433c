// The file format garonne.graph: there and back, and what is refused.
#include "plan/graph/graph_json.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/json_input.hpp"
#include "plan/graph/graph_replay.hpp"
#include "plan/graph/sample_graphs.hpp"

namespace garonne::plan {
namespace {

using nlohmann::json;

ComputationGraph graph_of(const std::string& text) {
  return computation_graph_from_json(parse_json(text, "g.json"), "g.json");
}

json good() {
  return json(to_json(make_gpt_block_graph(64, 64)));
}

// The key that is refused, without the path.
std::string refused(const json& source) {
  try {
    computation_graph_from_json(source, "g.json");
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.key().rfind("g.json", 0), 0U) << error.key();
    return error.key().size() > 8 ? error.key().substr(8) : "";
  }
  return "nothing was refused";
}

template <typename Damage>
std::string refused_after(Damage damage) {
  json source = good();
  damage(source);
  return refused(source);
}

TEST(GraphJson, ComesBackEqual) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const ComputationGraph graph = make_random_graph(6, 3, seed);
    const auto written = to_json(graph);
    const ComputationGraph read = graph_of(written.dump());
    EXPECT_EQ(to_json(read), written);
    const ScheduleOutcome before = replay_schedule(graph, keep_all_schedule(graph));
    const ScheduleOutcome after = replay_schedule(read, keep_all_schedule(read));
    EXPECT_EQ(before.during_bytes, after.during_bytes);
    EXPECT_EQ(before.seconds, after.seconds);
  }
}

TEST(GraphJson, OptionalKeysHaveDefaults) {
  json source = good();
  for (json& value : source["values"]) {
    if (!value["live_at_end"].get<bool>()) value.erase("live_at_end");
  }
  for (json& task : source["tasks"]) {
    if (!task["once"].get<bool>()) task.erase("once");
    if (task["updates"].empty()) task.erase("updates");
  }
  EXPECT_EQ(json(to_json(computation_graph_from_json(source, "g.json"))), good());
}

TEST(GraphJson, NamesTheKeyThatIsMissingOrUnknown) {
  for (const char* key : {"format", "version", "values", "tasks"}) {
    EXPECT_EQ(refused_after([&](json& s) { s.erase(key); }), key);
  }
  for (const char* key : {"name", "bytes"}) {
    EXPECT_EQ(refused_after([&](json& s) { s["values"][2].erase(key); }),
              std::string("values[2].") + key);
  }
  for (const char* key : {"name", "reads", "options"}) {
    EXPECT_EQ(refused_after([&](json& s) { s["tasks"][1].erase(key); }),
              std::string("tasks[1].") + key);
  }
  for (const char* key : {"name", "makes", "seconds", "transient_bytes"}) {
    EXPECT_EQ(refused_after([&](json& s) { s["tasks"][1]["options"][0].erase(key); }),
              std::string("tasks[1].options[0].") + key);
  }
  EXPECT_EQ(refused_after([](json& s) { s["more"] = 1; }), "more");
  EXPECT_EQ(refused_after([](json& s) { s["values"][0]["size"] = 1; }), "values[0].size");
  EXPECT_EQ(refused_after([](json& s) { s["tasks"][0]["Once"] = true; }), "tasks[0].Once");
}

TEST(GraphJson, RefusesValuesThatCannotBe) {
  EXPECT_EQ(refused_after([](json& s) { s["version"] = 2; }), "version");
  EXPECT_EQ(refused_after([](json& s) { s["format"] = "garonne.chain"; }), "format");
  const std::string bytes = "values[1].bytes";
  for (const json& wrong : {json(-1), json(1.5), json("8"), json(nullptr), json(true),
                            json((std::int64_t{1} << 48) + 1), json(UINT64_MAX), json(1e30)}) {
    EXPECT_EQ(refused_after([&](json& s) { s["values"][1]["bytes"] = wrong; }), bytes) << wrong;
  }
  EXPECT_EQ(refused_after([](json& s) {
              for (json& value : s["values"]) value["bytes"] = std::int64_t{1} << 48;
            }),
            "values[16].bytes");
  const std::string seconds = "tasks[0].options[0].seconds";
  for (const json& wrong :
       {json(-1e-9), json(std::nan("")), json(HUGE_VAL), json("1"), json(nullptr), json(1e13)}) {
    EXPECT_EQ(refused_after([&](json& s) { s["tasks"][0]["options"][0]["seconds"] = wrong; }),
              seconds)
        << wrong;
  }
  EXPECT_EQ(refused_after([](json& s) { s["tasks"][0]["options"][0]["transient_bytes"] = -1; }),
            "tasks[0].options[0].transient_bytes");
}

TEST(GraphJson, RefusesGraphsThatAreNone) {
  EXPECT_EQ(refused_after([](json& s) { s["tasks"] = json::array(); }), "tasks");
  EXPECT_EQ(refused_after([](json& s) { s["tasks"] = json::object(); }), "tasks");
  EXPECT_EQ(refused_after([](json& s) { s["tasks"][1]["options"] = json::array(); }),
            "tasks[1].options");
  EXPECT_EQ(refused_after([](json& s) { s["tasks"][1]["reads"][0] = 1000; }), "tasks[1].reads[0]");
  EXPECT_EQ(refused_after([](json& s) { s["tasks"][1]["reads"][0] = -1; }), "tasks[1].reads[0]");
  EXPECT_EQ(
      refused_after([](json& s) { s["tasks"][1]["reads"].push_back(s["tasks"][1]["reads"][0]); }),
      "tasks[1].reads[1]");
  EXPECT_EQ(refused_after([](json& s) {
              s["tasks"][1]["options"][0]["makes"].push_back(s["tasks"][1]["reads"][0]);
            }),
            "tasks[1].options[0].makes[1]");
  EXPECT_EQ(
      refused_after([](json& s) {
        s["tasks"][1]["options"][0]["makes"].push_back(s["tasks"][1]["options"][0]["makes"][0]);
      }),
      "tasks[1].options[0].makes[1]");
  // Read before it is made.
  EXPECT_EQ(refused_after([](json& s) { std::swap(s["tasks"][1], s["tasks"][2]); }),
            "tasks[1].reads[0]");
  // Made twice, by two tasks or though it is live at the start.
  EXPECT_EQ(
      refused_after([](json& s) {
        s["tasks"][2]["options"][0]["makes"].push_back(s["tasks"][0]["options"][0]["makes"][0]);
      }),
      "tasks[2].options[0].makes[2]");
  EXPECT_EQ(refused_after([](json& s) { s["tasks"][2]["options"][0]["makes"].push_back(0); }),
            "tasks[2].options[0].makes[2]");
  // Option 1 makes what another task does.
  EXPECT_EQ(
      refused_after([](json& s) {
        s["tasks"][0]["options"][1]["makes"].push_back(s["tasks"][1]["options"][0]["makes"][0]);
      }),
      "tasks[1].options[0].makes[0]");
  // A forward task that writes in place.
  EXPECT_EQ(refused_after([](json& s) {
              s["tasks"][1]["updates"] = s["tasks"][1]["reads"];
              s["tasks"][1]["reads"] = json::array();
            }),
            "tasks[1].updates[0]");
  EXPECT_EQ(refused_after([](json& s) {
              s["values"].push_back({{"name", "nobody"}, {"bytes", 1}});
            }),
            "values[" + std::to_string(good()["values"].size()) + "]");
}

// Wherever a file ends too early, it is an error and nothing else.
TEST(GraphJson, RefusesTruncatedText) {
  const std::string text = to_json(make_random_graph(3, 1, 1)).dump();
  for (std::size_t length = 0; length < text.size(); ++length) {
    EXPECT_THROW(graph_of(text.substr(0, length)), ConfigError);
  }
  EXPECT_NO_THROW(graph_of(text));
  EXPECT_THROW(graph_of("[]"), ConfigError);
  EXPECT_THROW(graph_of("{\"format\": 1e999}"), ConfigError);
}

}  // namespace
}  // namespace garonne::plan
