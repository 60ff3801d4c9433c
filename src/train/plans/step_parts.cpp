#include "train/plans/step_parts.hpp"

#include <algorithm>
#include <map>

namespace garonne::train {
namespace {

constexpr const char* compute_part = "compute";
constexpr const char* again_part = "memory (blocks run again)";
constexpr const char* bubble_part = "bubble";
// What is left on one stage, which waits for no other: copies.
constexpr const char* copies_part = "copies";
constexpr const char* launches_part = "launches";

}  // namespace

const std::pair<std::string, double>& binding(
    const std::vector<std::pair<std::string, double>>& parts) {
  return *std::max_element(parts.begin(), parts.end(),
                           [](const auto& a, const auto& b) { return a.second < b.second; });
}

StepShares shares_of(const std::vector<std::pair<std::string, double>>& parts) {
  StepShares shares;
  double all = 0;
  for (const auto& [name, seconds] : parts) {
    double& share = name == compute_part                           ? shares.compute
                    : name == again_part                           ? shares.again
                    : name == bubble_part                          ? shares.bubble
                    : name == copies_part || name == launches_part ? shares.other
                                                                   : shares.communication;
    share += seconds;
    all += seconds;
  }
  if (all <= 0) return {};
  for (double StepShares::*share : {&StepShares::compute, &StepShares::again, &StepShares::bubble,
                                    &StepShares::other, &StepShares::communication})
    shares.*share /= all;
  return shares;
}

StepPartsOfStages::StepPartsOfStages(const std::vector<plan::Program>& programs,
                                     const plan::GridLinks* links) {
  if (links != nullptr) {
    tensor_leaves_ = links->tensor().between_nodes;
    data_leaves_ = links->data().between_nodes;
  }
  for (std::size_t stage = 0; stage < programs.size(); ++stage) {
    const Computing mine = add_stage(programs[stage], static_cast<int>(stage), links);
    computing_.push_back(mine);
    const Computing& most = computing_[busiest_];
    if (mine.own + mine.again > most.own + most.again) busiest_ = stage;
  }
}

StepPartsOfStages::Computing StepPartsOfStages::add_stage(const plan::Program& program, int stage,
                                                          const plan::GridLinks* links) {
  Computing computing;
  plan::LinkTraffic sent;
  std::map<int, bool> leaves_to;  // by stage
  for (const auto& instruction : program.instructions) {
    if (plan::is_local_work(instruction)) {
      (instruction.recompute ? computing.again : computing.own) += instruction.seconds;
      continue;
    }
    if (!instruction.channel || instruction.operation == plan::Operation::Receive) continue;
    const plan::Channel& channel = *instruction.channel;
    if (instruction.operation == plan::Operation::Send) {
      const auto [known, fresh] = leaves_to.try_emplace(channel.peer, false);
      if (fresh && links != nullptr)
        known->second = links->stages(stage, channel.peer).between_nodes;
      (known->second ? sent.between : sent.inside) += static_cast<double>(channel.bytes);
      continue;
    }
    const plan::GroupLink group =
        links != nullptr ? links->of_group(channel.group, channel.members) : plan::GroupLink();
    const plan::LinkTraffic traffic = plan::collective_traffic(
        channel.kind, channel.bytes, static_cast<std::int64_t>(channel.members.size()), group);
    sent.inside += traffic.inside;
    sent.between += traffic.between;
  }
  inside_traffic_ = std::max(inside_traffic_, sent.inside);
  between_traffic_ = std::max(between_traffic_, sent.between);
  return computing;
}

StepParts StepPartsOfStages::of(const std::vector<plan::Prediction>& predictions) const {
  double seconds = 0;
  for (const auto& prediction : predictions) seconds = std::max(seconds, prediction.seconds);
  const auto [own, again] = computing_[busiest_];
  const plan::Prediction& busiest = predictions[busiest_];
  const plan::WaitedSeconds& waited = busiest.waited;
  const auto link = [](const std::string& name, bool leaves) {
    return name + (leaves ? " link between nodes" : " link inside nodes");
  };
  StepParts result;
  result.inside_traffic = inside_traffic_;
  result.between_traffic = between_traffic_;
  result.bubble_seconds = std::max(0.0, seconds - own - again);
  const double rest = result.bubble_seconds - waited.tensor - waited.data - waited.pipeline -
                      waited.world - busiest.launch_seconds;
  result.parts = {{compute_part, own},
                  {again_part, again},
                  {link("tensor", tensor_leaves_), waited.tensor},
                  {link("data", data_leaves_), waited.data},
                  {"pipeline link", waited.pipeline},
                  {"sums of the step", waited.world},
                  {computing_.size() > 1 ? bubble_part : copies_part, std::max(0.0, rest)}};
  if (busiest.issue_seconds > 0) result.parts.emplace_back(launches_part, busiest.launch_seconds);
  return result;
}

}  // namespace garonne::train
