#include "plan/chain/choice_relaxation.hpp"

#include <algorithm>

namespace garonne::plan {

// Adds the steps along the lower convex hull of the choices.
void ChoiceRelaxation::add(std::vector<BytesChoice> choices) {
  std::sort(choices.begin(), choices.end(), [](const BytesChoice& a, const BytesChoice& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.seconds < b.seconds;
  });
  std::vector<BytesChoice> hull;
  for (const auto& choice : choices) {
    if (!hull.empty() && choice.seconds >= hull.back().seconds) continue;
    while (hull.size() >= 2) {
      const BytesChoice& one = hull[hull.size() - 2];
      const BytesChoice& two = hull.back();
      // The middle one stays if the slope gets flatter after it.
      if ((one.seconds - two.seconds) * (choice.bytes - two.bytes) >
          (two.seconds - choice.seconds) * (two.bytes - one.bytes))
        break;
      hull.pop_back();
    }
    hull.push_back(choice);
  }
  for (std::size_t n = 1; n < hull.size(); ++n) {
    steps_.push_back({hull[n].bytes - hull[n - 1].bytes, hull[n - 1].seconds - hull[n].seconds});
  }
  seconds_of_least_bytes_ += hull.front().seconds;
  least_bytes_ += hull.front().bytes;
}

double ChoiceRelaxation::least_seconds(double room) {
  std::sort(steps_.begin(), steps_.end(),
            [](const Step& a, const Step& b) { return a.saves * b.bytes > b.saves * a.bytes; });
  double seconds = seconds_of_least_bytes_;
  double left = room - least_bytes_;
  for (const Step& step : steps_) {
    if (left <= 0) break;
    const double share = step.bytes <= left ? 1 : left / step.bytes;
    seconds -= share * step.saves;
    left -= step.bytes;
  }
  return seconds;
}

}  // namespace garonne::plan
