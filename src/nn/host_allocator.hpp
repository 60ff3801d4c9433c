// The tensor library's allocator of the host's memory, of which a process has one.
#pragma once

#include <c10/core/Allocator.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace garonne::nn {

// What the tensor library allocates of the host's memory comes from `source` from now on, on all
// threads; before, from the library's own allocator. It has to live as long as the process.
void set_host_allocator(c10::Allocator& source);

// Bytes of the blocks that `work` asks the tensor library for on this thread, in order, up to the
// first above `most_bytes`: there it is ended, by an exception that the allocator throws. All of
// them where none is.
std::vector<std::int64_t> blocks_until(std::int64_t most_bytes, const std::function<void()>& work);

}  // namespace garonne::nn
