// Which part of a whole tensor a rank holds.
#pragma once

#include <cstdint>
#include <vector>

namespace garonne::nn {

// A box in a tensor of shape `global`; row-major, as it is stored in checkpoints. The parameter of
// a rank holds the box from its first element on; what it has beyond the box is padding, always 0.
struct Box {
  std::vector<std::int64_t> global;
  std::vector<std::int64_t> offset;
  std::vector<std::int64_t> shape;

  std::int64_t elements() const;
  bool operator==(const Box&) const = default;
};

// The box that is everything.
Box whole_box(std::vector<std::int64_t> shape);

// Piece `number` of `pieces` along `axis`, each of so many indices but the last ones, which may be
// shorter, down to empty.
Box cut_box(std::vector<std::int64_t> global, std::size_t axis, std::int64_t number,
            std::int64_t pieces);

// Elements that stand side by side both in the box and in the whole tensor.
struct Run {
  std::int64_t in_box = 0;
  std::int64_t in_global = 0;
  std::int64_t elements = 0;
};
// The longest runs of elements [begin, end) of the box, ascending in both.
std::vector<Run> runs_of(const Box& box, std::int64_t begin, std::int64_t end);
std::vector<Run> runs_of(const Box& box);

}  // namespace garonne::nn
