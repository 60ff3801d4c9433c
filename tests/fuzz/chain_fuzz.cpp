// garonne.chain.
#include "base/json_input.hpp"

#include <nlohmann/json.hpp>
#include "fuzz/fuzz_target.hpp"
#include "plan/chain/chain_json.hpp"

using namespace garonne;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::take_or_refuse([&] {
    const plan::Chain chain =
        plan::chain_from_json(parse_json(fuzz::text_of(data, size), "input"), "input");
    const std::string written = plan::to_json(chain).dump();
    fuzz::hold(
        plan::to_json(plan::chain_from_json(parse_json(written, "written"), "written")).dump() ==
            written,
        "a chain is read again as it was written");
  });
}
