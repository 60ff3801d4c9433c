// What an operation allocates, played through to find its transient bytes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "nn/node.hpp"

namespace garonne::nn {

class AllocationSketch {
 public:
  explicit AllocationSketch(const Declaration& declaration) : declaration_(declaration) {}

  // Both return and take bytes as the tier counts them.
  std::int64_t make(std::int64_t elements, std::int64_t element_bytes) {
    const std::int64_t bytes = declaration_.allocation(elements * element_bytes);
    live_ += bytes;
    peak_ = std::max(peak_, live_);
    return bytes;
  }
  void drop(std::int64_t bytes) { live_ -= bytes; }
  // What an operation takes and gives back before the next one.
  void pass(std::int64_t bytes) { peak_ = std::max(peak_, live_ + bytes); }

  // What was live beside what is left at the end.
  std::int64_t transient_bytes() const { return peak_ - live_; }
  // What an operation that is part of this one adds at its peak.
  const Declaration& declaration() const { return declaration_; }

 private:
  const Declaration& declaration_;
  std::int64_t live_ = 0;
  std::int64_t peak_ = 0;
};

}  // namespace garonne::nn
