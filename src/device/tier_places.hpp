// Places of blocks on a tier below the device, which are found out before there is any memory.
#pragma once

#include <cstdint>
#include <memory>

#include "device/fixed_arena.hpp"

namespace garonne::device {

// Where blocks of a tier with such a limit go: who asks for the same ones in the same order finds
// out how far they reach (FixedArena::reach_bytes). They are counted from `begin`, which is where
// host_allocation_granularity allows a block; null: from an address of nobody's.
std::unique_ptr<FixedArena> tier_places(std::int64_t limit_bytes, void* begin = nullptr);

}  // namespace garonne::device
