// Any box of a tensor from the shards of a checkpoint, whatever boxes they are of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "nn/box.hpp"
#include "train/checkpoint/manifest.hpp"
#include "train/checkpoint/safetensors.hpp"

namespace garonne::train {

// Of a checkpoint that has been verified; the manifest outlives it.
class ShardReader {
 public:
  // Brings bytes from `at` on of what is to be filled.
  using Bring = std::function<void(std::int64_t at, std::span<std::byte> piece)>;
  using Fill = std::function<void(std::int64_t to, std::int64_t elements, const Bring& bring)>;

  // Throws IoError for files that break the rules of their format.
  ShardReader(std::string checkpoint, const Manifest& manifest);

  // Has `fill` take elements [low, high) of the box, in parts of any order that do not overlap and
  // leave nothing out; `to` is an element of the box. Throws IoError where the shards do.
  void read(const GlobalTensor& tensor, const nn::Box& box, std::int64_t low, std::int64_t high,
            const Fill& fill) const;

 private:
  std::string checkpoint_;
  std::map<std::string, std::vector<const Shard*>> shards_;  // by tensor
  std::map<std::string, SafetensorsFile> files_;
};

}  // namespace garonne::train
