#include "plan/program/disk_copies.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "base/error.hpp"

namespace garonne::plan {

void DiskCopies::begin(const DiskCopy& copy) {
  expect(copy.begin >= now_ * (1 - 1e-12), "a copy begins when another that is later has ended");
  const double latency = std::min(disk_.latency_seconds, copy.seconds);
  left_.push_back({copy, copy.begin + latency, copy.seconds - latency});
}

bool DiskCopies::is_under_way(int program, Lane lane) const {
  return std::any_of(left_.begin(), left_.end(), [&](const Left& one) {
    return one.copy.program == program && one.copy.lane == lane;
  });
}

// Beside those that move now, against the even share.
double DiskCopies::speed(const Left& one) const {
  const std::vector<int>& alike = disk_.alike[static_cast<std::size_t>(one.copy.program)];
  double copies = 0;
  for (const Left& other : left_) {
    if (other.moves_at > now_ || (!disk_.half_duplex && other.copy.lane != one.copy.lane)) continue;
    copies += alike[static_cast<std::size_t>(other.copy.program)];
  }
  return disk_.ranks_on_node * (disk_.half_duplex ? 2 : 1) / copies;
}

std::optional<DiskCopies::End> DiskCopies::next() {
  while (!left_.empty()) {
    double until = std::numeric_limits<double>::infinity();
    std::size_t ends = left_.size();  // none: another begins to move first
    std::vector<double> speeds;
    for (std::size_t k = 0; k < left_.size(); ++k) {
      const Left& one = left_[k];
      const bool moves = one.moves_at <= now_;
      speeds.push_back(moves ? speed(one) : 0);
      const double when = moves ? now_ + one.seconds / speeds.back() : one.moves_at;
      if (when >= until) continue;
      until = when;
      ends = moves ? k : left_.size();
    }
    for (std::size_t k = 0; k < left_.size(); ++k)
      left_[k].seconds = std::max(0.0, left_[k].seconds - (until - now_) * speeds[k]);
    now_ = until;
    if (ends == left_.size()) continue;
    const End end{left_[ends].copy, now_};
    left_.erase(left_.begin() + static_cast<std::ptrdiff_t>(ends));
    return end;
  }
  return std::nullopt;
}

}  // namespace garonne::plan
