// What the communicators of the fake carry out: messages and collectives, by groups, and sums.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "dist/fake_nccl.hpp"

namespace garonne::dist {
namespace {

void poll_again() {
  std::this_thread::sleep_for(std::chrono::microseconds(20));
}

}  // namespace

// Polls until all requests are complete; false where the communicator was aborted.
bool FakeNccl::exchange(Communicator& communicator, const std::function<bool()>& over,
                        const std::vector<MPI_Request*>& requests) {
  for (;;) {
    bool complete = true;
    for (MPI_Request* request : requests) {
      int done = 0;
      if (MPI_Test(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
        accuse(communicator.name + ": a message of another size than what it meets");
      }
      complete = complete && done != 0;
    }
    if (complete) return true;
    if (communicator.aborted || over()) break;
    poll_again();
  }
  for (MPI_Request* request : requests) {
    if (*request == MPI_REQUEST_NULL) continue;
    MPI_Cancel(request);
    MPI_Request_free(request);
  }
  return false;
}

NcclStatus FakeNccl::group_start() {
  ++group_.depth;
  return NcclStatus::Success;
}

NcclStatus FakeNccl::group_end() {
  if (--group_.depth > 0) return NcclStatus::Success;
  if (!group_.refused) return issue();
  group_ = {};
  return NcclStatus::InvalidUsage;
}

NcclStatus FakeNccl::put(NcclCommunicator handle, device::CudaStream stream,
                         const std::string& call,
                         const std::function<void(Communicator&)>& add_parts) {
  Communicator* const communicator = of(handle, call);
  if (communicator == nullptr) return NcclStatus::InvalidArgument;
  {
    const std::lock_guard lock(mutex_);
    if (refused_.erase(call) > 0) {
      group_.refused = group_.depth > 0;
      return NcclStatus::InvalidUsage;
    }
  }
  if (group_.communicator != nullptr && group_.communicator != communicator) {
    accuse("a group of several communicators");
  }
  group_.communicator = communicator;
  group_.stream = stream;
  add_parts(*communicator);
  return group_.depth > 0 ? NcclStatus::Success : issue();
}

void FakeNccl::note_peer(const Communicator& communicator, int peer) {
  const std::lock_guard lock(mutex_);
  peers_[communicator.name].insert(peer);
}

// The kernel is on its stream before the communicator is in progress no more.
NcclStatus FakeNccl::issue() {
  Group group = std::exchange(group_, {});
  if (group.communicator == nullptr) return NcclStatus::Success;
  Communicator* const communicator = group.communicator;
  communicator->state.store(NcclStatus::InProgress);
  ++communicator->under_way;
  job(*communicator, [this, communicator, group = std::move(group)] {
    // What is recorded is under way each time that its graph is carried out.
    const bool recorded = cuda_.records(group.stream);
    if (recorded) --communicator->under_way;
    cuda_.launch(
        group.stream,
        [this, kernels = kernels_, communicator, group, recorded] {
          const std::shared_lock lock(kernels->mutex);
          if (kernels->over) return;
          if (recorded) ++communicator->under_way;
          carry_out(*communicator, group, recorded);
          --communicator->under_way;
        },
        /*meets_others=*/true);
    communicator->state.store(NcclStatus::Success);
  });
  return NcclStatus::InProgress;
}

// What was put in a capture that was given up is none of the collectives that others count.
void FakeNccl::carry_out(Communicator& communicator, Group group, bool recorded) {
  if (std::ranges::any_of(group.parts, [](const Part& part) { return part.header.kind != 0; })) {
    ++communicator.collectives;
  }
  for (Part& part : group.parts) {
    if (part.header.kind != 0) part.header.number = communicator.collectives;
    part.header.recorded = recorded ? 1 : 0;
  }
  const auto ended = [&] { return communicator.aborted || ending_; };
  while (!settings_.connects && !ended()) poll_again();
  if (ended()) return;
  if (group.copy_bytes > 0) {
    std::memcpy(cuda_.device_side(group.copy_to), cuda_.device_side(group.copy_from),
                group.copy_bytes);
  }
  std::vector<Header> headers;
  for (const Part& part : group.parts)
    headers.push_back(part.send ? part.header : Header{.kind = -1});
  std::vector<MPI_Request> requests(2 * group.parts.size(), MPI_REQUEST_NULL);
  std::vector<MPI_Request*> addresses;
  for (std::size_t index = 0; index < group.parts.size(); ++index) {
    const Part& part = group.parts[index];
    const int peer = communicator.members[static_cast<std::size_t>(part.peer)];
    std::byte* const data = cuda_.device_side(part.data);
    const int bytes = static_cast<int>(part.bytes);
    if (part.send) {
      MPI_Isend(&headers[index], sizeof(Header), MPI_BYTE, peer, communicator.tag, world_,
                &requests[2 * index]);
      MPI_Isend(data, bytes, MPI_BYTE, peer, communicator.tag, world_, &requests[2 * index + 1]);
    } else {
      MPI_Irecv(&headers[index], sizeof(Header), MPI_BYTE, peer, communicator.tag, world_,
                &requests[2 * index]);
      MPI_Irecv(data, bytes, MPI_BYTE, peer, communicator.tag, world_, &requests[2 * index + 1]);
    }
    addresses.push_back(&requests[2 * index]);
    addresses.push_back(&requests[2 * index + 1]);
  }
  if (!exchange(
          communicator, [this] { return ending_.load(); }, addresses))
    return;
  for (std::size_t index = 0; index < group.parts.size(); ++index) {
    const Part& part = group.parts[index];
    const Header& met = headers[index];
    if (part.send || (met.kind == part.header.kind && met.number == part.header.number &&
                      met.bytes == part.header.bytes && met.recorded == part.header.recorded)) {
      continue;
    }
    if (met.recorded != part.header.recorded) {
      accuse(communicator.name + ": an operation of a graph meets one that is in none");
      continue;
    }
    accuse(
        fmt::format("{}: calls in another order on another rank: kind {}, number {}, {} bytes "
                    "meets kind {}, number {}, {} bytes",
                    communicator.name, part.header.kind, part.header.number, part.header.bytes,
                    met.kind, met.number, met.bytes));
  }
}

NcclStatus FakeNccl::send(const void* data, std::size_t bytes, int to,
                          NcclCommunicator communicator, device::CudaStream stream) {
  return put(communicator, stream, "ncclSend", [&](Communicator& group) {
    note_peer(group, to);
    auto* const from = const_cast<std::byte*>(static_cast<const std::byte*>(data));
    group_.parts.push_back({true, to, from, bytes, {.bytes = static_cast<std::int64_t>(bytes)}});
  });
}

NcclStatus FakeNccl::receive(void* data, std::size_t bytes, int from, NcclCommunicator communicator,
                             device::CudaStream stream) {
  return put(communicator, stream, "ncclRecv", [&](Communicator& group) {
    note_peer(group, from);
    group_.parts.push_back({false,
                            from,
                            static_cast<std::byte*>(data),
                            bytes,
                            {.bytes = static_cast<std::int64_t>(bytes)}});
  });
}

NcclStatus FakeNccl::all_gather(const void* mine, void* all, std::size_t bytes_each,
                                NcclCommunicator communicator, device::CudaStream stream) {
  return put(communicator, stream, "ncclAllGather", [&](Communicator& group) {
    const Header header{.kind = 1, .bytes = static_cast<std::int64_t>(bytes_each)};
    auto* const from = const_cast<std::byte*>(static_cast<const std::byte*>(mine));
    auto* const to = static_cast<std::byte*>(all);
    for (int peer = 0; peer < static_cast<int>(group.members.size()); ++peer) {
      std::byte* const place = to + static_cast<std::size_t>(peer) * bytes_each;
      if (peer == group.rank) {
        if (place != from) {
          group_.copy_from = from;
          group_.copy_to = place;
          group_.copy_bytes = bytes_each;
        }
        continue;
      }
      group_.parts.push_back({true, peer, from, bytes_each, header});
      group_.parts.push_back({false, peer, place, bytes_each, header});
    }
  });
}

NcclStatus FakeNccl::broadcast(void* data, std::size_t bytes, int root,
                               NcclCommunicator communicator, device::CudaStream stream) {
  return put(communicator, stream, "ncclBroadcast", [&](Communicator& group) {
    const Header header{.kind = 2, .bytes = static_cast<std::int64_t>(bytes)};
    auto* const address = static_cast<std::byte*>(data);
    for (int peer = 0; peer < static_cast<int>(group.members.size()); ++peer) {
      if (peer == group.rank || (root != group.rank && peer != root)) continue;
      group_.parts.push_back({root == group.rank, peer, address, bytes, header});
    }
  });
}

DeviceSum FakeNccl::sum() {
  return [this](void* result, const DeviceTerms& terms, std::int64_t elements, SumType type,
                device::CudaStream stream) {
    if (elements == 0) return device::CudaStatus::Success;
    cuda_.launch(stream, [=, &cuda = cuda_] {
      DeviceTerms sides = terms;
      // Behind what was aborted memory may be gone, which the real one waits for before.
      void* const to = cuda.device_side(result);
      bool there = to != nullptr;
      for (int term = 0; term < sides.count; ++term) {
        sides.terms[term] = cuda.device_side(terms.terms[term]);
        there = there && sides.terms[term] != nullptr;
      }
      if (!there) return;
      constexpr std::int64_t workers = 7;
      for (std::int64_t worker = 0; worker < workers; ++worker)
        add_terms(to, sides, elements, type, worker, workers);
    });
    return device::CudaStatus::Success;
  };
}

}  // namespace garonne::dist
