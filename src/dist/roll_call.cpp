#include "dist/roll_call.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
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
constexpr double first_report = 0.35;
constexpr double between_reports = 0.1;
constexpr double report_counts = 0.35;
// Questions in a row without an answer that make a rank silent, and to how many ranks they go. On
// processors that other processes hold, a thread that slept was seen to wait for 16 s.
constexpr int most_unanswered = 5;
constexpr std::size_t most_asked = 64;
constexpr std::chrono::milliseconds answers_every{200};
// Tags of messages.
constexpr int waits = 0;
constexpr int question = 1;
constexpr int here = 2;
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

void send_nothing(const Communicator& communicator, int rank, int tag) {
  static const char nothing = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Isend(&nothing, 1, MPI_CHAR, rank, tag, communicator.handle(), &request),
            "roll call");
  MPI_Request_free(&request);
}

// The next sender of such a message that is there, else -1.
int next_sender(const Communicator& communicator, int tag) {
  int there = 0;
  MPI_Status status;
  check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, tag, communicator.handle(), &there, &status), "roll call");
  if (there == 0) return -1;
  char nothing = 0;
  check_mpi(MPI_Recv(&nothing, 1, MPI_CHAR, status.MPI_SOURCE, tag, communicator.handle(),
                     MPI_STATUS_IGNORE),
            "roll call");
  return status.MPI_SOURCE;
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
  thread_ = std::thread([this] {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    answer();
  });
}

RollCall::~RollCall() {
  ending_ = true;
  if (thread_.joinable()) thread_.join();
  // Not freed: reports that nobody listened to may still be under way.
  if (communicator_) communicator_->abandon();
}

void RollCall::answer() {
  try {
    while (!ending_) {
      for (int rank = 0; rank >= 0;) {
        rank = next_sender(*communicator_, question);
        if (rank >= 0) send_nothing(*communicator_, rank, here);
      }
      std::this_thread::sleep_for(answers_every);
    }
  } catch (const Error&) {
    // Whose calls fail is as good as gone; the loop of steps says why.
  }
}

void RollCall::begin() {
  next_report_ = first_report * first_line_;
  next_line_ = first_line_;
  heard_.clear();
  questions_.assign(static_cast<std::size_t>(session_.size()), {});
}

void RollCall::report() {
  for (int rank = 0; rank < listeners_; ++rank)
    if (rank != session_.rank()) send_nothing(*communicator_, rank, waits);
}

// Reports of earlier waits lie in front of those of this one, so the first hearing does not count.
void RollCall::listen(double seconds) {
  if (session_.rank() >= listeners_) return;
  const bool first = heard_.empty();
  if (first) heard_.resize(static_cast<std::size_t>(session_.size()), -1);
  for (int rank = next_sender(*communicator_, waits); rank >= 0;
       rank = next_sender(*communicator_, waits)) {
    if (!first) heard_[static_cast<std::size_t>(rank)] = seconds;
  }
}

void RollCall::ask(const std::vector<int>& missing, double seconds) {
  for (std::size_t i = 0; i < std::min(most_asked, missing.size()); ++i) {
    Questions& questions = questions_[static_cast<std::size_t>(missing[i])];
    if (questions.unanswered++ == 0) questions.since = seconds;
    send_nothing(*communicator_, missing[i], question);
  }
}

void RollCall::hear_answers() {
  for (int rank = next_sender(*communicator_, here); rank >= 0;
       rank = next_sender(*communicator_, here)) {
    questions_[static_cast<std::size_t>(rank)].unanswered = 0;
  }
}

std::vector<int> RollCall::silent(const std::vector<int>& missing, double seconds) const {
  std::vector<int> ranks;
  for (const int rank : missing) {
    const Questions& questions = questions_[static_cast<std::size_t>(rank)];
    if (questions.unanswered >= most_unanswered && seconds - questions.since >= silence)
      ranks.push_back(rank);
  }
  return ranks;
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

void RollCall::waiting(double seconds, double limit, bool wants_answers,
                       const std::function<std::string()>& doing) {
  if (!communicator_) return;
  if (seconds < last_) begin();
  last_ = seconds;
  if (next_line_ == 0) begin();
  if (seconds < next_report_ && heard_.empty()) return;
  listen(seconds);
  hear_answers();
  const bool listens = session_.rank() < listeners_;
  const bool reports = seconds >= next_report_;
  if (reports) {
    report();
    next_report_ = seconds + between_reports * first_line_;
  }
  const std::vector<int> gone = listens ? missing(seconds) : std::vector<int>();
  const bool speaker = listens && speaks(gone);
  const std::vector<int> dead = silent(gone, seconds);
  if (wants_answers && speaker && !dead.empty()) {
    throw CommunicationError(
        doing(), names_of(dead) + (dead.size() == 1 ? " does" : " do") +
                     " not answer: the process was stopped, or its node or network hangs");
  }
  if (reports && speaker) ask(gone, seconds);
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
  next_line_ += first_line_;
  if (!speaker) return;
  const char* answers = gone.empty() || !dead.empty() ? ""
                        : gone.size() == 1            ? ", but answers"
                                                      : ", but answer";
  std::fprintf(stderr, "%s waiting for %.0f s in %s: %s%s\n", session_.place().c_str(), seconds,
               doing().c_str(), text("not arrived").c_str(), answers);
  std::fflush(stderr);
}

}  // namespace garonne::dist
