// What memory.budget = "auto" comes to on a GPU, and what a budget takes of one.
#pragma once

#include <cstdint>

namespace garonne::device {

// What the tier allocates for a budget: a sixteenth more, for holes between blocks. A multiple of
// the granularity of GPUs.
std::int64_t tier_bytes_of_budget(std::int64_t budget_bytes);

// The budget of each of `ranks` that share a device on which `free_bytes` are free once everything
// exists that is not of the budget: context, code, workspaces, communicators. All ranks together
// leave 256 MiB of it. A multiple of the granularity; ConfigError of memory.budget where nothing is
// left.
std::int64_t automatic_gpu_budget(std::int64_t free_bytes, int ranks);

// What a tier gets in which nodes are measured before there is a budget: `needed_bytes` and no
// more, or what is free for each rank as for a budget where that is less. ConfigError of run.device
// where nothing is left.
std::int64_t measuring_room(std::int64_t free_bytes, int ranks, std::int64_t needed_bytes);

}  // namespace garonne::device
