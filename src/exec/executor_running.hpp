// What an execution holds while it runs. For the executor's own use.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "exec/executor.hpp"

namespace garonne::exec {

inline std::size_t index(int id) {
  return static_cast<std::size_t>(id);
}

// Everything that lives from the start of a step to its end.
struct Executor::Running {
  const StepInputs& inputs;
  std::vector<at::Tensor> buffers;
  std::vector<std::vector<std::int64_t>> samples;                            // by micro-batch
  std::map<std::pair<int, int>, nn::Record> records;                         // (micro-batch, node)
  std::map<std::size_t, std::pair<dist::Transport*, dist::Ticket>> tickets;  // by instruction
  StepOutputs outputs;
};

}  // namespace garonne::exec
