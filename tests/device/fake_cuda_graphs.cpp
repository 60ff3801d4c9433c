// Captures and graphs of the fake runtime.
#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "fake_cuda_runtime.hpp"

namespace garonne::device {
namespace {

constexpr CudaStatus illegal_state{401};
constexpr CudaStatus refused{900};      // StreamCaptureUnsupported
constexpr CudaStatus invalidated{901};  // StreamCaptureInvalidated
constexpr CudaStatus unjoined{904};     // StreamCaptureUnjoined
constexpr CudaStatus wrong_thread{908};

}  // namespace

bool FakeCudaRuntime::calls_capture() const {
  return capture_ != nullptr && capture_thread_ == std::this_thread::get_id();
}

CudaStatus FakeCudaRuntime::spoil_capture(const std::string& what, CudaStatus status) {
  accuse(what + " while work is recorded");
  capture_spoiled_ = true;
  return keep(status);
}

// Whether all that was recorded comes before one of `last`.
bool FakeCudaRuntime::comes_after_all(const std::vector<std::size_t>& last) const {
  std::vector<bool> before(capture_->nodes.size(), false);
  for (const std::size_t node : last) before[node] = true;
  for (std::size_t node = capture_->nodes.size(); node-- > 0;) {
    if (!before[node]) continue;
    for (const std::size_t earlier : capture_->nodes[node].after) before[earlier] = true;
  }
  return std::ranges::all_of(before, [](bool is) { return is; });
}

FakeCudaRuntime::Graph* FakeCudaRuntime::graph_of(void* handle, const std::string& call,
                                                  bool ready) {
  for (const auto& graph : graphs_) {
    if (static_cast<void*>(graph.get()) != handle) continue;
    if (graph->ready == ready && !graph->destroyed) return graph.get();
    accuse(call + (graph->destroyed ? " of a destroyed graph" : " of another kind of graph"));
    return nullptr;
  }
  accuse(call + " of what is no graph");
  return nullptr;
}

CudaStatus FakeCudaRuntime::begin_capture(CudaStream handle) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus said = enter("cudaStreamBeginCapture"); said != CudaStatus::Success)
    return unseen_ ? CudaStatus::Success : said;
  Stream* const stream = stream_of(handle, "cudaStreamBeginCapture");
  if (stream == nullptr) return keep(invalid_handle);
  if (capture_) {
    accuse("a second capture");
    return keep(illegal_state);
  }
  capture_ = std::make_unique<Graph>();
  capture_origin_ = stream;
  capture_thread_ = std::this_thread::get_id();
  capture_spoiled_ = false;
  ++captures_;
  stream->capturing = true;
  stream->last.clear();
  return CudaStatus::Success;
}

CudaStatus FakeCudaRuntime::end_capture(CudaStream handle, CudaGraph& graph) {
  const std::lock_guard lock(mutex_);
  const CudaStatus said = enter("cudaStreamEndCapture");
  Stream* const stream = stream_of(handle, "cudaStreamEndCapture");
  if (stream == nullptr) return keep(invalid_handle);
  if (!capture_ || stream != capture_origin_) return keep(illegal_state);
  CudaStatus status = said;
  if (!calls_capture()) {
    accuse("a capture ends on another thread");
    status = wrong_thread;
  } else if (capture_spoiled_) {
    status = invalidated;
  } else if (!comes_after_all(stream->last)) {
    status = unjoined;  // as it is where a capture is given up
  }
  for (const auto& each : streams_) each->capturing = false;
  std::unique_ptr<Graph> made = std::move(capture_);
  capture_origin_ = nullptr;
  if (keep(status) != CudaStatus::Success) return unseen_ ? CudaStatus::Success : status;
  graph = reinterpret_cast<CudaGraph>(made.get());
  graphs_.push_back(std::move(made));
  return CudaStatus::Success;
}

CudaStatus FakeCudaRuntime::make_ready(CudaReadyGraph& ready, CudaGraph handle) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus said = enter("cudaGraphInstantiate"); said != CudaStatus::Success)
    return unseen_ ? CudaStatus::Success : said;
  const Graph* const graph = graph_of(handle, "cudaGraphInstantiate", false);
  if (graph == nullptr) return keep(invalid_handle);
  auto made = std::make_unique<Graph>();
  made->nodes = graph->nodes;
  made->ready = true;
  made->destroyed = faulty(CudaFault::DestroyedGraph);
  ready = reinterpret_cast<CudaReadyGraph>(made.get());
  graphs_.push_back(std::move(made));
  return CudaStatus::Success;
}

CudaStatus FakeCudaRuntime::launch_graph(CudaReadyGraph handle, CudaStream on) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus said = enter("cudaGraphLaunch"); said != CudaStatus::Success)
    return unseen_ ? CudaStatus::Success : said;
  Stream* const stream = stream_of(on, "cudaGraphLaunch");
  Graph* const graph = graph_of(handle, "cudaGraphLaunch", true);
  if (stream == nullptr || graph == nullptr) return keep(invalid_handle);
  if (stream->capturing) return spoil_capture("cudaGraphLaunch", refused);
  if (faulty(CudaFault::DroppedLaunch)) return CudaStatus::Success;
  ++graph->under_way;
  const std::uint64_t seed = settings_.delay_seed.value_or(0) * 1000 + ++graph->launches;
  put(*stream, {nullptr, [this, graph, seed] { carry_out(*graph, seed); }});
  return CudaStatus::Success;
}

// In one of the orders that what was recorded allows: the recorded one where nothing is late.
void FakeCudaRuntime::carry_out(Graph& graph, std::uint64_t seed) {
  std::vector<std::size_t> waits_for(graph.nodes.size(), 0);
  std::vector<std::vector<std::size_t>> later(graph.nodes.size());
  std::vector<std::size_t> can_run;
  for (std::size_t node = 0; node < graph.nodes.size(); ++node) {
    std::vector<std::size_t> after = graph.nodes[node].after;
    std::ranges::sort(after);
    after.erase(std::unique(after.begin(), after.end()), after.end());
    waits_for[node] = after.size();
    for (const std::size_t earlier : after) later[earlier].push_back(node);
    if (after.empty()) can_run.push_back(node);
  }
  const auto body = [&](std::size_t node) {
    bool failed = false;
    {
      const std::lock_guard lock(mutex_);
      failed = failed_;
    }
    if (!failed && graph.nodes[node].body) graph.nodes[node].body();
  };
  const auto end = [&](std::size_t node) {
    for (const std::size_t next : later[node]) {
      if (--waits_for[next] == 0) can_run.insert(std::ranges::lower_bound(can_run, next), next);
    }
  };
  // What waits for other processes holds up nothing else.
  std::mutex ended_mutex;
  std::condition_variable changed;
  std::vector<std::size_t> ended;
  std::vector<std::thread> beside;
  std::size_t to_come = graph.nodes.size();
  std::mt19937_64 random(seed);
  while (to_come > 0) {
    {
      std::unique_lock lock(ended_mutex);
      if (can_run.empty()) changed.wait(lock, [&] { return !ended.empty(); });
      for (const std::size_t node : std::exchange(ended, {})) {
        end(node);
        --to_come;
      }
    }
    if (can_run.empty()) continue;
    const bool late = settings_.delay_seed.has_value();
    const std::size_t place = late ? random() % can_run.size() : 0;
    const std::size_t node = can_run[place];
    can_run.erase(can_run.begin() + static_cast<std::ptrdiff_t>(place));
    if (graph.nodes[node].meets_others) {
      beside.emplace_back([&, node] {
        body(node);
        const std::lock_guard lock(ended_mutex);
        ended.push_back(node);
        changed.notify_all();
      });
      continue;
    }
    body(node);
    end(node);
    --to_come;
  }
  for (std::thread& each : beside) each.join();
  const std::lock_guard lock(mutex_);
  --graph.under_way;
}

CudaStatus FakeCudaRuntime::destroy_graph(CudaGraph handle) {
  const std::lock_guard lock(mutex_);
  const CudaStatus said = enter("cudaGraphDestroy");
  Graph* const graph = graph_of(handle, "cudaGraphDestroy", false);
  if (graph == nullptr) return keep(invalid_handle);
  graph->destroyed = true;
  graph->nodes.clear();  // with what kernels of it refer to
  return unseen_ ? CudaStatus::Success : said;
}

CudaStatus FakeCudaRuntime::destroy_ready(CudaReadyGraph handle) {
  const std::lock_guard lock(mutex_);
  const CudaStatus said = enter("cudaGraphExecDestroy");
  Graph* const graph = graph_of(handle, "cudaGraphExecDestroy", true);
  if (graph == nullptr) return keep(invalid_handle);
  if (graph->under_way > 0 && !failed_) accuse("a graph is destroyed that is under way");
  if (!faulty(CudaFault::LeakedGraph)) graph->destroyed = true;
  if (graph->under_way == 0) graph->nodes.clear();
  return unseen_ ? CudaStatus::Success : said;
}

}  // namespace garonne::device
