// The ways in which the data ranks of a step can communicate under ZeRO.
#pragma once

#include <string>
#include <vector>

#include "plan/step/generator.hpp"

namespace garonne::plan {

struct CommunicationShape {
  StepShape step;
  std::string text;  // for the names of plans; empty where there is no choice
};

// Those that hide more come before those that hold less.
std::vector<CommunicationShape> communication_shapes(const StepShape& step);

}  // namespace garonne::plan
