#include "dist/link_measurement.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <numeric>

#include "base/collective_bytes.hpp"
#include "base/error.hpp"
#include "base/seconds.hpp"
#include "dist/transport.hpp"

namespace garonne::dist {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int fewest_rounds = 5;
constexpr int most_rounds = 300;
constexpr int warm_up_rounds = 2;

LinkSample sample_of(std::int64_t bytes, std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const auto at = [&](double share) {
    return seconds[static_cast<std::size_t>(share * static_cast<double>(seconds.size() - 1))];
  };
  return {bytes, at(0.5), at(0.25), at(0.75)};
}

// Repeats `round` on all members until the first of them, whose clock counts, has enough. A round
// is told whether this member says that it is the last one, and returns whether the first said so.
std::vector<double> time_rounds(bool first, double seconds_each,
                                const std::function<bool(bool)>& round) {
  std::vector<double> seconds;
  double total = 0;
  for (int number = 1;; ++number) {
    const bool enough = number >= warm_up_rounds + fewest_rounds &&
                        (total >= seconds_each || number >= most_rounds);
    const auto start = Clock::now();
    const bool last = round(first && enough);
    if (number > warm_up_rounds) {
      seconds.push_back(seconds_since(start));
      total += seconds.back();
    }
    if (last) return seconds;
  }
}

// The samples of the rank that has them, on all ranks.
void share(Session& session, std::size_t sizes, LinkSeries& series) {
  std::vector<double> values(4 * sizes, 0.0);
  for (std::size_t i = 0; i < series.samples.size(); ++i) {
    const LinkSample& sample = series.samples[i];
    values[4 * i] = static_cast<double>(sample.bytes);
    values[4 * i + 1] = sample.median_seconds;
    values[4 * i + 2] = sample.lower_seconds;
    values[4 * i + 3] = sample.upper_seconds;
  }
  values = session.all_reduce_max(values);
  series.samples.clear();
  for (std::size_t i = 0; i < sizes; ++i) {
    series.samples.push_back({static_cast<std::int64_t>(values[4 * i]), values[4 * i + 1],
                              values[4 * i + 2], values[4 * i + 3]});
  }
}

// Coefficients of the latency and of the seconds a byte.
struct Terms {
  double latencies = 0;
  double bytes = 0;
};

Terms terms_of(const LinkSeries& series, std::int64_t bytes) {
  const auto sent = static_cast<double>(bytes);
  if (series.pattern == LinkPattern::Message) return {1, sent};
  const auto members = static_cast<double>(series.members.size());
  return {2 * (members - 1), 2 * (members - 1) / members * sent};
}

}  // namespace

LinkSeries measure_messages(Session& session, CommunicationThread& thread,
                            std::string_view transport, int from, int to,
                            const LinkMeasurementOptions& options) {
  LinkSeries series{LinkPattern::Message, {from, to}, {}};
  const bool first = session.rank() == from;
  if (first || session.rank() == to) {
    const std::int64_t most = *std::max_element(options.bytes.begin(), options.bytes.end());
    std::vector<char> there(static_cast<std::size_t>(most));
    std::vector<char> back(static_cast<std::size_t>(most));
    const auto link = make_transport(transport, session, thread, {from, to});
    for (const std::int64_t bytes : options.bytes) {
      auto seconds = time_rounds(first, options.seconds_each, [&](bool last) {
        if (first) {
          there[0] = last ? 1 : 0;
          const Ticket answer = link->receive(back.data(), bytes, 1, 0);
          link->wait(link->send(there.data(), bytes, 1, 0));
          link->wait(answer);
          return last;
        }
        link->wait(link->receive(there.data(), bytes, 0, 0));
        link->wait(link->send(back.data(), bytes, 0, 0));
        return there[0] == 1;
      });
      for (double& value : seconds) value /= 2;
      if (first) series.samples.push_back(sample_of(bytes, std::move(seconds)));
    }
  }
  share(session, options.bytes.size(), series);
  return series;
}

LinkSeries measure_all_reduces(Session& session, CommunicationThread& thread,
                               std::string_view transport, const std::vector<int>& members,
                               const LinkMeasurementOptions& options) {
  LinkSeries series{LinkPattern::AllReduce, members, {}};
  if (std::find(members.begin(), members.end(), session.rank()) != members.end()) {
    const bool first = session.rank() == members.front();
    const auto count = static_cast<std::int64_t>(members.size());
    const std::int64_t most = *std::max_element(options.bytes.begin(), options.bytes.end());
    std::vector<float> data(static_cast<std::size_t>(most / 4));
    std::vector<char> staging(
        static_cast<std::size_t>(all_reduce_staging_bytes(most / 4, 4, count)));
    const auto link = make_transport(transport, session, thread, members);
    for (const std::int64_t bytes : options.bytes) {
      auto seconds = time_rounds(first, options.seconds_each, [&](bool last) {
        data[0] = last ? 1.0F : 0.0F;
        link->wait(
            link->all_reduce_sum(data.data(), bytes / 4, ScalarType::Float32, staging.data()));
        return data[0] == 1.0F;
      });
      if (first) series.samples.push_back(sample_of(bytes / 4 * 4, std::move(seconds)));
    }
  }
  share(session, options.bytes.size(), series);
  return series;
}

double seconds_from_neighbour(Session& session, CommunicationThread& thread, std::int64_t bytes,
                              int rounds) {
  const int ranks = session.size();
  expect(ranks > 1, "a ring has several ranks");
  std::vector<int> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  const auto ring = make_transport("mpi", session, thread, members);
  const std::vector<char> mine(static_cast<std::size_t>(bytes));
  std::vector<char> neighbours(static_cast<std::size_t>(bytes));
  std::vector<double> seconds;
  for (int round = 0; round < warm_up_rounds + rounds; ++round) {
    session.barrier();
    const auto start = Clock::now();
    const Ticket arrived =
        ring->receive(neighbours.data(), bytes, (session.rank() + ranks - 1) % ranks, 0);
    const Ticket sent = ring->send(mine.data(), bytes, (session.rank() + 1) % ranks, 0);
    ring->wait(arrived);
    if (round >= warm_up_rounds) seconds.push_back(seconds_since(start));
    ring->wait(sent);
  }
  return sample_of(bytes, std::move(seconds)).median_seconds;
}

double predicted_seconds(const LinkFit& fit, const LinkSeries& series, std::int64_t bytes) {
  const Terms terms = terms_of(series, bytes);
  return terms.latencies * fit.latency_seconds + terms.bytes / fit.bytes_per_second;
}

LinkFit fit_link(const std::vector<LinkSeries>& series) {
  // Rows divided by what was measured: latencies · a + bytes · c = 1.
  std::vector<Terms> rows;
  std::map<std::int64_t, int> sizes;
  for (const auto& one : series) {
    for (const auto& sample : one.samples) {
      const Terms terms = terms_of(one, sample.bytes);
      rows.push_back(
          {terms.latencies / sample.median_seconds, terms.bytes / sample.median_seconds});
      ++sizes[sample.bytes];
    }
  }
  expect(sizes.size() >= 2, "a link is fitted to at least two sizes");

  double best = std::numeric_limits<double>::infinity();
  double latency = 0;
  double seconds_a_byte = 0;
  const auto consider = [&](double a, double c) {
    if (!(a >= 0) || !(c > 0)) return;
    double error = 0;
    for (const Terms& row : rows) error += std::abs(std::log(row.latencies * a + row.bytes * c));
    if (error >= best) return;
    best = error;
    latency = a;
    seconds_a_byte = c;
  };
  for (std::size_t i = 0; i < rows.size(); ++i) {
    consider(0, 1 / rows[i].bytes);
    for (std::size_t j = i + 1; j < rows.size(); ++j) {
      const double determinant =
          rows[i].latencies * rows[j].bytes - rows[j].latencies * rows[i].bytes;
      if (determinant == 0) continue;
      consider((rows[j].bytes - rows[i].bytes) / determinant,
               (rows[i].latencies - rows[j].latencies) / determinant);
    }
  }

  LinkFit fit{latency, 1 / seconds_a_byte, 0, 0};
  std::vector<double> errors;
  for (const Terms& row : rows)
    errors.push_back(std::abs(row.latencies * latency + row.bytes * seconds_a_byte - 1));
  std::sort(errors.begin(), errors.end());
  fit.median_error = errors[errors.size() / 2];
  fit.worst_error = errors.back();
  return fit;
}

LinkGroups link_groups(const std::vector<std::string>& host_of_rank, std::size_t most) {
  std::vector<std::vector<int>> hosts;  // ranks, hosts in the order of their first rank
  std::map<std::string, std::size_t> number;
  for (std::size_t rank = 0; rank < host_of_rank.size(); ++rank) {
    const auto [found, fresh] = number.try_emplace(host_of_rank[rank], hosts.size());
    if (fresh) hosts.emplace_back();
    hosts[found->second].push_back(static_cast<int>(rank));
  }
  LinkGroups groups;
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    const std::vector<int>& ranks = hosts[h];
    if (groups.one_host.empty() && ranks.size() > 1) groups.one_host = ranks;
    groups.across_hosts.push_back(ranks.front());
    // Neighbours and, where there are more, the two that are furthest apart.
    if (ranks.size() > 1) groups.pairs_on_one_host.push_back({ranks[0], ranks[1]});
    if (ranks.size() > 2) groups.pairs_on_one_host.push_back({ranks.front(), ranks.back()});
    if (h + 1 < hosts.size())
      groups.pairs_across_hosts.push_back({ranks.front(), hosts[h + 1].front()});
  }
  if (hosts.size() > 2)
    groups.pairs_across_hosts.push_back({hosts.front().front(), hosts.back().front()});
  if (hosts.size() < 2) groups.across_hosts.clear();
  for (auto* pairs : {&groups.pairs_on_one_host, &groups.pairs_across_hosts}) {
    if (pairs->size() <= most) continue;
    // Evenly over them, the first and the last included.
    std::vector<std::vector<int>> chosen;
    for (std::size_t i = 0; i < most; ++i)
      chosen.push_back((*pairs)[most == 1 ? 0 : i * (pairs->size() - 1) / (most - 1)]);
    *pairs = std::move(chosen);
  }
  return groups;
}

}  // namespace garonne::dist
