// A GPU: Compute and copies are streams of it, marks on them are events; what the host does beside
// it (disk, messages, arithmetic) are threads.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/captures.hpp"
#include "device/cuda_check.hpp"
#include "device/cuda_events.hpp"
#include "device/cuda_host_functions.hpp"
#include "device/cuda_lane.hpp"
#include "device/cuda_thread_copies.hpp"
#include "device/cuda_tier.hpp"
#include "device/threaded_device.hpp"

namespace garonne::device {

struct CudaSettings {
  int ordinal = 0;  // among the visible devices: device/rank_device.hpp
  // The host waits for each piece of work on a stream before the next one is put, so that an error
  // is told with its own activity: asked_for_synchronous(std::getenv("GARONNE_SYNCHRONOUS")).
  bool synchronous = false;
  // Message and Collective are streams too, for transports that put kernels there (NCCL), and not
  // threads, for those that call (MPI).
  bool communication_streams = false;
  // Blocks of device memory are filled with NaN, in the order of Compute, when they are handed out
  // and when they are given back, as on the emulated device. For tests.
  bool spoil_blocks = false;
  // Pinned memory lies on this NUMA node of the host while there is room: the device's.
  std::optional<int> numa_node = std::nullopt;
  double longest_wait_seconds = std::numeric_limits<double>::infinity();
  // What streams may take to come to an end with the device. What takes longer is left as it is,
  // with all the device's handles and memory.
  double longest_end_seconds = 60;
};

// The value of GARONNE_SYNCHRONOUS: not set, empty and "0" are false, "1" is true; ConfigError for
// others.
bool asked_for_synchronous(const char* value);

// As device.hpp says, and:
// - A failure of the device itself ends it as what work throws does, as a LaneError with the call
//   of the runtime. It is found by the next call, which may be for later work.
// - A stream follows a thread by a word of pinned memory that the thread counts up, where the
//   device can wait for one; else the thread that puts the work is held until the other is there.
// - `run` on a stream is carried out by a thread of the driver, of which there is one: such work
//   waits for nothing and makes no calls of CUDA. Work that waits belongs on lanes with threads.
// - Kernels are put into queue(Compute), and into those of Message and Collective where they are
//   streams. Timed marks have seconds between them where both are on streams or both on threads.
// - Work that a stream was given before a failure may still be carried out.
class CudaDevice final : public ThreadedDevice, public Captures {
 public:
  // Of the calling thread, which from then on puts the work, this is the device. LaneError where
  // the runtime refuses anything. The runtime outlives the device.
  CudaDevice(CudaRuntime& runtime, const CudaSettings& settings);
  ~CudaDevice() override;

  DeviceKind kind() const override { return DeviceKind::Cuda; }
  MemoryFacts memory() const override;
  // A host's queue on lanes that are threads. InternalError for copies' streams, which take no
  // kernels.
  Queue queue(Lane lane) const override;
  Mark mark(Lane lane) override;
  void order(Lane later, Mark earlier) override;
  // Polls: it never waits inside the runtime.
  void wait(Mark mark) override;
  bool done(Mark mark) override;
  Mark timed_mark(Lane lane) override;
  double seconds(Mark from, Mark to) const override;
  void forget_times() override;
  void end() noexcept override;
  ThreadCopies& thread_copies(Lane lane) override;

  // Where a kernel fails later, it is told by this name.
  Mark launched(Lane lane, const std::string& activity) override;

  void begin_capture(const std::string& activity) override;
  int end_capture(const std::string& activity) override;
  void drop_capture() noexcept override;
  Mark launch(int graph, const std::string& activity) override;
  void drop(int graph) noexcept override;
  void put_kernels(const std::function<void()>& kernels) override { kernels(); }

  // Allocates a tier, Device or Host, once. It stops the device, and memory lasts as long as the
  // device: at start, when all is there that takes memory otherwise. Copies between the tiers are
  // from and to its host tier only, which is pinned. A sixteenth of the limit comes on top for
  // holes between blocks, and `exact_bytes` for one block that is made first. LaneError where the
  // runtime refuses.
  TierMemory& reserve(Tier tier, std::int64_t limit_bytes, std::int64_t exact_bytes = 0);
  // A reserved tier, for who gives back blocks when the device is over: its addresses are then
  // nobody's. InternalError for others.
  std::shared_ptr<TierMemory> reserved(Tier tier) const;
  // Gives a tier without blocks back, after which it can be reserved anew. It stops the device.
  void release(Tier tier);
  // From the beginning of a reserved tier to the end of the last block there ever was.
  std::int64_t reach_bytes(Tier tier) const;

  // Why pinned memory is not on its node though there is one; empty where it is. After a reserve.
  const std::string& numa_refusal() const { return numa_refusal_; }

  // Whether streams wait for threads by themselves.
  bool streams_follow_threads() const { return words_ != nullptr; }

  // Ends the device: what is under way comes to its end, the rest is dropped. LaneError where the
  // runtime refused to give something back, which a destructor cannot say.
  void close();

 private:
  struct Unstarted {};
  CudaDevice(CudaRuntime& runtime, const CudaSettings& settings, Unstarted);
  void start();

  Mark put_copy(Lane lane, Span to, Span from, std::string activity,
                std::span<const Mark> after) override;
  Mark put_run(Lane lane, std::function<void()> work, std::string activity,
               std::span<const Mark> after) override;
  Mark run_on_thread(Lane lane, std::function<void()> work, std::string activity,
                     std::span<const Mark> after);

  CudaLane* stream_of(Lane lane) const;
  // What is put on the stream next starts after Compute and the marks.
  void fork(Lane lane, std::span<const Mark> after, const std::string& activity);
  void follow(Lane stream, Mark earlier, const std::string& activity);
  // The mark of what was put on the stream last.
  Mark record(Lane lane, const std::string& activity, bool timed = false);
  Mark end_of_work(Lane lane, const std::string& activity);
  // Until a stream has reached the mark or the device is over.
  void hold(Mark mark);
  // On a lane's thread: false where the device was over before.
  bool follow_event(const CudaEvents::Owned& event, Lane lane, const std::string& activity);
  void tell_streams(Mark reached);
  void spoil(Span block);

  void expect_no_capture(std::string_view what) const;
  void leave_capture();
  void destroy_graphs() noexcept;
  void destroy_graph(CudaReadyGraph ready) noexcept;

  void shut_down();
  // Those of threads too, which have ended.
  std::vector<CudaLane*> all_streams();
  bool wait_for_streams();
  void abandon();

  CudaRuntime& runtime_;
  const CudaSettings settings_;
  CudaCheck check_;
  std::unique_ptr<CudaEvents> plain_events_;
  std::unique_ptr<CudaEvents> timed_events_;
  std::unique_ptr<CudaHostFunctions> functions_;
  int lowest_priority_ = 0;
  std::array<std::unique_ptr<CudaLane>, lane_count> streams_;
  std::array<std::unique_ptr<CudaThreadCopies>, lane_count> thread_copies_;
  std::uint32_t* words_ = nullptr;  // pinned, one a lane: what its thread has reached
  std::unique_ptr<CudaTier> device_tier_;
  std::unique_ptr<CudaTier> host_tier_;
  bool capturing_ = false;
  int last_graph_ = 0;
  std::map<int, CudaReadyGraph> graphs_;
  std::string numa_refusal_;
  bool ended_ = false;
  std::vector<std::string> end_failures_;
};

}  // namespace garonne::device
