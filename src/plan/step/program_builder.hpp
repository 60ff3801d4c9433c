// The part of a Program that does not depend on which records are kept: static buffers, gradient
// buckets, reductions, norm and update.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plan/program/program.hpp"
#include "plan/step/generator.hpp"
#include "plan/step/reduction_window.hpp"
#include "plan/step/trained_layout.hpp"

namespace garonne::plan {

class ProgramBuilder {
 public:
  ProgramBuilder(const ModelGraph& graph, const StepShape& step);

  // Cuts the parameters into buckets in the order in which backward finishes them. First of all,
  // where parameters are in shards.
  void make_buckets();
  // Parameters, masters and moments, live at start and end.
  void add_parameters();
  // The buffers of the buckets' gradients, and the sums of the step.
  void add_gradients();

  int new_buffer(std::string name, BufferKind kind, std::int64_t bytes);
  void add(Instruction instruction);
  // The index of the instruction added last.
  int last_instruction() const { return static_cast<int>(program_.instructions.size()) - 1; }
  // Waits for an asynchronous instruction.
  void wait(int instruction);
  std::int64_t bytes(int buffer) const {
    return program_.buffers.at(static_cast<std::size_t>(buffer)).bytes;
  }
  double message_seconds(std::int64_t bytes, int peer) const {
    return plan::message_seconds(bytes, step_.links.to_stage(peer));
  }
  const Instruction& instruction(int number) const {
    return program_.instructions.at(static_cast<std::size_t>(number));
  }
  // Whether tensor ranks send a part each of the value, or of its gradient, to another stage.
  bool scatters(const ValueSpec& value) const;
  // Of the first tensor rank; the buffer of the value or its gradient is named by elements then.
  Range part_of_message(int buffer, const ValueSpec& value);
  // Makes the buffer whole, of which each tensor rank has a part.
  void set_gather_over_tensor(int buffer, Instruction& instruction);
  // Where the nodes read a parameter.
  const Range& parameter_range(int parameter) const {
    return parameters_.at(static_cast<std::size_t>(parameter)).range;
  }
  // The place of a weight gradient; adds the bucket to the instruction's reads and writes.
  GradientTarget target_of(int parameter, Instruction& instruction);
  // Says that the instruction of a node meets those of its tensor group, where it does.
  void set_collective(const NodeCollective& collective, Instruction& instruction);
  // Called after the weight gradients of node `n` in one micro-batch: where those of the bucket are
  // complete, reduces it.
  void finished_weights(int n, int micro_batch);
  // Between the two calls nothing waits for reductions: what other stages wait for is to come.
  // Those for which there is no room are begun later.
  void hold_waits_for_reductions();
  void allow_waits_for_reductions();
  // Waits, loss, norm, updates, report.
  void finish_step();
  // Hands `output` to the caller at the end of a forward-only Program; -1 = nothing.
  void report(int output);
  // ZeRO with more than one data rank.
  bool in_shards() const { return plan::in_shards(step_); }
  int loss_sum() const { return loss_sum_; }
  Program take() { return std::move(program_); }

 private:
  static constexpr std::int64_t scalar_bytes = 8;

  struct BuiltParameter {
    Range range;              // where nodes read it
    int master = -1;          // where parameters are not in shards
    std::vector<int> states;  // likewise
    int bucket = -1;
    std::int64_t offset = 0;  // elements, of its gradient in the bucket
    bool written = false;     // its gradient has its first contribution

    // What the optimizer updates, where parameters are not in shards.
    int trained() const { return master >= 0 ? master : range.buffer; }
  };
  // What a bucket's buffer is in use for.
  enum class BucketState {
    Empty,
    Summing,  // gradients of nodes are added up in it
    Reduced,  // it is a reduce-scatter's: the next sum needs another
  };
  // Beside what the Program says of a bucket.
  struct GradientBucket {
    MatrixSides sides = {};  // rows of all its parameters, and columns
    int uses = 0;            // by nodes
    int uses_to_come = 0;    // by nodes that are not finished
    BucketState state = BucketState::Empty;
    bool shard_live = false;       // the shard that is kept has a first sum
    std::vector<int> tensor_sums;  // buffers, as sum_tensors() says
  };

  bool sums_over_tensor(int parameter) const;
  bool reduces() const { return step_.data_group.size() > 1; }
  struct Group {
    GroupAxis axis;
    const std::vector<int>& members;
  };
  void all_reduce(const std::string& name, const Group& group, int buffer, std::int64_t elements,
                  std::int64_t element_bytes, std::optional<NumberType> wire);
  // Of a bucket whose gradients are complete.
  void all_reduce_gradient(const Bucket& bucket, const Group& group);
  void reduce_scatter(std::size_t number, int micro_batch);
  // The bucket's buffer belongs to the reduce-scatter that was submitted.
  void hand_over_buffer(std::size_t number);
  // In place of the one that was handed over.
  void renew_buffer(std::size_t number);
  // The sum of a complete bucket over one axis.
  struct Reduction {
    int bucket = 0;
    int micro_batch = 0;
    GroupAxis axis = GroupAxis::Data;
    bool after_tensor = false;  // adds to what the sum over the tensor group has made
  };
  std::int64_t held_bytes(const Reduction& reduction) const;
  void make_room(std::int64_t held_bytes);
  void submit_reductions(bool may_wait);
  void reduce(const Reduction& reduction);
  void gather_updated(const Bucket& bucket);
  int next_tag(GroupAxis group) { return tags_[group]++; }
  // Of those under way, what they hold until then.
  void wait_for_reduction(int instruction);
  void wait_for_all_reductions();
  bool is_tied(const Bucket& bucket) const;
  void finish_tied(int number);
  int micro_batches_of(int chunk) const;
  void keep_shard(const Instruction& reduced);
  // What the updates of the bucket take of whole parameters: buffers, by round.
  std::vector<int> sum_tensors(std::size_t number);
  // Given those of the rounds before.
  int sum_tensors(std::size_t number, const std::vector<int>& before);
  void update(std::size_t number);
  bool is_cut_over_tensor(const Bucket& bucket) const;
  void add_flat_parameters();
  void add_workspaces();
  void add_pieces();
  std::int64_t padded_elements(const Bucket& bucket) const;
  int new_range(const std::string& name, BufferKind kind, std::int64_t elements,
                std::int64_t element_bytes);
  int add_static(const std::string& name, BufferKind kind, std::int64_t elements,
                 std::int64_t element_bytes);
  std::string bucket_name(const Bucket& bucket) const;
  void submit(Instruction instruction, std::int64_t held_bytes);

  const ModelGraph& graph_;
  const StepShape& step_;
  Program program_;
  std::vector<BuiltParameter> parameters_;  // as those of the graph
  std::vector<GradientBucket> buckets_;     // as those of the Program
  int loss_sum_ = -1;                       // scalars: [loss, sum of squared gradients]
  int gradient_norm_ = -1;
  std::vector<int> weights_to_come_;  // by node: micro-batches
  ReductionWindow window_;
  std::vector<Reduction> to_come_;  // of complete buckets, in their order
  std::map<GroupAxis, int> tags_;   // by group: stages number what they share alike
};

}  // namespace garonne::plan
