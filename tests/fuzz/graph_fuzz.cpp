// garonne.graph.
#include "base/json_input.hpp"

#include <nlohmann/json.hpp>
#include "fuzz/fuzz_target.hpp"
#include "plan/graph/graph_json.hpp"

using namespace garonne;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::take_or_refuse([&] {
    const plan::ComputationGraph graph =
        plan::computation_graph_from_json(parse_json(fuzz::text_of(data, size), "input"), "input");
    const std::string written = plan::to_json(graph).dump();
    fuzz::hold(
        plan::to_json(plan::computation_graph_from_json(parse_json(written, "written"), "written"))
                .dump() == written,
        "a graph is read again as it was written");
  });
}
