// NCCL itself.
#include "dist/nccl_library.hpp"

#include <nccl.h>

#include <cstdlib>
#include <cstring>

#include "dist/transports.hpp"

namespace garonne::dist {
namespace {

static_assert(static_cast<int>(NcclStatus::Success) == ncclSuccess);
static_assert(static_cast<int>(NcclStatus::InvalidArgument) == ncclInvalidArgument);
static_assert(static_cast<int>(NcclStatus::InvalidUsage) == ncclInvalidUsage);
static_assert(static_cast<int>(NcclStatus::RemoteError) == ncclRemoteError);
static_assert(static_cast<int>(NcclStatus::InProgress) == ncclInProgress);
static_assert(nccl_no_color == NCCL_SPLIT_NOCOLOR);
static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));

NcclStatus status(ncclResult_t result) {
  return static_cast<NcclStatus>(result);
}

ncclComm_t native(NcclCommunicator communicator) {
  return reinterpret_cast<ncclComm_t>(communicator);
}

cudaStream_t native(device::CudaStream stream) {
  return reinterpret_cast<cudaStream_t>(stream);
}

ncclConfig_t config_of(const char* name, int channels) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.commName = name;
  config.maxCTAs = channels;
  return config;
}

class Library final : public NcclLibrary {
 public:
  Library() {
    // Kernels of several communicators on one device start in the order in which the host put
    // them, which is one on all ranks; else they may wait for each other. A user's own word counts.
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);  // NOLINT(concurrency-mt-unsafe): at start
    // Nothing is added in switches, for which NCCL would take memory once budgets have theirs.
    setenv("NCCL_NVLS_ENABLE", "0", 0);  // NOLINT(concurrency-mt-unsafe)
  }

  NcclStatus version(int& number) override { return status(ncclGetVersion(&number)); }

  NcclStatus make_id(NcclId& id) override {
    ncclUniqueId made{};
    const ncclResult_t result = ncclGetUniqueId(&made);
    if (result == ncclSuccess) std::memcpy(id.bytes.data(), &made, sizeof made);
    return status(result);
  }

  NcclStatus start(NcclCommunicator& made, int ranks, const NcclId& id, int rank, const char* name,
                   int channels) override {
    ncclUniqueId given{};
    std::memcpy(&given, id.bytes.data(), sizeof given);
    ncclConfig_t config = config_of(name, channels);
    return status(
        ncclCommInitRankConfig(reinterpret_cast<ncclComm_t*>(&made), ranks, given, rank, &config));
  }

  NcclStatus split(NcclCommunicator parent, int color, int key, NcclCommunicator& made,
                   const char* name, int channels) override {
    // Nothing is shared with the parent (splitShare, which NCCL reads of the parent's
    // configuration): what shares has one stream on the device, in which lanes would wait for each
    // other.
    ncclConfig_t config = config_of(name, channels);
    return status(
        ncclCommSplit(native(parent), color, key, reinterpret_cast<ncclComm_t*>(&made), &config));
  }

  NcclStatus state(NcclCommunicator communicator, NcclStatus& state) override {
    ncclResult_t value = ncclSuccess;
    const ncclResult_t result = ncclCommGetAsyncError(native(communicator), &value);
    if (result == ncclSuccess) state = status(value);
    return status(result);
  }

  NcclStatus finalize(NcclCommunicator communicator) override {
    return status(ncclCommFinalize(native(communicator)));
  }
  NcclStatus destroy(NcclCommunicator communicator) override {
    return status(ncclCommDestroy(native(communicator)));
  }
  NcclStatus abort(NcclCommunicator communicator) override {
    return status(ncclCommAbort(native(communicator)));
  }

  NcclStatus group_start() override { return status(ncclGroupStart()); }
  NcclStatus group_end() override { return status(ncclGroupEnd()); }

  NcclStatus send(const void* data, std::size_t bytes, int to, NcclCommunicator communicator,
                  device::CudaStream stream) override {
    return status(ncclSend(data, bytes, ncclInt8, to, native(communicator), native(stream)));
  }
  NcclStatus receive(void* data, std::size_t bytes, int from, NcclCommunicator communicator,
                     device::CudaStream stream) override {
    return status(ncclRecv(data, bytes, ncclInt8, from, native(communicator), native(stream)));
  }
  NcclStatus all_gather(const void* mine, void* all, std::size_t bytes_each,
                        NcclCommunicator communicator, device::CudaStream stream) override {
    return status(
        ncclAllGather(mine, all, bytes_each, ncclInt8, native(communicator), native(stream)));
  }
  NcclStatus broadcast(void* data, std::size_t bytes, int root, NcclCommunicator communicator,
                       device::CudaStream stream) override {
    return status(
        ncclBroadcast(data, data, bytes, ncclInt8, root, native(communicator), native(stream)));
  }

  std::string error_text(NcclStatus failed, NcclCommunicator communicator) override {
    std::string text = ncclGetErrorString(static_cast<ncclResult_t>(failed));
    const char* last = ncclGetLastError(native(communicator));
    if (last != nullptr && *last != '\0') text += std::string(": ") + last;
    return text;
  }
};

}  // namespace

bool built_with_nccl() {
  return true;
}

void expect_nccl_built() {}

std::unique_ptr<NcclLibrary> make_nccl_library() {
  return std::make_unique<Library>();
}

}  // namespace garonne::dist
