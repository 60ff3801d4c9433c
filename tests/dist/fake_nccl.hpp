// NCCL without a GPU, for tests: communicators over MPI whose kernels run on the streams of a fake
// CUDA runtime and move the memory of its device, and an eye on what the real one does not forgive.
#pragma once

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "device/fake_cuda_runtime.hpp"
#include "dist/device_sum.hpp"
#include "dist/nccl_library.hpp"

namespace garonne::dist {

struct FakeNcclSettings {
  bool starts = true;           // else communicators are in progress for ever
  bool connects = true;         // else the first operation on each is never complete
  bool aborts = true;           // else an abort does not return
  double issue_seconds = 1e-4;  // what it takes at most until a group is on its stream
};

// Calls are in progress for a while, as those of communicators that do not block: nothing is on the
// stream before that is over. Everything that is put carries what it is, so that the other end sees
// calls in another order. One thread puts operations.
class FakeNccl final : public NcclLibrary {
 public:
  // `world` has all ranks; it is duplicated. Collective. The runtime outlives it.
  FakeNccl(device::FakeCudaRuntime& cuda, MPI_Comm world, const FakeNcclSettings& settings = {});
  ~FakeNccl() override;

  // The kernel of the sums, on the fake's device.
  DeviceSum sum();

  // The state of communicators of this name from now on.
  void fail(const std::string& name, NcclStatus status);
  // The next call of this name says that it was no valid use; the group that it is in is dropped.
  void refuse(const std::string& call) {
    const std::lock_guard lock(mutex_);
    refused_.insert(call);
  }
  int open_groups() const { return group_.depth; }
  // What the real one does not forgive, or hangs in.
  std::vector<std::string> violations() const { return locked(violations_); }
  int live_communicators() const;
  int aborted_communicators() const { return locked(aborted_); }
  std::map<std::string, int> calls() const { return locked(calls_); }
  // In the order in which they were made.
  std::vector<std::string> names() const;
  // Of each connection, by the communicator's name; and with how many peers it has exchanged beside
  // what collectives do.
  std::map<std::string, int> channels() const { return locked(channels_); }
  int peers_of(const std::string& name) const;

  NcclStatus version(int& number) override;
  NcclStatus make_id(NcclId& id) override;
  NcclStatus start(NcclCommunicator& made, int ranks, const NcclId& id, int rank, const char* name,
                   int channels) override;
  NcclStatus split(NcclCommunicator parent, int color, int key, NcclCommunicator& made,
                   const char* name, int channels) override;
  NcclStatus state(NcclCommunicator communicator, NcclStatus& state) override;
  NcclStatus finalize(NcclCommunicator communicator) override;
  NcclStatus destroy(NcclCommunicator communicator) override;
  NcclStatus abort(NcclCommunicator communicator) override;
  NcclStatus group_start() override;
  NcclStatus group_end() override;
  NcclStatus send(const void* data, std::size_t bytes, int to, NcclCommunicator communicator,
                  device::CudaStream stream) override;
  NcclStatus receive(void* data, std::size_t bytes, int from, NcclCommunicator communicator,
                     device::CudaStream stream) override;
  NcclStatus all_gather(const void* mine, void* all, std::size_t bytes_each,
                        NcclCommunicator communicator, device::CudaStream stream) override;
  NcclStatus broadcast(void* data, std::size_t bytes, int root, NcclCommunicator communicator,
                       device::CudaStream stream) override;
  std::string error_text(NcclStatus status, NcclCommunicator communicator) override;

 private:
  // What travels before every message.
  struct Header {
    std::int32_t kind = 0;      // 0: a message; 1: an all-gather; 2: a broadcast
    std::int32_t number = 0;    // of a collective in its communicator
    std::int32_t recorded = 0;  // 1: carried out with a graph, as then on all members
    std::int32_t unused = 0;
    std::int64_t bytes = 0;
  };
  struct Communicator {
    std::string name;
    int tag = 0;
    std::vector<int> members;  // ranks of the world
    int rank = 0;
    std::int32_t collectives = 0;
    bool finalized = false;
    bool destroyed = false;
    std::atomic<NcclStatus> state = NcclStatus::InProgress;
    std::atomic<bool> aborted = false;
    std::atomic<int> under_way = 0;
    int jobs = 0;  // in the queue, and the one that is being done
  };
  struct Job {
    Communicator* communicator = nullptr;
    std::function<void()> work;
  };
  struct Part {
    bool send = false;
    int peer = 0;
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    Header header;
  };
  struct Group {
    int depth = 0;
    Communicator* communicator = nullptr;
    device::CudaStream stream = nullptr;
    std::vector<Part> parts;
    const void* copy_from = nullptr;  // an all-gather's own part, where it is elsewhere
    void* copy_to = nullptr;
    std::size_t copy_bytes = 0;
    bool refused = false;
  };

  template <typename Value>
  Value locked(const Value& value) const {
    const std::lock_guard lock(mutex_);
    return value;
  }
  Communicator* of(NcclCommunicator handle, const std::string& call);
  void accuse(const std::string& what);
  void count(const std::string& call) {
    const std::lock_guard lock(mutex_);
    ++calls_[call];
  }
  Communicator* add(const std::string& name, int channels);
  int new_tag();
  void note_peer(const Communicator& communicator, int peer);
  void job(Communicator& communicator, std::function<void()> work);
  void serve();
  void pause();

  bool exchange(Communicator& communicator, const std::function<bool()>& over,
                const std::vector<MPI_Request*>& requests);
  void bootstrap(Communicator& communicator, int ranks, int root);
  void divide(Communicator& parent, int color, int key, Communicator* child,
              NcclCommunicator& made);
  NcclStatus put(NcclCommunicator handle, device::CudaStream stream, const std::string& call,
                 const std::function<void(Communicator&)>& add_parts);
  NcclStatus issue();
  void carry_out(Communicator& communicator, Group group, bool recorded);

  // Of the streams, which outlive this.
  struct Kernels {
    std::shared_mutex mutex;  // shared by those that run
    bool over = false;
  };

  device::FakeCudaRuntime& cuda_;
  const std::shared_ptr<Kernels> kernels_ = std::make_shared<Kernels>();
  MPI_Comm world_ = MPI_COMM_NULL;
  int world_rank_ = 0;
  const FakeNcclSettings settings_;
  Group group_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Communicator>> communicators_;  // destroyed ones too
  std::vector<std::string> violations_;
  std::map<std::string, int> calls_;
  std::map<std::string, NcclStatus> failures_;
  std::set<std::string> refused_;
  std::map<std::string, int> channels_;
  std::map<std::string, std::set<int>> peers_;
  int tags_ = 0;
  int aborted_ = 0;
  std::uint64_t random_ = 1;
  std::deque<Job> jobs_;
  std::atomic<bool> ending_ = false;
  std::thread worker_;  // last: it uses the others
};

}  // namespace garonne::dist
