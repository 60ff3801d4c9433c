// Work that falls into parts which know nothing of each other.
#pragma once

#include <functional>

namespace garonne {

// As many threads as this process has cores, by its affinity and its control group's quota; 1 where
// the system does not say.
int usable_cores();

// Calls `work` with each number below `parts`, on usable_cores() threads, the calling one among
// them. Returns when all have ended; of what they threw, the exception of the lowest number comes
// out.
void in_threads(int parts, const std::function<void(int)>& work);

}  // namespace garonne
