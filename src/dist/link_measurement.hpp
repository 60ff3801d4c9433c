// Measures what messages and all-reduces between ranks take, through the transports that training
// uses, and fits latency and rate to it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dist/communication_thread.hpp"
#include "dist/session.hpp"

namespace garonne::dist {

enum class LinkPattern { Message, AllReduce };

struct LinkSample {
  std::int64_t bytes = 0;
  // Of a message one way, of an all-reduce from its start to its end on one rank.
  double median_seconds = 0;
  double lower_seconds = 0;  // quartiles
  double upper_seconds = 0;

  // Between the quartiles, in parts of the median.
  double spread() const { return (upper_seconds - lower_seconds) / median_seconds; }
};

struct LinkSeries {
  LinkPattern pattern = LinkPattern::Message;
  std::vector<int> members;  // global ranks
  std::vector<LinkSample> samples;
};

struct LinkMeasurementOptions {
  std::vector<std::int64_t> bytes;  // at least 4 each
  double seconds_each = 0.2;        // for each size; at least five times in any case
};

// Back and forth between two ranks. Collective over all ranks of the session; the result is on all
// of them.
LinkSeries measure_messages(Session& session, CommunicationThread& thread,
                            std::string_view transport, int from, int to,
                            const LinkMeasurementOptions& options);

// Of float32 over the members, at least two. Collective over all ranks of the session; the result
// is on all of them.
LinkSeries measure_all_reduces(Session& session, CommunicationThread& thread,
                               std::string_view transport, const std::vector<int>& members,
                               const LinkMeasurementOptions& options);

// A ring of all ranks, at least two: every rank sends `bytes` to the next one, all at once. The
// median of the seconds until those of the rank before are here. The ring is over MPI and between
// hosts, whatever training uses. Collective over all ranks.
double seconds_from_neighbour(Session& session, CommunicationThread& thread, std::int64_t bytes,
                              int rounds);

// What is taken to be between two ranks: a message of b bytes takes latency + b / rate, an
// all-reduce of b bytes over n ranks 2 (n - 1) latency + 2 (n - 1) / n · b / rate, as in a ring.
struct LinkFit {
  double latency_seconds = 0;
  double bytes_per_second = 0;
  double median_error = 0;  // of the samples: |predicted - measured| / measured
  double worst_error = 0;
};

// Of the lines through two of the samples, none with a negative latency, the one with the least sum
// of |log(predicted / measured)| over all of them: sizes at which a library changes its ways, or
// that pass within the burst of a limited link, are left aside by it. Throws InternalError for
// fewer than two sizes.
LinkFit fit_link(const std::vector<LinkSeries>& series);
double predicted_seconds(const LinkFit& fit, const LinkSeries& series, std::int64_t bytes);

// Which ranks to measure between, by the name of each rank's host.
struct LinkGroups {
  std::vector<std::vector<int>> pairs_on_one_host;
  std::vector<std::vector<int>> pairs_across_hosts;
  std::vector<int> one_host;      // all ranks of the first host with several
  std::vector<int> across_hosts;  // the first rank of each host
};
// At most `most` pairs of each kind; what does not exist is empty.
LinkGroups link_groups(const std::vector<std::string>& host_of_rank, std::size_t most);

}  // namespace garonne::dist
