#include "train/checkpoint/reshard.hpp"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "base/file.hpp"
#include "data/tokenizers/tokenizer.hpp"
#include "train/checkpoint/checkpoint_files.hpp"
#include "train/checkpoint/shard_reader.hpp"
#include "train/run/run_directory.hpp"

namespace garonne::train {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t piece_bytes = std::int64_t{16} << 20;

// Manifests come from outside; so do the numbers of elements in them.
std::int64_t elements_of(const std::string& checkpoint, const GlobalTensor& tensor) {
  std::int64_t elements = 1;
  for (const std::int64_t size : tensor.shape) {
    if (__builtin_mul_overflow(elements, size, &elements))
      throw IoError(checkpoint, tensor.name + " is larger than can be");
  }
  return elements;
}

// Elements [begin, end) of a tensor, in pieces. The others outlive it.
TensorSource source_of(const ShardReader& reader, const std::string& checkpoint,
                       const GlobalTensor& tensor, std::int64_t begin, std::int64_t end,
                       const std::function<void(std::int64_t)>& written) {
  TensorSource source{tensor.name, tensor.type, {end - begin}, {}};
  const std::int64_t element = safetensors_element_bytes(tensor.type, checkpoint);
  source.bring = [&reader, &tensor, &written, element, begin, end](const TensorSource::Show& show) {
    const nn::Box whole = nn::whole_box(tensor.shape);
    std::vector<std::byte> bytes;
    for (std::int64_t low = begin; low < end; low += piece_bytes / element) {
      const std::int64_t high = std::min(end, low + piece_bytes / element);
      bytes.resize(static_cast<std::size_t>((high - low) * element));
      reader.read(tensor, whole, low, high,
                  [&](std::int64_t to, std::int64_t elements, const ShardReader::Bring& bring) {
                    bring(0,
                          std::span(bytes).subspan(static_cast<std::size_t>((to - low) * element),
                                                   static_cast<std::size_t>(elements * element)));
                  });
      show(bytes);
      written((high - low) * element);
    }
  };
  return source;
}

// The run directory of a checkpoint; empty where it lies elsewhere.
std::string run_directory_of(const std::string& checkpoint) {
  fs::path folder = fs::absolute(checkpoint).lexically_normal();
  if (folder.filename().empty()) folder = folder.parent_path();
  folder = folder.parent_path();
  return folder.filename() == "checkpoints" ? (folder.parent_path() / "").string() : std::string();
}

// What a run has beside its checkpoints so that its texts and relative paths are understood.
void copy_surroundings(const std::string& checkpoint, const Manifest& manifest,
                       const std::string& run_directory) {
  const std::string from = run_directory_of(checkpoint);
  if (from.empty()) return;
  std::vector<std::string> names = {start_folder_file};
  const std::string tokenizer =
      manifest.data.is_object() ? manifest.data.value("tokenizer", std::string()) : std::string();
  if (data::is_known_tokenizer(tokenizer)) names.push_back(data::tokenizer_file(tokenizer));
  std::error_code error;
  for (const std::string& name : names) {
    if (!name.empty() && fs::exists(from + name, error))
      write_file_durably(run_directory + "/" + name, read_text_file(from + name));
  }
}

}  // namespace

std::string reshard_checkpoint(const std::string& source, const Manifest& manifest,
                               const std::string& run_directory, int ranks,
                               const std::function<void(std::int64_t)>& progress) {
  expect(ranks >= 1, "a checkpoint has ranks");
  const std::string target = checkpoint_path(run_directory, manifest.step);
  std::error_code error;
  if (fs::exists(target, error))
    throw IoError(target, "is there already; name another run directory");
  const bool is_new = !fs::exists(run_directory + "/config.toml", error);
  std::int64_t done = 0;
  const std::function<void(std::int64_t)> written = [&](std::int64_t bytes) {
    done += bytes;
    if (progress) progress(done);
  };
  const ShardReader reader(source, manifest);
  std::vector<std::string> listings;
  CollectivePhases together;
  together.gather = [&](const std::string&) { return listings; };
  Manifest resharded = manifest;
  resharded.files.clear();
  resharded.file_bytes.clear();
  resharded.tensors.clear();
  resharded.shards.clear();
  write_checkpoint(run_directory, resharded, together, [&](const std::string& partial) {
    RankFile last;
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<RankTensor> tensors;
      for (const GlobalTensor& tensor : manifest.tensors) {
        const auto [begin, end] = share_of(elements_of(source, tensor), rank, ranks);
        tensors.push_back({tensor, nn::whole_box(tensor.shape), begin, end,
                           source_of(reader, source, tensor, begin, end, written)});
      }
      last = write_rank_tensors(partial, rank, tensors);
      listings.push_back(last.listing.dump());
      if (!last.not_finite.empty()) break;
    }
    return last;
  });
  if (is_new) {
    copy_surroundings(source, manifest, run_directory);
    write_file_durably(run_directory + "/config.toml", manifest.config);
  }
  return target;
}

}  // namespace garonne::train
