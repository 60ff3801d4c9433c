#include "nn/box.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/collective_bytes.hpp"

namespace garonne::nn {

std::int64_t Box::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

Box whole_box(std::vector<std::int64_t> shape) {
  return {shape, std::vector<std::int64_t>(shape.size(), 0), shape};
}

Box cut_box(std::vector<std::int64_t> global, std::size_t axis, std::int64_t number,
            std::int64_t pieces) {
  Box box = whole_box(std::move(global));
  box.offset[axis] = piece_begin(box.global[axis], pieces, number);
  box.shape[axis] = piece_end(box.global[axis], pieces, number) - box.offset[axis];
  return box;
}

std::vector<Run> runs_of(const Box& box) {
  return runs_of(box, 0, box.elements());
}

std::vector<Run> runs_of(const Box& box, std::int64_t begin, std::int64_t end) {
  std::vector<Run> runs;
  // Trailing axes that are not cut belong to one run with the axis before them.
  std::size_t cut = box.global.size();
  std::int64_t length = 1;
  while (cut > 0) {
    --cut;
    length *= box.shape[cut];
    if (box.shape[cut] != box.global[cut]) break;
  }
  for (std::int64_t at = begin; at < end;) {
    const std::int64_t inside = at % length;
    std::int64_t rest = at;
    std::int64_t place = 0;
    std::int64_t stride = 1;
    for (std::size_t axis = box.global.size(); axis-- > 0;) {
      place += (box.offset[axis] + rest % box.shape[axis]) * stride;
      rest /= box.shape[axis];
      stride *= box.global[axis];
    }
    const std::int64_t elements = std::min(end - at, length - inside);
    runs.push_back({at, place, elements});
    at += elements;
  }
  return runs;
}

}  // namespace garonne::nn
