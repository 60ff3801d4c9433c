#include "dist/roll_call.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/error.hpp"
#include "dist/mpi_calls.hpp"
#include "dist/session.hpp"

namespace garonne::dist {
namespace {

constexpr int most_listeners = 8;
// In parts of the time to the first line: when reports begin, how often they come, and how long
// one counts. Waits that have one cause do not begin at quite the same time.
constexpr double first_report = 0.6;
constexpr double between_reports = 0.1;
constexpr double report_counts = 0.35;
// Seconds after the limit, for those who do not know who is missing.
constexpr double grace = 5;

std::string names_of(const std::vector<int>& ranks) {
  constexpr std::size_t most = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < std::min(most, ranks.size()); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  if (ranks.size() > most) text += " and " + std::to_string(ranks.size() - most) + " more";
  return text;
}

}  // namespace

RollCall::RollCall(Session& session, double first_line)
    : session_(session),
      first_line_(first_line),
      listeners_(std::min(session.size(), most_listeners)) {
  if (session.size() == 1) return;
  MPI_Comm handle = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(mpi_world(session).communicator(), &handle), "MPI_Comm_dup");
  communicator_ = std::make_unique<Communicator>(handle);
}

RollCall::~RollCall() {
  // Not freed: reports that nobody listened to may still be under way.
  if (communicator_) communicator_->abandon();
}

void RollCall::begin() {
  next_report_ = first_report * first_line_;
  next_line_ = first_line_;
  heard_.clear();
}

void RollCall::report() {
  static const char nothing = 0;
  for (int rank = 0; rank < listeners_; ++rank) {
    if (rank == session_.rank()) continue;
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Isend(&nothing, 1, MPI_CHAR, rank, 0, communicator_->handle(), &request),
              "roll call");
    MPI_Request_free(&request);
  }
}

// Reports of earlier waits lie in front of those of this one, so the first hearing does not count.
void RollCall::listen(double seconds) {
  if (session_.rank() >= listeners_) return;
  const bool first = heard_.empty();
  if (first) heard_.resize(static_cast<std::size_t>(session_.size()), -1);
  for (;;) {
    int there = 0;
    MPI_Status status;
    check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, 0, communicator_->handle(), &there, &status), "roll call");
    if (there == 0) return;
    char nothing = 0;
    check_mpi(MPI_Recv(&nothing, 1, MPI_CHAR, status.MPI_SOURCE, 0, communicator_->handle(),
                       MPI_STATUS_IGNORE),
              "roll call");
    if (!first) heard_[static_cast<std::size_t>(status.MPI_SOURCE)] = seconds;
  }
}

std::vector<int> RollCall::missing(double seconds) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < session_.size(); ++rank) {
    if (rank == session_.rank()) continue;
    const double heard = heard_[static_cast<std::size_t>(rank)];
    if (heard < 0 || seconds - heard > report_counts * first_line_) ranks.push_back(rank);
  }
  return ranks;
}

// The first of the listeners that waits.
bool RollCall::speaks(const std::vector<int>& missing) const {
  for (int rank = 0; rank < session_.rank(); ++rank) {
    if (std::find(missing.begin(), missing.end(), rank) == missing.end()) return false;
  }
  return true;
}

void RollCall::waiting(double seconds, double limit, const std::function<std::string()>& doing) {
  if (!communicator_) return;
  if (seconds < last_) begin();
  last_ = seconds;
  if (next_line_ == 0) begin();
  if (seconds < next_report_ && heard_.empty()) return;
  listen(seconds);
  if (seconds >= next_report_) {
    report();
    next_report_ = seconds + between_reports * first_line_;
  }
  const bool listens = session_.rank() < listeners_;
  const std::vector<int> gone = listens ? missing(seconds) : std::vector<int>();
  const bool speaker = listens && speaks(gone);
  const auto text = [&](const char* verb) {
    return gone.empty() ? std::string("all ranks wait for each other")
                        : names_of(gone) + (gone.size() == 1 ? " has " : " have ") + verb;
  };
  if (limit > 0 && seconds >= limit && (speaker || seconds >= limit + grace)) {
    throw CommunicationError(
        doing(), (speaker ? text("not arrived") : std::string("somebody has not arrived")) +
                     " within " + std::to_string(static_cast<long>(limit)) +
                     " s (run.timeout); stopped, or stuck outside of communication");
  }
  if (seconds < next_line_) return;
  next_line_ *= 2;
  if (!speaker) return;
  std::fprintf(stderr, "%s waiting for %.0f s in %s: %s\n", session_.place().c_str(), seconds,
               doing().c_str(), text("not arrived").c_str());
  std::fflush(stderr);
}

}  // namespace garonne::dist
