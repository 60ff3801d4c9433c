// The ranks of a run: their numbers, where they are, small agreements between them, and how they
// die together.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace garonne::dist {

class CommunicationThread;
class LaunchWait;
class MpiWorld;
class PendingOperation;
class RollCall;
class WatchedWait;
struct Launcher;

// An error that all ranks know about and throw alike (Session::agree): rank 0 prints it, every rank
// returns its code, nobody aborts.
class AgreedError : public Error {
 public:
  using Error::Error;
};

// Every member that is "collective" is called by all ranks in the same order. Values are host
// values. A failing MPI call is a CommunicationError with the operation's name.
//
// The session outlives the catch in main: an error that is not agreed ends in abort(), and a
// session that is destroyed by an exception on its way does not finalise MPI, which would wait for
// the others.
class Session {
 public:
  // Starts MPI where a launcher of parallel programs is found, else is single(): starting MPI costs
  // a quarter of a second. Throws CommunicationError where the launcher started several processes
  // and MPI believes this one to be alone, or started another number than MPI knows. Uses an MPI
  // that is already running without finalising it. Ends the process with ExitCode::Communication
  // and a line where MPI does not start in ten minutes, or half a minute after another rank of this
  // host was stopped; waits of ranks end by the latter, too, until they are watched. Collective.
  static Session start();
  // One rank, without any MPI call.
  static Session single();

  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  // Barrier and MPI_Finalize, unless an exception is on its way; ends the process as start() does.
  ~Session();

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& host() const { return host_; }
  // Rank among the ranks of this host, and how many they are.
  int node_rank() const { return node_rank_; }
  int ranks_on_node() const { return ranks_on_node_; }
  // Lowest rank of this host: the same on its ranks, and on no others.
  int node_first_rank() const { return node_first_rank_; }
  bool uses_mpi() const { return world_ != nullptr; }

  // How messages about this rank call its place in the grid ("data 1, pipeline 0, tensor 0").
  // Collective over all ranks.
  void set_coordinates(std::string text);
  // "[rank 1/4 node07 data 1, pipeline 0, tensor 0]".
  std::string place() const;

  // Prints place and message on stderr, flushes and ends all ranks with the code. Any thread; the
  // first call counts. With ExitCode::Communication it waits two seconds first, so that the rank
  // with the cause, if there is one, is the one that speaks.
  [[noreturn]] void abort(ExitCode code, std::string_view message) noexcept;

  // A rank that waits for the others for `first_line` seconds says who is missing, again after each
  // as many. While there is a communication thread, `limit` seconds in which all wait, or who is
  // missing does not answer, are a CommunicationError; 0 = never. `doing` says what this rank is in
  // on any thread, to the end of the session. Collective.
  void watch_waits(double first_line, double limit, std::function<std::string()> doing);

  // What this rank is in, as told to watch_waits; empty before that, and where nobody watches. Any
  // thread.
  std::string doing() const { return doing_ ? doing_() : std::string(); }

  // Collective.
  void barrier();

  // The root's text, on all ranks. Collective.
  std::string broadcast(const std::string& text, int root = 0);

  // Element-wise over the ranks; sums are in rank order, hence equal on all ranks. Meant for a few
  // values: each rank receives those of all. The vectors are of one length on all ranks.
  // Collective.
  std::vector<std::int64_t> all_reduce_max(const std::vector<std::int64_t>& values);
  std::vector<std::int64_t> all_reduce_min(const std::vector<std::int64_t>& values);
  std::vector<std::int64_t> all_reduce_sum(const std::vector<std::int64_t>& values);
  std::vector<double> all_reduce_max(const std::vector<double>& values);
  std::vector<double> all_reduce_min(const std::vector<double>& values);
  std::vector<double> all_reduce_sum(const std::vector<double>& values);

  // The values of all ranks, rank after rank; one length on all ranks. Collective.
  std::vector<std::int64_t> all_gather(const std::vector<std::int64_t>& values);
  std::vector<double> all_gather(const std::vector<double>& values);

  // The texts of all ranks in rank order on rank 0, nothing elsewhere. Collective.
  std::vector<std::string> gather(const std::string& text);

  // Whether all ranks gave the same text (its hash is what is compared). Collective.
  bool all_agree(std::string_view text);

  // Runs `phase` on this rank. Where it threw a garonne::Error with code Usage, Infeasible or Data
  // on any rank, all ranks throw one AgreedError: that of the lowest failing rank, or, where that
  // rank found no plan, of the rank that needs the most bytes. The message names the rank where not
  // all of them failed with the same code. Other exceptions pass through, for abort(). Collective;
  // `phase` may itself be collective only as long as it fails on all ranks or on none.
  void agree(const std::function<void()>& phase);

 private:
  friend class CommunicationThread;
  friend class WatchedWait;
  friend const MpiWorld& mpi_world(const Session& session);

  Session();
  explicit Session(const Launcher& launcher);

  void attach(CommunicationThread& thread);
  void detach(CommunicationThread& thread);
  void carry_out(std::unique_ptr<PendingOperation> operation);
  void tell_places();
  void all_gather_bytes(const void* mine, void* all, std::size_t bytes_each);
  void broadcast_bytes(void* data, std::size_t bytes, int root);

  int rank_ = 0;
  int size_ = 1;
  int node_rank_ = 0;
  int ranks_on_node_ = 1;
  int node_first_rank_ = 0;
  std::string host_;
  std::string coordinates_;
  const int exceptions_at_start_;
  std::unique_ptr<MpiWorld> world_;  // null without MPI
  CommunicationThread* thread_ = nullptr;
  std::unique_ptr<LaunchWait> launch_wait_;  // null without MPI
  std::unique_ptr<RollCall> roll_call_;      // null: waits are not watched by it
  double wait_limit_ = 0;
  std::atomic<bool> wait_is_watched_{false};
  std::function<std::string()> doing_;
};

}  // namespace garonne::dist
