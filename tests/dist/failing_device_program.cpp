// Fails in NCCL as its argument says, on a device and an NCCL that are made up; failures.py looks
// at what comes out.
#include <mpi.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <numeric>
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

namespace garonne::dist {
namespace {

using namespace std::chrono_literals;

void work(Session& session, const std::string& mode) {
  // Ranks that look who is missing, on a rank that is stopped, whose host or whose device is late.
  const bool watched =
      mode == "stopped" || mode == "busy" || mode == "computes" || mode == "replays";
  const bool fails = mode != "finish" && mode != "throw" && !watched;
  // Nowhere is it complete, and one rank says so.
  const bool connects = mode.starts_with("connect");
  const bool last = session.rank() == session.size() - 1;
  auto made_up = std::make_unique<device::FakeCudaRuntime>(
      device::FakeCudaSettings{.bus_id = std::to_string(session.rank())});
  device::FakeCudaRuntime& runtime = *made_up;
  // Not destroyed where streams may hang, as the real one: they would hold its end up.
  if (fails || mode == "throw" || mode == "stopped") static_cast<void>(made_up.release());
  device::CudaDevice device(runtime, {.longest_end_seconds = 5});
  device::TierMemory& memory = device.reserve(Tier::Device, 1 << 20);
  const auto nccl = std::make_shared<FakeNccl>(
      runtime, MPI_COMM_WORLD,
      FakeNcclSettings{.starts = mode != "start",
                       .connects = !connects,
                       .aborts = mode != "held-abort" && mode != "connect-held-abort"});
  static constexpr auto late = 4500ms;
  if (watched) session.watch_waits(1, 100, [] { return std::string("its own work"); });
  CommunicationThread thread(session);
  std::vector<int> members(static_cast<std::size_t>(session.size()));
  std::iota(members.begin(), members.end(), 0);
  const DeviceSide side{.device = &device, .runtime = &runtime};
  NcclTransport transport(
      session, thread, members,
      {.name = "data", .limit_seconds = fails && !(connects && last) ? 5.0 : 100.0, .side = &side},
      {.library = nccl, .sum = nccl->sum(), .grace_seconds = 1, .abort_seconds = 1});
  std::byte* const data = memory.allocate(4000, "data").data;
  std::byte* const staging = memory.allocate(4000, "staging").data;
  for (int step = 0;; ++step) {
    if (step == 5 && mode == "finish") return;
    if (step == 6 && watched) return;
    if (step == 5 && last && mode == "throw") throw RefusedError("the loss is not finite");
    if (step == 5 && last && mode == "stopped") (void)std::raise(SIGSTOP);
    if (step == 5 && last && (mode == "busy" || mode == "replays"))
      std::this_thread::sleep_for(late);
    if (step == 5 && last && mode == "computes")
      runtime.launch(device.queue(Lane::Compute).native, [] { std::this_thread::sleep_for(late); });
    if (step == 5 && last && fails) {
      // Neither fails nor goes on.
      for (;;) std::this_thread::sleep_for(1s);
    }
    if (step == 5 && !last && mode == "replays") {
      transport.begin_replay("a graph", 0.1);
      std::this_thread::sleep_for(late);
      transport.end_replay();
    }
    const Ticket ticket = transport.all_reduce_sum(data, 900, ScalarType::Float32, staging);
    transport.wait(ticket);
    // A host that does not ask any more: as inside a call of the runtime.
    if (step == 5 && mode == "held") std::this_thread::sleep_for(1min);
    // As a run does, whose device waits without a limit: the watch is what ends it.
    if (step == 5 && mode == "device-waits") device.wait(device.mark(Lane::Compute));
    while (!transport.done(ticket)) std::this_thread::sleep_for(1ms);
  }
}

int run(const std::string& mode) {
  Session session = Session::start();
  session.set_coordinates("data " + std::to_string(session.rank()));
  try {
    work(session, mode);
  } catch (const Error& error) {
    session.abort(error.code(), error.what());
  }
  return 0;
}

}  // namespace
}  // namespace garonne::dist

int main(int argc, char** argv) {
  return garonne::dist::run(argc > 1 ? argv[1] : "finish");
}
