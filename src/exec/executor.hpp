// The executor: a plain interpreter of Programs, without policy. It does what the instructions say
// with the buffers that they name, checks that every buffer it makes has the bytes that the Program
// gives it and every value the type and shape that the model does, and measures.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/captures.hpp"
#include "device/device.hpp"
#include "device/disk_tier.hpp"
#include "device/tier_memory.hpp"
#include "dist/session.hpp"
#include "dist/transport.hpp"
#include "exec/device_tier.hpp"
#include "exec/model_state.hpp"
#include "exec/staging.hpp"
#include "exec/static_buffers.hpp"
#include "nn/gemm/product.hpp"
#include "nn/model.hpp"
#include "optim/optimizer.hpp"
#include "plan/program/program.hpp"

namespace garonne::exec {

// One micro-batch on the host: which samples, and the loaded values by their names in the model.
struct HostBatch {
  std::vector<std::int64_t> samples;                        // [batch]; none: it cannot be had
  std::map<std::string, std::vector<std::int64_t>> values;  // tokens, targets [batch · sequence]
  // Fields in place of tokens; they become tensors of the compute type. As single precision, which
  // is what files hold, and which doubles hold exactly.
  std::map<std::string, std::vector<float>> fields;
};

// What an execution is given beside the Program.
struct StepInputs {
  std::uint64_t seed = 0;
  std::int64_t step = 1;  // from 1
  bool training = true;   // dropout acts
  double loss_scale = 1;  // weight of one micro-batch's loss in the sum, and of its gradients
  double learning_rate = 0;
  double clip_norm = 0;  // 0 = off
  std::function<HostBatch(int micro_batch)> load;
  // Called before each instruction where it is set, and may hold it; `updates`: it is an update,
  // which changes the state. Nothing before the first update does. Called where Compute is, which
  // may be another thread than that which runs the step.
  std::function<void(bool updates)> before;
};

struct StepOutputs {
  double loss = 0;
  double gradient_norm = 0;
  std::vector<double> report;                   // what a forward-only Program hands out, as double
  std::vector<plan::Measurement> measurements;  // one an instruction
  // After each instruction, on each tier below the device that there is.
  std::map<Tier, std::vector<std::int64_t>> live_bytes_below;
  std::map<Lane, double> copy_seconds;  // that each lane moved buffers between tiers
  std::int64_t peak_bytes = 0;          // static bytes included
  double data_seconds = 0;              // in which the host waited for StepInputs::load
};

// What a step may touch. All must outlive the executor.
struct RankResources {
  device::Device* device = nullptr;
  DeviceTier* tier = nullptr;
  Staging* staging = nullptr;  // of a GPU; null where the host reaches the device's memory
  // Of a GPU, where its steps may be recorded: what records, and step_number_bytes of the device's
  // memory, in which kernels find what changes from step to step.
  device::Captures* captures = nullptr;
  std::byte* step_numbers = nullptr;
  // Below the device; null where Programs have nothing there.
  device::TierMemory* host = nullptr;
  device::DiskTier* disk = nullptr;
  ModelState* state = nullptr;
  const nn::Products* products = nullptr;
  const optim::Optimizer* optimizer = nullptr;
  // By axis and over all ranks; null where the axis has one member.
  dist::Transport* data = nullptr;
  dist::Transport* tensor = nullptr;
  dist::Transport* pipeline = nullptr;
  dist::Transport* tied = nullptr;  // the two stages with copies of tied parameters
  dist::Transport* world = nullptr;
  // Where several ranks record their steps, which they decide alike; null: one does.
  dist::Session* session = nullptr;
  // Called after the gradients are complete and before the update; for tests and tools. In shards
  // once for each piece, flat. The gradient is where the device has it, or a copy on the host where
  // that is a GPU.
  std::function<void(int parameter, const at::Tensor& gradient)> watch_gradient;
};

inline constexpr std::int64_t step_number_bytes = 512;

// Whether steps on a GPU are recorded once and then carried out as one CUDA graph.
enum class GraphUse { Never, Auto, Always };

// Why steps of a Program are never recorded, whatever they run on; empty: they may be. `transport`
// carries what it exchanges with other ranks (dist::Transport::name).
std::string graph_obstacle(const plan::Program& program, std::string_view transport);
// Pinned memory that a recorded step keeps.
std::int64_t recorded_pinned_bytes(const nn::Model& model, const plan::Program& program);

class Executor {
 public:
  // `program` must have been accepted by replay, and the state of `resources` have its lasting
  // buffers; the Program and the model must outlive the executor.
  Executor(const nn::Model& model, const plan::Program& program, const RankResources& resources);

  // Runs one step; collective over the groups of the Program. Of a rotated Program
  // (plan/program/rotated_step.hpp) the updates on the host of the step before are carried out with
  // it, and its own are left to the next one or to flush(). Throws RefusedError (allocator) with
  // the instruction's name, dist::AgreedError of the same code where loss or gradient norm are not
  // finite, which all ranks see alike and with which nothing is updated, CommunicationError from
  // the transport. After any other exception the state is that of the last whole update, or partly
  // updated when an update was interrupted.
  StepOutputs run(const StepInputs& inputs);
  // Carries out what the last step has left, so that the state is that after it; nothing where it
  // left nothing. Collective and throwing as run() is.
  void flush();
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // From now on steps of a GPU, from the third one on, are recorded and carried out as a whole
  // where that is possible and, if it is not asked for, where it saves time. Bits and bytes are
  // the same. For training: all steps have one seed, clip norm and loss scale. `Always` where it is
  // not possible: ConfigError of run.graphs, here or by run(). It is worth a try where the host
  // takes that share of a step or more for putting it on the device; by default half where ranks
  // exchange, a fifth elsewhere. Ranks that exchange decide alike (RankResources::session): what
  // one of them cannot record none does, all record anew where one has to, and the slowest says
  // whether time is saved. Collective, and its errors are AgreedErrors then, as those of run().
  void use_graphs(GraphUse use, std::optional<double> least_share_of_issue = std::nullopt);
  // What was decided about that since the last call, in a line; empty where nothing was.
  std::string take_note();
  // The exchange with other ranks that was waited for last, by its instruction; empty before the
  // first one. Any thread.
  std::string last_exchange() const;

 private:
  struct Running;
  struct Recorded;
  // By what an update goes beside the Program.
  struct UpdateNumbers {
    std::int64_t step = 0;
    double learning_rate = 0;
  };
  struct CarriedOver;
  Queue queue() const;  // of Compute
  at::TensorOptions options(at::ScalarType type) const;
  // A part of an instruction, carried out on a lane.
  using Part = void (Executor::*)(std::size_t number, Running& running);
  bool memory_apart() const;
  void run_plain(const std::shared_ptr<Running>& running);
  void run_here(Running& running);
  void run_apart(const std::shared_ptr<Running>& running);
  void run_on_gpu(Running& running);
  void issue(std::size_t number, const std::shared_ptr<Running>& running);
  device::Mark put(Lane lane, Part work, std::size_t number,
                   const std::shared_ptr<Running>& running);
  void start_carried(Running& running);
  void carry_over(Running& running);
  static bool takes_part(const plan::Instruction& instruction, const Running& running);
  void pass_over(std::size_t number, Running& running);
  static HostBatch load_batch(int micro_batch, Running& running);
  void issue_to_gpu(std::size_t number, Running& running);
  std::string obstacle() const;
  bool wants_graph() const;
  bool has_graph_for(const StepInputs& inputs);
  bool record(const StepInputs& inputs);
  void record_step(const StepInputs& inputs);
  bool any_rank(bool here) const;
  double slowest(double seconds) const;
  std::string reason_of_all(const std::string& here) const;
  void graphs_are_none(const std::string& reason, std::string_view advice);
  std::vector<dist::Transport*> transports() const;
  void put_recorded(std::size_t number);
  void make_recorded(std::size_t number, Running& running);
  void execute_recorded(std::size_t number, Running& running);
  bool is_of_this_run(const StepInputs& inputs) const;
  void load_recorded(Running& running);
  void run_recorded(Running& running);
  void judge_graph();
  void fill_step_numbers(Running& running) const;
  std::vector<std::byte> step_numbers(const StepInputs& inputs) const;
  bool has_step_numbers() const;
  void start_running(Running& running) const;
  void stage_loaded(std::size_t number, Running& running);
  void take_seconds(Running& running) const;
  void carry_out(std::size_t number, Running& running);
  void prepare(std::size_t number, Running& running);
  void load(std::size_t number, Running& running);
  void conclude(std::size_t number, Running& running);
  void begin(std::size_t number, Running& running);
  void end(std::size_t number, Running& running);
  void measure(Running& running) const;
  void start_transfer(std::size_t number, Running& running);
  void make_loaded(std::size_t number, Running& running);
  void fill_loaded(std::size_t number, Running& running);
  void read_report(std::size_t number, Running& running);
  std::vector<at::Tensor> loaded(const plan::Instruction& instruction, Running& running) const;
  void execute(const plan::Instruction& instruction, std::size_t number, Running& running);
  void forward(const plan::Instruction& instruction, bool keep, Running& running);
  void backward(const plan::Instruction& instruction, Running& running);
  void begin_pass(const plan::Instruction& instruction, Running& running);
  void finish_pass(const plan::Instruction& instruction, Running& running);
  dist::Transport& transport_of(const plan::Instruction& instruction) const;
  void await_transfer(std::size_t number, Running& running);
  static void hand_to_transport(std::size_t number, Running& running, dist::Transport& transport,
                                std::function<dist::Ticket()> start);
  at::Tensor message_part(const plan::Instruction& instruction, const at::Tensor& whole,
                          const Running& running) const;
  void send(const plan::Instruction& instruction, std::size_t number, Running& running);
  void receive(const plan::Instruction& instruction, std::size_t number, Running& running);
  struct SumOverRanks {
    at::Tensor data;
    dist::SumType type;
    dist::Transport& transport;
    at::Tensor staging;  // of no bytes where the sum takes none
  };
  SumOverRanks sum_over_ranks(const plan::Instruction& instruction, Running& running);
  void all_reduce(const plan::Instruction& instruction, std::size_t number, Running& running);
  void reduce_scatter(const plan::Instruction& instruction, std::size_t number, Running& running);
  void all_gather(const plan::Instruction& instruction, std::size_t number, Running& running);
  device::TierMemory* memory_below(Tier tier) const;
  bool has_copies() const;
  void copy(const plan::Instruction& instruction, std::size_t number, Running& running);
  static void give_back(int buffer, Running& running);
  void start_copy(std::size_t number, Running& running);
  void take_copy_seconds(Running& running) const;
  void keep_shard(const plan::Instruction& instruction, Running& running);
  at::Tensor part(const plan::Range& range, const Running& running) const;
  std::vector<at::Tensor> parameters_of(const plan::Instruction& instruction,
                                        const Running& running) const;
  void emit_loss(const plan::Instruction& instruction, Running& running);
  void sum_squares(const plan::Instruction& instruction, Running& running);
  void norm(const plan::Instruction& instruction, Running& running);
  void sum_tensors(const plan::Instruction& instruction, Running& running);
  void update(const plan::Instruction& instruction, Running& running);
  void update_on_host(const plan::Instruction& instruction, std::size_t number, Running& running);
  std::vector<optim::ParameterUpdate> updates_of(
      const plan::Instruction& instruction,
      const std::function<at::Tensor(const plan::Range& range)>& part) const;
  // `sums`: the buffers in which those of their parameters are (SumTensors), of some first rounds.
  std::vector<optim::ParameterUpdate> updates_on_device(const plan::Instruction& instruction,
                                                        std::span<const int> sums,
                                                        const Running& running) const;
  void make(const plan::Instruction& instruction, int buffer, const at::Tensor& tensor,
            Running& running) const;
  void check_made(const plan::Instruction& instruction, const Running& running) const;
  nn::Context context_of(const plan::Instruction& instruction, const Running& running) const;
  void make_targets(const plan::Instruction& instruction, Running& running) const;

  const nn::Model& model_;
  const plan::Program& program_;
  RankResources resources_;
  std::atomic<std::int64_t> last_exchange_{-1};  // an instruction
  StaticBuffers static_buffers_;                 // of the state
  std::vector<std::string> activities_;          // by instruction
  bool updates_ = false;
  bool rotated_ = false;
  std::unique_ptr<CarriedOver> carried_;  // null: the last step left nothing

  // Of a GPU.
  struct PlainSteps {
    int number = 0;
    double seconds = 0;        // of the fastest, without waits for data
    double issue_seconds = 0;  // in which the host put the last one on the device
    std::vector<plan::Measurement> measurements;
  };
  GraphUse graph_use_ = GraphUse::Never;
  std::optional<double> least_share_of_issue_;
  PlainSteps plain_steps_;
  std::shared_ptr<Recorded> recorded_;
  bool graphs_given_up_ = false;
  std::string note_;
};

}  // namespace garonne::exec
