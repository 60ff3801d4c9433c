// How the files of a checkpoint come into their place: those of ranks, then the manifest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
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

// Into a file of the folder `partial`; `before` is called before each of its pieces, and ends the
// work where it throws. Throws IoError.
RankFile write_rank_tensors(const std::string& partial, int rank,
                            const std::vector<RankTensor>& tensors,
                            const std::function<void()>& before = {});

// `bytes` of a tensor in a copy of several.
std::int64_t bytes_in_copy(std::int64_t bytes);

// The same tensors with their bytes in `room`, one after the other, each of bytes_in_copy().
// InternalError where `room` is too small; IoError from a disk.
std::vector<RankTensor> copy_rank_tensors(const std::vector<RankTensor>& tensors,
                                          std::span<std::byte> room);

// A checkpoint beside its place, from its folder to its publication.
class PartialCheckpoint {
 public:
  // Makes the folder. IoError on all ranks. Collective over those of `together`.
  PartialCheckpoint(std::string run_directory, Manifest manifest, CollectivePhases together);

  const std::string& folder() const { return folder_; }
  std::int64_t step() const { return manifest_.step; }

  // Puts the whole into its place, once `written` gives the file of this rank; errors are those of
  // save_checkpoint. Collective.
  void publish(const std::function<RankFile()>& written);
  // It will not be: the folder goes as far as it can. By one rank for all.
  void remove() const;

 private:
  void guarded(const std::function<void()>& work) const;

  std::string run_directory_;
  Manifest manifest_;
  CollectivePhases together_;
  std::string folder_;
};

// Has every rank write its file, and puts the whole into its place; errors are those of
// save_checkpoint. Collective over the ranks of `together`.
void write_checkpoint(const std::string& run_directory, Manifest manifest,
                      const CollectivePhases& together,
                      const std::function<RankFile(const std::string& partial)>& write);

}  // namespace garonne::train
