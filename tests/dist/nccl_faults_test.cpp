// What goes wrong over NCCL ends in an error that names it, and in no wait without an end. With the
// fake of NCCL, between real ranks.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "device/cuda_device.hpp"
#include "device/fake_cuda_runtime.hpp"
#include "dist/communication_thread.hpp"
#include "dist/nccl_transport.hpp"
#include "dist/session.hpp"
#include "fake_nccl.hpp"

// What an abort that does not return holds is left for good, threads included.
extern "C" const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() {
  return "report_thread_leaks=0";
}

namespace garonne::dist {
namespace {

using namespace std::chrono_literals;

class NcclFaultsTest : public testing::Test {
 protected:
  NcclFaultsTest() : session_(Session::start()) {
    members_.resize(static_cast<std::size_t>(session_.size()));
    std::iota(members_.begin(), members_.end(), 0);
  }
  ~NcclFaultsTest() override {
    thread_.reset();
    device_.reset();
    nccl_.reset();
    runtime_.reset();
  }

  void begin(const FakeNcclSettings& settings = {}, bool own_device = true,
             device::CudaFault fault = device::CudaFault::None) {
    device::FakeCudaSettings fake;
    fake.fault = fault;
    if (own_device) fake.bus_id = fmt::format("0000:0{}:00.0", session_.rank());
    runtime_ = std::make_unique<device::FakeCudaRuntime>(fake);
    device_ = std::make_unique<device::CudaDevice>(
        *runtime_, device::CudaSettings{.longest_wait_seconds = 30, .longest_end_seconds = 3});
    memory_ = &device_->reserve(Tier::Device, 1 << 20);
    nccl_ = std::make_shared<FakeNccl>(*runtime_, MPI_COMM_WORLD, settings);
    thread_.emplace(session_);
    side_ = {.device = device_.get(), .runtime = runtime_.get()};
  }

  // Where the limit passes, what comes before has to be there within it, too, on any machine.
  std::unique_ptr<NcclTransport> make(double limit_seconds = 100, TransportOptions options = {},
                                      int channels = 0) {
    options.name = "data";
    options.limit_seconds = limit_seconds;
    options.side = &side_;
    return std::make_unique<NcclTransport>(session_, *thread_, members_, options,
                                           NcclParts{.library = nccl_,
                                                     .sum = nccl_->sum(),
                                                     .grace_seconds = 60,
                                                     .abort_seconds = 0.5,
                                                     .channels = channels});
  }
  std::byte* allocate(std::int64_t bytes) { return memory_->allocate(bytes, "a test").data; }

  // Of the operation, until it is complete.
  static std::string failure_of(Transport& transport, Ticket ticket) {
    try {
      while (!transport.done(ticket)) std::this_thread::sleep_for(1ms);
    } catch (const CommunicationError& error) {
      EXPECT_EQ(error.code(), ExitCode::Communication);
      return error.what();
    }
    return "";
  }
  // As an exception on its way does.
  static void leave(std::unique_ptr<NcclTransport> transport) {
    try {
      const std::unique_ptr<NcclTransport> left = std::move(transport);
      throw std::runtime_error("something else");
    } catch (const std::runtime_error&) {
    }
  }

  Session session_;
  std::vector<int> members_;
  std::unique_ptr<device::FakeCudaRuntime> runtime_;
  std::unique_ptr<device::CudaDevice> device_;
  device::TierMemory* memory_ = nullptr;
  std::shared_ptr<FakeNccl> nccl_;
  std::optional<CommunicationThread> thread_;
  DeviceSide side_;
};

void expect_words(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    EXPECT_NE(text.find(word), std::string::npos) << word << " is not in: " << text;
  }
}

TEST_F(NcclFaultsTest, ACommunicatorThatIsNeverThereIsAnError) {
  begin({.starts = false});
  std::string text;
  try {
    make(0.5);
  } catch (const CommunicationError& error) {
    text = error.what();
  }
  expect_words(text, {"start of NCCL for data", "0.5 s (run.timeout)"});
}

TEST_F(NcclFaultsTest, AnOperationThatAPeerNeverMeetsIsNamed) {
  begin();
  auto transport = make(5);
  std::byte* const data = allocate(400);
  if (session_.rank() == 0) {
    const Ticket ticket = transport->receive(data, 400, 1, 0);
    transport->wait(ticket);
    expect_words(failure_of(*transport, ticket),
                 {"message from rank 1 in data", "not complete after 5 s (run.timeout)"});
    EXPECT_THROW((void)transport->broadcast(data, 400, 0), CommunicationError) << "of no use now";
    EXPECT_THROW(transport->wait(ticket), CommunicationError);
  }
  session_.barrier();
  leave(std::move(transport));
  EXPECT_EQ(nccl_->aborted_communicators(), 1);
  // What waited for the peer has ended, so the device ends too.
  EXPECT_NO_THROW(device_->close());
}

// Within a graph nobody sees how far operations are.
TEST_F(NcclFaultsTest, AGraphInWhichOthersAreWaitedForTooLongIsNamed) {
  begin();
  auto transport = make(5);
  transport->begin_replay("the recorded step", 0.5);
  const auto start = std::chrono::steady_clock::now();
  std::string text;
  while (text.empty() && std::chrono::steady_clock::now() - start < 60s) {
    std::this_thread::sleep_for(5ms);
    try {
      transport->wait({});
    } catch (const CommunicationError& error) {
      text = error.what();
    }
  }
  EXPECT_GE(std::chrono::steady_clock::now() - start, 5500ms);
  expect_words(text, {"the recorded step in data (ranks 0, 1)", "5 s (run.timeout)"});
  EXPECT_THROW(transport->end_replay(), CommunicationError);
  leave(std::move(transport));
}

TEST_F(NcclFaultsTest, AGraphThatEndsInTimeIsNoWait) {
  begin();
  auto transport = make(5);
  for (int turn = 0; turn < 2; ++turn) {
    transport->begin_replay("the recorded step", 0.5);
    std::this_thread::sleep_for(3s);
    EXPECT_NO_THROW(transport->end_replay());
  }
}

TEST_F(NcclFaultsTest, AnErrorOfTheCommunicatorIsFoundWhileNobodyAsks) {
  begin();
  auto transport = make();
  std::byte* const data = allocate(400);
  const Ticket ticket = transport->broadcast(data, 400, 0);
  EXPECT_EQ(failure_of(*transport, ticket), "");
  session_.barrier();
  nccl_->fail("data", NcclStatus::RemoteError);
  std::string text;
  for (int turn = 0; turn < 2000 && text.empty(); ++turn) {
    std::this_thread::sleep_for(5ms);
    try {
      transport->wait(ticket);
    } catch (const CommunicationError& error) {
      text = error.what();
    }
  }
  expect_words(text, {"data", "ncclResult 6"});
  leave(std::move(transport));
}

TEST_F(NcclFaultsTest, AnAbortThatDoesNotReturnIsLeft) {
  begin({.aborts = false});
  auto transport = make();
  const auto start = std::chrono::steady_clock::now();
  leave(std::move(transport));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 30s);
  session_.barrier();
  // The thread that aborts has the library, which has the runtime.
  static_cast<void>(runtime_.release());
}

// The streams are the runtime's and come to their turn when they like.
TEST_F(NcclFaultsTest, WhatWasAbortedMayComeToItsTurnWhenNcclIsGone) {
  begin();
  auto transport = make();
  std::byte* const data = allocate(4000);
  std::byte* const staging = allocate(4000);
  std::atomic<bool> goes_on = false;
  runtime_->launch(device_->queue(Lane::Compute).native, [&] {
    while (!goes_on) std::this_thread::sleep_for(1ms);
  });
  device_->launched(Lane::Compute, "a long kernel");
  transport->all_reduce_sum(data, 900, ScalarType::Float32, staging);
  leave(std::move(transport));
  EXPECT_TRUE(nccl_->violations().empty());
  const std::weak_ptr<FakeNccl> left = nccl_;
  nccl_.reset();
  // The thread that aborts has it, too.
  while (!left.expired()) std::this_thread::sleep_for(1ms);
  goes_on = true;
  EXPECT_NO_THROW(device_->close());
}

// The first operations of a group, which connect it.
TEST_F(NcclFaultsTest, ASetUpThatIsNeverCompleteIsAborted) {
  begin({.connects = false});
  TransportOptions options;
  options.message_lanes = {{0, 1, 0}};
  std::string text;
  try {
    make(5, options);
  } catch (const CommunicationError& error) {
    text = error.what();
  }
  expect_words(text, {"in data (ranks 0, 1)", "5 s (run.timeout)"});
  EXPECT_EQ(nccl_->aborted_communicators(), 2);
  EXPECT_EQ(nccl_->live_communicators(), 0);
  // Nothing is left on the streams, so memory of the device can be given back.
  EXPECT_NO_THROW(device_->close());
}

// Within a group of calls that stays open nothing later would begin: sums would be left out without
// a word.
TEST_F(NcclFaultsTest, ACallThatIsRefusedEndsItsGroupAndTheTransport) {
  begin();
  auto transport = make();
  std::byte* const data = allocate(4000);
  std::byte* const staging = allocate(4000);
  nccl_->refuse("ncclSend");
  std::string text;
  try {
    transport->all_reduce_sum(data, 900, ScalarType::Float32, staging);
  } catch (const CommunicationError& error) {
    text = error.what();
  }
  expect_words(text, {"all-reduce in data", "ncclSend"});
  EXPECT_EQ(nccl_->open_groups(), 0);
  EXPECT_THROW(transport->broadcast(data, 400, 0), CommunicationError) << "of no use now";
  session_.barrier();
  leave(std::move(transport));
  EXPECT_TRUE(nccl_->violations().empty());
}

// Each connection of two ranks takes memory of both devices for as long as its communicator lives.
TEST_F(NcclFaultsTest, AGroupConnectsNoMoreThanItUses) {
  begin();
  TransportOptions options;
  {
    const auto transport = make(100, options, 2);
    EXPECT_EQ(nccl_->channels(), (std::map<std::string, int>{{"data", 2}}));
    EXPECT_EQ(nccl_->peers_of("data"), session_.size() - 1);
  }
  session_.barrier();
  nccl_.reset();
  nccl_ = std::make_shared<FakeNccl>(*runtime_, MPI_COMM_WORLD);
  options.lanes = 2;
  options.message_lanes = {{0, 1, 0}, {1, 0, 1}};
  const auto transport = make(100, options);
  EXPECT_EQ(nccl_->channels(),
            (std::map<std::string, int>{
                {"data", 8}, {"data 0 to 1 lane 0", 4}, {"data 1 to 0 lane 1", 4}}));
  EXPECT_EQ(nccl_->peers_of("data"), 0) << "messages go by their lanes";
  EXPECT_EQ(nccl_->peers_of("data 0 to 1 lane 0"), 1);
}

TEST_F(NcclFaultsTest, WorkLongerThanTheLimitIsNoWaitForOthers) {
  begin();
  auto transport = make(5);
  std::byte* const data = allocate(400);
  // Compute comes to the operation late, on all ranks.
  runtime_->launch(device_->queue(Lane::Compute).native, [] { std::this_thread::sleep_for(6s); });
  device_->launched(Lane::Compute, "a long kernel");
  const Ticket ticket = transport->broadcast(data, 400, 0);
  EXPECT_EQ(failure_of(*transport, ticket), "");
}

// Until it is so, or it should have been.
template <typename Condition>
bool becomes(Condition condition, std::chrono::milliseconds within) {
  const auto end = std::chrono::steady_clock::now() + within;
  while (!condition() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(1ms);
  return condition();
}

// Where the runtime leaves out that the lane waits for Compute, what is sent is not what Compute
// was to write.
TEST_F(NcclFaultsTest, OperationsForkFromCompute) {
  for (const bool fault : {false, true}) {
    begin({}, true, fault ? device::CudaFault::DroppedFork : device::CudaFault::None);
    auto transport = make();
    std::byte* const data = allocate(400);
    std::atomic<bool> writes = false;
    runtime_->launch(device_->queue(Lane::Compute).native, [&] {
      while (!writes) std::this_thread::sleep_for(1ms);
    });
    device_->launched(Lane::Compute, "a kernel that writes what is sent");
    const Ticket ticket = transport->broadcast(data, 400, 0);
    const bool early = becomes([&] { return transport->done(ticket); }, fault ? 20000ms : 300ms);
    EXPECT_EQ(early, fault);
    writes = true;
    EXPECT_EQ(failure_of(*transport, ticket), "");
    transport.reset();
    thread_.reset();
    device_.reset();
  }
}

// Where it leaves out that Compute waits for the lane, Compute reads what is not there yet.
TEST_F(NcclFaultsTest, OperationsJoinComputeAtTheirWait) {
  for (const bool fault : {false, true}) {
    begin({}, true, fault ? device::CudaFault::DroppedJoin : device::CudaFault::None);
    auto transport = make();
    std::byte* const data = allocate(400);
    std::atomic<bool> reads = false;
    if (session_.rank() == 0) {
      transport->wait(transport->broadcast(data, 400, 1));
      runtime_->launch(device_->queue(Lane::Compute).native, [&] { reads = true; });
      device_->launched(Lane::Compute, "a kernel that reads what is received");
      EXPECT_EQ(becomes([&] { return reads.load(); }, fault ? 20000ms : 300ms), fault);
    }
    session_.barrier();
    if (session_.rank() == 1) transport->wait(transport->broadcast(data, 400, 1));
    transport.reset();
    device_->wait(device_->mark(Lane::Compute));
    EXPECT_EQ(reads, session_.rank() == 0);
    thread_.reset();
    device_.reset();
  }
}

// NCCL hangs, or mixes them up: the fake sees that calls do not meet.
TEST_F(NcclFaultsTest, CallsInAnotherOrderOnAnotherRankAreFound) {
  begin();
  auto transport = make();
  std::byte* const one = allocate(400 * session_.size());
  std::byte* const other = allocate(400);
  Ticket last;
  if (session_.rank() == 0) {
    transport->broadcast(other, 400, 1);
    last = transport->all_gather(one, 100 * session_.size(), 4);
  } else {
    transport->all_gather(one, 100 * session_.size(), 4);
    last = transport->broadcast(other, 400, 1);
  }
  static_cast<void>(failure_of(*transport, last));
  session_.barrier();
  const auto violations = nccl_->violations();
  const auto found = session_.all_reduce_max(
      std::vector<std::int64_t>{static_cast<std::int64_t>(violations.size())})[0];
  EXPECT_GT(found, 0);
  for (const std::string& each : violations) expect_words(each, {"another order"});
  leave(std::move(transport));
}

TEST_F(NcclFaultsTest, RanksOnOneDeviceAreRefusedByName) {
  begin({}, false);
  try {
    make();
    ADD_FAILURE() << "two ranks on one device";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.key(), "grid.transport");
    expect_words(error.what(), {"ranks 0 and 1 share the device at 0000:3B:00.0", "\"mpi\""});
  }
}

// All members split off every lane, in one order; each end has its own.
TEST_F(NcclFaultsTest, LanesAreSplitOffInOneOrder) {
  begin();
  TransportOptions options;
  options.lanes = 2;
  options.message_lanes = {{0, 1, 0}, {1, 0, 1}};
  const auto transport = make(100, options);
  const std::vector<std::string> names = {"data", "data 0 to 1 lane 0", "data 1 to 0 lane 1"};
  EXPECT_EQ(nccl_->names(), names);
  EXPECT_EQ(nccl_->calls()["ncclCommSplit"], 2);
  EXPECT_THROW(
      (void)transport->send(allocate(4), 4, 1 - session_.rank(), session_.rank() == 0 ? 1 : 0),
      InternalError)
      << "there is no such lane";
  EXPECT_TRUE(nccl_->violations().empty());
}

// A communicator of one rank, as on one GPU: what it sends to itself in a group arrives.
TEST_F(NcclFaultsTest, ACommunicatorOfOneRankSendsToItself) {
  begin();
  const NcclCalls calls(*runtime_, *nccl_, 0, 5);
  NcclId id;
  calls.nccl(nccl_->make_id(id), "ncclGetUniqueId", "loop", nullptr);
  NcclLane lane(calls, "loop", 8);
  lane.start(id, 1, 0);
  std::byte* const from = allocate(4000);
  std::byte* const to = allocate(4000);
  const auto queue = device_->queue(Lane::Compute);
  runtime_->launch(queue.native, [&] {
    std::this_thread::sleep_for(5ms);
    for (int byte = 0; byte < 4000; ++byte) {
      runtime_->device_side(from)[byte] = static_cast<std::byte>(byte % 251);
    }
  });
  device::CudaEvent ready = nullptr;
  calls.cuda(runtime_->create_event(ready, false), "cudaEventCreate", "loop");
  calls.cuda(runtime_->record_event(ready, static_cast<device::CudaStream>(queue.native)),
             "cudaEventRecord", "loop");
  lane.begin(ready, "loop");
  lane.grouped([&] {
    lane.send(from, 4000, 0);
    lane.receive(to, 4000, 0);
  });
  lane.end(1);
  calls.wait(
      [&] {
        lane.look(std::chrono::steady_clock::now());
        return lane.idle();
      },
      "loop");
  EXPECT_FALSE(lane.trouble(std::chrono::steady_clock::now()));
  bool equal = true;
  for (int byte = 0; byte < 4000; ++byte) {
    equal = equal && runtime_->device_side(to)[byte] == static_cast<std::byte>(byte % 251);
  }
  EXPECT_TRUE(equal);
  lane.finish();
  calls.cuda(runtime_->destroy_event(ready), "cudaEventDestroy", "loop");
  EXPECT_EQ(nccl_->live_communicators(), 0);
}

}  // namespace
}  // namespace garonne::dist
