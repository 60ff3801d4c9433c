#include "train/checkpoint/checkpoint_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/hash.hpp"
#include "dist/session.hpp"
#include "train/checkpoint/finite.hpp"

namespace garonne::train {
namespace {

namespace fs = std::filesystem;

// Empty.
void make_folder(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  fs::create_directories(path, error);
  if (error) throw IoError(path, "cannot be made: " + error.message());
}

std::string rank_file(int rank) {
  return fmt::format("rank_{}.safetensors", rank);
}

// `tensor`: of the first rank that has such a value; empty where none has.
void refuse_not_finite(std::int64_t step, const std::string& tensor) {
  if (tensor.empty()) return;
  throw dist::AgreedError(
      ExitCode::Refused,
      fmt::format("step {}: {} holds values that are not finite, so no checkpoint is written; "
                  "older ones stay as they are. Train anew in another run.directory with a "
                  "lower optimizer.learning_rate, a longer optimizer.warmup_steps or with "
                  "optimizer.clip_norm",
                  step, tensor));
}

// Into the manifest, from the listings of all ranks. What several ranks hold boxes of is one
// tensor.
void add_rank_files(const std::string& partial, const std::vector<std::string>& listings,
                    Manifest& manifest) {
  std::map<std::string, std::size_t> named;
  for (std::size_t rank = 0; rank < listings.size(); ++rank) {
    const auto listing = nlohmann::json::parse(listings[rank]);
    const std::string file = rank_file(static_cast<int>(rank));
    manifest.files.emplace_back(file, listing.at("hash").get<std::string>());
    manifest.file_bytes.push_back(FileReader(partial + "/" + file).size());
    for (const auto& tensor : listing.at("tensors")) {
      const auto name = tensor.at("name").get<std::string>();
      if (!named.emplace(name, named.size()).second) continue;
      manifest.tensors.push_back({name, tensor.at("type").get<std::string>(),
                                  tensor.at("shape").get<std::vector<std::int64_t>>()});
    }
    for (const auto& shard : listing.at("shards"))
      manifest.shards.push_back(shard_from_json(shard));
  }
  std::stable_sort(
      manifest.shards.begin(), manifest.shards.end(),
      [&](const Shard& a, const Shard& b) { return named.at(a.tensor) < named.at(b.tensor); });
}

// Where a damaged checkpoint of this step goes that is in the way; it is removed only when the new
// one is in place.
std::string replaced_path(const std::string& run_directory, std::int64_t step) {
  return fmt::format("{}/checkpoints/.replaced-step-{}", run_directory, step);
}

void put_in_place(const std::string& run_directory, std::int64_t step, const std::string& partial) {
  const std::string final_path = checkpoint_path(run_directory, step);
  const std::string replaced = replaced_path(run_directory, step);
  std::error_code error;
  fs::remove_all(replaced, error);
  if (fs::exists(final_path, error)) fs::rename(final_path, replaced, error);
  fs::rename(partial, final_path, error);
  if (error) throw IoError(final_path, "cannot be renamed into place: " + error.message());
}

}  // namespace

std::pair<std::int64_t, std::int64_t> share_of(std::int64_t elements, int rank, int ranks) {
  return {elements * rank / ranks, elements * (rank + 1) / ranks};
}

RankFile write_rank_tensors(const std::string& partial, int rank,
                            const std::vector<RankTensor>& tensors,
                            const std::function<void()>& before) {
  const std::string file = rank_file(rank);
  RankFile written;
  std::vector<TensorSource> sources;
  for (const RankTensor& tensor : tensors) {
    const std::string& name = tensor.global.name;
    written.listing["tensors"].push_back(
        {{"name", name}, {"type", tensor.global.type}, {"shape", tensor.global.shape}});
    if (!tensor.source) continue;
    sources.push_back(*tensor.source);
    written.listing["shards"].push_back(to_json(
        Shard{name, tensor.box.offset, tensor.box.shape, tensor.begin, tensor.end, file, name}));
  }
  written.listing["hash"] =
      write_safetensors(partial + "/" + file, sources, {{"format", "pt"}},
                        [&](const TensorSource& tensor, std::span<const std::byte> bytes) {
                          if (before) before();
                          if (written.not_finite.empty() && !all_finite(tensor.type, bytes))
                            written.not_finite = tensor.name;
                        });
  return written;
}

std::int64_t bytes_in_copy(std::int64_t bytes) {
  return round_up(bytes, cpu_allocation_granularity);
}

std::vector<RankTensor> copy_rank_tensors(const std::vector<RankTensor>& tensors,
                                          std::span<std::byte> room) {
  std::vector<RankTensor> copies = tensors;
  for (RankTensor& tensor : copies) {
    if (!tensor.source) continue;
    TensorSource& source = *tensor.source;
    const auto bytes = static_cast<std::size_t>(
        (tensor.end - tensor.begin) * safetensors_element_bytes(source.type, source.name));
    const auto taken = static_cast<std::size_t>(bytes_in_copy(static_cast<std::int64_t>(bytes)));
    expect(taken <= room.size(), "the copy of a state is larger than its room");
    std::byte* next = room.data();
    const auto take = [&](std::span<const std::byte> piece) {
      expect(piece.size() <= bytes - static_cast<std::size_t>(next - room.data()),
             "a tensor has more bytes than elements");
      next = std::copy(piece.begin(), piece.end(), next);
    };
    if (source.bring) {
      source.bring(take);
    } else {
      take(source.bytes);
    }
    source.bytes = room.first(bytes);
    source.bring = nullptr;
    room = room.subspan(taken);
  }
  return copies;
}

PartialCheckpoint::PartialCheckpoint(std::string run_directory, Manifest manifest,
                                     CollectivePhases together)
    : run_directory_(std::move(run_directory)),
      manifest_(std::move(manifest)),
      together_(std::move(together)),
      folder_(fmt::format("{}/checkpoints/.partial-step-{}{}", run_directory_, manifest_.step,
                          together_.suffix)) {
  guarded([&] {
    together_.phase([&] {
      if (together_.rank == 0) make_folder(folder_);
    });
  });
}

void PartialCheckpoint::publish(const std::function<RankFile()>& written) {
  guarded([&] {
    RankFile mine;
    together_.phase([&] { mine = written(); });
    refuse_not_finite(manifest_.step, together_.first_text(mine.not_finite));
    const std::vector<std::string> listings = together_.gather(mine.listing.dump());
    together_.phase([&] {
      if (together_.rank != 0) return;
      add_rank_files(folder_, listings, manifest_);
      write_file_durably(folder_ + "/manifest.json", manifest_text(manifest_));
      sync_directory(folder_);
      together_.commit([&] { put_in_place(run_directory_, manifest_.step, folder_); });
      // Both wait for disks, which a request to stop need not wait for.
      sync_directory(run_directory_ + "/checkpoints");
      std::error_code error;
      fs::remove_all(replaced_path(run_directory_, manifest_.step), error);
    });
  });
}

void PartialCheckpoint::remove() const {
  if (!together_.may_remove()) return;
  std::error_code error;
  fs::remove_all(folder_, error);
}

void PartialCheckpoint::guarded(const std::function<void()>& work) const {
  try {
    work();
  } catch (const Error&) {
    if (together_.rank == 0) remove();
    throw;
  }
}

void write_checkpoint(const std::string& run_directory, Manifest manifest,
                      const CollectivePhases& together,
                      const std::function<RankFile(const std::string& partial)>& write) {
  PartialCheckpoint checkpoint(run_directory, std::move(manifest), together);
  checkpoint.publish([&] { return write(checkpoint.folder()); });
}

}  // namespace garonne::train
