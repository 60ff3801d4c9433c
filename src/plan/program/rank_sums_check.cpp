#include "plan/program/rank_sums_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/index.hpp"
#include "plan/program/replay.hpp"
#include "plan/program/rotated_step.hpp"

namespace garonne::plan {
namespace {

class RankSumsCheck {
 public:
  RankSumsCheck(const Program& program, const GridShape& grid) : program_(program), grid_(grid) {}

  void run() {
    for (number_ = 0; as_index(number_) < program_.instructions.size(); ++number_) {
      instruction_ = &program_.instructions[as_index(number_)];
      step();
      for (const int freed : instruction_->frees) over_data_.erase(freed);
    }
  }

 private:
  void says(bool holds, const std::string& reason) const {
    if (!holds) throw ReplayError(number_, describe(*instruction_), reason);
  }

  void step() {
    const Arguments& arguments = instruction_->arguments;
    switch (instruction_->operation) {
      case Operation::AllReduce:
      case Operation::ReduceScatter:
        if (arguments.exchanged >= 0 || !instruction_->channel) return;
        if (instruction_->channel->group == GroupAxis::Data) over_data_.insert(arguments.inputs[0]);
        if (instruction_->channel->group == GroupAxis::World) over_all_ = true;
        return;
      case Operation::KeepShard:
        if (over_data_.contains(arguments.inputs[0]))
          over_data_.insert(arguments.parameter_gradients[0].range.buffer);
        return;
      case Operation::CopyOut:
      case Operation::CopyIn:
      case Operation::DiskWrite:
      case Operation::DiskRead:
        over_data_.erase(arguments.output);
        if (over_data_.contains(arguments.inputs[0])) over_data_.insert(arguments.output);
        return;
      case Operation::SumSquares:
        says(arguments.drops_loss == (program_.coordinates.tensor != 0),
             "the first rank of a tensor group counts the loss, and no other");
        for (const int id : arguments.pieces) {
          const int buffer = program_.pieces[as_index(id)].gradient.buffer;
          says(over_data_.contains(buffer) == (grid_.data > 1),
               fmt::format("{} is {}summed over the data group, which has {} ranks",
                           program_.buffers[as_index(buffer)].name,
                           over_data_.contains(buffer) ? "" : "not ", grid_.data));
        }
        return;
      case Operation::SumTensors:
      case Operation::Update:
        for (std::size_t k = 1; k < arguments.inputs.size(); ++k)
          expect_sums_over_data(arguments.inputs[k]);
        return;
      case Operation::Norm:
        says(over_all_ == (grid_.ranks() > 1),
             fmt::format("the sums of the step are {}those of all ranks, which are {}",
                         over_all_ ? "" : "not ", grid_.ranks()));
        return;
      default:
        return;
    }
  }

  // Of whole parameters: where data ranks have parts of them.
  void expect_sums_over_data(int sums) const {
    const int bucket = instruction_->bucket;
    const bool in_shards = bucket >= 0 && as_index(bucket) < program_.buckets.size() &&
                           program_.buckets[as_index(bucket)].shard.elements > 0;
    says(over_data_.contains(sums) == (in_shards && grid_.data > 1),
         fmt::format("{} is {}summed over the data group", program_.buffers[as_index(sums)].name,
                     over_data_.contains(sums) ? "" : "not "));
  }

  const Program& program_;
  const GridShape& grid_;
  int number_ = 0;
  const Instruction* instruction_ = nullptr;
  std::set<int> over_data_;  // buffers of gradients
  bool over_all_ = false;    // loss and squares
};

// Elements of a parameter: [first, last).
using ElementSpan = std::pair<std::int64_t, std::int64_t>;

struct PlaceOfParameter {
  int stage = 0;
  int tensor = 0;
  int parameter = 0;

  auto operator<=>(const PlaceOfParameter&) const = default;
};

struct Trained {
  std::int64_t elements = 0;
  bool in_shards = false;
  std::size_t data_ranks = 0;
  std::vector<std::vector<ElementSpan>> of_rank;  // of data ranks that have some
  std::vector<ElementSpan> counted;               // of all of them
};

// By parameter, as gradients are laid out on this rank.
std::map<int, Trained> laid_out(const Program& program) {
  std::map<int, Trained> parameters;
  for (const Bucket& bucket : program.buckets) {
    for (std::size_t k = 0; k < bucket.parameters.size(); ++k) {
      const std::int64_t last =
          k + 1 < bucket.offsets.size() ? bucket.offsets[k + 1] : bucket.elements;
      Trained& one = parameters[bucket.parameters[k]];
      one.elements = last - bucket.offsets[k];
      one.in_shards = bucket.shard.elements > 0;
    }
  }
  return parameters;
}

// Buffers of gradients that get the sum over copies of their parameters on other stages.
std::set<int> summed_over_copies(const Program& program) {
  std::set<int> buffers;
  for (const Instruction& instruction : program.instructions) {
    const auto& inputs = instruction.arguments.inputs;
    if (inputs.empty()) continue;
    if (instruction.channel && instruction.channel->group == GroupAxis::Tied)
      buffers.insert(inputs[0]);
    if (instruction.operation == Operation::KeepShard && buffers.contains(inputs[0]))
      buffers.insert(instruction.arguments.parameter_gradients[0].range.buffer);
  }
  return buffers;
}

// How many from the first element on, without a gap or an overlap; else -1.
std::int64_t covered(std::vector<ElementSpan> spans) {
  std::sort(spans.begin(), spans.end());
  std::int64_t next = 0;
  for (const auto& [first, last] : spans) {
    if (first != next) return -1;
    next = last;
  }
  return next;
}

[[noreturn]] void fail(const std::string& reason) {
  throw ReplayError(-1, "what is trained", reason);
}

}  // namespace

void check_rank_sums(const Program& program, const GridShape& grid) {
  if (is_rotated(program)) return check_rank_sums(as_whole_step(program), grid);
  RankSumsCheck(program, grid).run();
}

void check_trained_together(const std::vector<Program>& programs) {
  std::map<PlaceOfParameter, Trained> trained;
  std::map<std::pair<int, int>, bool> counted;  // by stage, parameter: by somebody
  std::set<std::pair<int, int>> with_copies;    // on other stages
  for (const Program& program : programs) {
    const Coordinates& place = program.coordinates;
    for (const auto& [parameter, here] : laid_out(program)) {
      Trained& one = trained[{place.pipeline, place.tensor, parameter}];
      one.elements = here.elements;
      one.in_shards = here.in_shards;
      ++one.data_ranks;
    }
    const std::set<int> over_copies = summed_over_copies(program);
    std::map<int, std::vector<ElementSpan>> own;
    for (const Piece& piece : program.pieces) {
      const ElementSpan span{piece.first, piece.first + piece.trained.elements};
      own[piece.parameter].push_back(span);
      if (piece.counted)
        trained[{place.pipeline, place.tensor, piece.parameter}].counted.push_back(span);
      counted[{place.pipeline, piece.parameter}] |= piece.counted;
      if (over_copies.contains(piece.gradient.buffer))
        with_copies.insert({place.pipeline, piece.parameter});
    }
    for (auto& [parameter, spans] : own)
      trained[{place.pipeline, place.tensor, parameter}].of_rank.push_back(std::move(spans));
  }
  for (const auto& [place, one] : trained) {
    const std::string what = fmt::format("parameter {} of stage {} on tensor rank {}",
                                         place.parameter, place.stage, place.tensor);
    std::vector<ElementSpan> together;
    for (const auto& spans : one.of_rank)
      together.insert(together.end(), spans.begin(), spans.end());
    const bool each_trains_all =
        one.of_rank.size() == one.data_ranks &&
        std::all_of(one.of_rank.begin(), one.of_rank.end(),
                    [&](const auto& spans) { return covered(spans) == one.elements; });
    if (one.in_shards ? covered(together) != one.elements : !each_trains_all)
      fail("the data ranks do not train all of " + what + ", or some of it twice");
    if (!one.counted.empty() && covered(one.counted) != one.elements)
      fail("the squares of " + what + " are not counted once by the data ranks");
  }
  for (const auto& [key, by_somebody] : counted) {
    if (!by_somebody && !with_copies.contains(key)) {
      fail(fmt::format("nobody counts the squares of parameter {} of stage {}", key.second,
                       key.first));
    }
  }
}

}  // namespace garonne::plan
