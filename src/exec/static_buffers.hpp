// The static buffers of a Program: those that are live at its start, which a store has.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <vector>

#include "exec/buffer_store.hpp"
#include "plan/program/program.hpp"

namespace garonne::exec {

// Looked up by their names once. The store outlives it.
class StaticBuffers {
 public:
  StaticBuffers() = default;
  // InternalError where the store lacks one of them or has it on another tier than the Program.
  StaticBuffers(const BufferStore& store, const plan::Program& program);

  // The Program's numbers of those that are memory, ascending.
  const std::vector<int>& ids() const { return ids_; }
  // The others.
  const std::map<int, const Lowered*>& lowered() const { return lowered_; }
  // InternalError where `id` is not one of them.
  const at::Tensor& tensor(int id) const;

 private:
  std::vector<int> ids_;
  std::map<int, const Lowered*> lowered_;
  std::vector<const at::Tensor*> tensors_;  // by id; null of buffers that are not static
};

}  // namespace garonne::exec
