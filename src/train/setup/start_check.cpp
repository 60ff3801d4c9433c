#include "train/setup/start_check.hpp"

#include <atomic>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/process_cores.hpp"
#include "base/seconds.hpp"
#include "dist/communication_thread.hpp"
#include "dist/link_measurement.hpp"
#include "train/setup/odd_ranks.hpp"

namespace garonne::train {
namespace {

using Clock = std::chrono::steady_clock;

// Some ten milliseconds each on a processor of these years.
constexpr int passes_of_compute = 50'000;
constexpr std::size_t bytes_of_memory = std::size_t{16} << 20;
constexpr int passes_of_memory = 3;
constexpr std::int64_t bytes_of_message = std::int64_t{1} << 20;
constexpr int messages = 5;
constexpr int tries = 3;

// What is measured with; before it is used, all of it was written to.
struct Scratch {
  std::vector<float> values = std::vector<float>(1024, 1);  // within the nearest cache
  std::vector<char> from = std::vector<char>(bytes_of_memory, 1);
  std::vector<char> to = std::vector<char>(bytes_of_memory, 2);
};

double compute_seconds(Scratch& scratch) {
  const auto start = Clock::now();
  for (int pass = 0; pass < passes_of_compute; ++pass) {
    for (float& value : scratch.values) value = value * 0.5F + 0.5F;
    // Else passes might be made one.
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  return seconds_since(start);
}

double memory_seconds(Scratch& scratch) {
  const auto start = Clock::now();
  for (int pass = 0; pass < passes_of_memory; ++pass) {
    std::memcpy(scratch.to.data(), scratch.from.data(), bytes_of_memory);
    std::swap(scratch.from, scratch.to);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  return seconds_since(start);
}

// Of all ranks, on all of them.
std::vector<RankPlace> places_of(dist::Session& session, int threads) {
  const nlohmann::json mine = {{"host", session.host()},
                               {"cores", cores_of_this_process()},
                               {"threads", threads},
                               {"quota", core_quota_of_this_process()}};
  nlohmann::json all = nlohmann::json::array();
  for (const std::string& text : session.gather(mine.dump()))
    all.push_back(nlohmann::json::parse(text));
  all = nlohmann::json::parse(session.broadcast(all.dump()));
  std::vector<RankPlace> places;
  for (const nlohmann::json& one : all) {
    places.push_back({.host = one.at("host").get<std::string>(),
                      .cores = one.at("cores").get<std::vector<int>>(),
                      .threads = one.at("threads").get<int>(),
                      .core_quota = one.at("quota").get<double>()});
  }
  return places;
}

// One measurement, of all ranks on all of them.
std::vector<RankSpeed> speeds_of(dist::Session& session, dist::CommunicationThread& thread,
                                 RunDevice& device, Scratch& scratch) {
  session.barrier();
  const double compute = compute_seconds(scratch);
  session.barrier();
  const double memory = memory_seconds(scratch);
  const double link = dist::seconds_from_neighbour(session, thread, bytes_of_message, messages);
  device::GpuSpeed gpu;
  if (device.kind() == DeviceKind::Cuda) {
    session.barrier();
    gpu = device.gpu_speed().value_or(gpu);
  }
  const std::vector<double> mine = {compute,        memory,         link, gpu.within_seconds,
                                    gpu.in_seconds, gpu.out_seconds};
  const std::vector<double> all = session.all_gather(mine);
  std::vector<RankSpeed> speeds;
  for (std::size_t i = 0; i < all.size(); i += mine.size())
    speeds.push_back({all[i], all[i + 1], all[i + 2], all[i + 3], all[i + 4], all[i + 5]});
  return speeds;
}

}  // namespace

std::vector<std::string> check_start(dist::Session& session, int threads, RunDevice& device) {
  if (session.size() == 1) return {};
  const std::vector<RankPlace> places = places_of(session, threads);
  std::vector<std::string> said = placement_warnings(places);
  Scratch scratch;
  dist::CommunicationThread thread(session);
  const auto odd_now = [&] {
    return odd_ranks(speeds_of(session, thread, device, scratch), places);
  };
  std::vector<OddRank> odd = odd_now();
  for (int more = 1; more < tries && !odd.empty(); ++more) odd = odd_in_both(odd, odd_now());
  for (const OddRank& one : odd) said.push_back(describe(one, places));
  if (session.rank() != 0) said.clear();
  return said;
}

}  // namespace garonne::train
