// Some of a Program's idle times, each spent on a lower tier from and to any place that is legal.
#pragma once

#include <random>
#include <vector>

#include "plan/offload/offload.hpp"

namespace garonne::plan::test {

// One of `one_in` of them.
inline std::vector<Offload> random_offloads(const Program& program, std::mt19937& random,
                                            unsigned one_in, const std::vector<Tier>& tiers) {
  std::vector<Offload> offloads;
  for (const IdleTime& idle : idle_times(program)) {
    if (random() % one_in != 0) continue;
    // Early or late more often than between.
    const auto between = [&](int least, int most) {
      const auto places = static_cast<unsigned>(most - least + 1);
      return random() % 2 == 0 ? least : least + static_cast<int>(random() % places);
    };
    Offload offload;
    offload.idle = idle;
    offload.tier = tiers[random() % tiers.size()];
    offload.out_behind = between(idle.complete_at, idle.last_use);
    offload.room_from = between(idle.last_use + 1, idle.next_use);
    offload.back_from = between(offload.room_from, idle.next_use);
    offloads.push_back(offload);
  }
  return offloads;
}

}  // namespace garonne::plan::test
