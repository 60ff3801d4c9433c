#include "train/checkpoint/shard_reader.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace garonne::train {
namespace {

void check_shard(const std::string& checkpoint, const Shard& shard,
                 const std::vector<std::int64_t>& global) {
  bool fits = shard.offset.size() == global.size() && shard.shape.size() == global.size();
  std::int64_t elements = 1;
  for (std::size_t axis = 0; fits && axis < global.size(); ++axis) {
    fits = shard.offset[axis] >= 0 && shard.shape[axis] >= 0 &&
           shard.shape[axis] <= global[axis] - shard.offset[axis];
    fits = fits && !__builtin_mul_overflow(elements, shard.shape[axis], &elements);
  }
  if (!fits || shard.begin < 0 || shard.end < shard.begin || shard.end > elements)
    throw IoError(checkpoint, shard.tensor + " has a shard that lies outside of it");
}

}  // namespace

ShardReader::ShardReader(std::string checkpoint, const Manifest& manifest)
    : checkpoint_(std::move(checkpoint)) {
  for (const auto& shard : manifest.shards) shards_[shard.tensor].push_back(&shard);
  for (const auto& [name, hash] : manifest.files)
    files_.emplace(name, SafetensorsFile(checkpoint_ + "/" + name));
}

void ShardReader::read(const GlobalTensor& tensor, const nn::Box& wanted_box, std::int64_t low,
                       std::int64_t high, const Fill& fill) const {
  const std::int64_t element = safetensors_element_bytes(tensor.type, checkpoint_);
  const std::vector<nn::Run> wanted = nn::runs_of(wanted_box, low, high);
  std::vector<std::pair<std::int64_t, std::int64_t>> filled;  // elements of the box
  const auto of_tensor = shards_.find(tensor.name);
  for (const Shard* shard :
       of_tensor == shards_.end() ? std::vector<const Shard*>() : of_tensor->second) {
    check_shard(checkpoint_, *shard, tensor.shape);
    const auto found = files_.find(shard->file);
    if (found == files_.end())
      throw IoError(checkpoint_, "has a shard in a file without a hash: " + shard->file);
    const SafetensorsFile& file = found->second;
    const TensorEntry& entry = file.find(shard->entry);
    const nn::Box box{tensor.shape, shard->offset, shard->shape};
    auto here = wanted.begin();
    for (const nn::Run& there : nn::runs_of(box, shard->begin, shard->end)) {
      while (here != wanted.end() && here->in_global + here->elements <= there.in_global) ++here;
      for (auto run = here;
           run != wanted.end() && run->in_global < there.in_global + there.elements; ++run) {
        const std::int64_t begin = std::max(run->in_global, there.in_global);
        const std::int64_t end =
            std::min(run->in_global + run->elements, there.in_global + there.elements);
        const std::int64_t to = run->in_box + begin - run->in_global;
        const std::int64_t from = there.in_box - shard->begin + begin - there.in_global;
        fill(to, end - begin, [&](std::int64_t at, std::span<std::byte> piece) {
          file.read(entry, from * element + at, piece);
        });
        filled.emplace_back(to, to + end - begin);
      }
    }
  }
  std::sort(filled.begin(), filled.end());
  std::int64_t next = low;
  for (const auto& [begin, end] : filled) {
    if (begin != next)
      throw IoError(checkpoint_, tensor.name + " has shards that overlap or leave a hole");
    next = end;
  }
  if (next != high) throw IoError(checkpoint_, tensor.name + " is not whole");
}

}  // namespace garonne::train
