// What a rank needs around a model: threads, kernels, transport, data, costs; made once at start.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/config.hpp"
#include "base/grid.hpp"
#include "dist/communication_thread.hpp"
#include "dist/session.hpp"
#include "dist/transport.hpp"
#include "kernels/session.hpp"
#include "plan/model/cluster.hpp"
#include "plan/model/cost_table.hpp"
#include "train/setup/planning.hpp"
#include "train/setup/run_device.hpp"

namespace garonne::train {

// What a process may compute on.
struct Cores {
  int of_node = 1;
  int allowed = 1;  // those that the launcher bound the process to

  static Cores of_this_process();
};

// Threads of a rank: run.threads, or the cores of the node over the ranks on it, at most those
// allowed.
int threads_of_rank(const RunConfig& config, int ranks_on_node,
                    const Cores& cores = Cores::of_this_process());

// Sets the threads of the tensor library and of the kernels. One a process.
class ComputeSession {
 public:
  explicit ComputeSession(int threads);
  int threads() const { return kernels_.threads(); }

 private:
  kernels::KernelSession kernels_;
};

// Throws ConfigError when the grid and the number of ranks differ, or for a transport that does not
// reach what the run computes on or is not in this build (NotBuiltError).
void check_grid(const RunConfig& config, int ranks);

// Throws NotBuiltError for a transport that is not in this build.
void check_transport(const RunConfig& config);

// The transports of this rank: over its group on each axis and over all ranks; none where a group
// has one member.
class Axes {
 public:
  // `program`: of this rank. On a GPU all goes between its buffers, and the device outlives this;
  // no executor has been made. Collective over all ranks.
  Axes(const Setup& setup, const plan::Program& program, RunDevice& device, dist::Session& session);
  dist::Transport* data() const { return data_.get(); }
  dist::Transport* tensor() const { return tensor_.get(); }
  dist::Transport* pipeline() const { return pipeline_.get(); }
  dist::Transport* tied() const { return tied_.get(); }
  dist::Transport* world() const { return world_.get(); }
  // How sums over data ranks are made, for people, where that is not in rank order of what
  // gradients are kept in; else empty.
  std::string data_sums() const;

 private:
  bool narrow_gradients_ = false;  // they travel in bfloat16
  std::unique_ptr<dist::CommunicationThread> thread_;
  std::unique_ptr<dist::Transport> data_;
  std::unique_ptr<dist::Transport> tensor_;
  std::unique_ptr<dist::Transport> pipeline_;
  std::unique_ptr<dist::Transport> tied_;
  std::unique_ptr<dist::Transport> world_;
};

// The cost table of this machine with every node of the model in it: from the cache, else measured
// by rank 0 (with a progress bar) and sent to the others. `choices` holds what a run directory or
// checkpoint has settled for products; those win. On a GPU the ranks share rank 0's. No tier of the
// device is in use. Collective over all ranks.
plan::CostTable obtain_costs(const Setup& setup, int threads, const nlohmann::json& choices,
                             RunDevice& device, dist::Session& session);

// Rates of the disk of a folder while the processor computes, as it will in training; `bytes` are
// left at 0. Says where the folder's files go through the page cache. Takes some seconds; throws as
// device::probe_disk.
plan::DiskRates measure_disk_rates(const std::string& folder);

// Without rows that no plan of this setup reads.
plan::CostTable costs_of_setup(const Setup& setup, plan::CostTable costs);

// Measures every node of the model once more, keeps what took less time, and caches that: for a
// table that was made while the machine did other things. On one rank.
plan::CostTable measure_costs_again(const Setup& setup, int threads, RunDevice& device);

}  // namespace garonne::train
