// Options of blocks that were solved before, by the hash of everything that they follow from:
// costs, bytes and connections of the block's tasks.
#pragma once

#include <optional>
#include <string>

#include "plan/stage/block_options.hpp"
#include "plan/stage/text_cache.hpp"

namespace garonne::plan {

// None where there is no cache, nothing in it, or something else or damaged.
std::optional<BlockOptions> load_options(TextCache* cache, const std::string& signature);
void store_options(TextCache* cache, const std::string& signature, const BlockOptions& options);

}  // namespace garonne::plan
