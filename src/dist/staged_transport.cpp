// A transport of the host for buffers of a device: what is exchanged is staged in pinned memory,
// which the copy lanes fill and empty. For ranks that share a device, and where there is no NCCL.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <map>
#include <utility>

#include "base/bytes.hpp"
#include "base/collective_bytes.hpp"
#include "base/error.hpp"
#include "device/device.hpp"
#include "device/finishing_blocks.hpp"
#include "dist/session.hpp"
#include "dist/sum_order.hpp"
#include "dist/transports.hpp"

namespace garonne::dist {
namespace {

using device::Mark;
using device::Span;

// A range of a buffer of the device and its place in the block it is staged in.
struct Range {
  std::byte* data = nullptr;
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
};

// Of the host's transport, from when a lane has submitted it.
struct HostTicket {
  Ticket ticket;
  std::atomic<bool> there = false;
};

class StagedTransport final : public Transport {
 public:
  StagedTransport(std::unique_ptr<Transport> host, const Session& session,
                  const TransportOptions& options)
      : Transport(host->members(), session.rank()),
        host_(std::move(host)),
        session_(session),
        device_(*options.side->device),
        pinned_(*options.side->pinned),
        group_(options.name),
        exceptions_at_start_(std::uncaught_exceptions()) {
    // Streams cannot wait for MPI, and a thread of the driver must not.
    for (const Lane lane : {Lane::Message, Lane::Collective}) {
      expect(device_.queue(lane).native == nullptr,
             "messages over MPI need lanes that are threads");
    }
    expect(pinned_.memory().tier() == Tier::Host, "what MPI sends is staged on the host");
  }

  ~StagedTransport() override {
    // With an exception on its way nothing may ever become complete; the process is about to end.
    if (std::uncaught_exceptions() > exceptions_at_start_) return;
    try {
      while (!operations_.empty()) wait({operations_.begin()->first});
      pinned_.release_all();
    } catch (const std::exception&) {
      // Whoever waits for the device is told.
    }
  }

  std::string_view name() const override { return host_->name(); }
  bool on_device() const override { return true; }
  SumOrder sum_order() const override { return host_->sum_order(); }

  // What is copied to the host is as it is kept; the host's transport makes what travels of it.
  Ticket all_reduce_sum(void* data, std::int64_t elements, SumType type, void*) override {
    const Range all = {static_cast<std::byte*>(data), 0, elements * scalar_bytes(type.kept)};
    return reduce("all-reduce", elements, type, all, all,
                  [=, this](std::byte* block, std::byte* staging) {
                    return host_->all_reduce_sum(block, elements, type, staging);
                  });
  }

  Ticket reduce_scatter_sum(void* data, std::int64_t elements, SumType type, void*) override {
    const Range all = {static_cast<std::byte*>(data), 0, elements * scalar_bytes(type.kept)};
    return reduce("reduce-scatter", elements, type, all,
                  piece(data, elements, scalar_bytes(type.kept), member()),
                  [=, this](std::byte* block, std::byte* staging) {
                    return host_->reduce_scatter_sum(block, elements, type, staging);
                  });
  }

  Ticket all_gather(void* data, std::int64_t elements, std::int64_t element_bytes) override {
    expect(element_bytes > 0, "elements of an all-gather have bytes");
    const std::int64_t bytes = elements * element_bytes;
    const Range own = piece(data, elements, element_bytes, member());
    const std::int64_t end = own.offset + own.bytes;
    auto* const begin = static_cast<std::byte*>(data);
    return submit(
        Lane::Collective, "all-gather", bytes, {own},
        {{begin, 0, own.offset}, {begin + end, end, bytes - end}},
        [=, this](std::byte* block) { return host_->all_gather(block, elements, element_bytes); });
  }

  Ticket broadcast(void* data, std::int64_t bytes, int root) override {
    expect(root >= 0 && root < size(), "the root of a broadcast is no member");
    const std::vector<Range> all = {{static_cast<std::byte*>(data), 0, bytes}};
    const std::vector<Range> none;
    return submit(Lane::Collective, "broadcast", bytes, root == member() ? all : none,
                  root == member() ? none : all,
                  [=, this](std::byte* block) { return host_->broadcast(block, bytes, root); });
  }

  Ticket send(const void* data, std::int64_t bytes, int to, int tag) override {
    // It is read only; the shared helpers do not know.
    auto* const from = const_cast<std::byte*>(static_cast<const std::byte*>(data));
    return submit(Lane::Message, fmt::format("message to {}", who(to)), bytes, {{from, 0, bytes}},
                  {}, [=, this](std::byte* block) { return host_->send(block, bytes, to, tag); });
  }

  Ticket receive(void* data, std::int64_t bytes, int from, int tag) override {
    return submit(Lane::Message, fmt::format("message from {}", who(from)), bytes, {},
                  {{static_cast<std::byte*>(data), 0, bytes}},
                  [=, this](std::byte* block) { return host_->receive(block, bytes, from, tag); });
  }

  // The lane waits for MPI, the copies in for the lane, and Compute for the copies.
  void wait(Ticket ticket) override {
    const auto found = operations_.find(ticket.number);
    if (found == operations_.end()) return;
    const Staged staged = std::move(found->second);
    operations_.erase(found);
    const Mark complete = device_.run(
        staged.lane, [this, host = staged.host] { host_->wait(host->ticket); }, staged.activity);
    // What was only read may be written once it is copied out.
    Mark joined = staged.back.empty() ? staged.begun : complete;
    Mark last = complete;
    for (const Range& range : staged.back) {
      if (range.bytes == 0) continue;
      joined = last = device_.copy(Lane::CopyIn, {Tier::Device, range.data, range.bytes},
                                   {Tier::Host, staged.block.data + range.offset, range.bytes},
                                   staged.activity, {&complete, 1});
    }
    device_.order(Lane::Compute, joined);
    finishing_.emplace(ticket.number, pinned_.release_after(staged.block, last));
  }

  bool done(Ticket ticket) override {
    const auto found = operations_.find(ticket.number);
    if (found != operations_.end()) {
      const HostTicket& host = *found->second.host;
      if (!host.there || !host_->done(host.ticket)) return false;
      wait(ticket);
    }
    forget_complete();
    return !finishing_.contains(ticket.number);
  }

 private:
  struct Staged {
    Lane lane = Lane::Message;
    std::string activity;
    Span block;
    std::vector<Range> back;  // copied in when it is complete
    Mark begun;               // copied out
    std::shared_ptr<HostTicket> host;
  };

  std::string who(int member) const {
    expect(member >= 0 && member < size() && member != this->member(),
           "a message goes to another member");
    return fmt::format("rank {}", members()[static_cast<std::size_t>(member)]);
  }

  Range piece(void* data, std::int64_t elements, std::int64_t element_bytes, int member) const {
    const std::int64_t begin = piece_begin(elements, size(), member) * element_bytes;
    const std::int64_t end = piece_end(elements, size(), member) * element_bytes;
    return {static_cast<std::byte*>(data) + begin, begin, end - begin};
  }

  template <typename Start>
  Ticket reduce(const std::string& what, std::int64_t elements, SumType type, const Range& all,
                const Range& result, Start start) {
    const std::int64_t data_bytes = round_up(all.bytes, cpu_allocation_granularity);
    const std::int64_t staging =
        all_reduce_staging_bytes(elements, scalar_bytes(type.kept), size());
    return submit(Lane::Collective, what, data_bytes + staging, {all}, {result},
                  [=](std::byte* block) {
                    return start(block, block == nullptr ? nullptr : block + data_bytes);
                  });
  }

  Ticket submit(Lane lane, const std::string& what, std::int64_t bytes,
                const std::vector<Range>& out, std::vector<Range> back,
                std::function<Ticket(std::byte*)> start) {
    const std::string doing = session_.doing();
    Staged staged;
    staged.lane = lane;
    staged.activity = fmt::format("{}{}{} in {}", doing, doing.empty() ? "" : ": ", what, group_);
    forget_complete();
    staged.block = pinned_.allocate(bytes, staged.activity);
    staged.back = std::move(back);
    staged.host = std::make_shared<HostTicket>();
    std::vector<Mark> after;
    for (const Range& range : out) {
      if (range.bytes == 0) continue;
      staged.begun =
          device_.copy(Lane::CopyOut, {Tier::Host, staged.block.data + range.offset, range.bytes},
                       {Tier::Device, range.data, range.bytes}, staged.activity);
      after.push_back(staged.begun);
    }
    device_.run(
        lane,
        [host = staged.host, block = staged.block.data, start = std::move(start)] {
          host->ticket = start(block);
          host->there = true;
        },
        staged.activity, after);
    operations_.emplace(++last_number_, std::move(staged));
    return {last_number_};
  }

  void forget_complete() {
    pinned_.release_complete();
    std::erase_if(finishing_, [&](const auto& each) { return !pinned_.holds(each.second); });
  }

  std::unique_ptr<Transport> host_;
  const Session& session_;
  device::Device& device_;
  device::FinishingBlocks& pinned_;
  const std::string group_;
  const int exceptions_at_start_;
  std::uint64_t last_number_ = 0;
  std::map<std::uint64_t, Staged> operations_;  // that nobody has waited for
  // Of others, whose blocks may be in use: what the tier knows them by.
  std::map<std::uint64_t, std::uint64_t> finishing_;
};

}  // namespace

std::unique_ptr<Transport> make_staged_transport(std::unique_ptr<Transport> host,
                                                 const Session& session,
                                                 const TransportOptions& options) {
  return std::make_unique<StagedTransport>(std::move(host), session, options);
}

}  // namespace garonne::dist
