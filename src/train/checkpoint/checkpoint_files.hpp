// How the files of a checkpoint come into their place: those of ranks, then the manifest.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nn/box.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/checkpoint/safetensors.hpp"

namespace garonne::train {

// The part of `elements` that rank `rank` of `ranks` writes.
std::pair<std::int64_t, std::int64_t> share_of(std::int64_t elements, int rank, int ranks);

// What a rank writes of a tensor: elements [begin, end) of a box in it.
struct RankTensor {
  GlobalTensor global;
  nn::Box box;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::optional<TensorSource> source;  // none where there is nothing to write
};

// The file of a rank.
struct RankFile {
  nlohmann::ordered_json listing = {{"tensors", nlohmann::ordered_json::array()},
                                    {"shards", nlohmann::ordered_json::array()}};  // and "hash"
  std::string not_finite;  // the first tensor with such a value; empty where there is none
};

// Into a file of the folder `partial`. Throws IoError.
RankFile write_rank_tensors(const std::string& partial, int rank,
                            const std::vector<RankTensor>& tensors);

// Has every rank write its file, and puts the whole into its place; errors are those of
// save_checkpoint. Collective over the ranks of `together`.
void write_checkpoint(const std::string& run_directory, Manifest manifest, const Together& together,
                      const std::function<RankFile(const std::string& partial)>& write);

}  // namespace garonne::train
