#include "exec/staging.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"

namespace garonne::exec {
namespace {

// Copies of so many bytes are as fast as longer ones.
constexpr std::int64_t most_at_a_time = std::int64_t{16} << 20;

// Two pieces are filled in turn while a third is read, and tiers have holes. The rest is for
// others.
constexpr std::int64_t most_pieces = 3;

// Who reads has two in turn.
constexpr std::int64_t least_pieces = 2;

std::int64_t piece_of(const device::TierMemory& pinned) {
  // Others have their places there already.
  const std::int64_t quarter = (pinned.limit_bytes() - pinned.live_bytes()) / 4;
  const std::int64_t piece =
      std::min(most_at_a_time, quarter / pinned.granularity() * pinned.granularity());
  expect(piece > 0, "too little pinned memory for copies");
  return piece;
}

}  // namespace

class Staging::Block {
 public:
  Block(device::TierMemory& pinned, device::Span span) : pinned_(pinned), span_(span) {}
  ~Block() { pinned_.release(span_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  const device::Span& span() const { return span_; }
  std::span<std::byte> bytes() const { return {span_.data, static_cast<std::size_t>(span_.bytes)}; }

 private:
  device::TierMemory& pinned_;
  const device::Span span_;
};

Staging::Staging(device::Device& device, std::shared_ptr<device::TierMemory> pinned,
                 device::FinishingBlocks* others)
    : device_(device),
      pinned_(std::move(pinned)),
      others_(others),
      piece_bytes_(piece_of(*pinned_)) {}

Staging::~Staging() = default;

Queue Staging::host_queue() const {
  Queue queue = device_.queue(Lane::HostCompute);
  queue.threads = 0;  // the pool is the calling thread's, not the lane's
  return queue;
}

void Staging::drop_done(bool wait_for_first) {
  if (wait_for_first && !under_way_.empty()) device_.wait(under_way_.front().mark);
  while (!under_way_.empty() && device_.done(under_way_.front().mark)) {
    under_way_bytes_ -= under_way_.front().block->span().bytes;
    under_way_.pop_front();
  }
}

void Staging::put_under_way(Copy copy) {
  under_way_bytes_ += copy.block->span().bytes;
  under_way_.push_back(std::move(copy));
}

std::shared_ptr<Staging::Block> Staging::take(std::int64_t bytes, const std::string& activity) {
  drop_done(false);
  if (others_ != nullptr) others_->release_complete();
  // A piece for who reads stays free of what is filled.
  const std::int64_t counted = round_up(bytes, pinned_->granularity());
  while (!under_way_.empty() &&
         (under_way_bytes_ + bytes > most_pieces * piece_bytes_ ||
          counted + piece_bytes_ > pinned_->limit_bytes() - pinned_->live_bytes())) {
    drop_done(true);
  }
  return std::make_shared<Block>(*pinned_, others_ != nullptr ? others_->allocate(bytes, activity)
                                                              : pinned_->allocate(bytes, activity));
}

void Staging::fill(void* to, std::int64_t bytes, const Make& make, const std::string& activity) {
  for (std::int64_t first = 0; first < bytes; first += piece_bytes_) {
    const std::int64_t piece = std::min(piece_bytes_, bytes - first);
    std::shared_ptr<Block> block = take(piece, activity);
    make(first, block->bytes());
    const device::Mark mark =
        device_.copy(Lane::CopyIn, {Tier::Device, static_cast<std::byte*>(to) + first, piece},
                     block->span(), activity);
    device_.order(Lane::Compute, mark);
    put_under_way({mark, std::move(block)});
  }
}

void Staging::read(const void* from, std::int64_t bytes, const Show& show,
                   const std::string& activity) {
  // Two in turn: one is copied while the other is looked at.
  struct Part {
    std::shared_ptr<Block> block;
    device::Mark mark;
  };
  // A copy only reads it.
  auto* const source = static_cast<std::byte*>(const_cast<void*>(from));
  const auto start = [&](std::int64_t first) -> Part {
    if (first >= bytes) return {};
    const std::int64_t piece = std::min(piece_bytes_, bytes - first);
    std::shared_ptr<Block> block = take(piece, activity);
    const device::Mark mark =
        device_.copy(Lane::CopyOut, block->span(), {Tier::Device, source + first, piece}, activity);
    // Also where `show` throws, nobody else has the block before the copy is over.
    put_under_way({mark, block});
    return {std::move(block), mark};
  };
  Part part = start(0);
  for (std::int64_t first = 0; first < bytes; first += piece_bytes_) {
    Part next = start(first + piece_bytes_);
    device_.wait(part.mark);
    show(part.block->bytes());
    part = std::move(next);
  }
}

Staging::Kept Staging::keep(std::span<const std::int64_t> numbers, const std::string& activity) {
  if (numbers.empty()) return {nullptr, {}};
  std::shared_ptr<Block> block = take(static_cast<std::int64_t>(numbers.size_bytes()), activity);
  auto* const first = reinterpret_cast<std::int64_t*>(block->span().data);
  std::ranges::copy(numbers, first);
  return {std::move(block), {first, numbers.size()}};
}

Staging::Slot Staging::hold(std::int64_t bytes, const std::string& activity) {
  drop_done(false);
  if (bytes == 0) return {nullptr, {}};
  const std::int64_t counted = round_up(bytes, pinned_->granularity());
  const std::int64_t left = pinned_->limit_bytes() - pinned_->live_bytes() + under_way_bytes_;
  if (counted + least_pieces * piece_bytes_ > left) {
    throw RefusedError(fmt::format(
        "{}: {} of pinned memory that stays would leave no room for copies, of {} that are left",
        activity, format_bytes(counted), format_bytes(left)));
  }
  auto block = std::make_shared<Block>(*pinned_, pinned_->allocate(bytes, activity));
  const std::span<std::byte> place{block->span().data, static_cast<std::size_t>(bytes)};
  return {std::move(block), place};
}

void Staging::put_in(void* to, const Slot& slot, const std::string& activity) {
  const auto bytes = static_cast<std::int64_t>(slot.bytes().size());
  device_.order(Lane::Compute,
                device_.copy(Lane::CopyIn, {Tier::Device, static_cast<std::byte*>(to), bytes},
                             {Tier::Host, slot.bytes().data(), bytes}, activity));
}

void Staging::put_out(const Slot& slot, const void* from, const std::string& activity) {
  const auto bytes = static_cast<std::int64_t>(slot.bytes().size());
  auto* const source = static_cast<std::byte*>(const_cast<void*>(from));
  device_.order(Lane::Compute, device_.copy(Lane::CopyOut, {Tier::Host, slot.bytes().data(), bytes},
                                            {Tier::Device, source, bytes}, activity));
}

void Staging::wait() {
  while (!under_way_.empty()) drop_done(true);
}

}  // namespace garonne::exec
