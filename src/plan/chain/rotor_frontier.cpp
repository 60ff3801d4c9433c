#include "plan/chain/rotor_frontier.hpp"

#include <algorithm>

namespace garonne::plan {

// Points come with ascending bytes; one that saves no time is dropped.
void RotorFrontier::offer(Points& list, const Point& point) {
  if (!list.empty()) {
    if (point.excess >= list.back().excess) return;
    if (point.bytes == list.back().bytes) list.pop_back();
  }
  list.push_back(point);
}

void RotorFrontier::take_lower(Points& list, const Points& other, Points& scratch) {
  if (other.empty()) return;
  scratch.clear();
  auto one = list.begin();
  auto two = other.begin();
  while (one != list.end() || two != other.end()) {
    const bool first = two == other.end() || (one != list.end() && one->bytes <= two->bytes);
    offer(scratch, first ? *one++ : *two++);
  }
  list.swap(scratch);
}

std::optional<RotorFrontier> RotorFrontier::make(const RotorModel& model, std::int64_t most_bytes,
                                                 std::int64_t most_steps,
                                                 std::int64_t most_points) {
  RotorFrontier frontier(model.blocks());
  Points candidate;
  Points scratch;
  std::int64_t steps = 0;
  for (int last = 0; last < model.blocks(); ++last) {
    for (int first = last; first >= 0; --first) {
      Points& list = frontier.lists_[frontier.index_(first, last)];
      for (int option = 0; option < model.options(first); ++option) {
        const std::int64_t need = model.chain_need(first, last, option);
        const double excess = model.excess(first, option);
        candidate.clear();
        if (first == last) {
          if (need <= most_bytes) candidate.push_back({need, excess});
        } else {
          const std::int64_t saved = model.saved(first, option);
          for (const auto& rest : frontier.lists_[frontier.index_(first + 1, last)]) {
            const std::int64_t bytes = std::max(need, saved + rest.bytes);
            if (bytes > most_bytes) break;
            offer(candidate, {bytes, excess + rest.excess});
          }
        }
        steps += static_cast<std::int64_t>(candidate.size() + list.size());
        take_lower(list, candidate, scratch);
      }
      std::int64_t pass = 0;
      for (int j = first + 1; j <= last; ++j) {
        pass = std::max(pass, model.pass_need(first, j - 1));
        const Points& right = frontier.lists_[frontier.index_(j, last)];
        const Points& left = frontier.lists_[frontier.index_(first, j - 1)];
        if (right.empty() || left.empty()) continue;
        const std::int64_t need = model.value(last + 1) + pass;
        const std::int64_t stored = model.value(j);
        const std::int64_t gradients = model.gradients(j, last);
        const double seconds = model.pass_seconds(first, j);
        candidate.clear();
        std::size_t r = 0;
        std::size_t l = 0;
        while (true) {
          const std::int64_t bytes =
              std::max({need, stored + right[r].bytes, gradients + left[l].bytes});
          if (bytes > most_bytes) break;
          while (r + 1 < right.size() && stored + right[r + 1].bytes <= bytes) ++r;
          while (l + 1 < left.size() && gradients + left[l + 1].bytes <= bytes) ++l;
          offer(candidate, {bytes, seconds + right[r].excess + left[l].excess});
          const bool more_right = r + 1 < right.size();
          const bool more_left = l + 1 < left.size();
          if (!more_right && !more_left) break;
          if (more_right &&
              (!more_left || stored + right[r + 1].bytes <= gradients + left[l + 1].bytes)) {
            ++r;
          } else {
            ++l;
          }
        }
        steps += static_cast<std::int64_t>(candidate.size() + list.size()) + 1;
        take_lower(list, candidate, scratch);
      }
      list.shrink_to_fit();
      frontier.points_ += list.size();
      if (steps > most_steps || frontier.points_ > static_cast<std::size_t>(most_points))
        return std::nullopt;
    }
  }
  return frontier;
}

double RotorFrontier::excess(int first, int last, std::int64_t bytes) const {
  const Points& list = lists_[index_(first, last)];
  const auto above =
      std::upper_bound(list.begin(), list.end(), bytes,
                       [](std::int64_t limit, const Point& point) { return limit < point.bytes; });
  return above == list.begin() ? no_answer : std::prev(above)->excess;
}

}  // namespace garonne::plan
