// What an optimizer keeps for the elements of a parameter, one number or less for each of them, and
// what it takes of all of a parameter.
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

// A parameter as a matrix, whoever has parts of it. What has one dimension is one column.
struct MatrixSides {
  std::int64_t rows = 0;
  std::int64_t columns = 0;

  bool operator==(const MatrixSides&) const = default;
};

enum class MatrixSide { None, Rows, Columns };

// Blocks of elements of a parameter that share numbers of a state, or the state of a side of it.
struct StateBlocks {
  // Of a block: no rank has a part of one. The last of a parameter may be shorter.
  std::int64_t elements = 1;
  std::int64_t numbers = 1;  // of the state, for each block
  // Where there is one, the state has a number for each row or column of the whole parameter, and
  // `numbers` is 0. All ranks that have a part of the parameter have all of them.
  MatrixSide side = MatrixSide::None;

  static constexpr StateBlocks of_side(MatrixSide side) { return {1, 0, side}; }
  bool elementwise() const { return elements == 1 && numbers == 1; }
  bool of_whole() const { return side != MatrixSide::None; }
  // Numbers of the state of so many elements from the start of a block on, of a side none.
  std::int64_t count(std::int64_t of_elements) const {
    return (of_elements / elements + (of_elements % elements == 0 ? 0 : 1)) * numbers;
  }
  // The same of a parameter with these sides, of a side all of it.
  std::int64_t count(std::int64_t of_elements, const MatrixSides& sides) const {
    if (side == MatrixSide::None) return count(of_elements);
    return side == MatrixSide::Rows ? sides.rows : sides.columns;
  }
  bool operator==(const StateBlocks&) const = default;
};

// Numbers that an optimizer takes of a whole parameter: sums over its elements.
struct TensorSums {
  std::int64_t numbers = 0;
  bool sides = false;  // behind them one for each row, then one for each column

  std::int64_t count(const MatrixSides& of) const {
    return numbers + (sides ? of.rows + of.columns : 0);
  }
  bool operator==(const TensorSums&) const = default;
};

struct StateSpec {
  std::string name;  // as "first_moment"
  StateType type = StateType::OfRun;
  StateBlocks blocks = {};

  // Of a number of it; `of_run`: bytes of StateType::OfRun.
  std::int64_t element_bytes(std::int64_t of_run) const {
    return type == StateType::OfRun ? of_run : type == StateType::Float32 ? 4 : 1;
  }
  // Of so many elements of a parameter; without states of sides, which are small beside it.
  std::int64_t bytes(std::int64_t elements, std::int64_t of_run) const {
    return blocks.count(elements) * element_bytes(of_run);
  }
};

}  // namespace garonne
