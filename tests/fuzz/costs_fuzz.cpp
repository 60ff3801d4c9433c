// garonne.costs.
#include "base/json_input.hpp"

#include <nlohmann/json.hpp>
#include "fuzz/fuzz_target.hpp"
#include "plan/model/cost_table.hpp"

using namespace garonne;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::take_or_refuse([&] {
    const plan::CostTable table = plan::cost_table_from_json(
        parse_json(fuzz::text_of(data, size), "input"), "input", FileOwner::User);
    const std::string written = plan::to_json(table).dump();
    fuzz::hold(plan::to_json(plan::cost_table_from_json(parse_json(written, "written"), "written"))
                       .dump() == written,
               "costs are read again as they were written");
  });
}
