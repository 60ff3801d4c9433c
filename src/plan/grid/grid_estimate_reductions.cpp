// Of the estimator: sums of gradients, and what they hold.
#include <algorithm>

#include "base/index.hpp"
#include "plan/grid/estimated_device.hpp"

namespace garonne::plan {
namespace {

// As the generator gathers.
constexpr int gathered_at_once = 3;

}  // namespace

double GridEstimator::reduction_seconds(const GridCandidate& candidate, std::int64_t elements) {
  const bool all = candidate.zero == 0;
  return collective_seconds(all ? "all-reduce" : "reduce-scatter",
                            elements * step_.gradient_wire_bytes(), candidate.shape.data,
                            shape_of(candidate).data);
}

std::int64_t GridEstimator::bucket_bytes(const GridCandidate& candidate,
                                         const Device& device) const {
  const std::int64_t of_element = step_.element_bytes.gradient;
  const std::int64_t together =
      std::min(std::max(candidate.bucket_bytes, device.largest_block_elements * of_element),
               (device.elements - device.tied.elements) * of_element);
  return std::max(together, device.tied.largest_elements * of_element);
}

// Of gradients that are reduced with others.
double GridEstimator::buckets_together(const GridCandidate& candidate, const Device& device) const {
  const std::int64_t elements = device.elements - device.tied.elements;
  if (elements == 0) return 0;
  const auto gradients = static_cast<double>(elements * step_.element_bytes.gradient);
  return std::max(1.0, gradients / static_cast<double>(bucket_bytes(candidate, device)));
}

// Gradients that nobody reduces are not put together.
double GridEstimator::buckets_of(const GridCandidate& candidate, const Device& device) const {
  if (candidate.shape.data == 1) return std::max(1, device.parameters);
  const auto alone = static_cast<double>(device.tied.parameters.size());
  return std::max(1.0, alone + buckets_together(candidate, device));
}

std::int64_t GridEstimator::held_bytes(const GridCandidate& candidate, const Device& device) const {
  const ElementBytes& bytes = step_.element_bytes;
  const auto members = static_cast<std::int64_t>(candidate.shape.data);
  const std::int64_t bucket = bucket_bytes(candidate, device);
  const std::int64_t gradients = device.elements * bytes.gradient;
  std::int64_t held = device.static_bytes + device.working_bytes;
  held += gradient_in_shards(candidate) ? gradients / members + bucket : gradients;
  if (members > 1) {
    held += bucket * (members - 1) / members;
    if (candidate.zero == 3) held += gathered_at_once * bucket / bytes.gradient * bytes.parameter;
  }
  return held;
}

// What is left of a device's reductions after its last backward of `backward_seconds`. Where a
// gradient goes to the stage before, as many of them as `free_bytes` hold begin before that.
double GridEstimator::exposed_seconds(const GridCandidate& candidate, const Device& device,
                                      bool sends, double backward_seconds,
                                      std::int64_t free_bytes) {
  const std::int64_t elements = device.elements - device.tied.elements;
  if (candidate.shape.data == 1 || elements == 0) return 0;
  const std::int64_t gradients = elements * step_.element_bytes.gradient;
  const double buckets = buckets_together(candidate, device);
  const double reducing =
      reduction_seconds(candidate, elements / static_cast<std::int64_t>(buckets)) * buckets;
  // Nothing is hidden then; gradients that are kept in shards are summed by micro-batch.
  if (!cluster_.software.overlaps_reductions) {
    return gradient_in_shards(candidate) ? static_cast<double>(candidate.micro_batches) * reducing
                                         : reducing;
  }
  // The first bucket is whole after its part of the backward.
  double hidden = backward_seconds * (buckets - 1) / buckets;
  if (sends) {
    const auto members = static_cast<double>(candidate.shape.data);
    const double staging = static_cast<double>(gradients) * (members - 1) / members;
    const double begun = static_cast<double>(std::max<std::int64_t>(free_bytes, 0)) / staging;
    // Gathers of parameters go first.
    const double share = candidate.zero == 3 ? 0 : std::min(1.0, 1 / buckets + begun);
    hidden = std::min(hidden, share * reducing);
  }
  // The last bucket has nothing to hide behind.
  return std::max(reducing / buckets, reducing - hidden);
}

// When both stages have done all else.
double GridEstimator::tied_seconds(const GridCandidate& candidate, const Device& device, int stage,
                                   bool host_waits) {
  if (device.tied.device < 0) return 0;
  const GridShape& sizes = candidate.shape;
  const auto [first, second] = std::minmax(stage, device.tied.device);
  const auto key = std::make_tuple(sizes.data, sizes.pipeline, sizes.tensor, first, second);
  const auto known = tied_links_.find(key);
  const GroupLink link = known != tied_links_.end()
                             ? known->second
                             : GridLinks(cluster_, Grid(sizes)).stages(first, second);
  tied_links_.try_emplace(key, link);
  const Shape& shape = shape_of(candidate);
  return tied_sum_seconds(device.tied, candidate, step_, {link, shape.data, shape.tensor},
                          host_waits);
}

}  // namespace garonne::plan
