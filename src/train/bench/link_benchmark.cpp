#include "train/bench/link_benchmark.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "train/bench/communication_cost.hpp"
#include "train/bench/device_rates.hpp"
#include "train/bench/link_curve.hpp"
#include "train/setup/cluster.hpp"

namespace garonne::train {
namespace {

std::vector<std::int64_t> message_sizes(std::int64_t largest) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t bytes = 64; bytes < largest; bytes *= 8) sizes.push_back(bytes);
  sizes.push_back(largest);
  return sizes;
}

std::optional<MeasuredLink> measure(dist::Session& session, dist::CommunicationThread& thread,
                                    const std::vector<std::vector<int>>& pairs,
                                    const std::vector<int>& group,
                                    const dist::LinkMeasurementOptions& options) {
  if (pairs.empty()) return std::nullopt;
  MeasuredLink link;
  for (const auto& pair : pairs) {
    link.series.push_back(
        dist::measure_messages(session, thread, "mpi", pair[0], pair[1], options));
  }
  link.messages = dist::fit_link(link.series);
  link.series.push_back(dist::measure_all_reduces(session, thread, "mpi", pairs[0], options));
  if (group.size() > 2)
    link.series.push_back(dist::measure_all_reduces(session, thread, "mpi", group, options));
  link.all_reduces = dist::fit_link(
      {link.series.begin() + static_cast<std::ptrdiff_t>(pairs.size()), link.series.end()});
  link.together = dist::fit_link(link.series);
  link.curve = link_curve(link.series, link.together);
  return link;
}

std::string members_text(const std::vector<int>& members) {
  if (members.size() > 4)
    return fmt::format("{} … {} ({})", members[0], members.back(), members.size());
  std::string text;
  for (const int member : members) text += fmt::format("{}{}", text.empty() ? "" : " ", member);
  return text;
}

std::string fit_text(const char* what, const dist::LinkFit& fit) {
  return fmt::format(
      "  {:<12} latency {:>9.1f} µs   {:>9.3f} GB/s   samples off by {:.0f} % (median), {:.0f} % "
      "(most)\n",
      what, 1e6 * fit.latency_seconds, fit.bytes_per_second / 1e9, 100 * fit.median_error,
      100 * fit.worst_error);
}

std::string link_text(const char* title, const MeasuredLink& link) {
  std::string text = fmt::format("{}\n  {:<12}{:<16}{:>12}{:>12}{:>9}{:>12}{:>9}\n", title, "what",
                                 "ranks", "bytes", "median µs", "spread", "GB/s", "fit");
  for (const auto& series : link.series) {
    const bool message = series.pattern == dist::LinkPattern::Message;
    for (const auto& sample : series.samples) {
      const double fitted = dist::predicted_seconds(link.together, series, sample.bytes);
      text += fmt::format("  {:<12}{:<16}{:>12}{:>12.1f}{:>8.0f}%{:>12.3f}{:>+8.0f}%\n",
                          message ? "message" : "all-reduce", members_text(series.members),
                          format_bytes(sample.bytes), 1e6 * sample.median_seconds,
                          100 * sample.spread(),
                          static_cast<double>(sample.bytes) / sample.median_seconds / 1e9,
                          100 * (fitted / sample.median_seconds - 1));
    }
  }
  text += fit_text("messages", link.messages) + fit_text("all-reduces", link.all_reduces) +
          fit_text("together", link.together);
  if (link.curve.empty()) return text;
  return text + fmt::format(
                    "  {:<12} {} points of the rate by size, in the place of one rate   samples "
                    "off by {:.0f} % (median)\n",
                    "curve", link.curve.points.size(),
                    100 * curve_error(link.curve, link.series, link.together.latency_seconds));
}

plan::Link link_of(const MeasuredLink& link) {
  return {link.together.latency_seconds, link.together.bytes_per_second, link.curve};
}

}  // namespace

LinkBenchmark run_link_benchmark(const LinkBenchmarkOptions& options, dist::Session& session) {
  session.agree([&] {
    if (session.size() > 1) return;
    throw ConfigError("bench links", "",
                      "measures between ranks; start it with `mpirun -n 2` or more");
  });
  // The names of all hosts, on all ranks.
  std::string names;
  for (const auto& host : session.gather(session.host())) names += host + "\n";
  names = session.broadcast(names);
  std::vector<std::string> host_of_rank;
  for (std::size_t begin = 0; begin < names.size();) {
    const std::size_t end = names.find('\n', begin);
    host_of_rank.push_back(names.substr(begin, end - begin));
    begin = end + 1;
  }

  const dist::LinkGroups groups =
      dist::link_groups(host_of_rank, static_cast<std::size_t>(options.pairs));
  const dist::LinkMeasurementOptions each{message_sizes(options.largest_bytes),
                                          options.seconds_each};
  LinkBenchmark result;
  const ComputeSession compute(options.threads);
  {
    dist::CommunicationThread thread(session);
    result.one_host = measure(session, thread, groups.pairs_on_one_host, groups.one_host, each);
    result.across_hosts =
        measure(session, thread, groups.pairs_across_hosts, groups.across_hosts, each);
    // What leaves the node is what steps wait for.
    const bool across = result.across_hosts.has_value();
    const std::vector<std::vector<int>>& pairs =
        across ? groups.pairs_across_hosts : groups.pairs_on_one_host;
    const dist::LinkSeries all_reduces{dist::LinkPattern::AllReduce, pairs.front(), {}};
    result.cluster.host.communication_seconds_per_byte = communication_seconds_per_byte(
        session, thread, "mpi", pairs.front(), options.largest_bytes,
        dist::predicted_seconds((across ? result.across_hosts : result.one_host)->together,
                                all_reduces, options.largest_bytes));
  }

  RunDevice processor;
  const DeviceRates rates = measure_device_rates(session, processor);
  plan::Cluster& cluster = result.cluster;
  std::map<std::string, int> ranks_on;
  for (const auto& host : host_of_rank)
    cluster.devices_per_node = std::max(cluster.devices_per_node, ++ranks_on[host]);
  cluster.nodes = static_cast<int>(ranks_on.size());
  cluster.name = host_of_rank.front();
  cluster.source = fmt::format("measured by `garonne bench links` on {} ranks of {} threads",
                               session.size(), options.threads);
  cluster.memory_bytes = session.all_reduce_min(
      std::vector<std::int64_t>{resolve_budget(RunConfig(), session.ranks_on_node())})[0];
  cluster.float32_flops = rates.float32_flops;
  cluster.bfloat16_flops = rates.bfloat16_flops;
  cluster.float64_flops = rates.float64_flops;
  cluster.bytes_per_second = rates.bytes_per_second;
  cluster.profiled_here = true;
  const MeasuredLink& some = result.one_host ? *result.one_host : *result.across_hosts;
  cluster.inside_node = link_of(some);
  cluster.between_nodes = link_of(result.across_hosts ? *result.across_hosts : some);
  return result;
}

std::string format_link_benchmark(const LinkBenchmark& benchmark) {
  std::string text;
  if (benchmark.one_host) text += link_text("between ranks of one host", *benchmark.one_host);
  if (benchmark.across_hosts)
    text += link_text("between ranks of different hosts", *benchmark.across_hosts);
  const plan::Cluster& cluster = benchmark.cluster;
  text += fmt::format(
      "devices, all at once\n  {:.1f} GFLOP/s float32, {:.1f} bfloat16, {:.1f} float64, memory "
      "{:.1f} GB/s\n",
      cluster.float32_flops / 1e9, cluster.bfloat16_flops / 1e9, cluster.float64_flops / 1e9,
      cluster.bytes_per_second / 1e9);
  text += fmt::format("communication takes {:.2f} ns a byte from what computes beside it\n",
                      1e9 * cluster.host.communication_seconds_per_byte);
  return text;
}

}  // namespace garonne::train
