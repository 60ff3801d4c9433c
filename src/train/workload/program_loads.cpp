#include "train/workload/program_loads.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/contains.hpp"
#include "base/error.hpp"

namespace garonne::train {
namespace {

std::vector<int> in_order(const plan::Program& program) {
  std::vector<int> micro_batches;
  for (const auto& instruction : program.instructions) {
    if (instruction.operation == plan::Operation::Load)
      micro_batches.push_back(instruction.micro_batch);
  }
  return micro_batches;
}

}  // namespace

std::string fault_of_loads(const plan::Program& program) {
  const std::vector<int> loads = in_order(program);
  for (int m = 0; m < program.micro_batches; ++m) {
    const auto times = std::count(loads.begin(), loads.end(), m);
    if (times != 1) {
      return fmt::format("loads micro-batch {} {} times, and each of the {} is to be loaded once",
                         m, times, program.micro_batches);
    }
  }
  if (static_cast<int>(loads.size()) == program.micro_batches) return "";
  return fmt::format("loads {} micro-batches where it has {}", loads.size(), program.micro_batches);
}

std::vector<int> loaded_micro_batches(const plan::Program& program) {
  if (const std::string fault = fault_of_loads(program); !fault.empty())
    throw InternalError("a Program " + fault);
  return in_order(program);
}

std::vector<std::string> loaded_names(const plan::Program& program, const plan::ModelGraph& graph) {
  std::vector<std::string> names;
  for (const auto& instruction : program.instructions) {
    for (const plan::LoadedValue& loaded : instruction.arguments.loaded) {
      const std::string& name = graph.values.at(static_cast<std::size_t>(loaded.value)).name;
      if (!contains(names, name)) names.push_back(name);
    }
  }
  return names;
}

exec::HostBatch blank_batch(const plan::Program& program, const plan::ModelGraph& graph,
                            int micro_batch) {
  exec::HostBatch batch;
  for (const plan::Instruction& instruction : program.instructions) {
    if (instruction.operation != plan::Operation::Load || instruction.micro_batch != micro_batch)
      continue;
    for (const plan::LoadedValue& loaded : instruction.arguments.loaded) {
      const plan::ValueSpec& value = graph.values.at(static_cast<std::size_t>(loaded.value));
      const auto elements = static_cast<std::size_t>(value.elements());
      if (value.type == NumberType::Int64) {
        batch.values[value.name].assign(elements, 0);
      } else {
        batch.fields[value.name].assign(elements, std::numeric_limits<float>::quiet_NaN());
      }
    }
  }
  return batch;
}

}  // namespace garonne::train
