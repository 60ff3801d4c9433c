// Work on numbered samples that all ranks share, and that one of them writes down.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "dist/session.hpp"

namespace garonne::data {

struct MadeSample {
  std::vector<float> values;  // what is written
  std::vector<double> facts;  // what is only summed up
};

// Rank r makes the samples i < count with i mod ranks = r, one at a time; rank 0 takes all of them
// in ascending order, so what it does with them does not depend on the number of ranks. At most one
// sample a rank is in memory, on rank 0 one of every rank. Shows a bar called `label` where
// `show_progress`. Collective.
void make_and_take(dist::Session& session, const std::string& label, bool show_progress,
                   std::int64_t count, const std::function<MadeSample(std::int64_t)>& make,
                   const std::function<void(std::int64_t, const MadeSample&)>& take);

// The bytes of every rank on rank 0, nothing elsewhere; in pieces where they are long. Collective.
std::vector<std::string> gather_long(dist::Session& session, const std::string& bytes);

}  // namespace garonne::data
