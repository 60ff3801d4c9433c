// What the groups of a grid take of each GPU over NCCL, beside the budget.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/grid.hpp"
#include "dist/nccl_memory.hpp"
#include "train/setup/planning.hpp"

namespace garonne::train {

// What Axes makes for a rank whose stage has this place in its pipeline.
std::vector<dist::NcclGroup> nccl_groups(const Grid& grid, const plan::PipelinePlace& place,
                                         int rank);

// What grid.transport = "auto" comes to on GPUs: NCCL has one rank on a device, and not every build
// has NCCL.
std::string transport_on_gpus(bool any_shared, bool has_nccl);

// What NCCL takes of each device of a run, before the model is known that is cut: at most, where no
// more than three values of a model on fields cross a cut, and one of a model on tokens.
std::int64_t communicator_bytes(const RunConfig& config);
// The same of a rank, once it is known. `whole` is of all stages. Throws
// ConfigError as setup_of_stage does.
std::int64_t communicator_bytes(const Setup& whole, int rank);
// Of the rank that has most; the answers of all are alike within a stage.
std::int64_t most_communicator_bytes(const Setup& whole);

// Memory of a device once communicators are there.
struct BesideNccl {
  std::int64_t wanted_bytes = 0;    // of the tier
  std::int64_t free_bytes = 0;      // of the device
  std::int64_t taken_bytes = 0;     // by NCCL
  std::int64_t left_for_bytes = 0;  // that the budget left to it
};
// ConfigError of memory.budget that names NCCL, where the tier does not fit and NCCL has taken more
// than was left for it.
void expect_room_beside_nccl(const BesideNccl& memory);

}  // namespace garonne::train
