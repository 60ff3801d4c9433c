#include "train/workload/batch_stream.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/error.hpp"

namespace garonne::train {

exec::HostBatch BatchStream::next(int micro_batch) {
  Numbered taken = take();
  const auto per_step = static_cast<std::int64_t>(micro_batches_.size());
  const int came = micro_batches_.at(static_cast<std::size_t>(taken.ordinal % per_step));
  if (came != micro_batch) {
    throw InternalError(
        fmt::format("micro-batch {} was to be loaded, and what came is "
                    "micro-batch {} of step {}",
                    micro_batch, came, taken.ordinal / per_step + 1));
  }
  return std::move(taken.batch);
}

}  // namespace garonne::train
