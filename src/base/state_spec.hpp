// What an optimizer keeps for the elements of a parameter, one number or less for each of them.
#pragma once

#include <cstdint>
#include <string>

namespace garonne {

// Types of states have different numbers of bytes, by which a Program tells them.
enum class StateType {
  OfRun,    // as gradients and masters: float64 in float64 runs, else float32
  Float32,  // whatever the run's
  UInt8,    // codes
};

// Blocks of elements of a parameter that share numbers of a state.
struct StateBlocks {
  // Of a block: no rank has a part of one. The last of a parameter may be shorter.
  std::int64_t elements = 1;
  std::int64_t numbers = 1;  // of the state, for each block

  bool elementwise() const { return elements == 1 && numbers == 1; }
  // Numbers of the state of so many elements from the start of a block on.
  std::int64_t count(std::int64_t of_elements) const {
    return (of_elements / elements + (of_elements % elements == 0 ? 0 : 1)) * numbers;
  }
  bool operator==(const StateBlocks&) const = default;
};

struct StateSpec {
  std::string name;  // as "first_moment"
  StateType type = StateType::OfRun;
  StateBlocks blocks = {};

  // Of a number of it; `of_run`: bytes of StateType::OfRun.
  std::int64_t element_bytes(std::int64_t of_run) const {
    return type == StateType::OfRun ? of_run : type == StateType::Float32 ? 4 : 1;
  }
  // Of so many elements of a parameter.
  std::int64_t bytes(std::int64_t elements, std::int64_t of_run) const {
    return blocks.count(elements) * element_bytes(of_run);
  }
};

}  // namespace garonne
