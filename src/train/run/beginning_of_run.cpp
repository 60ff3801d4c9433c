#include <fmt/format.h>

#include <filesystem>

#include "base/error.hpp"
#include "train/run/run_directory.hpp"

namespace garonne::train {

std::optional<Beginning> beginning_of_run(const std::string& run_directory) {
  if (auto recorded = read_beginning(run_directory)) return recorded;
  const auto steps = list_checkpoints(run_directory);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    try {
      return read_manifest(checkpoint_path(run_directory, *step)).beginning;
    } catch (const IoError&) {
      // Damaged; who goes on from it says so.
    }
  }
  return std::nullopt;
}

StartingPoint open_beginning(const std::string& run_directory, const Beginning& beginning) {
  const auto refuse = [&](const std::string& why) {
    throw IoError(run_directory, fmt::format("began with {}, {}", to_text(beginning), why));
  };
  std::error_code error;
  if (!std::filesystem::exists(beginning.checkpoint + "/manifest.json", error))
    refuse("which is not there any more; put it back");
  StartingPoint start;
  start.checkpoint = beginning.checkpoint;
  start.manifest = verify_checkpoint(beginning.checkpoint);
  start.step = start.manifest.step;
  if (start.manifest.hash != beginning.manifest) {
    refuse(
        fmt::format("and there is another checkpoint in that place now (step {}, manifest {}); "
                    "put the first one back",
                    start.step, start.manifest.hash.substr(0, 16)));
  }
  return start;
}

}  // namespace garonne::train
