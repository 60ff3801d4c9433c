// Fails as its argument says, like an application would; tests/dist/failures.py looks at what comes
// out.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/collective_bytes.hpp"
#include "base/error.hpp"
#include "dist/communication_thread.hpp"
#include "dist/session.hpp"
#include "dist/transport.hpp"

namespace garonne::dist {
namespace {

// What the roll call of ranks that wait says, and whether it ends them.
void wait_for_each_other(Session& session, const std::string& mode) {
  constexpr double first_line = 1;
  constexpr double limit = 2;
  constexpr std::chrono::seconds beyond_all_limits{9};
  session.watch_waits(first_line, limit, [] { return std::string("its own work"); });
  std::vector<int> members(static_cast<std::size_t>(session.size()));
  std::iota(members.begin(), members.end(), 0);
  char data = 0;
  CommunicationThread thread(session);
  const auto transport = make_transport("mpi", session, thread, members);
  if (mode == "wait-in-a-circle")
    transport->wait(transport->receive(&data, 1, (session.rank() + 1) % session.size(), 0));
  const bool last = session.rank() == session.size() - 1;
  const bool busy = mode == "last-is-busy" ? last : mode == "all-but-last-are-busy" && !last;
  // Then nothing of it answers.
  if (mode == "last-is-stopped" && session.rank() == session.size() - 1) (void)std::raise(SIGSTOP);
  if (mode == "first-half-is-stopped" && session.rank() < session.size() / 2)
    (void)std::raise(SIGSTOP);
  if (busy) std::this_thread::sleep_for(beyond_all_limits);
  session.barrier();
}

// All-reduces without end, so that the other ranks are inside one when this one fails.
void work(Session& session, const std::string& mode) {
  // Before the thread, so that they are still there while it stops.
  const std::int64_t elements = 100'000;
  std::vector<float> data(static_cast<std::size_t>(elements));
  std::vector<float> staging(
      static_cast<std::size_t>(all_reduce_staging_bytes(elements, 4, session.size()) / 4));
  CommunicationThread thread(session);
  std::vector<int> members(static_cast<std::size_t>(session.size()));
  std::iota(members.begin(), members.end(), 0);
  const auto transport = make_transport("mpi", session, thread, members);
  for (int step = 0;; ++step) {
    const Ticket ticket =
        transport->all_reduce_sum(data.data(), elements, ScalarType::Float32, staging.data());
    if (step == 20 && session.rank() == session.size() - 1) {
      if (mode == "throw") throw RefusedError("the loss is not finite");
      if (mode == "throw-other") throw std::runtime_error("no error of ours");
      if (mode == "kill") (void)std::raise(SIGKILL);
    }
    // The last rank notices the broken connection first, the first rank has the cause.
    if (step == 20 && mode == "late-cause") {
      if (session.rank() != 0) throw CommunicationError("all-reduce", "the connection broke");
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      throw RefusedError("the cause");
    }
    if (step == 20 && mode == "disagree") {
      session.agree([&] {
        if (session.rank() == 1) throw IoError("data.h5", "cannot be read");
      });
    }
    if (step == 20 && (mode == "finish" || mode == "requeue")) {
      transport->wait(ticket);
      return;
    }
    transport->wait(ticket);
  }
}

int run(const std::string& mode) {
  Session session = Session::start();
  session.set_coordinates("data " + std::to_string(session.rank()));
  try {
    if (mode == "wait-in-a-circle" || mode == "last-is-busy" || mode == "all-but-last-are-busy" ||
        mode == "last-is-stopped" || mode == "first-half-is-stopped") {
      wait_for_each_other(session, mode);
    } else {
      work(session, mode);
    }
  } catch (const AgreedError& error) {
    if (session.rank() == 0) std::fprintf(stderr, "garonne: %s\n", error.what());
    return static_cast<int>(error.code());
  } catch (const Error& error) {
    session.abort(error.code(), error.what());
  } catch (const std::exception& error) {
    session.abort(ExitCode::Other, error.what());
  }
  return static_cast<int>(mode == "requeue" ? ExitCode::Requeue : ExitCode::Done);
}

}  // namespace
}  // namespace garonne::dist

int main(int argc, char** argv) {
  try {
    return garonne::dist::run(argc > 1 ? argv[1] : "finish");
  } catch (const garonne::Error& error) {
    // The session did not start.
    std::fprintf(stderr, "garonne: %s\n", error.what());
    return static_cast<int>(error.code());
  }
}
