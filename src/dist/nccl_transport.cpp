// The transport over NCCL, between buffers of CUDA devices. Pieces travel by NCCL; the sums are our
// own, since NCCL adds in an order that depends on its algorithm.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "base/collective_bytes.hpp"
#include "base/error.hpp"
#include "dist/device_sum.hpp"
#include "dist/session.hpp"
#include "dist/transports.hpp"

namespace garonne::dist {
namespace {

void check_cuda(int code, const char* operation) {
  if (code == cudaSuccess) return;
  throw CommunicationError(operation, cudaGetErrorString(static_cast<cudaError_t>(code)));
}

void check_nccl(ncclResult_t code, const char* operation, ncclComm_t communicator = nullptr) {
  if (code == ncclSuccess) return;
  std::string reason = ncclGetErrorString(code);
  if (const char* last = ncclGetLastError(communicator); last && *last) {
    reason += std::string(": ") + last;
  }
  throw CommunicationError(operation, reason);
}

// NCCL calls between the two ends travel as one operation, so that sends and receives cannot wait
// for each other.
template <typename Calls>
void grouped(const char* operation, Calls calls) {
  check_nccl(ncclGroupStart(), operation);
  calls();
  check_nccl(ncclGroupEnd(), operation);
}

// Operations that complete in their order: a communicator, and the stream that they are put on.
class Lane {
 public:
  Lane(int ranks, int rank, const ncclUniqueId& id) {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    check_nccl(ncclCommInitRank(&communicator_, ranks, id, rank), "ncclCommInitRank");
  }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  ~Lane() {
    // Waiting for peers that may be gone could take for ever.
    if (std::uncaught_exceptions() > 0) {
      ncclCommAbort(communicator_);
    } else {
      cudaStreamSynchronize(stream_);
      ncclCommDestroy(communicator_);
    }
    for (const Pending& pending : pending_) cudaEventDestroy(pending.event);
    for (cudaEvent_t event : spare_events_) cudaEventDestroy(event);
    cudaStreamDestroy(stream_);
  }

  ncclComm_t communicator() const { return communicator_; }
  cudaStream_t stream() const { return stream_; }

  // Names everything that has been put on the stream so far.
  void mark(std::uint64_t number) {
    forget_completed();
    cudaEvent_t event = nullptr;
    if (spare_events_.empty()) {
      check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
    } else {
      event = spare_events_.back();
      spare_events_.pop_back();
    }
    check_cuda(cudaEventRecord(event, stream_), "cudaEventRecord");
    pending_.push_back({number, event});
  }

  // Null where it is complete, or another lane's.
  cudaEvent_t event_of(std::uint64_t number) const {
    const auto found = std::find_if(pending_.begin(), pending_.end(), [&](const Pending& pending) {
      return pending.number == number;
    });
    return found == pending_.end() ? nullptr : found->event;
  }

  void forget_completed() {
    while (!pending_.empty()) {
      const cudaError_t state = cudaEventQuery(pending_.front().event);
      if (state == cudaErrorNotReady) return;
      check_cuda(state, "cudaEventQuery");
      spare_events_.push_back(pending_.front().event);
      pending_.pop_front();
    }
  }

  void check(ncclResult_t code, const char* operation) const {
    check_nccl(code, operation, communicator_);
  }

  void check_health() const {
    ncclResult_t state = ncclSuccess;
    check(ncclCommGetAsyncError(communicator_, &state), "ncclCommGetAsyncError");
    check(state, "an operation on the device");
  }

  // Empty messages are left out: both sides know the sizes.
  void send(const std::byte* data, std::int64_t bytes, int to) const {
    if (bytes == 0) return;
    check(ncclSend(data, static_cast<std::size_t>(bytes), ncclInt8, to, communicator_, stream_),
          "send");
  }

  void receive(std::byte* data, std::int64_t bytes, int from) const {
    if (bytes == 0) return;
    check(ncclRecv(data, static_cast<std::size_t>(bytes), ncclInt8, from, communicator_, stream_),
          "receive");
  }

 private:
  struct Pending {
    std::uint64_t number;
    cudaEvent_t event;
  };

  cudaStream_t stream_ = nullptr;
  ncclComm_t communicator_ = nullptr;
  std::deque<Pending> pending_;
  std::vector<cudaEvent_t> spare_events_;
};

class NcclTransport final : public Transport {
 public:
  NcclTransport(Session& session, CommunicationThread& thread, std::vector<int> members,
                const TransportOptions& options)
      : Transport(std::move(members), session.rank()),
        device_(options.device),
        compute_stream_(static_cast<cudaStream_t>(options.compute_stream)) {
    check_cuda(cudaSetDevice(device_), "cudaSetDevice");
    check_cuda(cudaEventCreateWithFlags(&ready_, cudaEventDisableTiming), "cudaEventCreate");
    // Ids come by messages over a host transport of the same group.
    const auto host = make_transport("mpi", session, thread, this->members());
    const auto id_of = [&](int first) {
      ncclUniqueId id{};
      if (member() == first) check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
      host->wait(host->broadcast(&id, sizeof id, first));
      return id;
    };
    collectives_ = std::make_unique<Lane>(size(), member(), id_of(0));
    lanes_ = options.lanes;
    for (const MessageLane& lane : options.message_lanes) {
      expect(lane.from != lane.to && lane.number >= 0 && lane.number < lanes_,
             "a lane of messages leads from one member to another");
      const ncclUniqueId id = id_of(lane.from);
      if (member() != lane.from && member() != lane.to) continue;
      messages_[{lane.from, lane.to, lane.number}] =
          std::make_unique<Lane>(2, member() == lane.from ? 0 : 1, id);
    }
  }

  ~NcclTransport() override { cudaEventDestroy(ready_); }

  std::string_view name() const override { return "nccl"; }
  bool on_device() const override { return true; }

  Ticket all_reduce_sum(void* data, std::int64_t elements, ScalarType type,
                        void* staging) override {
    begin(*collectives_);
    reduce_pieces(static_cast<std::byte*>(data), elements, type, static_cast<std::byte*>(staging));
    gather_pieces(static_cast<std::byte*>(data), elements, scalar_bytes(type));
    return end(*collectives_);
  }

  Ticket reduce_scatter_sum(void* data, std::int64_t elements, ScalarType type,
                            void* staging) override {
    begin(*collectives_);
    reduce_pieces(static_cast<std::byte*>(data), elements, type, static_cast<std::byte*>(staging));
    return end(*collectives_);
  }

  Ticket all_gather(void* data, std::int64_t elements, std::int64_t element_bytes) override {
    begin(*collectives_);
    gather_pieces(static_cast<std::byte*>(data), elements, element_bytes);
    return end(*collectives_);
  }

  Ticket broadcast(void* data, std::int64_t bytes, int root) override {
    expect(root >= 0 && root < size(), "the root of a broadcast is no member");
    begin(*collectives_);
    collectives_->check(ncclBroadcast(data, data, static_cast<std::size_t>(bytes), ncclInt8, root,
                                      collectives_->communicator(), collectives_->stream()),
                        "broadcast");
    return end(*collectives_);
  }

  Ticket send(const void* data, std::int64_t bytes, int to, int tag) override {
    Lane& lane = lane_of(member(), to, tag);
    begin(lane);
    lane.send(static_cast<const std::byte*>(data), bytes, messages_.empty() ? to : 1);
    return end(lane);
  }

  Ticket receive(void* data, std::int64_t bytes, int from, int tag) override {
    Lane& lane = lane_of(from, member(), tag);
    begin(lane);
    lane.receive(static_cast<std::byte*>(data), bytes, messages_.empty() ? from : 0);
    return end(lane);
  }

  void wait(Ticket ticket) override {
    check_health();
    if (cudaEvent_t event = event_of(ticket)) {
      check_cuda(cudaStreamWaitEvent(compute_stream_, event, 0), "cudaStreamWaitEvent");
    }
  }

  bool done(Ticket ticket) override {
    check_health();
    for_each_lane([](Lane& lane) { lane.forget_completed(); });
    return event_of(ticket) == nullptr;
  }

 private:
  template <typename Work>
  void for_each_lane(Work work) const {
    work(*collectives_);
    for (const auto& [ends, lane] : messages_) work(*lane);
  }

  Lane& lane_of(int from, int to, int tag) {
    if (messages_.empty()) return *collectives_;
    const auto found = messages_.find({from, to, tag % lanes_});
    expect(found != messages_.end(), "a message in a lane that the group was not made with");
    return *found->second;
  }

  // The lane continues after what the caller has put on the compute stream so far.
  void begin(const Lane& lane) {
    check_cuda(cudaSetDevice(device_), "cudaSetDevice");
    check_cuda(cudaEventRecord(ready_, compute_stream_), "cudaEventRecord");
    check_cuda(cudaStreamWaitEvent(lane.stream(), ready_, 0), "cudaStreamWaitEvent");
  }

  Ticket end(Lane& lane) {
    lane.mark(++last_number_);
    return {last_number_};
  }

  cudaEvent_t event_of(Ticket ticket) const {
    cudaEvent_t event = nullptr;
    for_each_lane([&](const Lane& lane) {
      if (event == nullptr) event = lane.event_of(ticket.number);
    });
    return event;
  }

  void check_health() const {
    for_each_lane([](const Lane& lane) { lane.check_health(); });
  }

  std::int64_t begin_of(std::int64_t elements, int peer) const {
    return piece_begin(elements, size(), peer);
  }
  std::int64_t length_of(std::int64_t elements, int peer) const {
    return piece_end(elements, size(), peer) - piece_begin(elements, size(), peer);
  }

  void reduce_pieces(std::byte* data, std::int64_t elements, ScalarType type, std::byte* staging) {
    const std::int64_t bytes = scalar_bytes(type);
    const std::int64_t own = length_of(elements, member());
    const std::int64_t slot_bytes = piece_elements(elements, size()) * bytes;
    const auto staged = [&](int peer) {
      return staging + (peer < member() ? peer : peer - 1) * slot_bytes;
    };
    grouped("reduce-scatter", [&] {
      for (int peer = 0; peer < size(); ++peer) {
        if (peer == member()) continue;
        collectives_->send(data + begin_of(elements, peer) * bytes,
                           length_of(elements, peer) * bytes, peer);
        collectives_->receive(staged(peer), own * bytes, peer);
      }
    });
    std::byte* result = data + begin_of(elements, member()) * bytes;
    const auto term = [&](int peer) -> std::byte* {
      return peer == member() ? result : staged(peer);
    };
    // A kernel takes so many terms; a partial sum stands in the place of the last one that went
    // into it, and is the first term of the next kernel.
    int next = 0;
    const std::byte* partial = nullptr;
    while (next < size()) {
      DeviceTerms terms;
      if (partial) terms.terms[terms.count++] = partial;
      while (next < size() && terms.count < most_device_terms) {
        terms.terms[terms.count++] = term(next++);
      }
      std::byte* sum = next == size() ? result : term(next - 1);
      check_cuda(device_sum_in_order(sum, terms, own, type, collectives_->stream()),
                 "sum on the device");
      partial = sum;
    }
  }

  void gather_pieces(std::byte* data, std::int64_t elements, std::int64_t bytes) {
    const std::byte* own = data + begin_of(elements, member()) * bytes;
    grouped("all-gather", [&] {
      for (int peer = 0; peer < size(); ++peer) {
        if (peer == member()) continue;
        collectives_->send(own, length_of(elements, member()) * bytes, peer);
        collectives_->receive(data + begin_of(elements, peer) * bytes,
                              length_of(elements, peer) * bytes, peer);
      }
    });
  }

  int device_;
  cudaStream_t compute_stream_;
  cudaEvent_t ready_ = nullptr;
  int lanes_ = 1;
  std::unique_ptr<Lane> collectives_;
  std::map<std::tuple<int, int, int>, std::unique_ptr<Lane>> messages_;  // from, to, number
  std::uint64_t last_number_ = 0;
};

}  // namespace

void expect_nccl_built() {}

std::unique_ptr<Transport> make_nccl_transport(Session& session, CommunicationThread& thread,
                                               std::vector<int> members,
                                               const TransportOptions& options) {
  if (members.size() == 1) return make_self_transport(std::move(members), session.rank());
  return std::make_unique<NcclTransport>(session, thread, std::move(members), options);
}

}  // namespace garonne::dist
