// The planner's cache as files of the cache folder, all of them together within a bound.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "plan/stage/text_cache.hpp"

namespace garonne::train {

// Any number of processes and threads may use a folder at once. After each has kept its last text,
// there is no more than the bound: whoever keeps one removes those that were not asked for the
// longest.
class OptionFolder : public plan::TextCache {
 public:
  // Options of a block are some ten kilobytes.
  static constexpr std::int64_t usual_bytes = std::int64_t{64} << 20;

  explicit OptionFolder(std::string folder, std::int64_t most_bytes = usual_bytes)
      : folder_(std::move(folder)), most_bytes_(most_bytes) {}

  std::optional<std::string> find(const std::string& name) override;
  // Keeps nothing that alone is more than the bound.
  void keep(const std::string& name, const std::string& text) override;
  std::string place_of(const std::string& name) const override { return folder_ + "/" + name; }
  // A warning on stderr.
  void say_damaged(const std::string& reason) override;

 private:
  void remove_the_oldest() const;

  std::string folder_;
  std::int64_t most_bytes_;
};

}  // namespace garonne::train
