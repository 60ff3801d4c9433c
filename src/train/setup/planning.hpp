// From a configuration to a model and a Program that fits, without devices, ranks or data.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/grid.hpp"
#include "nn/decoding.hpp"
#include "nn/model.hpp"
#include "plan/model/cost_table.hpp"
#include "plan/offload/tier_planner.hpp"
#include "plan/pipeline/pipeline_stage.hpp"
#include "plan/program/replay.hpp"
#include "plan/stage/stage_planner.hpp"
#include "train/workload/data_facts.hpp"

namespace garonne::train {

// Everything that follows from the configuration alone.
struct Setup {
  // As it was given, but without evaluation.batches where the data have nothing to validate on: a
  // plan need not leave room for what never runs.
  RunConfig config;
  Grid grid;
  nn::Declaration declaration;
  DataFacts facts;
  nn::Model model;
  plan::StepShape step;  // of rank 0's groups
  // The graph of the whole model before any costs were applied: bytes are those that nodes declare,
  // seconds follow from declared operations and round numbers for machine and links.
  std::shared_ptr<const plan::ModelGraph> declared;
  // Of a cluster whose software deals out blocks otherwise than by their seconds; null: by those.
  std::shared_ptr<const plan::ModelGraph> cut_by;
  // Below the device, for each rank (train/setup/lower_tiers.hpp). The disk is shared by the ranks
  // of a node: all of them are on one where nobody says otherwise.
  plan::LowerTiers below;
  plan::DiskRates disk;
  plan::CopyRates copies;  // of each device, with the host
  int ranks_on_node = 1;
};

// By which seconds the blocks of a model are dealt out over the stages of a pipeline: those in the
// graph, so that all stages take equally long, or those of Setup::declared, which no profile moves.
enum class Cut { BySeconds, AsDeclared };

// What of it one pipeline stage does: its part of the model and its place in the schedule. Costs
// are applied first. Throws ConfigError (grid.pipeline, grid.schedule, grid.chunks) for what cannot
// be cut or scheduled.
Setup setup_of_stage(const Setup& whole, int stage, Cut cut = Cut::BySeconds);

// The step of one of its stages; Setup::ranks_on_node is known.
void put_in_pipeline(plan::PipelinePlace place, const Setup& setup, plan::StepShape& step);

// The stage of Setup::declared, cut as declared; `setup` is of all stages or of any.
plan::PipelineStage declared_stage(const Setup& setup, int stage);

// The stage whose program has the loss.
int stage_with_loss(const Setup& whole);

// `threads`: of a rank. Throws ConfigError, as for a global batch that does not divide. `rank`:
// whose part of the model; graphs are equal on all tensor ranks. `device`: what it is for;
// none: what run.device names here.
Setup make_setup(const RunConfig& config, const DataFacts& facts, int threads, int rank = 0,
                 const std::optional<plan::DeviceFacts>& device = std::nullopt);

// The number types of a run, for people: "float32, products in TF32".
std::string describe_numbers(const RunConfig& config);

// The sizes of the model in the field's own words, on one line.
std::string describe_sizes(const Setup& setup);

// The setup of a generator in the place of the trained model, whose parameters it has: its stage is
// that of `setup`, which is cut as declared, and its tensor rank that of `rank`. Throws ConfigError
// (model.kind) for kinds that learn from others than tokens.
Setup setup_of_generator(const Setup& setup, const nn::GeneratorRows& rows, int rank);

// Elements of the parameters that a rank has a part of, each counted whole and without padding.
std::int64_t whole_parameter_elements(const nn::Model& model);

// Puts a cost table into model, step and tiers; true when every node was in it.
bool apply_costs(const plan::CostTable& costs, Setup& setup);

struct Choice {
  plan::Program program;  // of the stage: program_of_rank() says how a rank runs it
  plan::Prediction prediction;
  plan::Program
      evaluation;  // one forward-only micro-batch; no instructions when there is no validation
  plan::Prediction evaluation_prediction;
  std::vector<plan::StageCandidate> candidates;
  // The smallest budget (train/plans/smallest_budget.hpp) of the stage, of all stages where that
  // was asked for; 0 where nobody had to find out.
  std::int64_t minimum_budget_bytes = 0;
  // No plan of the budget takes less; 0 where nobody found out.
  double least_seconds = 0;
  // Not everything fits as seconds would cut the pipeline: it is cut as declared.
  bool cut_as_declared = false;
  // Of the budget, that were no plan's to take (train/plans/saving_plan.hpp).
  std::int64_t reserved_bytes = 0;
};

// Whether to compare all plans, or to be content when the one that runs nothing twice fits; or also
// with fewer mixtures of what runs twice and what moves, for who compares many setups.
enum class Effort { Few, FirstThatFits, All };

// The fastest of the wanted plans that fits `budget_bytes`. Throws PlanError with the smallest
// budget where less was given; in a pipeline also where the stage as it is cut needs more than is
// there, which plan_grid() and choose_together() know a way around (train/plans/grid_plan.hpp).
// ConfigError for an unknown plan.
Choice choose_program(const Setup& setup, std::int64_t budget_bytes);
// The same with another memory.plan than the configuration's.
Choice choose_program(const Setup& setup, std::int64_t budget_bytes, const std::string& wanted,
                      Effort effort);

// The ranks with the copies of tied parameters, in the pipeline of `rank`; none where there is one
// copy.
std::vector<int> tied_members(const Setup& setup, int rank);

// A Program of the setup's stage as rank `rank` runs it.
plan::Program program_of_rank(const Setup& setup, plan::Program program, int rank);

// What the rank prints at start and `garonne plan` prints: bytes by kind at the peak.
struct MemoryTable {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  std::int64_t optimizer = 0;
  std::int64_t activations = 0;
  std::int64_t transients = 0;
  std::int64_t communication = 0;
  std::int64_t gathered = 0;    // whole parameters from shards, under ZeRO 3
  std::int64_t libraries = 0;   // what they keep of a GPU all the time
  std::int64_t saved_copy = 0;  // beside the peak: what checkpoints are written from
  std::int64_t free = 0;
  std::int64_t peak = 0;
};
// `saved_copy_bytes`: within the budget (train/plans/saving_plan.hpp).
MemoryTable memory_table(const plan::Prediction& prediction, std::int64_t budget_bytes,
                         std::int64_t saved_copy_bytes = 0);
std::string format_memory_table(const MemoryTable& table, std::int64_t budget_bytes);

// "auto" as a number: what is free on this node over the ranks on it; other budgets as they are.
std::int64_t resolve_budget(const RunConfig& config, int ranks_on_node);

}  // namespace garonne::train
