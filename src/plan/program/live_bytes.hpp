// What is live in a Program at a place of its list, for tables, pictures and refusals; and what
// tables of memory call it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/device.hpp"
#include "plan/program/program.hpp"
#include "plan/program/replay.hpp"

namespace garonne::plan {

// The row of a memory table in which people look for it: "parameters" (masters, too), "optimizer",
// "gradients", "values", "records", "value gradients", "communication", "gathered", "libraries"
// (their workspaces, and tables of kernels) or "transients" (scalars).
std::string_view memory_row(BufferKind kind);

// The buffers of a legal Program that are live during an instruction, what it makes included,
// ascending; -1 = at the start of the step.
std::vector<int> live_during(const Program& program, int instruction);

// What is in a tier during each instruction, transients apart.
std::vector<BytesByKind> bytes_by_kind(const Program& program, Tier tier);

// Throws ReplayError for the first instruction during which a tier holds more than its budget, the
// fastest tier first.
void check_budgets(const Program& program, const Prediction& prediction);

// Throws ReplayError where a buffer is no multiple of its tier's granularity, or where the peak
// that the Program states is not that of its replay.
void check_stated_bytes(const Program& program, const Prediction& prediction);

}  // namespace garonne::plan
