// What lasts from step to step on a rank: buffers by name, each in its tier of memory. Programs
// that share them name them alike and number them as they like: see StaticBuffers.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/device.hpp"
#include "exec/lowered.hpp"

namespace garonne::exec {

// A tensor in a buffer: contiguous, in C order, from one of the buffer's elements on.
struct BufferPart {
  std::string buffer;
  std::int64_t offset = 0;  // elements
  std::vector<std::int64_t> shape;
};

// Owns its buffers. Tensors that it hands out are views of them, through which they are changed
// too, and are not to outlive it: who keeps one keeps its memory.
class BufferStore {
 public:
  // Zeros in the memory of one tier.
  using Maker = std::function<at::Tensor(at::IntArrayRef shape, at::ScalarType type)>;
  using Makers = std::map<Tier, Maker>;
  struct Entry {
    Tier tier = Tier::Device;
    at::Tensor tensor;               // undefined of what is not memory
    std::optional<Lowered> lowered;  // that is where
  };

  BufferStore() = default;
  explicit BufferStore(Makers makers) : makers_(std::move(makers)) {}
  BufferStore(BufferStore&&) = default;
  BufferStore& operator=(BufferStore&&) = default;
  BufferStore(const BufferStore&) = delete;
  BufferStore& operator=(const BufferStore&) = delete;
  ~BufferStore() = default;

  // Zeros in that tier. InternalError that names buffer and tier where nothing makes buffers there,
  // and where there is a buffer of that name, on whichever tier.
  void make(const std::string& name, Tier tier, at::IntArrayRef shape, at::ScalarType type);
  // The same with what is made already.
  void put(const std::string& name, Tier tier, at::Tensor tensor);
  // What is not memory that tensors can be in.
  void put(const std::string& name, Lowered lowered);

  bool has(const std::string& name) const { return entries_.contains(name); }
  // In the shape it was made in. InternalError where there is none of that name, the same below,
  // and where it is no memory.
  const at::Tensor& tensor(const std::string& name) const;
  // InternalError where it reaches beyond the buffer.
  at::Tensor view(const BufferPart& part) const;
  const Entry& entry(const std::string& name) const;

  // By name. What is there stays where it is until the store goes.
  const std::map<std::string, Entry>& entries() const { return entries_; }

 private:
  Makers makers_;
  std::map<std::string, Entry> entries_;
};

}  // namespace garonne::exec
