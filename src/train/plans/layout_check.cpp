#include "train/plans/layout_check.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/counted.hpp"
#include "base/error.hpp"
#include "plan/grid/grid_candidate.hpp"

namespace garonne::train {
namespace {

// Chunks of a stage; 0 where only the schedule itself can say.
std::int64_t chunks_of(const RunConfig::GridKeys& keys) {
  if (keys.chunks > 0) return keys.chunks;
  const auto& all = plan::schedule_traits();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const auto& traits) { return traits.name == keys.schedule; });
  return found == all.end() ? 0 : found->chunks.front();
}

}  // namespace

void check_parts(const Setup& whole) {
  const auto& keys = whole.config.grid;
  if (keys.pipeline == 1) return;
  const auto beginnings = plan::part_beginnings(*whole.declared);
  const std::int64_t most = std::count(beginnings.begin(), beginnings.end(), true);
  const std::int64_t chunks = chunks_of(keys);
  if (chunks == 0 || keys.pipeline * chunks <= most) return;
  const std::string what = fmt::format(
      "{} stages of {} are {} parts, more than the {} {}", keys.pipeline, counted(chunks, "chunk"),
      keys.pipeline * chunks, most,
      most == whole.declared->blocks()
          ? "blocks of the model (embedding, layers and head)"
          : "that its blocks (embedding, layers and head) make, as steps without gradients are not "
            "cut");
  std::int64_t stages = most / chunks;
  if (keys.schedule == "chimera") stages -= stages % 2;
  const std::string fewer_stages =
      stages == 0 ? std::string() : fmt::format("grid.pipeline = {}", stages);
  if (chunks == 1) {
    throw ConfigError("grid.pipeline", fmt::format("{}", keys.pipeline),
                      fmt::format("{}; the nearest that works is {}", what, fewer_stages));
  }
  std::string nearest = fewer_stages;
  const auto add = [&](const std::string& text) {
    nearest += (nearest.empty() ? "" : " or ") + text;
  };
  if (keys.schedule == "interleaved" && most / keys.pipeline > 1)
    add(fmt::format("grid.chunks = {}", most / keys.pipeline));
  if (keys.pipeline <= most) add("a schedule of one chunk, such as 1f1b");
  if (nearest.empty()) add(fmt::format("1f1b with grid.pipeline = {}", most));
  const bool given = keys.chunks > 0;
  throw ConfigError(given ? "grid.chunks" : "grid.pipeline",
                    fmt::format("{}", given ? keys.chunks : keys.pipeline),
                    fmt::format("{}; the nearest that work: {}", what, nearest));
}

void check_zero(const RunConfig& config) {
  const auto& keys = config.grid;
  if (keys.zero > 0 && keys.data == 1) {
    throw ConfigError("grid.zero", fmt::format("{}", keys.zero),
                      "has nothing to share on one data rank; the nearest that work are grid.zero "
                      "= 0 and grid.data = 2");
  }
}

}  // namespace garonne::train
