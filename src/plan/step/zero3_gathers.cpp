#include "plan/step/zero3_gathers.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/index.hpp"
#include "plan/program/program_edit.hpp"

namespace garonne::plan {
namespace {

// Instructions between which a bucket's parameters stay whole.
struct Run {
  int bucket = -1;
  int first = -1;
  int buffer = -1;
  int gather = -1;  // number in the edit
  int micro_batch = -1;
};

class GatherWriter {
 public:
  GatherWriter(Program& program, const StepShape& step)
      : program_(program), step_(step), run_of_(program.instructions.size()) {
    for (std::size_t number = 0; number < program_.buckets.size(); ++number)
      bucket_of_[program_.buckets[number].shard.gathered] = static_cast<int>(number);
  }

  void write() {
    find_runs();
    ProgramEdit edit(program_);
    std::size_t issued = 0;
    std::size_t started = 0;
    for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
      const std::size_t first = started;
      while (started < runs_.size() && runs_[started].first == static_cast<int>(i)) ++started;
      if (started > first) {
        const int place = static_cast<int>(i);
        const std::size_t most = started + static_cast<std::size_t>(step_.gathers_ahead);
        for (; issued < std::min(most, runs_.size()); ++issued) {
          Run& run = runs_[issued];
          run.micro_batch = program_.instructions[i].micro_batch;
          run.gather = edit.insert_before(place, gather(run));
        }
        for (std::size_t r = first; r < started; ++r) edit.insert_before(place, wait(runs_[r]));
      }
      redirect(program_.instructions[i], i);
    }
    edit.apply();
  }

 private:
  void find_runs() {
    std::map<int, int> open;  // bucket -> run
    for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
      std::vector<int> used;
      for (const int id : program_.instructions[i].reads) {
        const auto found = bucket_of_.find(id);
        if (found == bucket_of_.end()) continue;
        if (std::find(used.begin(), used.end(), found->second) == used.end())
          used.push_back(found->second);
      }
      if (used.empty()) continue;
      std::map<int, int> still;
      for (const int bucket : used) {
        const auto found = open.find(bucket);
        if (found != open.end()) {
          still.insert(*found);
        } else {
          still[bucket] = static_cast<int>(runs_.size());
          runs_.push_back({bucket, static_cast<int>(i), -1, -1});
        }
        run_of_[i][bucket] = still[bucket];
      }
      open = std::move(still);
    }
    std::vector<bool> taken(program_.buckets.size(), false);
    for (auto& run : runs_) {
      const int whole = program_.buckets[as_index(run.bucket)].shard.gathered;
      run.buffer = whole;
      if (taken[as_index(run.bucket)]) {
        run.buffer = static_cast<int>(program_.buffers.size());
        program_.buffers.push_back(Buffer(program_.buffers[as_index(whole)]));
      }
      taken[as_index(run.bucket)] = true;
    }
  }

  void redirect(Instruction& instruction, std::size_t i) const {
    const auto replace = [&](int& id) {
      const auto bucket = bucket_of_.find(id);
      if (bucket == bucket_of_.end()) return;
      id = runs_[as_index(run_of_[i].at(bucket->second))].buffer;
    };
    for (int& id : instruction.reads) replace(id);
    for (Range& range : instruction.arguments.parameters) replace(range.buffer);
  }

  Instruction gather(const Run& run) {
    const Bucket& bucket = program_.buckets[as_index(run.bucket)];
    Instruction instruction;
    instruction.operation = Operation::AllGather;
    instruction.node = program_.buffers[as_index(run.buffer)].name;
    instruction.bucket = run.bucket;
    instruction.micro_batch = run.micro_batch;
    instruction.arguments.inputs = instruction.reads = {bucket.shard.parameter};
    instruction.arguments.output = run.buffer;
    instruction.arguments.part = {run.buffer, 0, bucket.shard.elements};
    instruction.writes = {run.buffer};
    const std::int64_t bytes = bucket.shard.elements *
                               static_cast<std::int64_t>(step_.data_group.size()) *
                               step_.element_bytes.parameter;
    instruction.seconds = collective_seconds(
        "all-gather", bytes, static_cast<std::int64_t>(step_.data_group.size()), step_.links.data);
    instruction.channel =
        Channel{"all-gather", GroupAxis::Data, step_.data_group, -1, tag_++, bytes};
    instruction.lane = Lane::Collective;
    return instruction;
  }

  Instruction wait(const Run& run) const {
    Instruction instruction;
    instruction.operation = Operation::Wait;
    instruction.completes = run.gather;
    instruction.node = program_.buffers[as_index(run.buffer)].name;
    instruction.micro_batch = run.micro_batch;
    return instruction;
  }

  Program& program_;
  const StepShape& step_;
  std::map<int, int> bucket_of_;            // by buffer of the whole range
  std::vector<Run> runs_;                   // by first use
  std::vector<std::map<int, int>> run_of_;  // by instruction: bucket -> run
  int tag_ = 0;
};

}  // namespace

void place_gathers(Program& program, const StepShape& step) {
  GatherWriter(program, step).write();
}

}  // namespace garonne::plan
