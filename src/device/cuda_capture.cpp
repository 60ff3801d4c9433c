// How the GPU's device records work in place of carrying it out.
#include <fmt/format.h>

#include "base/error.hpp"
#include "device/cuda_device.hpp"

namespace garonne::device {

void CudaDevice::expect_no_capture(std::string_view what) const {
  expect(!capturing_, fmt::format("{} while work is recorded", what));
}

void CudaDevice::begin_capture(const std::string& activity) {
  expect_no_capture("a second capture");
  expect(!settings_.synchronous, "a capture where the host waits for each piece of work");
  // Also of streams that no mark is on: afterwards nothing is asked about.
  for (std::size_t lane = 0; lane < streams_.size(); ++lane) {
    const auto each = static_cast<Lane>(lane);
    wait(streams_[lane] ? record(each, activity) : ThreadedDevice::mark(each));
  }
  check_(runtime_.begin_capture(stream_of(Lane::Compute)->stream()), "cudaStreamBeginCapture",
         Lane::Compute, activity);
  capturing_ = true;
  check_.tell_only(true);
  for (const auto& stream : streams_) {
    if (stream) stream->begin_capture();
  }
}

int CudaDevice::end_capture(const std::string& activity) {
  expect(capturing_, "the end of a capture that did not begin");
  for (std::size_t lane = 0; lane < streams_.size(); ++lane) {
    const Mark last = ThreadedDevice::mark(static_cast<Lane>(lane));
    if (streams_[lane] && streams_[lane]->has_pending()) follow(Lane::Compute, last, activity);
  }
  CudaGraph graph = nullptr;
  check_(runtime_.end_capture(stream_of(Lane::Compute)->stream(), graph), "cudaStreamEndCapture",
         Lane::Compute, activity);
  leave_capture();
  CudaReadyGraph ready = nullptr;
  const CudaStatus made = runtime_.make_ready(ready, graph);
  const CudaStatus dropped = runtime_.destroy_graph(graph);
  // Nothing of it was put anywhere, so the device is as it was. The runtime keeps what a call said
  // until it is asked, and the next kernel of a plain step would be blamed for it.
  if (made != CudaStatus::Success || dropped != CudaStatus::Success)
    static_cast<void>(runtime_.last_error());
  if (made != CudaStatus::Success)
    check_.throw_only(made, "cudaGraphInstantiate", Lane::Compute, activity);
  graphs_.emplace(++last_graph_, ready);
  if (dropped != CudaStatus::Success)
    check_.throw_only(dropped, "cudaGraphDestroy", Lane::Compute, activity);
  return last_graph_;
}

void CudaDevice::drop_capture() noexcept {
  if (!capturing_) return;
  CudaGraph graph = nullptr;
  // What it says is known: something was refused.
  if (runtime_.end_capture(stream_of(Lane::Compute)->stream(), graph) == CudaStatus::Success)
    static_cast<void>(runtime_.destroy_graph(graph));
  static_cast<void>(runtime_.last_error());
  leave_capture();
}

void CudaDevice::leave_capture() {
  capturing_ = false;
  check_.tell_only(false);
  for (std::size_t lane = 0; lane < streams_.size(); ++lane) {
    if (streams_[lane])
      streams_[lane]->leave_capture(ThreadedDevice::mark(static_cast<Lane>(lane)).number);
  }
}

Mark CudaDevice::launch(int graph, const std::string& activity) {
  expect_no_capture("a graph that is put");
  const auto found = graphs_.find(graph);
  expect(found != graphs_.end(), fmt::format("no graph {}", graph));
  clock().reached({});  // throws what failed
  check_(runtime_.launch_graph(found->second, stream_of(Lane::Compute)->stream()),
         "cudaGraphLaunch", Lane::Compute, activity);
  return end_of_work(Lane::Compute, activity);
}

void CudaDevice::drop(int graph) noexcept {
  const auto found = graphs_.find(graph);
  if (found == graphs_.end()) return;
  destroy_graph(found->second);
  graphs_.erase(found);
}

void CudaDevice::destroy_graph(CudaReadyGraph ready) noexcept {
  const CudaStatus status = runtime_.destroy_ready(ready);
  if (status == CudaStatus::Success) return;
  end_failures_.push_back(fmt::format("cudaGraphExecDestroy: {}", runtime_.error_text(status)));
}

void CudaDevice::destroy_graphs() noexcept {
  for (const auto& [number, ready] : graphs_) destroy_graph(ready);
  graphs_.clear();
}

}  // namespace garonne::device
