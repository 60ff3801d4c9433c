// Times all-reduces between all ranks of mpirun, alone and beside a computation. Not a test: run
//   mpirun -n 2 build/tests/transport_benchmark
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <vector>

#include "base/collective_bytes.hpp"
#include "dist/communication_thread.hpp"
#include "dist/session.hpp"
#include "dist/transport.hpp"

namespace garonne::dist {
namespace {

double now() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

// Arithmetic in registers and a first-level cache, about a millisecond a unit.
float compute(int units) {
  std::vector<float> values(4096, 1.0F);
  for (int unit = 0; unit < units; ++unit) {
    for (int sweep = 0; sweep < 300; ++sweep) {
      for (float& value : values) value = value * 0.999F + 0.001F;
    }
  }
  return std::accumulate(values.begin(), values.end(), 0.0F);
}

struct Buffers {
  Buffers(std::int64_t elements, int members)
      : data(static_cast<std::size_t>(elements), 1.0F),
        staging(static_cast<std::size_t>(all_reduce_staging_bytes(elements, 4, members) / 4)) {}
  std::vector<float> data;
  std::vector<float> staging;
};

void time_sizes(Session& session, CommunicationThread& thread, Transport& transport) {
  if (session.rank() == 0) std::printf("%10s %14s %14s\n", "KiB", "ours (us)", "MPI (us)");
  for (const std::int64_t kib : {4, 64, 1024, 4096, 16384, 65536}) {
    const std::int64_t elements = kib * 256;
    const int repeats = kib <= 1024 ? 200 : 20;
    Buffers buffers(elements, transport.size());
    std::vector<double> ours;
    std::vector<double> theirs;
    for (int repeat = 0; repeat < repeats; ++repeat) {
      std::fill(buffers.data.begin(), buffers.data.end(), 1.0F);
      session.barrier();
      const double start = now();
      transport.wait(transport.all_reduce_sum(buffers.data.data(), elements, ScalarType::Float32,
                                              buffers.staging.data()));
      ours.push_back(now() - start);
    }
    for (int repeat = 0; repeat < repeats; ++repeat) {
      session.barrier();
      thread.run([&] {
        const double start = now();
        MPI_Allreduce(MPI_IN_PLACE, buffers.data.data(), static_cast<int>(elements), MPI_FLOAT,
                      MPI_SUM, MPI_COMM_WORLD);
        theirs.push_back(now() - start);
      });
    }
    if (session.rank() == 0) {
      std::printf("%10lld %14.0f %14.0f\n", static_cast<long long>(kib), median(ours) * 1e6,
                  median(theirs) * 1e6);
    }
  }
}

void time_overlap(Session& session, Transport& transport) {
  constexpr std::int64_t elements = 1 << 20;  // 4 MiB
  constexpr int buckets = 10;
  std::vector<Buffers> all(buckets, Buffers(elements, transport.size()));
  const auto submit = [&](Buffers& buffers) {
    return transport.all_reduce_sum(buffers.data.data(), elements, ScalarType::Float32,
                                    buffers.staging.data());
  };
  std::vector<double> alone;
  std::vector<double> communication;
  std::vector<double> one_after_other;
  std::vector<double> together;
  float sink = 0;
  for (int repeat = 0; repeat < 7; ++repeat) {
    session.barrier();
    double start = now();
    for (int bucket = 0; bucket < buckets; ++bucket) sink += compute(10);
    alone.push_back(now() - start);

    session.barrier();
    start = now();
    for (Buffers& buffers : all) transport.wait(submit(buffers));
    communication.push_back(now() - start);

    session.barrier();
    start = now();
    for (Buffers& buffers : all) {
      sink += compute(10);
      transport.wait(submit(buffers));
    }
    one_after_other.push_back(now() - start);

    session.barrier();
    start = now();
    std::vector<Ticket> tickets;
    for (Buffers& buffers : all) {
      sink += compute(10);
      tickets.push_back(submit(buffers));
    }
    for (const Ticket ticket : tickets) transport.wait(ticket);
    together.push_back(now() - start);
  }
  if (session.rank() == 0) {
    std::printf(
        "10 x (computation, 4 MiB): computation %.1f ms, all-reduces %.1f ms, in turn %.1f "
        "ms, overlapped %.1f ms (%g)\n",
        median(alone) * 1e3, median(communication) * 1e3, median(one_after_other) * 1e3,
        median(together) * 1e3, static_cast<double>(sink) * 0);
  }
}

void run() {
  Session session = Session::start();
  CommunicationThread thread(session);
  std::vector<int> members(static_cast<std::size_t>(session.size()));
  std::iota(members.begin(), members.end(), 0);
  const auto transport =
      make_transport(session.size() > 1 ? "mpi" : "self", session, thread, members);
  time_sizes(session, thread, *transport);
  time_overlap(session, *transport);
}

}  // namespace
}  // namespace garonne::dist

int main() {
  garonne::dist::run();
}
