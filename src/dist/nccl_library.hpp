// The calls of NCCL that the transport makes, as one class without NCCL's headers: all that stands
// on it compiles in every build, and tests put a library of their own in its place.
//
// What is not here is not done: no call blocks (communicators are made so, and asked how far they
// are), and nothing is summed by NCCL.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "device/cuda_runtime.hpp"

namespace garonne::dist {

// ncclResult_t, of whose values these mean something here.
enum class [[nodiscard]] NcclStatus : int{Success = 0, InvalidArgument = 4, InvalidUsage = 5,
                                          RemoteError = 6, InProgress = 7};

// Never defined: it is ncclComm_t.
struct NcclCommunicatorHandle;
using NcclCommunicator = NcclCommunicatorHandle*;

// ncclUniqueId: what the members of a communicator find each other by.
struct NcclId {
  std::array<char, 128> bytes{};
};

// What a rank says that is to be in no communicator of a split.
inline constexpr int nccl_no_color = -1;

// Each member makes the call that its comment names and gives back what that said. Where that is
// InProgress, nothing but `state` may be called on the communicator until that is Success, nor is
// anything on the stream yet. A communicator is used by one thread at a time; `state` by any.
class NcclLibrary {
 public:
  virtual ~NcclLibrary() = default;
  NcclLibrary(const NcclLibrary&) = delete;
  NcclLibrary& operator=(const NcclLibrary&) = delete;

  virtual NcclStatus version(int& number) = 0;  // GetVersion: 22809 is 2.28.9

  // Communicators, none of which blocks. Names are in NCCL's logs, and outlive the communicator.
  virtual NcclStatus make_id(NcclId& id) = 0;  // GetUniqueId
  // On the device of the calling thread. `channels`: of each connection, at most.
  virtual NcclStatus start(NcclCommunicator& made, int ranks, const NcclId& id, int rank,
                           const char* name, int channels) = 0;  // CommInitRankConfig
  // By all members of the parent in one order; those of one colour are one communicator, in the
  // order of their keys, with resources of its own. `made` is written while the parent is in
  // progress; null for no colour.
  virtual NcclStatus split(NcclCommunicator parent, int color, int key, NcclCommunicator& made,
                           const char* name, int channels) = 0;  // CommSplit
  virtual NcclStatus state(NcclCommunicator communicator,
                           NcclStatus& state) = 0;  // CommGetAsyncError
  // Both by all members. All that was put has come to its end before finalize, and finalize before
  // destroy.
  virtual NcclStatus finalize(NcclCommunicator communicator) = 0;  // CommFinalize
  virtual NcclStatus destroy(NcclCommunicator communicator) = 0;   // CommDestroy
  // In place of both, at any time, by this rank alone. It may block.
  virtual NcclStatus abort(NcclCommunicator communicator) = 0;  // CommAbort

  // What is put between these is one operation, of one communicator.
  virtual NcclStatus group_start() = 0;  // GroupStart
  virtual NcclStatus group_end() = 0;    // GroupEnd

  virtual NcclStatus send(const void* data, std::size_t bytes, int to,
                          NcclCommunicator communicator, device::CudaStream stream) = 0;  // Send
  virtual NcclStatus receive(void* data, std::size_t bytes, int from, NcclCommunicator communicator,
                             device::CudaStream stream) = 0;  // Recv
  // Of each rank as many bytes, at their places in `all`, of which `mine` may be a part.
  virtual NcclStatus all_gather(const void* mine, void* all, std::size_t bytes_each,
                                NcclCommunicator communicator,
                                device::CudaStream stream) = 0;  // AllGather
  virtual NcclStatus broadcast(void* data, std::size_t bytes, int root,
                               NcclCommunicator communicator,
                               device::CudaStream stream) = 0;  // Broadcast

  // What went wrong, with the communicator's last words; it may be null.
  virtual std::string error_text(
      NcclStatus status,
      NcclCommunicator communicator) = 0;  // GetErrorString, GetLastError

 protected:
  NcclLibrary() = default;
};

// The real one, one a process. NotBuiltError in builds without NCCL.
std::unique_ptr<NcclLibrary> make_nccl_library();

}  // namespace garonne::dist
