// Micro-batches of samples, in the order in which a Program loads them.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "exec/executor.hpp"

namespace garonne::train {

// Read ahead of their use. For one consuming thread.
class BatchStream {
 public:
  // `micro_batches`: of a step, in the order in which they come, step by step from ordinal 0 on.
  explicit BatchStream(std::vector<int> micro_batches) : micro_batches_(std::move(micro_batches)) {}
  virtual ~BatchStream() = default;

  // The next one, which is to be `micro_batch` of its step: InternalError where it is another.
  // Waits for it. Throws IoError for data that cannot be read or are not what they should be.
  exec::HostBatch next(int micro_batch);

 protected:
  struct Numbered {
    std::int64_t ordinal = 0;
    exec::HostBatch batch;
  };

 private:
  // The next one, with the ordinal that it was read for.
  virtual Numbered take() = 0;

  std::vector<int> micro_batches_;
};

}  // namespace garonne::train
