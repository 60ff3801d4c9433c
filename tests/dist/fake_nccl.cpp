#include "dist/fake_nccl.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace garonne::dist {
namespace {

constexpr int tags_a_rank = 4096;

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

std::string FakeNccl::error_text(NcclStatus status, NcclCommunicator) {
  return fmt::format("ncclResult {}: made up", static_cast<int>(status));
}

}  // namespace garonne::dist
