// What replay says against a Program.
#pragma once

#include <string>

#include "plan/program/replay.hpp"

namespace garonne::plan::test {

// Empty where it says nothing.
inline std::string refusal(const Program& program) {
  try {
    replay(program);
  } catch (const ReplayError& error) {
    return error.what();
  }
  return "";
}

}  // namespace garonne::plan::test
