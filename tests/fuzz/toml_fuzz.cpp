// TOML as a list of keys, and as a run file.
#include "base/choices.hpp"
#include "base/config.hpp"
#include "base/toml.hpp"
#include "fuzz/fuzz_target.hpp"

using namespace garonne;

namespace {

// Values that rooms above the ground floor would register.
const Choices& choices() {
  static const Choices made = [] {
    Choices some = test::some_choices();
    some.at("model.kind").emplace_back("sfno");
    some.at("train.loss").emplace_back("area-l2");
    return some;
  }();
  return made;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(fuzz::text_of(data, size));
  fuzz::take_or_refuse([&] { parse_toml(text, "input"); });
  return fuzz::take_or_refuse([&] {
    const RunConfig config = parse_config(text, "input", {}, choices());
    const std::string written = config_to_toml(config);
    fuzz::hold(config_to_toml(parse_config(written, "written", {}, choices())) == written,
               "what was read is read again as it was written");
  });
}
