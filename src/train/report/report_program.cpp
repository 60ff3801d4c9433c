#include "train/report/report_program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/index.hpp"
#include "base/json_input.hpp"
#include "plan/program/live_bytes.hpp"
#include "plan/program/spans.hpp"
#include "plan/step/rank_program.hpp"
#include "train/plans/saved_programs.hpp"

namespace garonne::train {
namespace {

using nlohmann::ordered_json;

// Into report_kind_names, by the words of all tables of memory.
std::size_t report_kind(std::size_t kind) {
  const std::string_view row = plan::memory_row(static_cast<plan::BufferKind>(kind));
  const auto found = std::find(report_kind_names.begin(), report_kind_names.end(),
                               row == "gathered"    ? "communication"
                               : row == "libraries" ? "transients"
                                                    : row);
  expect(found != report_kind_names.end(), "a report has no row for a kind of buffer");
  return static_cast<std::size_t>(found - report_kind_names.begin());
}

RankProgram read_rank_program(const std::string& path) {
  const nlohmann::json json = parse_json(read_text_file(path, most_run_json_bytes), path,
                                         FileOwner::Run, most_program_values);
  RankProgram rank;
  rank.program = plan::program_from_json(json, path, FileOwner::Run);
  try {
    rank.prediction = plan::replay(rank.program);
  } catch (const plan::ReplayError& illegal) {
    throw IoError(path, illegal.what());
  }
  rank.measured = plan::measurements_from_json(json, path, FileOwner::Run);
  if (rank.measured.empty())
    throw IoError(path, "was not measured; `garonne train` writes it when it ends");
  return rank;
}

// By kind, then by instruction.
ordered_json bytes_json(const RankProgram& rank, Tier tier) {
  const std::vector<ReportBytes> during = bytes_during(rank.program, tier);
  ordered_json bytes = ordered_json::array();
  for (std::size_t kind = 0; kind < report_kinds; ++kind) {
    ordered_json series = ordered_json::array();
    for (const auto& at : during) series.push_back(at[kind]);
    bytes.push_back(std::move(series));
  }
  return bytes;
}

// The structure, which ranks share.
ordered_json program_json(const RankProgram& rank) {
  const plan::Program& program = rank.program;
  std::map<std::string, std::size_t> place;
  ordered_json nodes = ordered_json::array();
  ordered_json operations = ordered_json::array();
  ordered_json node_of = ordered_json::array();
  ordered_json micro_batches = ordered_json::array();
  ordered_json recompute = ordered_json::array();
  ordered_json seconds = ordered_json::array();
  ordered_json completes = ordered_json::array();
  // Names of the lanes beside compute; for each instruction which of them, -1 = compute.
  ordered_json lanes = ordered_json::array();
  ordered_json lane_of = ordered_json::array();
  ordered_json begins = ordered_json::array();
  ordered_json ends = ordered_json::array();
  std::map<Lane, int> lane_place = {{Lane::Compute, -1}};
  for (const auto& span : plan::spans_of(program)) {
    begins.push_back(span.begin);
    ends.push_back(span.end);
  }
  for (const auto& instruction : program.instructions) {
    const auto [lane, is_new_lane] =
        lane_place.emplace(instruction.lane, static_cast<int>(lanes.size()));
    if (is_new_lane) lanes.push_back(to_string(instruction.lane));
    lane_of.push_back(lane->second);
    const auto [entry, is_new] = place.emplace(instruction.node, place.size());
    if (is_new) nodes.push_back(instruction.node);
    operations.push_back(to_string(instruction.operation));
    node_of.push_back(entry->second);
    micro_batches.push_back(instruction.micro_batch);
    recompute.push_back(instruction.recompute ? 1 : 0);
    seconds.push_back(instruction.seconds);
    completes.push_back(instruction.completes);
  }
  ordered_json json = {{"name", program.name},
                       {"budget_bytes", program.budget_bytes()},
                       {"peak_bytes", rank.prediction.peak_bytes},
                       {"peak_instruction", rank.prediction.peak_instruction},
                       {"seconds", rank.prediction.seconds},
                       {"micro_batches", program.micro_batches},
                       {"node_names", std::move(nodes)},
                       {"kinds", report_kind_names},
                       {"operation", std::move(operations)},
                       {"node", std::move(node_of)},
                       {"micro_batch", std::move(micro_batches)},
                       {"recompute", std::move(recompute)},
                       {"instruction_seconds", std::move(seconds)},
                       {"completes", std::move(completes)},
                       {"lanes", std::move(lanes)},
                       {"lane", std::move(lane_of)},
                       {"begin_seconds", std::move(begins)},
                       {"end_seconds", std::move(ends)},
                       {"live_bytes", rank.prediction.live_bytes},
                       {"bytes", bytes_json(rank, Tier::Device)}};
  for (const Tier tier : {Tier::Host, Tier::Disk}) {
    const plan::TierBytes& below = rank.prediction.of(tier);
    if (below.peak_bytes == 0) continue;
    json["below"][to_string(tier)] = {{"budget_bytes", program.tier(tier).budget_bytes},
                                      {"peak_bytes", below.peak_bytes},
                                      {"peak_instruction", below.peak_instruction},
                                      {"bytes", bytes_json(rank, tier)}};
  }
  return json;
}

}  // namespace

std::vector<RankProgram> read_rank_programs(const std::string& run_directory, int ranks) {
  const auto path = [&](int rank) { return program_file(run_directory + "/program", rank); };
  std::error_code error;
  if (!std::filesystem::exists(path(0), error)) return {};
  std::vector<RankProgram> programs;
  for (int rank = 0; rank < ranks; ++rank) programs.push_back(read_rank_program(path(rank)));
  return programs;
}

std::vector<ReportBytes> bytes_during(const plan::Program& program, Tier tier) {
  std::vector<ReportBytes> during;
  for (const plan::BytesByKind& bytes : plan::bytes_by_kind(program, tier)) {
    ReportBytes now{};
    for (std::size_t kind = 0; kind < bytes.size(); ++kind) now[report_kind(kind)] += bytes[kind];
    if (tier == Tier::Device)
      now[report_kinds - 1] += program.instructions[during.size()].transient_bytes;
    during.push_back(now);
  }
  return during;
}

std::vector<NodeRow> node_rows(const RankProgram& rank) {
  std::vector<NodeRow> rows;
  std::map<std::string, std::size_t> place;
  const plan::Program& program = rank.program;
  std::map<int, bool> forward_of;  // by what a divided pass exchanges
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const plan::Instruction& instruction = program.instructions[i];
    const bool begins =
        plan::is_forward(instruction.operation) || plan::is_backward(instruction.operation);
    const int exchanged = instruction.arguments.exchanged;
    if (!begins && exchanged < 0) continue;
    if (begins && exchanged >= 0) forward_of[exchanged] = plan::is_forward(instruction.operation);
    const bool forward = begins ? plan::is_forward(instruction.operation) : forward_of[exchanged];
    const auto [entry, is_new] = place.emplace(instruction.node, rows.size());
    if (is_new) {
      rows.emplace_back();
      rows.back().node = instruction.node;
    }
    NodeRow& row = rows[entry->second];
    row.transient_bytes = std::max(row.transient_bytes, instruction.transient_bytes);
    const double measured = rank.measured[i].seconds;
    if (!forward) {
      row.backwards += begins && instruction.operation != plan::Operation::BackwardInput;
      row.backward_seconds += instruction.seconds;
      row.measured_backward_seconds += measured;
      continue;
    }
    row.forwards += begins;
    row.recomputations += begins && instruction.recompute;
    row.forward_seconds += instruction.seconds;
    row.measured_forward_seconds += measured;
    const int output = instruction.arguments.output;
    if (output >= 0 && !plan::is_collective(instruction.operation))
      row.output_bytes = program.buffers[as_index(output)].bytes;
    std::int64_t record = 0;
    for (const int slot : instruction.arguments.record)
      record += program.buffers[as_index(slot)].bytes;
    row.record_bytes = std::max(row.record_bytes, record);
  }
  return rows;
}

ordered_json programs_json(const std::vector<RankProgram>& ranks,
                           const std::map<std::string, std::string>& kinds) {
  std::map<std::string, std::size_t> distinct;  // by hash, without what belongs to a rank alone
  ordered_json programs = ordered_json::array();
  ordered_json rank_rows = ordered_json::array();
  for (const auto& rank : ranks) {
    const auto [entry, is_new] =
        distinct.emplace(plan::program_hash(plan::without_rank(rank.program)), programs.size());
    if (is_new) programs.push_back(program_json(rank));
    ordered_json seconds = ordered_json::array();
    ordered_json live = ordered_json::array();
    ordered_json peaks = ordered_json::array();
    for (const auto& measurement : rank.measured) {
      seconds.push_back(measurement.seconds);
      live.push_back(measurement.live_bytes);
      peaks.push_back(measurement.peak_bytes);
    }
    rank_rows.push_back({{"rank", rank.program.rank},
                         {"program", entry->second},
                         {"measured_seconds", std::move(seconds)},
                         {"measured_live_bytes", std::move(live)},
                         {"measured_peak_bytes", std::move(peaks)}});
  }
  ordered_json nodes = ordered_json::array();
  if (!ranks.empty()) {
    for (const auto& row : node_rows(ranks[0])) {
      const auto kind = kinds.find(row.node);
      nodes.push_back({{"node", row.node},
                       {"kind", kind == kinds.end() ? std::string() : kind->second},
                       {"forwards", row.forwards},
                       {"recomputations", row.recomputations},
                       {"backwards", row.backwards},
                       {"forward_seconds", row.forward_seconds},
                       {"backward_seconds", row.backward_seconds},
                       {"measured_forward_seconds", row.measured_forward_seconds},
                       {"measured_backward_seconds", row.measured_backward_seconds},
                       {"output_bytes", row.output_bytes},
                       {"record_bytes", row.record_bytes},
                       {"transient_bytes", row.transient_bytes}});
    }
  }
  return {{"programs", std::move(programs)},
          {"ranks", std::move(rank_rows)},
          {"nodes", std::move(nodes)}};
}

}  // namespace garonne::train
