// A CUDA runtime without a GPU, for tests: a real thread for each stream, late by a seeded plan;
// device memory that the host cannot touch; and an eye on what the real one would not forgive.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "device/cuda_runtime.hpp"

namespace garonne::device {

// What several calls answer, by the runtime's numbers.
inline constexpr CudaStatus invalid_value{1};
inline constexpr CudaStatus invalid_handle{400};

// What the fake does as if its caller had not asked for it, or had asked for something else: the
// mistakes that tests are to find.
enum class CudaFault {
  None,
  DroppedFork,      // a wait of a stream other than the first one for an event is not made
  DroppedJoin,      // nor one of the first stream, which is Compute's
  DroppedValue,     // nor one for a thread of the host
  DroppedRecord,    // an event is not recorded
  EarlyEvent,       // an event is done when it is asked about
  EarlyStream,      // so is a stream
  DefaultStream,    // work goes to the default stream
  DestroyedEvent,   // an event is destroyed when it was recorded
  DestroyedStream,  // a stream is destroyed when it was given work
  LeakedEvent,      // nothing is destroyed or freed
  LeakedStream,
  LeakedMemory,
  PageableCopy,  // a copy's host memory is not pinned
  OtherThread,   // a thread makes calls without having said for which device
  LeakedGraph,
  DestroyedGraph,   // a graph is destroyed when it was made ready
  DroppedLaunch,    // a graph is not carried out
  EarlyCapture,     // what is recorded is carried out at once, and not with the graph
  CopyAtCapture,    // a copy from the host has the bytes that were there when it was recorded
  AskingInCapture,  // while work is recorded, an event is asked how far it is
  AllocatingInCapture,
};

struct FakeCudaSettings {
  // Streams are late by lateness.hpp's plan, as the emulated device's lanes are; none: never.
  std::optional<std::uint64_t> delay_seed = std::nullopt;
  double longest_delay_seconds = 0.0003;
  // What is held back until somebody asks for it is held no longer: nobody here may ever ask for
  // what another process waits for.
  double longest_hold_seconds = 3600;
  std::string bus_id = "0000:3B:00.0";
  bool wait_values = true;  // streams can wait for pinned words
  std::int64_t memory_bytes = std::int64_t{64} << 20;
  // For kernels that are the host's: it may touch what is the device's.
  bool host_reaches_device = false;
  CudaFault fault = CudaFault::None;
  // Which call the fault is in: the first that it can be in is 0. None: in all.
  std::optional<int> fault_at = std::nullopt;
};

// What was made and not given back.
struct FakeCudaCounts {
  int streams = 0;
  int events = 0;
  int device_blocks = 0;
  int pinned_blocks = 0;
  int graphs = 0;

  friend bool operator==(const FakeCudaCounts&, const FakeCudaCounts&) = default;
};

class FakeCudaRuntime final : public CudaRuntime {
 public:
  explicit FakeCudaRuntime(const FakeCudaSettings& settings = {});
  ~FakeCudaRuntime() override;

  // A kernel: carried out in the stream's order. It reaches device memory through device_side.
  // `meets_others`: it waits for kernels of other processes, so that a graph carries it out beside
  // all that need not come before or after it.
  void launch(void* stream, std::function<void()> kernel, bool meets_others = false);
  // Whether what is put on the stream becomes part of a graph.
  bool records(void* stream);
  // Where the device, that is a kernel, finds what is at the address; null for what is not a
  // device's or was freed.
  std::byte* device_side(const void* address);

  // The call of this name fails, the `number`-th (from 0) from now on. With `unseen`, it does
  // nothing but says that it succeeded: as if the caller had not looked. 999 is nobody's status.
  void fail(const std::string& call, int number, bool unseen = false,
            CudaStatus status = CudaStatus{999});
  // Where the host reaches device memory: whether it does from now on, until which it is ended
  // where it tries. Copies go on. What it was before.
  bool let_host_reach(bool reaches);
  // Of those, how many have not come about.
  int failures_left() const;
  // The next kernel fails, and with it everything from then on.
  void fail_next_kernel();

  // What was done that the real runtime does not forgive, without repetitions.
  std::vector<std::string> violations() const;
  FakeCudaCounts live() const;
  std::map<std::string, int> calls() const;
  int kernels() const;
  // Of live blocks.
  std::int64_t pinned_bytes() const;
  // Those that were carried out, once for each time.
  int kernels_run() const;
  // Of the streams in the order in which they were made.
  std::vector<int> stream_priorities() const;
  // By pinned block: the NUMA node that memory of its maker came from, where that was said.
  std::vector<std::optional<int>> pinned_nodes() const;
  // Where the fault could have been, and was if it is in one call.
  int fault_places() const;

  CudaStatus device_count(int& count) override;
  CudaStatus properties(int ordinal, CudaProperties& properties) override;
  CudaStatus compute_mode(int ordinal, ComputeMode& mode) override;
  CudaStatus bus_id(int ordinal, std::string& id) override;
  CudaStatus driver_version(int& version) override;
  CudaStatus runtime_version(int& version) override;
  CudaStatus set_device(int ordinal) override;
  CudaStatus memory_info(std::size_t& free, std::size_t& total) override;
  CudaStatus allocate(void*& memory, std::size_t bytes) override;
  CudaStatus free(void* memory) override;
  CudaStatus allocate_pinned(void*& memory, std::size_t bytes) override;
  CudaStatus free_pinned(void* memory) override;
  CudaStatus priorities(int& lowest, int& highest) override;
  CudaStatus create_stream(CudaStream& stream, int priority) override;
  CudaStatus destroy_stream(CudaStream stream) override;
  CudaStatus query_stream(CudaStream stream) override;
  CudaStatus wait_event(CudaStream stream, CudaEvent event) override;
  CudaStatus wait_value(CudaStream stream, std::uint32_t* pinned, std::uint32_t value) override;
  CudaStatus create_event(CudaEvent& event, bool timed) override;
  CudaStatus destroy_event(CudaEvent event) override;
  CudaStatus record_event(CudaEvent event, CudaStream stream) override;
  CudaStatus query_event(CudaEvent event) override;
  CudaStatus elapsed(float& milliseconds, CudaEvent from, CudaEvent to) override;
  CudaStatus copy(void* to, const void* from, std::size_t bytes, CudaCopy direction,
                  CudaStream stream) override;
  CudaStatus fill(void* memory, int byte, std::size_t bytes, CudaStream stream) override;
  CudaStatus launch_host(CudaStream stream, void (*function)(void*), void* data) override;
  CudaStatus begin_capture(CudaStream stream) override;
  CudaStatus end_capture(CudaStream stream, CudaGraph& graph) override;
  CudaStatus make_ready(CudaReadyGraph& ready, CudaGraph graph) override;
  CudaStatus launch_graph(CudaReadyGraph ready, CudaStream stream) override;
  CudaStatus destroy_graph(CudaGraph graph) override;
  CudaStatus destroy_ready(CudaReadyGraph ready) override;
  CudaStatus last_error() override;
  std::string error_text(CudaStatus status) override;

 private:
  struct Operation {
    std::function<bool()> ready;  // with the lock held; may be empty
    std::function<void()> body;   // without; may be empty
    bool meets_others = false;
    bool of_pinned_words = false;  // what `ready` looks at: nobody tells of them
  };
  // What was recorded: each piece of work comes after some of those before it.
  struct Node {
    std::function<void()> body;
    std::vector<std::size_t> after;
    bool meets_others = false;
  };
  struct Graph {
    std::vector<Node> nodes;
    bool destroyed = false;
    bool ready = false;
    int under_way = 0;
    std::uint64_t launches = 0;
  };
  struct Stream {
    int number = 0;
    int priority = 0;
    std::deque<Operation> queue;
    std::uint64_t put = 0;
    std::uint64_t done = 0;
    std::uint64_t asked_for = 0;
    bool destroyed = false;
    bool ending = false;
    bool capturing = false;
    bool running = false;             // an operation, rather than waiting with it
    std::vector<std::size_t> last;    // nodes that what is recorded next comes after
    std::condition_variable changed;  // what only this stream waits for
    std::thread thread;
  };
  struct Event {
    bool timed = false;
    bool destroyed = false;
    Stream* stream = nullptr;  // null: not recorded
    std::uint64_t number = 0;
    int capture = 0;  // that it was recorded in; 0: none
    std::vector<std::size_t> last;
    std::chrono::steady_clock::time_point moment;
  };
  struct Block {
    std::byte* address = nullptr;  // as callers know it
    std::byte* side = nullptr;     // where the bytes can be reached
    std::size_t bytes = 0;
    bool pinned = false;
    bool freed = false;
  };
  struct Failure {
    int calls_left = 0;
    bool unseen = false;
    CudaStatus status{999};
  };

  // Of the calling thread.
  static bool& in_host_function();

  // All with the lock held.
  CudaStatus enter(const std::string& call, bool of_thread_device = true);
  CudaStatus keep(CudaStatus status);  // until last_error() asks for it
  bool faulty(CudaFault fault);
  void accuse(const std::string& what);
  Stream* stream_of(void* handle, const std::string& call);
  Event* event_of(CudaEvent handle, const std::string& call);
  Block* block_of(const void* address, std::size_t bytes, bool pinned, const std::string& what);
  void put(Stream& stream, Operation operation);
  void ask_for(Stream& stream, std::uint64_t number);
  void end(Stream& stream);
  bool busy() const;
  // While the calling thread records work the real runtime refuses: it is accused, and there will
  // be no graph.
  CudaStatus spoil_capture(const std::string& what, CudaStatus status);
  bool calls_capture() const;
  bool comes_after_all(const std::vector<std::size_t>& last) const;
  Graph* graph_of(void* handle, const std::string& call, bool ready);
  CudaStatus make_block(void*& memory, std::size_t bytes, bool pinned);
  // With the lock held, which it gives up while it waits for what runs.
  CudaStatus free_block(std::unique_lock<std::mutex>& lock, void* memory, bool pinned,
                        const std::string& call);

  void serve(Stream& stream);
  void carry_out(Graph& graph, std::uint64_t seed);
  // Not with the lock held.
  void move_bytes(Block* to, std::size_t to_offset, Block* from, std::size_t from_offset,
                  std::size_t bytes);

  const FakeCudaSettings settings_;
  mutable std::mutex mutex_;
  std::mutex host_function_mutex_;
  std::condition_variable done_;                  // of any stream
  std::vector<std::unique_ptr<Stream>> streams_;  // destroyed ones too: they are known as such
  std::vector<std::unique_ptr<Event>> events_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<std::unique_ptr<Graph>> graphs_;
  std::unique_ptr<Graph> capture_;  // under way
  Stream* capture_origin_ = nullptr;
  std::thread::id capture_thread_;
  bool capture_spoiled_ = false;
  int captures_ = 0;
  std::vector<std::vector<std::byte>> pageable_;
  std::set<std::thread::id> threads_with_device_;
  std::map<std::thread::id, CudaStatus> last_errors_;
  std::map<std::string, int> calls_;
  std::map<std::string, Failure> failures_;
  bool host_reaches_ = true;
  bool unseen_ = false;
  bool failed_ = false;  // for good
  bool kernel_fails_ = false;
  int kernels_ = 0;
  int kernels_run_ = 0;
  int fault_places_ = 0;
  std::vector<std::optional<int>> pinned_nodes_;
  std::vector<std::string> violations_;
};

}  // namespace garonne::device
