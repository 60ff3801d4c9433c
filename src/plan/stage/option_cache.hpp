// Options of blocks on disk, by the hash of everything that they follow from: costs, bytes and
// connections of the block's tasks.
#pragma once

#include <optional>
#include <string>

#include "plan/stage/block_options.hpp"

namespace garonne::plan {

class OptionCache {
 public:
  // An empty folder caches nothing.
  explicit OptionCache(std::string folder) : folder_(std::move(folder)) {}

  // None where nothing is there, or what is there is of something else; a warning names a file that
  // is not understood.
  std::optional<BlockOptions> load(const std::string& signature) const;
  // A cache that cannot be written is no error.
  void store(const std::string& signature, const BlockOptions& options) const;

 private:
  std::string folder_;
};

}  // namespace garonne::plan
