// The transport over NCCL, between buffers of CUDA devices. Pieces travel by NCCL; the sums are our
// own, since NCCL adds in an order that depends on its algorithm. For the room's own use.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "base/error.hpp"
#include "dist/device_sum.hpp"
#include "dist/nccl_lane.hpp"
#include "dist/reduction.hpp"
#include "dist/sum_order.hpp"
#include "dist/transport.hpp"

namespace garonne::dist {

// What tests have of their own.
struct NcclParts {
  std::shared_ptr<NcclLibrary> library;
  DeviceSum sum;
  // By member: which node it is on. Empty: as MPI says.
  std::vector<int> nodes = {};
  // What the watching thread leaves the thread that submits to find a failure, before it ends all
  // ranks itself: that one may be held inside a call.
  double grace_seconds = 5;
  // What aborting communicators may take. After it, all ranks are ended with the failure of NCCL
  // that is on its way; without one the communicators are left as they are.
  double abort_seconds = 5;
  // Of a connection between two members, lanes apart; 0: as many as nccl_channels() says.
  int channels = 0;

  // NotBuiltError in builds without NCCL.
  static NcclParts built_in();
};

// A thread of it watches what is under way: what failed, and what other members are waited for
// longer than the limit, is thrown by the next call of a member, and ends all ranks where none
// comes; so is that a rank does not answer, where the session watches waits. Left by an exception,
// also of its own making, it aborts its communicators.
class NcclTransport final : public Transport {
 public:
  // Collective over the group, of any size. One operation of every kind runs on each communicator,
  // so that what NCCL takes is taken, and no later one connects and waits for its peers meanwhile.
  NcclTransport(Session& session, CommunicationThread& thread, std::vector<int> members,
                const TransportOptions& options, NcclParts parts);
  // Collective, unless an exception is on its way: waits for what is under way.
  ~NcclTransport() override;

  std::string_view name() const override { return "nccl"; }
  bool on_device() const override { return true; }
  SumOrder sum_order() const override { return order_; }

  Ticket all_reduce_sum(void* data, std::int64_t elements, SumType type, void* staging) override;
  Ticket reduce_scatter_sum(void* data, std::int64_t elements, SumType type,
                            void* staging) override;
  Ticket all_gather(void* data, std::int64_t elements, std::int64_t element_bytes) override;
  Ticket broadcast(void* data, std::int64_t bytes, int root) override;
  Ticket send(const void* data, std::int64_t bytes, int to, int tag) override;
  Ticket receive(void* data, std::int64_t bytes, int from, int tag) override;
  void wait(Ticket ticket) override;
  bool done(Ticket ticket) override;

  bool can_be_recorded() const override { return true; }
  void begin_recording() override;
  void end_recording() override;
  void drop_recording() override;
  void begin_replay(const std::string& activity, double own_seconds) override;
  void end_replay() override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Facts;
  // A graph that is under way.
  struct Replay {
    std::string activity;
    Clock::time_point since;
    double own_seconds = 0;
  };

  std::vector<Facts> exchange_facts(Transport& host, const Session& session) const;
  void expect_own_devices(const std::vector<Facts>& facts) const;
  void make_lanes(Transport& host, const TransportOptions& options);
  void connect();
  void wait_until_idle(const std::string& activity);

  void for_each_lane(const std::function<void(NcclLane&)>& work) const;
  NcclLane& lane_of(int from, int to, int tag) const;
  std::string who(int member) const;
  void check_peer(int peer, int tag) const;
  Ticket put(NcclLane& lane, const std::string& what, const std::function<void()>& calls);
  struct Sum;
  void launch_sum(void* result, const DeviceTerms& terms, std::int64_t elements, SumType type);
  void convert(void* result, const void* term, std::int64_t elements, ScalarType to);
  void narrow_contributions(const Sum& sum);
  void reduce_pieces(const Sum& sum);
  void gather_narrow(const Sum& sum);
  void gather_pieces(std::byte* data, std::int64_t elements, std::int64_t element_bytes);
  NcclLane* lane_with(Ticket ticket) const;

  void watch();
  void look();
  std::optional<Clock::time_point> waits_since(Clock::time_point now,
                                               std::optional<Clock::time_point> before);
  void end_with(const CommunicationError& error);
  void stop_watching();
  void look_at_lanes(Clock::time_point now);
  void fail(const CommunicationError& trouble, Clock::time_point now);
  void rethrow_failure() const;
  // `failure`: of NCCL, or empty where something else is on its way.
  void leave(ExitCode code, const std::string& failure);

  Session& session_;
  const NcclParts parts_;
  const NcclCalls calls_;
  const std::string group_;
  const device::CudaStream compute_;
  const int exceptions_at_start_;
  SumOrder order_;
  std::vector<ReductionStep> reduction_;
  int lanes_ = 1;
  std::size_t lanes_made_ = 0;  // of all members
  device::CudaEvent ready_ = nullptr;
  std::unique_ptr<NcclLane> collectives_;
  std::map<std::tuple<int, int, int>, std::unique_ptr<NcclLane>> messages_;  // from, to, number
  std::uint64_t last_number_ = 0;

  mutable std::mutex mutex_;  // of the lanes and what follows
  // What is put becomes part of a graph: its events are asked about by nobody.
  bool recording_ = false;
  std::optional<Replay> replay_;
  std::exception_ptr failure_;
  std::string failure_text_;
  Clock::time_point failed_;
  std::atomic<Clock::rep> held_since_{0};  // 0: no call holds the lanes

  std::mutex watch_mutex_;
  std::condition_variable ending_;
  bool ends_ = false;
  std::thread watch_;  // last: it uses all the others
};

}  // namespace garonne::dist
