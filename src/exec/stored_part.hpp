// A part of what lasts, wherever it is, as a stream of bytes through the host's memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "exec/model_state.hpp"

namespace garonne::exec {

// Used by one thread at a time; the state outlives it.
class StoredPart {
 public:
  // InternalError where there is no such buffer, or it reaches beyond it.
  StoredPart(const ModelState& state, BufferPart part);

  at::ScalarType type() const { return type_; }
  std::int64_t elements() const { return elements_; }
  std::int64_t element_bytes() const;
  // Where the host can read and write all of it in place; else null.
  std::byte* data() const;

  // Shows `elements` from `first` on, in their order, in pieces of whole elements. IoError from a
  // disk.
  using Show = std::function<void(std::span<const std::byte> piece)>;
  void read(std::int64_t first, std::int64_t elements, const Show& show) const;
  // They become what `make` writes piece by piece, from byte `at` on. IoError from a disk.
  using Make = std::function<void(std::int64_t at, std::span<std::byte> piece)>;
  void fill(std::int64_t first, std::int64_t elements, const Make& make) const;

  // All of it, which is below the device, in one range of the calling thread's tier, and back from
  // there. IoError from a disk.
  at::Tensor whole() const;
  void set_whole(const at::Tensor& whole) const;

 private:
  bool on_host() const;  // below the device

  const ModelState& state_;
  const BufferPart part_;
  const BufferStore::Entry& entry_;
  at::ScalarType type_ = at::kFloat;
  std::int64_t elements_ = 0;
};

}  // namespace garonne::exec
