#include "plan/model/communication_shape.hpp"

#include <fmt/format.h>

namespace garonne::plan {
namespace {

// Beyond the second the link, not the latency, is what is waited for.
constexpr int most_gathers_ahead = 2;

}  // namespace

std::vector<CommunicationShape> communication_shapes(const StepShape& step) {
  if (step.zero < 2 || step.data_group.size() < 2) return {{step, ""}};
  std::vector<CommunicationShape> shapes;
  const auto add = [&](bool each, int ahead, int in_flight) {
    StepShape shape = step;
    shape.reduce_each_micro_batch = each;
    shape.gathers_ahead = ahead;
    shape.reductions_in_flight = in_flight;
    std::string text;
    if (step.micro_batches > 1) {
      text += each ? ", gradients reduced in each micro-batch" : ", gradients reduced in the last";
    }
    if (step.zero == 3) text += fmt::format(", {} gathers ahead", ahead);
    if (in_flight != step.reductions_in_flight) {
      text += fmt::format(", {} reduction{} in flight", in_flight, in_flight == 1 ? "" : "s");
    }
    shapes.push_back({shape, text});
  };
  // In a pipeline micro-batches overlap: their sums are one.
  const bool several = step.micro_batches > 1 && step.pipeline.order.empty();
  for (const bool each : {false, true}) {
    if (each && !several) continue;
    for (int ahead = step.zero == 3 ? most_gathers_ahead : 0; ahead >= 0; --ahead)
      add(each, ahead, step.reductions_in_flight);
  }
  add(several, 0, 1);
  return shapes;
}

}  // namespace garonne::plan
