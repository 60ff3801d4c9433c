#include "dist/session.hpp"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <sstream>
#include <thread>
#include <utility>

#include "dist/communication_thread.hpp"
#include "dist/launch_wait.hpp"
#include "dist/launcher.hpp"
#include "dist/mpi_calls.hpp"
#include "dist/roll_call.hpp"
#include "dist/watched_wait.hpp"

namespace garonne::dist {
namespace {

// Seconds after which MPI does not come back from its start or end, on nodes however many.
constexpr double longest_call = 600;

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown host";
  return name.data();
}

// Whether this call started MPI, rather than somebody before us.
bool start_mpi() {
  int running = 0;
  check_mpi(MPI_Initialized(&running), "MPI_Initialized");
  int level = MPI_THREAD_SINGLE;
  if (running) {
    check_mpi(MPI_Query_thread(&level), "MPI_Query_thread");
  } else {
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread");
  }
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  if (level < MPI_THREAD_MULTIPLE) {
    throw CommunicationError("MPI_Init_thread",
                             "this MPI library was built without MPI_THREAD_MULTIPLE");
  }
  return !running;
}

// N processes that each believe to be alone would each train a model of their own.
void check_size(const Launcher& launcher, int size) {
  if (!launcher.size || *launcher.size == size) return;
  throw CommunicationError(
      "start",
      "the launcher started " + std::to_string(*launcher.size) + " processes (" +
          launcher.variable + "), but MPI knows of " + std::to_string(size) +
          ". Launch with the mpirun of the MPI library that garonne was built with, or with "
          "srun --mpi=pmix, where this MPI supports it.");
}

Communicator duplicate_world() {
  MPI_Comm handle = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &handle), "MPI_Comm_dup");
  return Communicator(handle);
}

}  // namespace

Session::Session() : host_(host_name()), exceptions_at_start_(std::uncaught_exceptions()) {}

Session Session::single() {
  return Session();
}

Session Session::start() {
  const std::optional<Launcher> launcher = detect_launcher();
  return launcher ? Session(*launcher) : Session();
}

Session::Session(const Launcher& launcher) : Session() {
  rank_ = launcher.rank.value_or(0);
  size_ = launcher.size.value_or(rank_ + 1);
  launch_wait_ = std::make_unique<LaunchWait>(
      place(), [launcher] { return host_ranks(launcher); }, rank_);
  const WatchedCall watched(*launch_wait_, "the start of MPI", longest_call);
  const bool owns_mpi = start_mpi();
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
  check_size(launcher, size_);
  world_ = std::make_unique<MpiWorld>(duplicate_world(), owns_mpi);

  MPI_Comm node = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(world_->communicator(), MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL,
                                &node),
            "MPI_Comm_split_type");
  const Communicator owner(node);
  check_mpi(MPI_Comm_rank(node, &node_rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(node, &ranks_on_node_), "MPI_Comm_size");
  node_first_rank_ = rank_;
  check_mpi(MPI_Bcast(&node_first_rank_, 1, MPI_INT, 0, node), "MPI_Bcast");
}

Session::~Session() {
  if (!world_) return;
  if (std::uncaught_exceptions() > exceptions_at_start_) {
    // The others may wait elsewhere: only the launcher can end them now. MPI keeps its
    // communicator.
    (void)world_.release();
    return;
  }
  {
    // Another rank may be at work alone for long: no limit.
    const WatchedCall watched(*launch_wait_, "the last barrier", 0);
    MPI_Barrier(world_->communicator());
  }
  roll_call_.reset();  // its thread calls MPI, and answers those that are not here yet
  world_->free();
  const WatchedCall watched(*launch_wait_, "the end of MPI (all work was done)", longest_call);
  if (world_->owns_mpi()) MPI_Finalize();
}

std::string Session::place() const {
  std::string text = "[rank " + std::to_string(rank_) + "/" + std::to_string(size_) + " " + host_;
  if (!coordinates_.empty()) text += " " + coordinates_;
  return text + "]";
}

void Session::set_coordinates(std::string text) {
  coordinates_ = std::move(text);
  if (roll_call_) tell_places();
}

// Of all ranks to the roll call; collective over all ranks.
void Session::tell_places() {
  const std::vector<std::string> gathered = gather(place());
  std::string lines;
  for (const std::string& one : gathered) lines += one + "\n";
  std::istringstream all(broadcast(lines));
  std::vector<std::string> places;
  for (std::string line; std::getline(all, line);) places.push_back(line);
  roll_call_->set_places(std::move(places));
}

void Session::abort(ExitCode code, std::string_view message) noexcept {
  static std::once_flag once;  // a process dies once, whichever session says so
  std::call_once(once, [&] {
    using namespace std::chrono_literals;
    if (code == ExitCode::Communication && size_ > 1) std::this_thread::sleep_for(2s);
    std::fflush(stdout);
    std::fprintf(stderr, "%s %.*s\n", place().c_str(), static_cast<int>(message.size()),
                 message.data());
    std::fflush(nullptr);
    if (world_) MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
    std::_Exit(static_cast<int>(code));
  });
  std::_Exit(static_cast<int>(code));
}

void Session::watch_waits(double first_line, double limit, std::function<std::string()> doing) {
  if (!world_ || size_ == 1) return;
  doing_ = std::move(doing);
  wait_limit_ = limit;
  roll_call_ = std::make_unique<RollCall>(*this, first_line, doing_);
  tell_places();
}

void Session::attach(CommunicationThread& thread) {
  expect(thread_ == nullptr, "a process has one communication thread");
  thread_ = &thread;
}

void Session::detach(CommunicationThread& thread) {
  if (thread_ == &thread) thread_ = nullptr;
}

// On the communication thread where there is one, so that all MPI calls come from one thread;
// without blocking inside MPI in either case, since ranks may have to wait long, and share cores.
void Session::carry_out(std::unique_ptr<PendingOperation> operation) {
  if (thread_) {
    thread_->wait(thread_->submit(std::move(operation)));
    return;
  }
  // Before training a rank may be at work alone for long, as when it measures: no limit.
  WatchedWait wait(*this);
  complete(*operation, [&wait](double seconds) { wait.lasts(seconds, false); });
}

}  // namespace garonne::dist
