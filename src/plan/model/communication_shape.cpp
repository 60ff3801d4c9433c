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
  const auto add = [&](bool each, int ahead, bool messages_first) {
    StepShape shape = step;
    shape.reduce_each_micro_batch = each;
    shape.gathers_ahead = ahead;
    shape.messages_first = messages_first;
    std::string text;
    if (step.micro_batches > 1) {
      text += each ? ", gradients reduced in each micro-batch" : ", gradients reduced in the last";
    }
    if (step.zero == 3) text += fmt::format(", {} gathers ahead", ahead);
    if (!messages_first) text += ", reductions before messages";
    shapes.push_back({shape, text});
  };
  // In a pipeline micro-batches overlap: their sums are one.
  const bool several = step.micro_batches > 1 && step.pipeline.order.empty();
  for (const bool each : {false, true}) {
    if (each && !several) continue;
    for (int ahead = step.zero == 3 ? most_gathers_ahead : 0; ahead >= 0; --ahead)
      add(each, ahead, true);
  }
  // What is reduced at once is not held until the last message.
  if (!step.pipeline.order.empty()) add(several, 0, false);
  return shapes;
}

}  // namespace garonne::plan
