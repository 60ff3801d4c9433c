// What GridEstimator knows of a device of a candidate. For its sources.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/grid/block_passes.hpp"
#include "plan/grid/estimated_model.hpp"
#include "plan/grid/grid_estimate.hpp"
#include "plan/grid/pipeline_hosts.hpp"
#include "plan/grid/tied_sums.hpp"
#include "plan/model/group_links.hpp"
#include "plan/pipeline/simulation.hpp"

namespace garonne::plan {

struct GridEstimator::Model : EstimatedModel {};

struct GridEstimator::Shape {
  GroupLink data;
  GroupLink tensor;
  GroupLink world;
  Link hop;  // the slowest between stages that follow each other
};

struct GridEstimator::Device {
  struct Chunk {
    int first = 0;  // block
    int last = 0;
    double micro_batches = 0;  // that pass it
    double forward = 0;        // seconds of a micro-batch, collectives included
    double backward = 0;
    double weight = 0;
    double exchanging = 0;        // of these, for collectives
    PassIssue issue;              // of the host
    std::int64_t sent_bytes = 0;  // kept until the gradient comes back
  };
  std::vector<Chunk> chunks;
  std::int64_t elements = 0;
  TiedParameters tied;
  int parameters = 0;
  int launches = 0;  // of their sums and updates
  std::int64_t static_bytes = 0;
  std::vector<PassSeconds> updates;  // by block
  std::int64_t working_bytes = 0;
  std::int64_t largest_block_elements = 0;
  // Seconds of the parts before its first one; of the direction in which there are fewer.
  double before_forward = 0;
  double before_backward = 0;

  // Of a step.
  double work() const {
    double sum = 0;
    for (const auto& chunk : chunks)
      sum += chunk.micro_batches * (chunk.forward + chunk.backward + chunk.weight);
    return sum;
  }
  double issue() const {
    double sum = 0;
    for (const auto& chunk : chunks)
      sum += chunk.micro_batches * (chunk.issue.forward + chunk.issue.backward);
    return sum;
  }
};

// What a device keeps of its blocks between their passes.
struct GridEstimator::Kept {
  std::vector<PassSeconds> again;           // by chunk: what runs a second time
  std::vector<const BlockOption*> options;  // by block of the device
  std::int64_t peak_bytes = 0;
};

struct GridEstimator::Passes {
  PipelineCosts costs;           // without messages
  std::vector<double> backward;  // by device, seconds of a micro-batch
};

}  // namespace garonne::plan
