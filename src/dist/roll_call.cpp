#include "dist/roll_call.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string_view>
#include <utility>

#include "base/blocked_signals.hpp"
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
// An answer: how it is with the rank, then what it is in.
constexpr char at_work = 'w';
constexpr char waiting_too = '-';
constexpr std::size_t most_answer_bytes = 200;
// Seconds after the limit, for those who do not know who is missing.
constexpr double grace = 5;

std::vector<int> listeners_of(int ranks) {
  const int count = std::min(ranks, most_listeners);
  std::vector<int> listeners;
  for (int i = 0; i < count; ++i)
    listeners.push_back(static_cast<int>(std::int64_t{i} * ranks / count));
  return listeners;
}

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

struct Message {
  int sender = -1;  // none is there
  std::string text;
};

// The next such message that is there.
Message next_message(const Communicator& communicator, int tag) {
  int there = 0;
  MPI_Status status;
  check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, tag, communicator.handle(), &there, &status), "roll call");
  if (there == 0) return {};
  std::array<char, most_answer_bytes> text{};
  const int sender = status.MPI_SOURCE;
  check_mpi(MPI_Recv(text.data(), static_cast<int>(text.size()), MPI_CHAR, sender, tag,
                     communicator.handle(), &status),
            "roll call");
  int bytes = 0;
  check_mpi(MPI_Get_count(&status, MPI_CHAR, &bytes), "roll call");
  return {sender, std::string(text.data(), static_cast<std::size_t>(bytes))};
}

}  // namespace

// An answer on its way.
struct RollCall::Sent {
  std::string text;
  MPI_Request request = MPI_REQUEST_NULL;
};

RollCall::RollCall(Session& session, double first_line, std::function<std::string()> doing)
    : session_(session),
      first_line_(first_line),
      doing_(std::move(doing)),
      listeners_(listeners_of(session.size())),
      listens_(std::ranges::binary_search(listeners_, session.rank())),
      last_heard_(static_cast<std::size_t>(session.size())) {
  if (session.size() == 1) return;
  MPI_Comm handle = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(mpi_world(session).communicator(), &handle), "MPI_Comm_dup");
  communicator_ = std::make_unique<Communicator>(handle);
  thread_ = std::thread([this] {
    block_all_signals();
    answer();
  });
}

RollCall::~RollCall() {
  ending_ = true;
  if (thread_.joinable()) thread_.join();
  // Not freed: reports that nobody listened to may still be under way, and MPI still knows the
  // answers that nobody has taken.
  if (communicator_) communicator_->abandon();
  for (auto& one : sent_) (void)one.release();
}

void RollCall::answer() {
  try {
    while (!ending_) {
      for (;;) {
        const int rank = next_message(*communicator_, question).sender;
        if (rank < 0) break;
        send_answer(rank);
      }
      drop_what_has_gone();
      std::this_thread::sleep_for(answers_every);
    }
  } catch (const Error&) {
    // Whose calls fail is as good as gone; the loop of steps says why.
  }
}

void RollCall::send_answer(int rank) {
  auto one = std::make_unique<Sent>();
  one->text = (waits_ ? waiting_too : at_work) + ("on " + session_.host() + " in " + doing_());
  one->text.resize(std::min(one->text.size(), most_answer_bytes));
  check_mpi(MPI_Isend(one->text.data(), static_cast<int>(one->text.size()), MPI_CHAR, rank, here,
                      communicator_->handle(), &one->request),
            "roll call");
  sent_.push_back(std::move(one));
}

void RollCall::drop_what_has_gone() {
  std::erase_if(sent_, [](const std::unique_ptr<Sent>& one) {
    int done = 0;
    check_mpi(MPI_Test(&one->request, &done, MPI_STATUS_IGNORE), "roll call");
    return done != 0;
  });
}

void RollCall::begin() {
  next_report_ = first_report * first_line_;
  next_line_ = first_line_;
  answered_ = 0;
  at_work_ = 0;
  spoke_ = false;
  heard_.clear();
  questions_.assign(static_cast<std::size_t>(session_.size()), {});
  // Answers to questions of an earlier wait say nothing about this one.
  while (next_message(*communicator_, here).sender >= 0) continue;
}

void RollCall::over() {
  waits_ = false;
  last_ = std::numeric_limits<double>::infinity();
}

void RollCall::report() {
  for (const int rank : others_of_listeners()) send_nothing(*communicator_, rank, waits);
}

// Reports of earlier waits lie in front of those of this one, so the first hearing does not count.
void RollCall::listen(double seconds) {
  if (!listens_) return;
  const bool first = heard_.empty();
  if (first) heard_.resize(static_cast<std::size_t>(session_.size()), -1);
  for (;;) {
    const int rank = next_message(*communicator_, waits).sender;
    if (rank < 0) break;
    if (!first) heard_[static_cast<std::size_t>(rank)] = seconds;
  }
}

void RollCall::ask(const std::vector<int>& ranks, double seconds) {
  for (std::size_t i = 0; i < std::min(most_asked, ranks.size()); ++i) {
    Questions& questions = questions_[static_cast<std::size_t>(ranks[i])];
    if (questions.unanswered++ == 0) questions.since = seconds;
    send_nothing(*communicator_, ranks[i], question);
  }
}

void RollCall::hear_answers(double seconds) {
  for (;;) {
    const Message answer = next_message(*communicator_, here);
    if (answer.sender < 0) return;
    Questions& questions = questions_[static_cast<std::size_t>(answer.sender)];
    questions.unanswered = 0;
    questions.doing = answer.text.substr(std::min<std::size_t>(1, answer.text.size()));
    last_heard_[static_cast<std::size_t>(answer.sender)] = questions.doing;
    answered_ = seconds;
    if (answer.text.starts_with(at_work)) at_work_ = seconds;
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

std::vector<int> RollCall::others_of_listeners() const {
  std::vector<int> ranks = listeners_;
  std::erase(ranks, session_.rank());
  return ranks;
}

// The first of the listeners that waits.
bool RollCall::speaks(const std::vector<int>& missing) const {
  return std::ranges::all_of(listeners_, [&](int rank) {
    return rank >= session_.rank() || std::ranges::find(missing, rank) != missing.end();
  });
}

// ", but answers: on node07 in step 5"; of several, what the first one is in that has answered, and
// who has not. Ranks beyond the first that are asked are passed over.
std::string RollCall::answers_of(const std::vector<int>& missing) const {
  const auto of = [&](int rank) -> const Questions& {
    return questions_[static_cast<std::size_t>(rank)];
  };
  std::vector<int> quiet;
  int answering = -1;
  for (const int rank : missing) {
    if (of(rank).doing.empty() && of(rank).unanswered > 0) quiet.push_back(rank);
    if (!of(rank).doing.empty() && answering < 0) answering = rank;
  }
  const std::string not_yet =
      quiet.empty() ? ""
                    : (quiet.size() == 1 ? " has" : " have") + std::string(" not answered yet");
  if (answering < 0) return quiet.empty() ? "" : ", and" + not_yet;
  if (missing.size() == 1) return ", but answers: " + of(answering).doing;
  const std::string is = "rank " + std::to_string(answering) + " is " + of(answering).doing;
  return quiet.empty() ? ", but answer: " + is : "; " + is + ", and " + names_of(quiet) + not_yet;
}

// Where they are and what they were last heard to be in, of the first few.
std::string RollCall::places_of(const std::vector<int>& ranks) const {
  constexpr std::size_t most = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(most, ranks.size()); ++i) {
    const auto rank = static_cast<std::size_t>(ranks[i]);
    if (rank >= places_.size()) continue;
    text += (text.empty() ? ": " : "; ") + places_[rank];
    if (!last_heard_[rank].empty()) text += " last answered " + last_heard_[rank];
  }
  return text;
}

void RollCall::waiting(double seconds, double limit, bool wants_answers) {
  if (!communicator_) return;
  waits_ = true;
  if (seconds < last_) begin();
  last_ = seconds;
  if (next_line_ == 0) begin();
  if (seconds < next_report_ && heard_.empty()) return;
  listen(seconds);
  hear_answers(seconds);
  const bool reports = seconds >= next_report_;
  if (reports) {
    report();
    next_report_ = seconds + between_reports * first_line_;
  }
  const std::vector<int> gone = listens_ ? missing(seconds) : std::vector<int>();
  const bool speaker = listens_ && speaks(gone);
  const std::vector<int> dead = silent(gone, seconds);
  if (wants_answers && speaker && !dead.empty()) {
    throw CommunicationError(
        doing_(), names_of(dead) + (dead.size() == 1 ? " does" : " do") +
                      " not answer: the process was stopped, or its node or network hangs" +
                      places_of(dead));
  }
  // Who speaks asks those that are missing. The others leave all to it, as long as some listener
  // answers: it speaks, hears another one speak, or is at work.
  if (reports && speaker) ask(gone, seconds);
  if (reports && !speaker && limit > 0 && seconds >= limit / 2) ask(others_of_listeners(), seconds);
  if (speaker && !spoke_) at_work_ = std::max(at_work_, answered_);
  spoke_ = speaker;
  const auto text = [&](const char* verb) {
    return gone.empty() ? std::string("all ranks wait for each other")
                        : names_of(gone) + (gone.size() == 1 ? " has " : " have ") + verb;
  };
  const double idle = speaker ? seconds - at_work_ : seconds - answered_ - grace;
  if (limit > 0 && idle >= limit) {
    throw CommunicationError(
        doing_(), (speaker ? text("not arrived") : std::string("somebody has not arrived")) +
                      " within " + std::to_string(static_cast<long>(limit)) +
                      " s (run.timeout); stopped, or stuck outside of communication" +
                      (speaker ? places_of(gone) : ""));
  }
  if (seconds < next_line_) return;
  next_line_ += first_line_;
  if (!speaker) return;
  std::fprintf(stderr, "%s waiting for %.0f s in %s: %s%s\n", session_.place().c_str(), seconds,
               doing_().c_str(), text("not arrived").c_str(),
               dead.empty() ? answers_of(gone).c_str() : "");
  std::fflush(stderr);
}

}  // namespace garonne::dist
