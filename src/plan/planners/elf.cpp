// ELF (2025) for small pipelines: for every schedule, and every number of stages, an integer
// program says what each micro-batch of each stage keeps, and the fastest step is proven to be
// that. The model is cut as Garonne cuts it; other ranks are data ranks. One micro-batch size, that
// of the run file; no tensor ranks.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/error.hpp"
#include "base/index.hpp"
#include "plan/graph/linear_program.hpp"
#include "plan/model/group_links.hpp"
#include "plan/pipeline/schedule_registry.hpp"
#include "plan/pipeline/stage_cut.hpp"
#include "plan/planners/recomputation_program.hpp"
#include "plan/planners/stage_costs.hpp"

namespace garonne::plan {
namespace {

constexpr std::int64_t most_passes = 64;
constexpr std::int64_t most_nodes = 20'000;

struct Pipeline {
  GridShape shape;
  int chunks = 1;
  RecomputationProblem problem;
  std::vector<int> firsts;         // of parts, and the end
  std::vector<std::size_t> chunk;  // by part, as options
};

// Adds the parameters that a device has with a part [first, last) beside the parts of `others`.
void add_trained(const std::vector<BlockCost>& blocks, int first, int last,
                 const std::vector<std::pair<int, int>>& others, TrainedSize& trained) {
  for (int b = first; b < last; ++b) {
    for (const BlockParameter& used : blocks[as_index(b)].parameters) {
      const int user = used.earlier_block;
      const bool has_it = std::any_of(others.begin(), others.end(), [&](const auto& other) {
        return other.first <= user && user < other.second;
      });
      if (!has_it && user < first) trained.add(used);
    }
  }
}

Pipeline pipeline_of(const PlannerInputs& inputs, const std::vector<BlockCost>& blocks,
                     const GridShape& shape, PipelineSchedule schedule) {
  Pipeline made{shape, schedule.chunks, {}, {}, {}};
  std::vector<double> seconds;
  std::vector<bool> may_begin;
  for (const BlockCost& block : blocks) {
    seconds.push_back(block.cut_seconds);
    may_begin.push_back(block.may_begin_part);
  }
  const auto route = pipeline_routes(schedule.placement, schedule.devices, schedule.chunks).front();
  made.firsts = balanced_blocks(seconds, may_begin, static_cast<int>(route.size()));
  RecomputationProblem& problem = made.problem;
  const std::size_t chunks = as_index(schedule.devices) * as_index(schedule.chunks);
  problem.costs.chunks.resize(chunks);
  problem.options.resize(chunks);
  std::vector<std::vector<std::pair<int, int>>> parts(as_index(schedule.devices));
  std::vector<TrainedSize> trained(as_index(schedule.devices));
  std::vector<std::int64_t> working(as_index(schedule.devices), 0);
  std::vector<std::int64_t> ahead(as_index(schedule.devices), 0);
  const PipelineNeighbours neighbours(schedule);
  std::int64_t message = 0;
  for (std::size_t part = 0; part < route.size(); ++part) {
    const int first = made.firsts[part];
    const int last = made.firsts[part + 1];
    const std::size_t device = as_index(route[part].device);
    const std::size_t chunk = neighbours.index(route[part]);
    made.chunk.push_back(chunk);
    PhaseSeconds& phases = problem.costs.chunks[chunk];
    for (int b = first; b < last; ++b) {
      const BlockCost& block = blocks[as_index(b)];
      phases.forward += block.forward_seconds + block.forward_link_seconds;
      phases.backward_input += block.backward_seconds + block.backward_link_seconds;
      phases.backward_weight += block.weight_seconds;
      working[device] = std::max(working[device], block.working_bytes);
    }
    problem.options[chunk] = chunk_options(blocks, first, last);
    add_trained(blocks, first, last, parts[device], trained[device]);
    parts[device].emplace_back(first, last);
    if (part == 0) continue;
    const std::int64_t comes_in = blocks[as_index(first)].input_bytes;
    message = std::max(message, comes_in);
    const ChunkPlace& before = route[part - 1];
    if (before.device == route[part].device) continue;
    // What was sent is held until its gradient has come; an input and such a gradient are received
    // an operation ahead.
    for (ChunkOption& option : problem.options[neighbours.index(before)])
      option.saved_bytes += comes_in;
    ahead[device] += comes_in;
    ahead[as_index(before.device)] += comes_in;
  }
  problem.costs.hop_seconds = message_seconds(message, hop_link(inputs.cluster, shape));
  const GroupLink data = GridLinks(inputs.cluster, Grid(shape)).data();
  for (std::size_t device = 0; device < trained.size(); ++device) {
    problem.room_bytes.push_back(inputs.budget_bytes -
                                 training_bytes(inputs.step, trained[device]) - working[device] -
                                 ahead[device]);
    const std::int64_t elements = trained[device].elements;
    const std::int64_t gradients = elements * inputs.step.element_bytes.gradient;
    const double reducing =
        shape.data > 1 ? collective_seconds("all-reduce", gradients, shape.data, data) : 0;
    problem.after_seconds.push_back(reducing + static_cast<double>(elements) *
                                                   (inputs.step.update_seconds_per_element +
                                                    inputs.step.sums_seconds_per_element +
                                                    inputs.step.norm_seconds_per_element));
  }
  problem.schedule = std::move(schedule);
  return made;
}

std::optional<PipelineSchedule> schedule_of(const ScheduleTraits& traits, int chunks, int stages,
                                            std::int64_t micro_batches) {
  PipelineRequest request;
  request.stages = stages;
  request.micro_batches = static_cast<int>(micro_batches);
  if (traits.chunks.size() > 1) request.chunks = chunks;
  try {
    return make_pipeline_schedule(traits.name, request);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

class Elf {
 public:
  explicit Elf(PlannerProblem& problem) : problem_(problem), inputs_(problem.inputs()) {}

  NamedChoice choose() {
    const auto* blocks = problem_.blocks(1, inputs_.micro_batch);
    if (!has_linear_program_solver()) return nothing("this build has no solver for it (HiGHS)");
    if (blocks == nullptr) return nothing(fmt::format("no micro-batch of {}", inputs_.micro_batch));
    int beginnings = 0;
    for (std::size_t b = 0; b < blocks->size(); ++b)
      beginnings += b == 0 || (*blocks)[b].may_begin_part ? 1 : 0;
    for (const std::int64_t stages : divisors_of(problem_.ranks())) {
      const std::int64_t data = problem_.ranks() / stages;
      if (stages < 2 || stages > beginnings ||
          problem_.global_batch() % (data * inputs_.micro_batch) != 0)
        continue;
      try_schedules(*blocks, {static_cast<int>(data), static_cast<int>(stages), 1}, beginnings);
    }
    if (!best_) {
      if (too_large_)
        return nothing(fmt::format("for small pipelines only, up to {} passes", most_passes));
      return is_tried_ ? nothing_fits()
                       : nothing("no pipeline of these ranks and this micro-batch");
    }
    return choice();
  }

 private:
  static NamedChoice nothing(const std::string& why) {
    NamedChoice choice;
    choice.words = "nothing";
    choice.note = why;
    return choice;
  }

  void try_schedules(const std::vector<BlockCost>& blocks, const GridShape& shape, int beginnings) {
    const std::int64_t micro_batches = problem_.global_batch() / shape.data / inputs_.micro_batch;
    for (const ScheduleTraits& traits : schedule_traits()) {
      // A micro-batch takes one of two ways; the solver knows one.
      if (traits.placement == ChunkPlacement::Bidirectional) continue;
      for (const int chunks : traits.chunks) {
        if (shape.pipeline * chunks > beginnings) continue;
        if (shape.pipeline * chunks * micro_batches > most_passes) {
          too_large_ = true;
          continue;
        }
        auto schedule = schedule_of(traits, chunks, shape.pipeline, micro_batches);
        if (schedule) try_one(pipeline_of(inputs_, blocks, shape, std::move(*schedule)));
      }
    }
  }

  void try_one(Pipeline pipeline) {
    is_tried_ = true;
    const std::vector<std::vector<int>> keeps(
        pipeline.problem.options.size(),
        std::vector<int>(as_index(pipeline.problem.schedule.micro_batches), 0));
    // Where nothing is run again it takes least.
    if (best_ && recomputation_seconds(pipeline.problem, keeps) >= found_.seconds) return;
    const Recomputation found = solve_recomputation(pipeline.problem, most_nodes);
    proven_ = proven_ && found.proven;
    if (!found.found || (best_ && found.seconds >= found_.seconds)) return;
    found_ = found;
    best_ = std::move(pipeline);
  }

  NamedChoice choice() const {
    NamedChoice choice;
    int again = 0;
    for (std::size_t part = 0; part < best_->chunk.size(); ++part) {
      const auto& options = found_.options[best_->chunk[part]];
      const int some = static_cast<int>(
          std::count_if(options.begin(), options.end(), [](int k) { return k > 0; }));
      again += some;
      choice.placed.push_back(
          {best_->firsts[part], best_->firsts[part + 1], best_->shape.data, 1, some > 0});
    }
    const PipelineSchedule& schedule = best_->problem.schedule;
    const auto passes = static_cast<int>(best_->chunk.size()) * schedule.micro_batches;
    choice.micro_batch = inputs_.micro_batch;
    choice.schedule = schedule.name;
    choice.seconds = found_.seconds;
    choice.words =
        fmt::format("{}{}, {}, micro-batch {}, {} of {} passes run something again", schedule.name,
                    best_->chunks > 1 ? fmt::format("/{}", best_->chunks) : "",
                    to_string(best_->shape), choice.micro_batch, again, passes);
    if (!proven_) add_note("its program was stopped before it had proven the best", choice);
    if (too_large_) add_note(fmt::format("of pipelines of up to {} passes", most_passes), choice);
    if (again > 0)
      add_note("every micro-batch of a stage keeps the same, in the fastest way that fits", choice);
    set_grid(problem_, best_->shape, schedule.name, 0, choice.micro_batch, choice, best_->chunks);
    return choice;
  }

  PlannerProblem& problem_;
  const PlannerInputs& inputs_;
  std::optional<Pipeline> best_;
  Recomputation found_;
  bool proven_ = true;
  bool too_large_ = false;
  bool is_tried_ = false;
};

}  // namespace

NamedChoice choose_elf(PlannerProblem& problem) {
  return Elf(problem).choose();
}

}  // namespace garonne::plan
