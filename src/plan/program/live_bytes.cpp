#include "plan/program/live_bytes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>

#include "base/index.hpp"

namespace garonne::plan {
namespace {

// Walks through the list and tells of every buffer that becomes live, or is no longer, and of every
// instruction while all that it makes is live and nothing that it frees is gone.
template <typename Change, typename During>
void walk(const Program& program, const Change& change, const During& during) {
  std::vector<bool> live(program.buffers.size(), false);
  const auto set_live = [&](int id, bool is_live) {
    if (live[as_index(id)] == is_live) return;
    live[as_index(id)] = is_live;
    change(id, is_live);
  };
  for (std::size_t id = 0; id < program.buffers.size(); ++id) {
    if (is_there_at_start(program.buffers[id])) set_live(static_cast<int>(id), true);
  }
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    for (const int id : program.instructions[i].writes) set_live(id, true);
    if (!during(static_cast<int>(i), live)) return;
    for (const int id : program.instructions[i].frees) set_live(id, false);
  }
}

}  // namespace

std::string_view memory_row(BufferKind kind) {
  switch (kind) {
    case BufferKind::Parameter:
    case BufferKind::MasterParameter:
      return "parameters";
    case BufferKind::OptimizerState:
      return "optimizer";
    case BufferKind::Gradient:
      return "gradients";
    case BufferKind::Value:
      return "values";
    case BufferKind::Record:
      return "records";
    case BufferKind::ValueGradient:
      return "value gradients";
    case BufferKind::Communication:
      return "communication";
    case BufferKind::GatheredParameter:
      return "gathered";
    case BufferKind::Workspace:
      return "libraries";
    case BufferKind::Scalar:
      return "transients";
  }
  return "unknown";
}

std::vector<int> live_during(const Program& program, int instruction) {
  std::vector<int> found;
  for (std::size_t id = 0; id < program.buffers.size(); ++id) {
    if (instruction < 0 && is_there_at_start(program.buffers[id]))
      found.push_back(static_cast<int>(id));
  }
  if (instruction < 0) return found;
  walk(
      program, [](int, bool) {},
      [&](int i, const std::vector<bool>& live) {
        if (i < instruction) return true;
        for (std::size_t id = 0; id < live.size(); ++id) {
          if (live[id]) found.push_back(static_cast<int>(id));
        }
        return false;
      });
  return found;
}

std::vector<BytesByKind> bytes_by_kind(const Program& program, Tier tier) {
  std::vector<BytesByKind> bytes;
  BytesByKind now{};
  walk(
      program,
      [&](int id, bool is_live) {
        const Buffer& buffer = program.buffers[as_index(id)];
        if (buffer.tier != tier) return;
        now[static_cast<std::size_t>(buffer.kind)] += is_live ? buffer.bytes : -buffer.bytes;
      },
      [&](int, const std::vector<bool>&) {
        bytes.push_back(now);
        return true;
      });
  return bytes;
}

void check_budgets(const Program& program, const Prediction& prediction) {
  for (const Tier tier : {Tier::Device, Tier::Host, Tier::Disk}) {
    const std::int64_t budget = program.tier(tier).budget_bytes;
    const TierBytes& bytes = prediction.of(tier);
    if (bytes.peak_bytes <= budget || (tier == Tier::Device && budget == 0)) continue;
    const auto refuse = [&](int i, const std::string& description, std::int64_t held) {
      throw ReplayError(i, description,
                        fmt::format("holds {} B on the tier {} whose budget is {} B", held,
                                    to_string(tier), budget));
    };
    for (std::size_t i = 0; i < bytes.during_bytes.size(); ++i) {
      if (bytes.during_bytes[i] > budget)
        refuse(static_cast<int>(i), describe(program.instructions[i]), bytes.during_bytes[i]);
    }
    refuse(0, "start of the step", bytes.peak_bytes);
  }
}

void check_stated_bytes(const Program& program, const Prediction& prediction) {
  for (const Buffer& buffer : program.buffers) {
    const std::int64_t granularity = program.tier(buffer.tier).granularity;
    if (buffer.bytes % granularity == 0) continue;
    throw ReplayError(0, "start of the step",
                      fmt::format("{} has {} B on the tier {}, which hands out multiples of {} B",
                                  buffer.name, buffer.bytes, to_string(buffer.tier), granularity));
  }
  if (program.peak_bytes == prediction.peak_bytes) return;
  const int place = std::max(prediction.peak_instruction, 0);
  throw ReplayError(place,
                    prediction.peak_instruction < 0
                        ? "start of the step"
                        : describe(program.instructions[as_index(place)]),
                    fmt::format("the peak is {} B, and the Program states {} B",
                                prediction.peak_bytes, program.peak_bytes));
}

}  // namespace garonne::plan
