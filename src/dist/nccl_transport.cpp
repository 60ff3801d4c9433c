#include "dist/nccl_transport.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "device/device.hpp"
#include "dist/nccl_memory.hpp"
#include "dist/session.hpp"
#include "dist/transports.hpp"

namespace garonne::dist {
namespace {

constexpr std::size_t scratch_bytes = 512;

// While it lives, the watch knows since when a call holds the lanes; also one that is refused lets
// go.
class HeldLanes {
 public:
  explicit HeldLanes(std::atomic<std::chrono::steady_clock::rep>& since) : since_(since) {
    since_ = std::chrono::steady_clock::now().time_since_epoch().count();
  }
  ~HeldLanes() { since_ = 0; }
  HeldLanes(const HeldLanes&) = delete;
  HeldLanes& operator=(const HeldLanes&) = delete;

 private:
  std::atomic<std::chrono::steady_clock::rep>& since_;
};

const DeviceSide& side_of(const TransportOptions& options) {
  expect(options.side != nullptr && options.side->device != nullptr &&
             options.side->runtime != nullptr,
         "NCCL is for buffers of a CUDA device");
  return *options.side;
}

device::CudaStream compute_stream(const DeviceSide& side) {
  const Queue queue = side.device->queue(Lane::Compute);
  expect(queue.device == DeviceKind::Cuda, "NCCL is for buffers of a CUDA device");
  return static_cast<device::CudaStream>(queue.native);
}

}  // namespace

// Of a member, equal on all of them once they are exchanged.
struct NcclTransport::Facts {
  std::int64_t node = 0;
  std::int64_t version = 0;
  std::array<char, 48> bus_id{};
};

NcclParts NcclParts::built_in() {
  return {.library = make_nccl_library(), .sum = device_sum_in_order};
}

NcclTransport::NcclTransport(Session& session, CommunicationThread& thread,
                             std::vector<int> members, const TransportOptions& options,
                             NcclParts parts)
    : Transport(std::move(members), session.rank()),
      session_(session),
      parts_(std::move(parts)),
      calls_(*side_of(options).runtime, *parts_.library, side_of(options).ordinal,
             options.limit_seconds),
      group_(options.name),
      compute_(compute_stream(side_of(options))),
      exceptions_at_start_(std::uncaught_exceptions()) {
  calls_.set_device();
  calls_.cuda(calls_.runtime().create_event(ready_, false), "cudaEventCreateWithFlags", group_);
  const auto host = make_transport("mpi", session, thread, this->members());
  const std::vector<Facts> facts = exchange_facts(*host, session);
  expect_own_devices(facts);
  std::vector<int> nodes = parts_.nodes;
  if (nodes.empty()) {
    for (const Facts& each : facts) nodes.push_back(static_cast<int>(each.node));
  }
  order_ = order_over_nodes(nodes);
  reduction_ = reduction_of(order_, member());
  try {
    make_lanes(*host, options);
    connect();
  } catch (const Error& error) {
    // No destructor does so: kernels that wait for a peer would hold up the end of the device.
    leave(error.code(), error.what());
    throw;
  }
  watch_ = std::thread([this] { watch(); });
}

std::vector<NcclTransport::Facts> NcclTransport::exchange_facts(Transport& host,
                                                                const Session& session) const {
  Facts mine;
  int version = 0;
  calls_.nccl(calls_.library().version(version), "ncclGetVersion", group_, nullptr);
  std::string bus_id;
  calls_.cuda(calls_.runtime().bus_id(calls_.ordinal(), bus_id), "cudaDeviceGetPCIBusId", group_);
  mine.node = session.node_first_rank();
  mine.version = version;
  bus_id.copy(mine.bus_id.data(), mine.bus_id.size() - 1);
  std::vector<Facts> facts(static_cast<std::size_t>(size()));
  facts[static_cast<std::size_t>(member())] = mine;
  host.wait(host.all_gather(facts.data(), size(), sizeof(Facts)));
  return facts;
}

// Alike on all members.
void NcclTransport::expect_own_devices(const std::vector<Facts>& facts) const {
  for (std::size_t one = 0; one < facts.size(); ++one) {
    if (facts[one].version != facts[0].version) {
      throw CommunicationError(
          "start of NCCL",
          fmt::format("ranks {} and {} have NCCL {} and {}: all ranks need one", members()[0],
                      members()[one], facts[0].version, facts[one].version));
    }
    for (std::size_t other = 0; other < one; ++other) {
      if (facts[one].node != facts[other].node || facts[one].bus_id != facts[other].bus_id)
        continue;
      throw ConfigError("grid.transport", "nccl",
                        fmt::format("ranks {} and {} share the device at {}, and NCCL has one rank "
                                    "on a device. Start as many ranks on a node as it has devices, "
                                    "or set grid.transport to \"mpi\"",
                                    members()[other], members()[one], facts[one].bus_id.data()));
    }
  }
}

// In one order on all members: that of the group, then those of its lanes.
void NcclTransport::make_lanes(Transport& host, const TransportOptions& options) {
  NcclId id;
  if (member() == 0) {
    calls_.nccl(calls_.library().make_id(id), "ncclGetUniqueId", group_, nullptr);
  }
  host.wait(host.broadcast(&id, sizeof id, 0));
  const int channels = parts_.channels > 0 ? parts_.channels : nccl_channels(size());
  collectives_ = std::make_unique<NcclLane>(calls_, group_, channels);
  collectives_->start(id, size(), member());
  lanes_ = options.lanes;
  lanes_made_ = options.message_lanes.size();
  for (std::size_t number = 0; number < options.message_lanes.size(); ++number) {
    const MessageLane& lane = options.message_lanes[number];
    expect(lane.from != lane.to && lane.number >= 0 && lane.number < lanes_,
           "a lane of messages leads from one member to another");
    if (member() != lane.from && member() != lane.to) {
      NcclLane::decline(calls_, *collectives_);
      continue;
    }
    auto& made = messages_[{lane.from, lane.to, lane.number}];
    made = std::make_unique<NcclLane>(
        calls_, fmt::format("{} {} to {} lane {}", group_, lane.from, lane.to, lane.number),
        nccl_lane_channels);
    made->split_from(*collectives_, static_cast<int>(number), member() == lane.from ? 0 : 1);
  }
}

void NcclTransport::connect() {
  const auto bytes = static_cast<std::int64_t>(scratch_bytes);
  void* memory = nullptr;
  calls_.cuda(calls_.runtime().allocate(memory, scratch_bytes * static_cast<std::size_t>(size())),
              "cudaMalloc", group_);
  auto* const scratch = static_cast<std::byte*>(memory);
  put(*collectives_, "first exchange", [&] {
    // Each connection takes memory: where messages go by lanes, a ring is all that is left.
    if (lanes_made_ == 0) {
      collectives_->grouped([&] {
        for (int peer = 0; peer < size(); ++peer) {
          if (peer == member()) continue;
          collectives_->send(scratch + member() * bytes, bytes, peer);
          collectives_->receive(scratch + peer * bytes, bytes, peer);
        }
      });
    }
    collectives_->all_gather(scratch + member() * bytes, scratch, bytes);
    collectives_->broadcast(scratch, bytes, 0);
  });
  for (const auto& [ends, lane] : messages_) {
    put(*lane, "first message", [&, from = std::get<0>(ends)] {
      lane->grouped([&] {
        if (member() == from) lane->send(scratch, bytes, 1);
        if (member() != from) lane->receive(scratch, bytes, 0);
      });
    });
  }
  const std::string activity =
      fmt::format("first operations of NCCL in {} (ranks {})", group_, fmt::join(members(), ", "));
  wait_until_idle(activity);
  calls_.cuda(calls_.runtime().free(memory), "cudaFree", activity);
}

void NcclTransport::wait_until_idle(const std::string& activity) {
  calls_.wait(
      [&] {
        const std::lock_guard lock(mutex_);
        bool idle = true;
        for_each_lane([&](NcclLane& lane) {
          lane.look(Clock::now());
          if (const auto trouble = lane.trouble(Clock::now())) throw CommunicationError(*trouble);
          idle = idle && lane.idle();
        });
        return idle;
      },
      activity);
}

NcclTransport::~NcclTransport() {
  stop_watching();
  if (std::uncaught_exceptions() > exceptions_at_start_ || failure_) {
    leave(ExitCode::Communication, failure_text_);
    return;
  }
  try {
    calls_.set_device();
    wait_until_idle(fmt::format("end of NCCL for {}", group_));
    for (const auto& [ends, lane] : messages_) lane->finish();
    collectives_->finish();
    calls_.cuda(calls_.runtime().destroy_event(ready_), "cudaEventDestroy", group_);
  } catch (const Error& error) {
    // Nobody else would say so, and the others wait.
    session_.abort(error.code(), error.what());
  }
}

// The others may be gone, so nothing is waited for without an end. Streams that hang would hold up
// the end of the device: aborting makes the kernels on them end. Where it does not, and NCCL is
// what failed, nothing else may be given back, and the process ends here.
void NcclTransport::leave(ExitCode code, const std::string& failure) {
  std::vector<NcclCommunicator> communicators;
  const auto add = [&](const std::unique_ptr<NcclLane>& lane) {
    // A set-up that failed has not made all of them.
    if (lane && lane->communicator() != nullptr) communicators.push_back(lane->communicator());
  };
  for (const auto& [ends, lane] : messages_) add(lane);
  add(collectives_);
  if (communicators.empty()) return;
  struct End {
    std::mutex mutex;
    std::condition_variable changed;
    bool there = false;
  };
  const auto end = std::make_shared<End>();
  std::thread([end, communicators, library = parts_.library] {
    for (NcclCommunicator communicator : communicators) {
      static_cast<void>(library->abort(communicator));
    }
    const std::lock_guard lock(end->mutex);
    end->there = true;
    end->changed.notify_all();
  }).detach();
  std::unique_lock lock(end->mutex);
  const bool aborted = end->changed.wait_for(
      lock, std::chrono::duration<double>(parts_.abort_seconds), [&] { return end->there; });
  if (!aborted && !failure.empty()) session_.abort(code, failure);
}

void NcclTransport::for_each_lane(const std::function<void(NcclLane&)>& work) const {
  work(*collectives_);
  for (const auto& [ends, lane] : messages_) work(*lane);
}

NcclLane& NcclTransport::lane_of(int from, int to, int tag) const {
  if (messages_.empty()) return *collectives_;
  const auto found = messages_.find({from, to, tag % lanes_});
  expect(found != messages_.end(), "a message in a lane that the group was not made with");
  return *found->second;
}

std::string NcclTransport::who(int member) const {
  return fmt::format("rank {}", members()[static_cast<std::size_t>(member)]);
}

void NcclTransport::check_peer(int peer, int tag) const {
  expect(peer >= 0 && peer < size() && peer != member(), "a message goes to another member");
  expect(tag >= 0 && tag <= most_tag, "a tag lies between 0 and 32767");
}

// The lane goes on after what the caller has put on the compute stream so far.
Ticket NcclTransport::put(NcclLane& lane, const std::string& what,
                          const std::function<void()>& calls) {
  const std::lock_guard lock(mutex_);
  rethrow_failure();
  const HeldLanes held(held_since_);
  const std::string doing = session_.doing();
  calls_.set_device();
  calls_.cuda(calls_.runtime().record_event(ready_, compute_), "cudaEventRecord", what);
  if (!recording_) lane.look(Clock::now());
  lane.begin(ready_, fmt::format("{}{}{} in {} (ranks {})", doing, doing.empty() ? "" : ": ", what,
                                 group_, fmt::join(members(), ", ")));
  try {
    calls();
  } catch (const CommunicationError& error) {
    // Of an operation that is on its stream in part. What is recorded is dropped as a whole.
    if (!recording_) fail(error, Clock::now());
    throw;
  }
  lane.end(++last_number_);
  return {last_number_};
}

Ticket NcclTransport::all_gather(void* data, std::int64_t elements, std::int64_t element_bytes) {
  expect(element_bytes > 0, "elements of an all-gather have bytes");
  return put(*collectives_, "all-gather",
             [&] { gather_pieces(static_cast<std::byte*>(data), elements, element_bytes); });
}

Ticket NcclTransport::broadcast(void* data, std::int64_t bytes, int root) {
  expect(root >= 0 && root < size(), "the root of a broadcast is no member");
  return put(*collectives_, fmt::format("broadcast from {}", who(root)),
             [&] { collectives_->broadcast(data, bytes, root); });
}

Ticket NcclTransport::send(const void* data, std::int64_t bytes, int to, int tag) {
  check_peer(to, tag);
  NcclLane& lane = lane_of(member(), to, tag);
  return put(lane, fmt::format("message to {}", who(to)), [&] {
    lane.grouped(
        [&] { lane.send(static_cast<const std::byte*>(data), bytes, messages_.empty() ? to : 1); });
  });
}

Ticket NcclTransport::receive(void* data, std::int64_t bytes, int from, int tag) {
  check_peer(from, tag);
  NcclLane& lane = lane_of(from, member(), tag);
  return put(lane, fmt::format("message from {}", who(from)), [&] {
    lane.grouped(
        [&] { lane.receive(static_cast<std::byte*>(data), bytes, messages_.empty() ? from : 0); });
  });
}

// That of an operation that is not complete; else null.
NcclLane* NcclTransport::lane_with(Ticket ticket) const {
  NcclLane* found = nullptr;
  for_each_lane([&](NcclLane& lane) {
    if (found == nullptr && lane.has(ticket.number)) found = &lane;
  });
  return found;
}

void NcclTransport::wait(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  rethrow_failure();
  // What is recorded takes place when nobody looks at it.
  if (NcclLane* const lane = lane_with(ticket))
    lane->make_wait(compute_, ticket.number, !recording_);
}

bool NcclTransport::done(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  rethrow_failure();
  expect(!recording_, "a question how far operations are while they are recorded");
  for_each_lane([](NcclLane& lane) { lane.look(Clock::now()); });
  return lane_with(ticket) == nullptr;
}

void NcclTransport::rethrow_failure() const {
  if (failure_) std::rethrow_exception(failure_);
}

}  // namespace garonne::dist
