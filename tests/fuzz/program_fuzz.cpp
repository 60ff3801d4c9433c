// garonne.program, and what replay and the proof of order say of what was read.
#include "base/json_input.hpp"

#include <nlohmann/json.hpp>
#include "fuzz/fuzz_target.hpp"
#include "plan/program/order_check.hpp"
#include "plan/program/program.hpp"
#include "plan/program/replay.hpp"

using namespace garonne;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::take_or_refuse([&] {
    const nlohmann::json json = parse_json(fuzz::text_of(data, size), "input");
    const plan::Program program = plan::program_from_json(json, "input");
    plan::measurements_from_json(json, "input");
    try {
      plan::replay(program);
    } catch (const plan::ReplayError&) {
      return;
    }
  });
}
