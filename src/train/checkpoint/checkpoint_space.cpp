#include "train/checkpoint/checkpoint_space.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "base/bytes.hpp"
#include "base/error.hpp"

namespace garonne::train {

namespace fs = std::filesystem;

void expect_space_for_checkpoint(const std::string& run_directory, std::int64_t bytes) {
  // May be a link to another disk.
  const fs::path checkpoints = fs::path(run_directory) / "checkpoints";
  const fs::path folder = fs::exists(checkpoints) ? checkpoints : fs::path(run_directory);
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error || space.available == static_cast<std::uintmax_t>(-1)) return;
  if (space.available >= static_cast<std::uintmax_t>(bytes)) return;
  throw IoError(
      folder.string(),
      fmt::format("has {} free, and a checkpoint takes {} beside those that are there: free as "
                  "much, keep fewer of them (checkpoint.keep), or run in another run.directory",
                  format_bytes(static_cast<std::int64_t>(space.available)), format_bytes(bytes)));
}

}  // namespace garonne::train
