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
  const auto add = [&](int ahead, bool messages_first) {
    StepShape shape = step;
    shape.gathers_ahead = ahead;
    shape.messages_first = messages_first;
    std::string text;
    if (step.zero == 3) text += fmt::format(", {} gathers ahead", ahead);
    if (!messages_first) text += ", reductions before messages";
    shapes.push_back({shape, text});
  };
  for (int ahead = step.zero == 3 ? most_gathers_ahead : 0; ahead >= 0; --ahead) add(ahead, true);
  // What is reduced at once is not held until the last message.
  if (!step.pipeline.order.empty()) add(0, false);
  return shapes;
}

}  // namespace garonne::plan
