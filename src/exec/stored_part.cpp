#include "exec/stored_part.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "exec/staging.hpp"
#include "nn/tensor_options.hpp"

namespace garonne::exec {

StoredPart::StoredPart(const ModelState& state, BufferPart part)
    : state_(state), part_(std::move(part)), entry_(state.buffers.entry(part_.buffer)) {
  type_ = entry_.lowered ? entry_.lowered->type : entry_.tensor.scalar_type();
  elements_ = std::accumulate(part_.shape.begin(), part_.shape.end(), std::int64_t{1},
                              std::multiplies<std::int64_t>());
  const std::int64_t there =
      entry_.lowered ? entry_.lowered->bytes / element_bytes() : entry_.tensor.numel();
  expect(part_.offset >= 0 && elements_ <= there - part_.offset,
         fmt::format("{} elements from {} on are not in {}, which has {}", elements_, part_.offset,
                     part_.buffer, there));
}

std::int64_t StoredPart::element_bytes() const {
  return static_cast<std::int64_t>(c10::elementSize(type_));
}

std::byte* StoredPart::data() const {
  if (entry_.lowered || state_.staging != nullptr) return nullptr;
  return static_cast<std::byte*>(state_.buffers.view(part_).data_ptr());
}

void StoredPart::read(std::int64_t first, std::int64_t elements, const Show& show) const {
  const std::int64_t begin = (part_.offset + first) * element_bytes();
  const std::int64_t bytes = elements * element_bytes();
  if (entry_.lowered) return state_.disk->show(entry_.lowered->block, begin, bytes, show);
  const auto* const from = static_cast<const std::byte*>(entry_.tensor.const_data_ptr()) + begin;
  if (state_.staging != nullptr) return state_.staging->read(from, bytes, show, part_.buffer);
  show({from, static_cast<std::size_t>(bytes)});
}

void StoredPart::fill(std::int64_t first, std::int64_t elements, const Make& make) const {
  const std::int64_t begin = (part_.offset + first) * element_bytes();
  const std::int64_t bytes = elements * element_bytes();
  if (entry_.lowered) return state_.disk->fill(entry_.lowered->block, begin, bytes, make);
  auto* const to = static_cast<std::byte*>(entry_.tensor.data_ptr()) + begin;
  if (state_.staging != nullptr) return state_.staging->fill(to, bytes, make, part_.buffer);
  make(0, {to, static_cast<std::size_t>(bytes)});
}

at::Tensor StoredPart::whole() const {
  const at::Tensor all = at::empty({elements_}, nn::tensor_options(state_.queue, type_));
  auto* to = static_cast<std::byte*>(all.data_ptr());
  read(0, elements_,
       [&](std::span<const std::byte> piece) { to = std::copy(piece.begin(), piece.end(), to); });
  return all;
}

void StoredPart::set_whole(const at::Tensor& whole) const {
  const auto* const from = static_cast<const std::byte*>(whole.const_data_ptr());
  fill(0, elements_, [&](std::int64_t at, std::span<std::byte> piece) {
    std::copy_n(from + at, piece.size(), piece.begin());
  });
}

}  // namespace garonne::exec
