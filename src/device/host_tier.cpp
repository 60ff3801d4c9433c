#include "device/host_tier.hpp"

#include <cstring>
#include <functional>
#include <new>
#include <utility>

#include "base/error.hpp"
#include "device/tier_places.hpp"

namespace garonne::device {
namespace {

constexpr std::align_val_t alignment{static_cast<std::size_t>(host_allocation_granularity)};

// Blocks at the places that were found out beforehand, of which there is memory for the first.
class Room final : public BlockSource {
 public:
  Room(std::unique_ptr<FixedArena> places, const void* begin, std::int64_t bytes)
      : places_(std::move(places)), begin_(static_cast<const char*>(begin)), bytes_(bytes) {}

  void* allocate(std::int64_t bytes) override {
    void* const block = places_->allocate(bytes);
    if (block == nullptr || static_cast<const char*>(block) - begin_ + bytes <= bytes_)
      return block;
    places_->release(block, bytes);
    return nullptr;
  }
  void release(void* block, std::int64_t bytes) override { places_->release(block, bytes); }

 private:
  const std::unique_ptr<FixedArena> places_;
  const char* const begin_;
  const std::int64_t bytes_;
};

void spoil(Span block) {
  std::memset(block.data, nan_pattern, static_cast<std::size_t>(block.bytes));
}

}  // namespace

HostTier::HostTier(const HostTierSettings& settings) {
  void* begin = settings.memory.data;
  expect(begin == nullptr || settings.memory.bytes >= settings.room_bytes,
         "a host tier of less memory than its room");
  // Pages are the system's until they are written.
  if (begin == nullptr && settings.room_bytes > 0)
    begin = own_ = ::operator new(static_cast<std::size_t>(settings.room_bytes), alignment);
  memory_ = std::make_unique<TierMemory>(
      TierSettings{.tier = Tier::Host,
                   .limit_bytes = settings.limit_bytes,
                   .spoil = settings.spoils ? spoil : std::function<void(Span)>()},
      std::make_unique<Room>(tier_places(settings.limit_bytes, begin), begin, settings.room_bytes));
}

HostTier::~HostTier() {
  memory_.reset();
  if (own_ != nullptr) ::operator delete(own_, alignment);
}

}  // namespace garonne::device
