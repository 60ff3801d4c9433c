#include "exec/static_buffers.hpp"

#include <fmt/format.h>

#include <cstddef>

#include "base/error.hpp"

namespace garonne::exec {

StaticBuffers::StaticBuffers(const BufferStore& store, const plan::Program& program)
    : tensors_(program.buffers.size(), nullptr) {
  for (std::size_t id = 0; id < program.buffers.size(); ++id) {
    const plan::Buffer& buffer = program.buffers[id];
    if (!buffer.live_at_start) continue;
    const BufferStore::Entry& entry = store.entry(buffer.name);
    expect(entry.tier == buffer.tier,
           fmt::format("{} is on the tier {}, and the Program takes it to be on the tier {}",
                       buffer.name, to_string(entry.tier), to_string(buffer.tier)));
    if (entry.lowered) {
      lowered_[static_cast<int>(id)] = &*entry.lowered;
      continue;
    }
    ids_.push_back(static_cast<int>(id));
    tensors_[id] = &entry.tensor;
  }
}

const at::Tensor& StaticBuffers::tensor(int id) const {
  const auto place = static_cast<std::size_t>(id);
  // Asked for in every step, so the text is made where it is thrown only.
  if (place >= tensors_.size() || tensors_[place] == nullptr)
    throw InternalError(fmt::format("buffer {} is not static", id));
  return *tensors_[place];
}

}  // namespace garonne::exec
