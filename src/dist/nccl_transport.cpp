// The transport over NCCL, between buffers of CUDA devices. Pieces travel by NCCL; the sums are our
// own, since NCCL adds in an order that depends on its algorithm.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
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

class NcclTransport final : public Transport {
 public:
  NcclTransport(Session& session, CommunicationThread& thread, std::vector<int> members,
                const TransportOptions& options)
      : Transport(std::move(members), session.rank()),
        device_(options.device),
        compute_stream_(static_cast<cudaStream_t>(options.compute_stream)) {
    check_cuda(cudaSetDevice(device_), "cudaSetDevice");
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    check_cuda(cudaEventCreateWithFlags(&ready_, cudaEventDisableTiming), "cudaEventCreate");
    const ncclUniqueId id = share_id(session, thread);
    check_nccl(ncclCommInitRank(&communicator_, size(), id, member()), "ncclCommInitRank");
  }

  ~NcclTransport() override {
    // Waiting for peers that may be gone could take for ever.
    if (std::uncaught_exceptions() > 0) {
      ncclCommAbort(communicator_);
    } else {
      cudaStreamSynchronize(stream_);
      ncclCommDestroy(communicator_);
    }
    for (const Pending& pending : pending_) cudaEventDestroy(pending.event);
    for (cudaEvent_t event : spare_events_) cudaEventDestroy(event);
    cudaEventDestroy(ready_);
    cudaStreamDestroy(stream_);
  }

  std::string_view name() const override { return "nccl"; }
  bool on_device() const override { return true; }

  Ticket all_reduce_sum(void* data, std::int64_t elements, ScalarType type,
                        void* staging) override {
    begin();
    reduce_pieces(static_cast<std::byte*>(data), elements, type, static_cast<std::byte*>(staging));
    gather_pieces(static_cast<std::byte*>(data), elements, scalar_bytes(type));
    return end();
  }

  Ticket reduce_scatter_sum(void* data, std::int64_t elements, ScalarType type,
                            void* staging) override {
    begin();
    reduce_pieces(static_cast<std::byte*>(data), elements, type, static_cast<std::byte*>(staging));
    return end();
  }

  Ticket all_gather(void* data, std::int64_t elements, std::int64_t element_bytes) override {
    begin();
    gather_pieces(static_cast<std::byte*>(data), elements, element_bytes);
    return end();
  }

  Ticket broadcast(void* data, std::int64_t bytes, int root) override {
    expect(root >= 0 && root < size(), "the root of a broadcast is no member");
    begin();
    check(ncclBroadcast(data, data, static_cast<std::size_t>(bytes), ncclInt8, root, communicator_,
                        stream_),
          "broadcast");
    return end();
  }

  // NCCL has no tags: messages between two members meet in the order of their submission.
  Ticket send(const void* data, std::int64_t bytes, int to, int) override {
    begin();
    post_send(static_cast<const std::byte*>(data), bytes, to);
    return end();
  }

  Ticket receive(void* data, std::int64_t bytes, int from, int) override {
    begin();
    post_receive(static_cast<std::byte*>(data), bytes, from);
    return end();
  }

  void wait(Ticket ticket) override {
    check_health();
    const auto pending = find(ticket);
    if (pending == pending_.end()) return;
    check_cuda(cudaStreamWaitEvent(compute_stream_, pending->event, 0), "cudaStreamWaitEvent");
  }

  bool done(Ticket ticket) override {
    check_health();
    forget_completed();
    return find(ticket) == pending_.end();
  }

 private:
  struct Pending {
    std::uint64_t number;
    cudaEvent_t event;
  };

  // The first member's, by messages over a host transport of the same group.
  ncclUniqueId share_id(Session& session, CommunicationThread& thread) {
    ncclUniqueId id{};
    if (member() == 0) check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
    const auto host = make_transport("mpi", session, thread, members());
    host->wait(host->broadcast(&id, sizeof id, 0));
    return id;
  }

  void check(ncclResult_t code, const char* operation) const {
    check_nccl(code, operation, communicator_);
  }

  // Our stream continues after what the caller has put on the compute stream so far.
  void begin() {
    check_cuda(cudaSetDevice(device_), "cudaSetDevice");
    check_cuda(cudaEventRecord(ready_, compute_stream_), "cudaEventRecord");
    check_cuda(cudaStreamWaitEvent(stream_, ready_, 0), "cudaStreamWaitEvent");
  }

  Ticket end() {
    forget_completed();
    cudaEvent_t event = nullptr;
    if (spare_events_.empty()) {
      check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
    } else {
      event = spare_events_.back();
      spare_events_.pop_back();
    }
    check_cuda(cudaEventRecord(event, stream_), "cudaEventRecord");
    pending_.push_back({++last_number_, event});
    return {last_number_};
  }

  std::deque<Pending>::iterator find(Ticket ticket) {
    return std::find_if(pending_.begin(), pending_.end(),
                        [&](const Pending& pending) { return pending.number == ticket.number; });
  }

  // Operations of one stream complete in order.
  void forget_completed() {
    while (!pending_.empty()) {
      const cudaError_t state = cudaEventQuery(pending_.front().event);
      if (state == cudaErrorNotReady) return;
      check_cuda(state, "cudaEventQuery");
      spare_events_.push_back(pending_.front().event);
      pending_.pop_front();
    }
  }

  void check_health() const {
    ncclResult_t state = ncclSuccess;
    check(ncclCommGetAsyncError(communicator_, &state), "ncclCommGetAsyncError");
    check(state, "an operation on the device");
  }

  // Empty messages are left out: both sides know the sizes.
  void post_send(const std::byte* data, std::int64_t bytes, int to) const {
    if (bytes == 0) return;
    check(ncclSend(data, static_cast<std::size_t>(bytes), ncclInt8, to, communicator_, stream_),
          "send");
  }

  void post_receive(std::byte* data, std::int64_t bytes, int from) const {
    if (bytes == 0) return;
    check(ncclRecv(data, static_cast<std::size_t>(bytes), ncclInt8, from, communicator_, stream_),
          "receive");
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
        post_send(data + begin_of(elements, peer) * bytes, length_of(elements, peer) * bytes, peer);
        post_receive(staged(peer), own * bytes, peer);
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
      check_cuda(device_sum_in_order(sum, terms, own, type, stream_), "sum on the device");
      partial = sum;
    }
  }

  void gather_pieces(std::byte* data, std::int64_t elements, std::int64_t bytes) {
    const std::byte* own = data + begin_of(elements, member()) * bytes;
    grouped("all-gather", [&] {
      for (int peer = 0; peer < size(); ++peer) {
        if (peer == member()) continue;
        post_send(own, length_of(elements, member()) * bytes, peer);
        post_receive(data + begin_of(elements, peer) * bytes, length_of(elements, peer) * bytes,
                     peer);
      }
    });
  }

  int device_;
  cudaStream_t compute_stream_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t ready_ = nullptr;
  ncclComm_t communicator_ = nullptr;
  std::deque<Pending> pending_;
  std::vector<cudaEvent_t> spare_events_;
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
