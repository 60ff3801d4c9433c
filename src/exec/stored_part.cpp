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

bool StoredPart::on_host() const {
  return entry_.lowered && entry_.tier == Tier::Host;
}

std::byte* StoredPart::data() const {
  if (on_host()) return entry_.lowered->block.data + part_.offset * element_bytes();
  if (entry_.lowered || state_.staging != nullptr) return nullptr;
  return static_cast<std::byte*>(state_.buffers.view(part_).data_ptr());
}

void StoredPart::read(std::int64_t first, std::int64_t elements, const Show& show) const {
  const std::int64_t begin = (part_.offset + first) * element_bytes();
  const std::int64_t bytes = elements * element_bytes();
  if (on_host()) return show({entry_.lowered->block.data + begin, static_cast<std::size_t>(bytes)});
  if (entry_.lowered) return state_.disk->show(entry_.lowered->block, begin, bytes, show);
  const auto* const from = static_cast<const std::byte*>(entry_.tensor.const_data_ptr()) + begin;
  if (state_.staging != nullptr) return state_.staging->read(from, bytes, show, part_.buffer);
  show({from, static_cast<std::size_t>(bytes)});
}

void StoredPart::fill(std::int64_t first, std::int64_t elements, const Make& make) const {
  const std::int64_t begin = (part_.offset + first) * element_bytes();
  const std::int64_t bytes = elements * element_bytes();
  if (on_host())
    return make(0, {entry_.lowered->block.data + begin, static_cast<std::size_t>(bytes)});
  if (entry_.lowered) return state_.disk->fill(entry_.lowered->block, begin, bytes, make);
  auto* const to = static_cast<std::byte*>(entry_.tensor.data_ptr()) + begin;
  if (state_.staging != nullptr) return state_.staging->fill(to, bytes, make, part_.buffer);
  make(0, {to, static_cast<std::size_t>(bytes)});
}

at::Tensor StoredPart::whole() const {
  const at::Tensor all = at::empty({elements_}, nn::tensor_options(state_.queue, type_));
  auto* const to = static_cast<std::byte*>(all.data_ptr());
  const auto read_into = [&](std::int64_t at, std::span<std::byte> some) {
    auto* next = some.data();
    read(at / element_bytes(), static_cast<std::int64_t>(some.size()) / element_bytes(),
         [&](std::span<const std::byte> piece) {
           next = std::copy(piece.begin(), piece.end(), next);
         });
  };
  const std::int64_t bytes = elements_ * element_bytes();
  if (state_.staging != nullptr) {
    state_.staging->fill(to, bytes, read_into, part_.buffer);
  } else {
    read_into(0, {to, static_cast<std::size_t>(bytes)});
  }
  return all;
}

void StoredPart::set_whole(const at::Tensor& whole) const {
  const auto* const from = static_cast<const std::byte*>(whole.const_data_ptr());
  std::int64_t first = 0;
  const auto write = [&](std::span<const std::byte> some) {
    const std::int64_t elements = static_cast<std::int64_t>(some.size()) / element_bytes();
    fill(first, elements, [&](std::int64_t at, std::span<std::byte> piece) {
      std::copy_n(some.data() + at, piece.size(), piece.begin());
    });
    first += elements;
  };
  const std::int64_t bytes = elements_ * element_bytes();
  if (state_.staging != nullptr) return state_.staging->read(from, bytes, write, part_.buffer);
  write({from, static_cast<std::size_t>(bytes)});
}

}  // namespace garonne::exec
