#include "train/checkpoint/checkpoint_space.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/free_space.hpp"

namespace garonne::train {

namespace fs = std::filesystem;

void expect_space_for_checkpoint(const std::string& run_directory, std::int64_t bytes) {
  // May be a link to another disk.
  const fs::path checkpoints = fs::path(run_directory) / "checkpoints";
  const fs::path folder = fs::exists(checkpoints) ? checkpoints : fs::path(run_directory);
  const std::optional<std::int64_t> free = free_bytes_in(folder);
  if (!free || *free >= bytes) return;
  throw IoError(
      folder.string(),
      fmt::format("has {} free, and a checkpoint takes {} beside those that are there: free as "
                  "much, keep fewer of them (checkpoint.keep), or run in another run.directory",
                  format_bytes(*free), format_bytes(bytes)));
}

}  // namespace garonne::train
