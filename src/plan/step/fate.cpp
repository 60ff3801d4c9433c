#include "plan/step/fate.hpp"

#include <fmt/format.h>

#include <string>

#include "base/error.hpp"

namespace garonne::plan {
namespace {

[[noreturn]] void refuse(const std::string& what, Fate fate) {
  throw InternalError(fmt::format(
      "{} has the fate \"{}\", which no schedule can place yet: use \"keep\" or \"recompute\"",
      what, to_string(fate)));
}

bool is_placed(Fate fate) {
  return fate == Fate::Keep || fate == Fate::Recompute;
}

}  // namespace

std::string_view to_string(Fate fate) {
  switch (fate) {
    case Fate::Keep:
      return "keep";
    case Fate::Recompute:
      return "recompute";
    case Fate::Host:
      return "host";
    case Fate::Disk:
      return "disk";
    case Fate::Approximate:
      return "approximate";
  }
  return "unknown";
}

Fates keep_everything(const ModelGraph& graph) {
  return {std::vector<Fate>(graph.values.size(), Fate::Keep),
          std::vector<RecordFate>(graph.nodes.size())};
}

void set_fate(const ModelGraph& graph, int node, RecordFate fate, Fates& fates) {
  const auto n = static_cast<std::size_t>(node);
  fates.records[n] = fate;
  fates.values[static_cast<std::size_t>(graph.nodes[n].output)] = fate.fate;
}

std::vector<int> exact_options(const NodeSpec& node) {
  std::vector<int> options;
  for (int k = 0; k < node.keep_options(); ++k) {
    if (node.keep_option(k).exact) options.push_back(k);
  }
  return options;
}

std::vector<RecordFate> possible_fates(const NodeSpec& node) {
  std::vector<RecordFate> fates;
  for (const int k : exact_options(node)) fates.push_back({Fate::Keep, k});
  fates.push_back({Fate::Recompute, 0});
  return fates;
}

bool is_kept(const ValueSpec& value, Fate fate) {
  if (!is_placed(fate)) refuse("the value " + value.name, fate);
  return fate == Fate::Keep;
}

bool is_kept(const NodeSpec& node, RecordFate fate) {
  const KeepOption& option = node.keep_option(fate.option);
  const Fate truly = fate.fate == Fate::Keep && !option.exact ? Fate::Approximate : fate.fate;
  if (!is_placed(truly))
    refuse(fmt::format("the record of {}, made as \"{}\",", node.name, option.name), truly);
  return truly == Fate::Keep;
}

}  // namespace garonne::plan
