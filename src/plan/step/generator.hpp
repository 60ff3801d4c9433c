// Makes Programs: given the order of nodes in each micro-batch, lays out one whole step for one
// rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/number_type.hpp"
#include "base/state_spec.hpp"
#include "plan/model/device_facts.hpp"
#include "plan/model/group_links.hpp"
#include "plan/model/model_graph.hpp"
#include "plan/pipeline/schedule.hpp"
#include "plan/program/program.hpp"
#include "plan/step/message_form.hpp"
#include "plan/step/node_schedule.hpp"

namespace garonne::plan {

// Bytes per element of what a step stores.
struct ElementBytes {
  std::int64_t parameter = 4;
  std::int64_t master = 0;  // 0 = the parameter is its own master
  std::int64_t gradient = 4;
  std::int64_t state = 4;  // of StateType::OfRun
};

// What a stage does in a pipeline. Members are indices into `group`.
struct PipelinePlace {
  struct Chunk {
    int part = 0;     // of the model, from 0
    int before = -1;  // member with the part before; -1 = none, or this rank
    int after = -1;
  };
  // Messages of one kind over one boundary between parts: those of a lane are received in the order
  // in which they are sent.
  struct Lane {
    int from = 0;
    int to = 0;
    int number = 0;
  };
  std::vector<int> group;  // global ranks of this rank's pipeline, in order
  int member = 0;
  std::vector<Chunk> chunks;
  // Of all stages, in one order on all of them; a message's is its tag modulo `lane_numbers`.
  std::vector<Lane> lanes;
  int lane_numbers = 1;
  std::vector<PipelineOperation> order;  // of this device; empty = one micro-batch after the other
  // 2: a micro-batch passes one of two chunks, each of a whole model of its own. Evaluation goes
  // through the first.
  int directions = 1;
  std::vector<int> tied_group;  // global ranks with the copies of tied parameters
};

// Of each kernel that a device is given beside those of nodes; 0 where the host computes.
struct KernelSeconds {
  double least = 0;  // on the device
  double issue = 0;  // of the host
  // Of the processor that computes, for each byte that a rank sends, and receives, beside it.
  double communication = 0;
};

// What a step looks like around the model.
struct StepShape {
  int micro_batches = 1;  // of this rank
  ElementBytes element_bytes;
  // Of the device's memory: allocations are rounded up to it.
  std::int64_t granularity = cpu_allocation_granularity;
  std::int64_t bucket_bytes =
      0;  // gradients are reduced in buckets of about this; 0 = one a parameter
  // Reductions that are under way hold at most so many bytes until they are waited for: staging,
  // and gradients that are gone then (ZeRO 2 and 3). The k-th number is for the time from when k
  // buckets, from 0, are complete, the last for all after; empty = 0. One is always under way.
  std::vector<std::int64_t> reduction_bytes;
  // Reductions for which there is no room wait for the last message to another stage, or else,
  // which holds fewer bytes of gradients in shards, for those before them at once.
  bool messages_first = true;
  // Global ranks, in order; one member = nothing to reduce.
  std::vector<int> data_group;
  std::vector<int> tensor_group;  // may be empty where nothing is cut
  // Of gradients that are summed over the tensor group; 0 = one a parameter.
  std::int64_t tensor_bucket_bytes = 0;
  std::vector<int> world_group;  // all ranks of the grid: sums of the step
  PipelinePlace pipeline;
  // Passes that the order lets overlap run one after the other all the same.
  bool passes_in_turn = false;
  MessageForm message_form = MessageForm::Whole;  // of a stage it is decided
  // ZeRO stage over the data group: 1 optimizer states and masters in shards, 2 gradients too, 3
  // parameters too. Without effect on one data rank.
  int zero = 0;
  int gathers_ahead = 1;  // stage 3: all-gathers are issued so many uses before their own
  // What sums of gradients over ranks travel in; none = what gradients are kept in.
  std::optional<NumberType> gradient_wire = {};
  StepLinks links;
  double norm_seconds_per_element = 0;
  double update_seconds_per_element = 0;
  double sums_seconds_per_element = 0;
  KernelSeconds kernels;
  std::vector<LibraryWorkspace> workspaces;  // live all the time
  std::vector<StateSpec> optimizer_states;
  // By round: numbers that the optimizer takes of each whole parameter before it updates it, summed
  // over the ranks that have parts of it; none = it updates each element by itself.
  std::vector<TensorSums> tensor_sums;

  std::int64_t gradient_wire_bytes() const {
    return gradient_wire ? number_bytes(*gradient_wire) : element_bytes.gradient;
  }

  // Whether the gradients of each micro-batch are reduced and added to the shard; else the whole
  // sum of a rank is kept until the last. Sums over ranks and micro-batches are made in the one
  // order or the other, so this must not depend on what fits: from stage 2 gradients are in shards,
  // but in a pipeline micro-batches overlap and their sums are one.
  bool reduces_each_micro_batch() const {
    return zero >= 2 && data_group.size() > 1 && micro_batches > 1 && pipeline.order.empty();
  }
};

// One training step. The buffers of parameters and states come first and in parameter order. The
// Program is complete but not replayed: peak and seconds are 0. Throws InternalError for a schedule
// that reads what is not there.
Program make_training_program(const ModelGraph& graph, const StepShape& step,
                              const StepSchedule& schedule);

// The same before passes are divided at their collectives, with a channel where one is to come. A
// pass is one task to solvers; nothing runs this.
Program make_undivided_program(const ModelGraph& graph, const StepShape& step,
                               const StepSchedule& schedule);

// One forward of one micro-batch without records: evaluation and generation. `output` names the
// value that stays live at the end (the loss, or the logits).
Program make_forward_program(const ModelGraph& graph, const StepShape& step, int output);

// Bytes of what is live between steps: parameters, masters and optimizer states, of one rank.
std::int64_t static_bytes(const ModelGraph& graph, const StepShape& step);

// Attaches every buffer that ends with its last use to the `frees` of that instruction; buffers of
// an asynchronous instruction count as used by the instruction that waits for it.
void assign_frees(Program& program);

}  // namespace garonne::plan
