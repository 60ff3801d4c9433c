// Work that falls into parts which know nothing of each other.
#pragma once

#include <functional>

namespace garonne {

// Calls `work` with each number below `parts`, on as many threads as this process has cores, the
// calling one among them. Returns when all have ended; of what they threw, the exception of the
// lowest number comes out.
void in_threads(int parts, const std::function<void(int)>& work);

}  // namespace garonne
