// manifest.json of a checkpoint, as if its hash were right.
#include "base/json_input.hpp"
#include "fuzz/fuzz_target.hpp"
#include "train/checkpoint/manifest.hpp"

using namespace garonne;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::take_or_refuse([&] {
    const train::Manifest manifest = train::manifest_from_json(
        parse_json(fuzz::text_of(data, size), "input", FileOwner::Run), "input");
    for (const auto& [name, hash] : manifest.files)
      fuzz::hold(name.find('/') == std::string::npos && name != "..", "files are in the folder");
    train::vocabulary_of(manifest, "input");
    const std::string written = train::manifest_text(manifest);
    fuzz::hold(train::manifest_text(train::manifest_from_json(
                   parse_json(written, "written", FileOwner::Run), "written")) == written,
               "a manifest is read again as it was written");
  });
}
