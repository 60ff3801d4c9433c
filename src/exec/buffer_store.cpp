#include "exec/buffer_store.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "base/error.hpp"

namespace garonne::exec {

void BufferStore::make(const std::string& name, Tier tier, at::IntArrayRef shape,
                       at::ScalarType type) {
  const auto maker = makers_.find(tier);
  expect(maker != makers_.end(),
         fmt::format("{} is on the tier {}, where nothing makes buffers", name, to_string(tier)));
  put(name, tier, maker->second(shape, type));
}

void BufferStore::put(const std::string& name, Tier tier, at::Tensor tensor) {
  expect(entries_.emplace(name, Entry{tier, std::move(tensor), std::nullopt}).second,
         "two buffers that last are called " + name);
}

void BufferStore::put(const std::string& name, Lowered lowered) {
  const Tier tier = lowered.memory->tier();
  expect(entries_.emplace(name, Entry{tier, {}, std::move(lowered)}).second,
         "two buffers that last are called " + name);
}

const at::Tensor& BufferStore::tensor(const std::string& name) const {
  const Entry& found = entry(name);
  expect(found.tensor.defined(),
         fmt::format("{} is on the tier {}, where no tensor is", name, to_string(found.tier)));
  return found.tensor;
}

const BufferStore::Entry& BufferStore::entry(const std::string& name) const {
  const auto found = entries_.find(name);
  expect(found != entries_.end(), "the state has no " + name);
  return found->second;
}

at::Tensor BufferStore::view(const BufferPart& part) const {
  const at::Tensor& buffer = tensor(part.buffer);
  if (part.offset == 0 && buffer.sizes() == part.shape) return buffer;
  const std::int64_t elements = std::accumulate(part.shape.begin(), part.shape.end(),
                                                std::int64_t{1}, std::multiplies<std::int64_t>());
  expect(part.offset >= 0 && elements <= buffer.numel() - part.offset,
         fmt::format("{} elements from {} on are not in {}, which has {}", elements, part.offset,
                     part.buffer, buffer.numel()));
  return buffer.view({-1}).narrow(0, part.offset, elements).view(part.shape);
}

}  // namespace garonne::exec
