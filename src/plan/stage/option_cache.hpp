// Options of blocks that were solved before, by the hash of everything that they follow from:
// costs, bytes and connections of the block's tasks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/stage/block_options.hpp"
#include "plan/stage/text_cache.hpp"

namespace garonne::plan {

// None where there is no cache, nothing in it, or something else or damaged. `keep_options`: by
// node of the block, the ways to be kept that it may have.
std::optional<BlockOptions> load_options(TextCache* cache, const std::string& signature,
                                         const std::vector<std::vector<int>>& keep_options);
void store_options(TextCache* cache, const std::string& signature, const BlockOptions& options);

}  // namespace garonne::plan
