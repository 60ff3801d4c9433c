#include "dist/fake_nccl.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace garonne::dist {
namespace {

constexpr int tags_a_rank = 4096;

void poll_again() {
  std::this_thread::sleep_for(std::chrono::microseconds(20));
}

}  // namespace

FakeNccl::FakeNccl(device::FakeCudaRuntime& cuda, MPI_Comm world, const FakeNcclSettings& settings)
    : cuda_(cuda), settings_(settings) {
  MPI_Comm_dup(world, &world_);
  MPI_Comm_set_errhandler(world_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(world_, &world_rank_);
  random_ += static_cast<std::uint64_t>(world_rank_);
  worker_ = std::thread([this] { serve(); });
}

FakeNccl::~FakeNccl() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  worker_.join();
  // Streams outlive this: what runs there sees the end, and what comes to its turn later is none.
  const std::unique_lock lock(kernels_->mutex);
  kernels_->over = true;
  // The communicator is not freed: what was aborted may still be under way.
}

void FakeNccl::accuse(const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (std::ranges::find(violations_, what) == violations_.end()) violations_.push_back(what);
}

std::vector<std::string> FakeNccl::names() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& each : communicators_) names.push_back(each->name);
  return names;
}

int FakeNccl::peers_of(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find(name);
  return found == peers_.end() ? 0 : static_cast<int>(found->second.size());
}

int FakeNccl::live_communicators() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(
      std::ranges::count_if(communicators_, [](const auto& each) { return !each->destroyed; }));
}

void FakeNccl::fail(const std::string& name, NcclStatus status) {
  const std::lock_guard lock(mutex_);
  failures_.insert_or_assign(name, status);
}

// Of which a worker does one after the other, each after a while.
void FakeNccl::job(Communicator& communicator, std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    ++communicator.jobs;
    jobs_.push_back({&communicator, std::move(work)});
  }
  changed_.notify_all();
}

void FakeNccl::serve() {
  for (;;) {
    Job job;
    double seconds = 0;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ending_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
      random_ = random_ * 6364136223846793005U + 1442695040888963407U;
      const double fraction = static_cast<double>(random_ >> 40) / (1 << 24);
      seconds = ending_ || fraction < 0.5 ? 0 : fraction * settings_.issue_seconds;
    }
    if (seconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    job.work();
    const std::lock_guard lock(mutex_);
    --job.communicator->jobs;
    changed_.notify_all();
  }
}

FakeNccl::Communicator* FakeNccl::add(const std::string& name, int channels) {
  const std::lock_guard lock(mutex_);
  channels_[name] = channels;
  communicators_.push_back(std::make_unique<Communicator>());
  communicators_.back()->name = name;
  return communicators_.back().get();
}

int FakeNccl::new_tag() {
  const std::lock_guard lock(mutex_);
  return 2 * (world_rank_ * tags_a_rank + ++tags_);
}

FakeNccl::Communicator* FakeNccl::of(NcclCommunicator handle, const std::string& call) {
  count(call);
  Communicator* found = nullptr;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& each : communicators_) {
      if (static_cast<void*>(each.get()) == handle) found = each.get();
    }
  }
  if (found == nullptr || found->destroyed) {
    accuse(call + " on what is no communicator");
    return nullptr;
  }
  const bool asks = call == "ncclCommGetAsyncError" || call == "ncclCommAbort";
  if (!asks && found->state == NcclStatus::InProgress) {
    accuse(call + " on a communicator that is in progress");
  }
  return found;
}

NcclStatus FakeNccl::version(int& number) {
  number = 22809;
  return NcclStatus::Success;
}

NcclStatus FakeNccl::make_id(NcclId& id) {
  const int values[] = {world_rank_, new_tag()};
  std::memcpy(id.bytes.data(), values, sizeof values);
  return NcclStatus::Success;
}

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

// The members tell the root who they are, which tells all of them.
void FakeNccl::bootstrap(Communicator& communicator, int ranks, int root) {
  const auto over = [this] { return ending_.load(); };
  const int tag = communicator.tag + 1;
  std::vector<int> table(static_cast<std::size_t>(ranks));
  std::vector<int> mine = {communicator.rank, world_rank_};
  std::vector<MPI_Request> requests(1, MPI_REQUEST_NULL);
  MPI_Isend(mine.data(), 2, MPI_INT, root, tag, world_, requests.data());
  if (root == world_rank_) {
    for (int member = 0; member < ranks; ++member) {
      std::vector<int> who(2);
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Irecv(who.data(), 2, MPI_INT, MPI_ANY_SOURCE, tag, world_, &request);
      if (!exchange(communicator, over, {&request})) return;
      table[static_cast<std::size_t>(who[0])] = who[1];
    }
    for (const int member : table) {
      if (member == world_rank_) continue;
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Isend(table.data(), ranks, MPI_INT, member, tag, world_, &request);
      if (!exchange(communicator, over, {&request})) return;
    }
  } else {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Irecv(table.data(), ranks, MPI_INT, root, tag, world_, &request);
    if (!exchange(communicator, over, {&request})) return;
  }
  if (!exchange(communicator, over, {requests.data()})) return;
  communicator.members = table;
  communicator.state.store(NcclStatus::Success);
}

NcclStatus FakeNccl::start(NcclCommunicator& made, int ranks, const NcclId& id, int rank,
                           const char* name, int channels) {
  count("ncclCommInitRankConfig");
  int values[2] = {};
  std::memcpy(values, id.bytes.data(), sizeof values);
  Communicator* const communicator = add(name, channels);
  communicator->tag = values[1];
  communicator->rank = rank;
  made = reinterpret_cast<NcclCommunicator>(communicator);
  if (settings_.starts)
    job(*communicator,
        [this, communicator, ranks, root = values[0]] { bootstrap(*communicator, ranks, root); });
  return NcclStatus::InProgress;
}

// The first member hears colour and key of all, and tells each its communicator.
void FakeNccl::divide(Communicator& parent, int color, int key, Communicator* child,
                      NcclCommunicator& made) {
  const auto over = [this] { return ending_.load(); };
  const int tag = parent.tag + 1;
  const std::size_t ranks = parent.members.size();
  std::vector<int> mine = {color, key};
  std::vector<int> answer(ranks + 2);  // tag, number of members, members
  MPI_Request sent = MPI_REQUEST_NULL;
  MPI_Request answered = MPI_REQUEST_NULL;
  MPI_Isend(mine.data(), 2, MPI_INT, parent.members[0], tag, world_, &sent);
  if (parent.rank != 0) {
    MPI_Irecv(answer.data(), static_cast<int>(answer.size()), MPI_INT, parent.members[0], tag,
              world_, &answered);
  } else {
    std::map<int, std::vector<std::pair<int, int>>> colors;  // key, rank of the world
    std::vector<int> color_of;
    for (const int member : parent.members) {
      std::vector<int> said(2);
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Irecv(said.data(), 2, MPI_INT, member, tag, world_, &request);
      if (!exchange(parent, over, {&request})) return;
      color_of.push_back(said[0]);
      if (said[0] != nccl_no_color) colors[said[0]].push_back({said[1], member});
    }
    std::map<int, std::vector<int>> answers;
    for (auto& [each, members] : colors) {
      std::ranges::sort(members);
      std::vector<int> values = {new_tag(), static_cast<int>(members.size())};
      for (const auto& [its_key, member] : members) values.push_back(member);
      values.resize(ranks + 2);
      answers[each] = values;
    }
    answers[nccl_no_color].assign(ranks + 2, 0);
    for (std::size_t member = 0; member < ranks; ++member) {
      const std::vector<int>& values = answers[color_of[member]];
      if (parent.members[member] == world_rank_) {
        answer = values;
        continue;
      }
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Isend(values.data(), static_cast<int>(values.size()), MPI_INT, parent.members[member],
                tag, world_, &request);
      if (!exchange(parent, over, {&request})) return;
    }
  }
  if (!exchange(parent, over, {&sent, &answered})) return;
  if (child != nullptr) {
    child->tag = answer[0];
    child->members.assign(answer.begin() + 2, answer.begin() + 2 + answer[1]);
    child->rank =
        static_cast<int>(std::ranges::find(child->members, world_rank_) - child->members.begin());
  }
  made = reinterpret_cast<NcclCommunicator>(child);
  parent.state.store(NcclStatus::Success);
  if (child != nullptr) job(*child, [child] { child->state.store(NcclStatus::Success); });
}

NcclStatus FakeNccl::split(NcclCommunicator handle, int color, int key, NcclCommunicator& made,
                           const char* name, int channels) {
  Communicator* const parent = of(handle, "ncclCommSplit");
  if (parent == nullptr) return NcclStatus::InvalidArgument;
  parent->state.store(NcclStatus::InProgress);
  made = nullptr;
  Communicator* const child = color == nccl_no_color ? nullptr : add(name, channels);
  job(*parent,
      [this, parent, color, key, child, &made] { divide(*parent, color, key, child, made); });
  return NcclStatus::InProgress;
}

NcclStatus FakeNccl::state(NcclCommunicator handle, NcclStatus& state) {
  const Communicator* const communicator = of(handle, "ncclCommGetAsyncError");
  if (communicator == nullptr) return NcclStatus::InvalidArgument;
  state = communicator->state;
  const std::lock_guard lock(mutex_);
  const auto failed = failures_.find(communicator->name);
  if (failed != failures_.end()) state = failed->second;
  return NcclStatus::Success;
}

NcclStatus FakeNccl::finalize(NcclCommunicator handle) {
  Communicator* const communicator = of(handle, "ncclCommFinalize");
  if (communicator == nullptr) return NcclStatus::InvalidArgument;
  if (communicator->under_way > 0) accuse("ncclCommFinalize with operations under way");
  communicator->finalized = true;
  communicator->state.store(NcclStatus::InProgress);
  job(*communicator, [communicator] { communicator->state.store(NcclStatus::Success); });
  return NcclStatus::InProgress;
}

NcclStatus FakeNccl::destroy(NcclCommunicator handle) {
  Communicator* const communicator = of(handle, "ncclCommDestroy");
  if (communicator == nullptr) return NcclStatus::InvalidArgument;
  if (!communicator->finalized) accuse("ncclCommDestroy without ncclCommFinalize");
  const std::lock_guard lock(mutex_);
  communicator->destroyed = true;
  return NcclStatus::Success;
}

NcclStatus FakeNccl::abort(NcclCommunicator handle) {
  while (!settings_.aborts) std::this_thread::sleep_for(std::chrono::seconds(1));
  Communicator* const communicator = of(handle, "ncclCommAbort");
  if (communicator == nullptr) return NcclStatus::InvalidArgument;
  communicator->aborted = true;
  std::unique_lock lock(mutex_);
  // What a job would write to is the caller's, who may go now.
  changed_.wait(lock, [&] { return communicator->jobs == 0; });
  communicator->destroyed = true;
  ++aborted_;
  return NcclStatus::Success;
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

std::string FakeNccl::error_text(NcclStatus status, NcclCommunicator) {
  return fmt::format("ncclResult {}: made up", static_cast<int>(status));
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
