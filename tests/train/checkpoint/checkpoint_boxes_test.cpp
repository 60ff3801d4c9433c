// Checkpoints of models that are cut over tensor ranks.
#include <gtest/gtest.h>

#include <barrier>
#include <thread>

#include "nn/compute_session.hpp"
#include "train/models.hpp"
#include "train/scratch.hpp"

namespace garonne::train::test {
namespace {

constexpr int tensor_ranks = 3;

nn::GptPart part_of(int tensor) {
  nn::GptPart part;
  part.tensor = tensor;
  part.tensor_ranks = tensor_ranks;
  return part;
}

// Copies this rank's boxes out of the whole model.
void cut(const SmallModel& whole, SmallModel& mine) {
  const auto copy = [](const nn::Box& box, const at::Tensor& from, const at::Tensor& to) {
    to.zero_();
    for (const nn::Run& run : nn::runs_of(box)) {
      to.flatten()
          .narrow(0, run.in_box, run.elements)
          .copy_(from.flatten().narrow(0, run.in_global, run.elements));
    }
  };
  for (std::size_t p = 0; p < mine.state.pieces.size(); ++p) {
    const exec::ParameterState from = whole.state.parameter(p);
    const exec::ParameterState to = mine.state.parameter(p);
    copy(mine.model.boxes[p], from.trained(), to.trained());
    for (std::size_t k = 0; k < to.states.size(); ++k)
      copy(mine.model.boxes[p], from.states[k], to.states[k]);
  }
  exec::refresh_compute_copies(mine.state);
}

std::vector<SmallModel> cut_model(const SmallModel& whole, Precision precision) {
  std::vector<SmallModel> parts;
  for (int tensor = 0; tensor < tensor_ranks; ++tensor) {
    parts.emplace_back(precision, 2, 12, part_of(tensor));
    cut(whole, parts.back());
  }
  return parts;
}

void save_as_grid(const std::string& directory, const std::vector<SmallModel>& parts, int data) {
  const int ranks = tensor_ranks * data;
  std::barrier<> meeting(ranks);
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      CollectivePhases together;
      together.rank = rank;
      together.ranks = ranks;
      together.replica = rank / tensor_ranks;
      together.replicas = data;
      together.writes_replicated = rank % tensor_ranks == 0;
      together.phase = [&](const std::function<void()>& work) {
        EXPECT_NO_THROW(work());
        meeting.arrive_and_wait();
      };
      together.gather = [&, rank](const std::string& text) {
        texts[static_cast<std::size_t>(rank)] = text;
        meeting.arrive_and_wait();
        return rank == 0 ? texts : std::vector<std::string>();
      };
      const SmallModel& mine = parts[static_cast<std::size_t>(rank % tensor_ranks)];
      save_checkpoint(directory, mine.model, moments, mine.state, mine.manifest(4), together);
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(CheckpointBoxes, OneRankReadsWhatTensorRanksWrote) {
  for (const Precision precision : {Precision::Float32, Precision::BFloat16}) {
    SmallModel whole(precision);
    whole.fill(3);
    const std::vector<SmallModel> parts = cut_model(whole, precision);
    for (const int data : {1, 2}) {
      const Scratch scratch;
      save_as_grid(scratch.path(), parts, data);
      const std::string checkpoint = checkpoint_path(scratch.path(), 4);
      const Manifest manifest = verify_checkpoint(checkpoint);
      SmallModel loaded(precision);
      load_checkpoint(checkpoint, manifest, loaded.model, moments, loaded.state);
      EXPECT_TRUE(same_state(loaded.state, whole.state));
      std::vector<SmallModel> again = cut_model(loaded, precision);
      for (int tensor = 0; tensor < tensor_ranks; ++tensor) {
        SmallModel mine(precision, 2, 12, part_of(tensor));
        load_checkpoint(checkpoint, manifest, mine.model, moments, mine.state);
        EXPECT_TRUE(same_state(mine.state, again[static_cast<std::size_t>(tensor)].state));
      }
    }
  }
}

TEST(CheckpointBoxes, TensorRanksReadWhatOneRankWrote) {
  SmallModel whole;
  whole.fill(4);
  const Scratch scratch;
  whole.save(scratch.path(), 4);
  const std::string checkpoint = checkpoint_path(scratch.path(), 4);
  const std::vector<SmallModel> parts = cut_model(whole, Precision::Float32);
  for (int tensor = 0; tensor < tensor_ranks; ++tensor) {
    SmallModel mine(Precision::Float32, 2, 12, part_of(tensor));
    load_checkpoint(checkpoint, verify_checkpoint(checkpoint), mine.model, moments, mine.state);
    EXPECT_TRUE(same_state(mine.state, parts[static_cast<std::size_t>(tensor)].state));
  }
}

TEST(CheckpointBoxes, AHoleIsNoticed) {
  SmallModel whole;
  const Scratch scratch;
  save_as_grid(scratch.path(), cut_model(whole, Precision::Float32), 1);
  const std::string checkpoint = checkpoint_path(scratch.path(), 4);
  const Manifest manifest = verify_checkpoint(checkpoint);
  for (std::size_t shard = 0; shard < manifest.shards.size(); shard += 5) {
    Manifest broken = manifest;
    broken.shards.erase(broken.shards.begin() + static_cast<std::ptrdiff_t>(shard));
    EXPECT_THROW(load_checkpoint(checkpoint, broken, whole.model, moments, whole.state), IoError);
    broken = manifest;
    broken.shards[shard].offset.back() += 1;
    EXPECT_THROW(load_checkpoint(checkpoint, broken, whole.model, moments, whole.state), IoError);
  }
}

}  // namespace
}  // namespace garonne::train::test
