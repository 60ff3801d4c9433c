// Pinned memory through which the host fills and reads what is on a device, by copies on its lanes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "device/device.hpp"
#include "device/finishing_blocks.hpp"
#include "device/tier_memory.hpp"

namespace garonne::exec {

// For the thread that puts work on the device. Memory of the device is told by its address, which
// nobody here looks behind.
class Staging {
 public:
  // `pinned` is the device's host tier, of at least four of its granules; the device outlives the
  // staging. `others`, which outlives it too, is what else of the tier may be waited for.
  Staging(device::Device& device, std::shared_ptr<device::TierMemory> pinned,
          device::FinishingBlocks* others = nullptr);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // What is copied at a time: a multiple of 512 bytes. Copies under way have four of these at most,
  // so that others may have blocks of the tier, too.
  std::int64_t piece_bytes() const { return piece_bytes_; }

  // `bytes` at `to` become what `make` writes piece by piece, from byte `first` on. What is put on
  // Compute from now on follows. Holds the host only until a piece of pinned memory is free.
  using Make = std::function<void(std::int64_t first, std::span<std::byte> piece)>;
  void fill(void* to, std::int64_t bytes, const Make& make, const std::string& activity);

  // Shows `bytes` at `from` as all work on Compute so far leaves them, piece by piece in their
  // order. Waits.
  using Show = std::function<void(std::span<const std::byte> piece)>;
  void read(const void* from, std::int64_t bytes, const Show& show, const std::string& activity);

  // A copy of the numbers that the host and kernels of the device reach at the same address, for as
  // long as what is given lives; the staging outlives it.
  class Kept;
  Kept keep(std::span<const std::int64_t> numbers, const std::string& activity);

  // Pinned memory for copies that are put once and carried out many times, for as long as what is
  // given lives; the staging outlives it. RefusedError where it would take room from the others.
  class Slot;
  Slot hold(std::int64_t bytes, const std::string& activity);
  // Copies all bytes of a slot to and from the device, in the order of Compute. Waits for nothing.
  void put_in(void* to, const Slot& slot, const std::string& activity);
  void put_out(const Slot& slot, const void* from, const std::string& activity);

  // Until all that was filled is there.
  void wait();

  // For what is made on the host, by the calling thread.
  Queue host_queue() const;

 private:
  class Block;
  struct Copy {
    device::Mark mark;
    std::shared_ptr<Block> block;
  };
  std::shared_ptr<Block> take(std::int64_t bytes, const std::string& activity);
  void put_under_way(Copy copy);
  void drop_done(bool wait_for_first);

  device::Device& device_;
  const std::shared_ptr<device::TierMemory> pinned_;
  device::FinishingBlocks* const others_;
  const std::int64_t piece_bytes_;
  std::deque<Copy> under_way_;  // those that may be, in their order
  std::int64_t under_way_bytes_ = 0;
};

class Staging::Kept {
 public:
  std::span<const std::int64_t> numbers() const { return numbers_; }

 private:
  friend class Staging;
  Kept(std::shared_ptr<Block> block, std::span<const std::int64_t> numbers)
      : block_(std::move(block)), numbers_(numbers) {}

  std::shared_ptr<Block> block_;
  std::span<const std::int64_t> numbers_;
};

class Staging::Slot {
 public:
  Slot() = default;
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  friend class Staging;
  Slot(std::shared_ptr<Block> block, std::span<std::byte> bytes)
      : block_(std::move(block)), bytes_(bytes) {}

  std::shared_ptr<Block> block_;
  std::span<std::byte> bytes_;
};

}  // namespace garonne::exec
