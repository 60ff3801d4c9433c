#include "train/plans/grid_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "train/plans/tier_rows.hpp"
#include "train/setup/run_device.hpp"

namespace garonne::train {
namespace {

constexpr std::size_t most_groups_shown = 4;
constexpr std::size_t most_members_shown = 4;

using Column = std::pair<const char*, std::int64_t MemoryTable::*>;

// The columns of the table, and of the text in which ranks send theirs to the first.
const std::vector<Column> memory_columns = {{"peak", &MemoryTable::peak},
                                            {"parameters", &MemoryTable::parameters},
                                            {"gradients", &MemoryTable::gradients},
                                            {"optimizer", &MemoryTable::optimizer},
                                            {"activations", &MemoryTable::activations},
                                            {"transients", &MemoryTable::transients},
                                            {"communication", &MemoryTable::communication},
                                            {"copy", &MemoryTable::saved_copy},
                                            {"free", &MemoryTable::free}};

// A column that most runs have nothing in is left out there.
std::vector<Column> columns_of(const std::vector<GridRow>& rows) {
  std::vector<Column> columns = memory_columns;
  const bool any = std::any_of(rows.begin(), rows.end(),
                               [](const GridRow& row) { return row.memory.saved_copy > 0; });
  if (!any) {
    std::erase_if(columns,
                  [](const Column& one) { return one.second == &MemoryTable::saved_copy; });
  }
  return columns;
}

std::string memory_cells(const MemoryTable& memory, const std::vector<Column>& columns) {
  constexpr double mebibyte = 1048576.0;
  std::string text;
  for (const auto& [name, member] : columns) {
    text += fmt::format("  {:>{}.2f}", static_cast<double>(memory.*member) / mebibyte,
                        std::max(std::string_view(name).size(), std::size_t{8}));
  }
  return text;
}

std::string memory_titles(const std::vector<Column>& columns) {
  std::string text;
  for (const auto& [name, member] : columns)
    text += fmt::format("  {:>{}}", name, std::max(std::string_view(name).size(), std::size_t{8}));
  return text;
}

// "0-3, 8-11".
std::string ranges_text(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t begin = 0; begin < ranks.size();) {
    std::size_t end = begin + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", ranks[begin]);
    if (end - begin > 1) text += fmt::format("-{}", ranks[end - 1]);
    begin = end;
  }
  return text;
}

// "{0 4}", "{0 4 8 … 28}".
std::string group_text(const std::vector<int>& members) {
  std::string text = "{";
  for (std::size_t i = 0; i < members.size(); ++i) {
    const bool hidden = members.size() > most_members_shown && i >= most_members_shown - 1 &&
                        i + 1 < members.size();
    if (hidden && i > most_members_shown - 1) continue;
    text += fmt::format("{}{}", i == 0 ? "" : " ", hidden ? "…" : fmt::format("{}", members[i]));
  }
  return text + "}";
}

std::string groups_text(const Grid& grid, const std::vector<GridRow>& rows) {
  std::string text;
  for (const Axis axis : {Axis::Data, Axis::Pipeline, Axis::Tensor}) {
    if (grid.size(axis) == 1) continue;
    std::vector<std::vector<int>> groups;
    std::size_t across_hosts = 0;
    for (int rank = 0; rank < grid.ranks(); ++rank) {
      std::vector<int> group = grid.group(axis, rank);
      if (group.front() != rank) continue;
      std::set<std::string> hosts;
      for (const int member : group) hosts.insert(rows[static_cast<std::size_t>(member)].host);
      if (hosts.size() > 1) ++across_hosts;
      groups.push_back(std::move(group));
    }
    text +=
        fmt::format("{:<10}{:<10}{} group{} of {}, {}:", text.empty() ? "groups" : "",
                    to_string(axis), groups.size(), groups.size() == 1 ? "" : "s", grid.size(axis),
                    across_hosts == 0               ? "each on one host"
                    : across_hosts == groups.size() ? "across hosts"
                                                    : fmt::format("{} across hosts", across_hosts));
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const bool hidden =
          groups.size() > most_groups_shown && g + 1 >= most_groups_shown && g + 1 < groups.size();
      if (!hidden) text += fmt::format(" {}", group_text(groups[g]));
      if (hidden && g + 1 == most_groups_shown) text += " …";
    }
    text += '\n';
  }
  return text;
}

std::string ranks_one_by_one(const Grid& grid, const std::vector<GridRow>& rows) {
  const std::vector<Column> columns = columns_of(rows);
  std::size_t host_width = 4;
  std::size_t device_width = 6;
  for (const auto& row : rows) {
    host_width = std::max(host_width, row.host.size());
    device_width = std::max(device_width, row.device.size());
  }
  std::string text = fmt::format("  {:>5}  {:>4}  {:>8}  {:>6}  {:<{}}  {:>5}  {:<{}}{}\n", "rank",
                                 "data", "pipeline", "tensor", "host", host_width, "local",
                                 "device", device_width, memory_titles(columns));
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    const GridRow& row = rows[static_cast<std::size_t>(rank)];
    const Coordinates place = grid.coordinates_of(rank);
    text += fmt::format("  {:>5}  {:>4}  {:>8}  {:>6}  {:<{}}  {:>5}  {:<{}}{}\n", rank, place.data,
                        place.pipeline, place.tensor, row.host, host_width, row.local_rank,
                        row.device, device_width, memory_cells(row.memory, columns));
  }
  return text;
}

std::string ranks_by_class(const std::vector<GridRow>& rows) {
  struct Class {
    std::string title;
    std::vector<int> ranks;
    std::set<std::string> hosts;
    const GridRow* first = nullptr;
  };
  const std::vector<Column> columns = columns_of(rows);
  std::vector<Class> classes;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    auto found = std::find_if(classes.begin(), classes.end(), [&](const Class& one) {
      return one.first->program_hash == rows[rank].program_hash;
    });
    if (found == classes.end()) found = classes.insert(found, Class{{}, {}, {}, &rows[rank]});
    found->ranks.push_back(static_cast<int>(rank));
    found->hosts.insert(rows[rank].host);
  }
  std::size_t width = 5;
  for (auto& one : classes) {
    one.title = ranges_text(one.ranks);
    width = std::max(width, one.title.size());
  }
  std::string text = fmt::format("  {:<{}}  {:>6}  {:>5}  {:<6}{}\n", "ranks", width, "number",
                                 "hosts", "device", memory_titles(columns));
  for (const auto& one : classes) {
    text +=
        fmt::format("  {:<{}}  {:>6}  {:>5}  {:<6}{}\n", one.title, width, one.ranks.size(),
                    one.hosts.size(), one.first->device, memory_cells(one.first->memory, columns));
  }
  return text;
}

std::string to_text(const GridRow& row) {
  nlohmann::json json = {{"host", row.host},
                         {"local_rank", row.local_rank},
                         {"device", row.device},
                         {"program_hash", row.program_hash}};
  for (const auto& [name, member] : memory_columns) json[name] = row.memory.*member;
  return json.dump();
}

GridRow row_from_text(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text);
  GridRow row;
  row.host = json.at("host").get<std::string>();
  row.local_rank = json.at("local_rank").get<int>();
  row.device = json.at("device").get<std::string>();
  row.program_hash = json.at("program_hash").get<std::string>();
  for (const auto& [name, member] : memory_columns)
    row.memory.*member = json.at(name).get<std::int64_t>();
  return row;
}

}  // namespace

std::string format_grid_table(const Grid& grid, const std::vector<GridRow>& rows,
                              std::int64_t budget_bytes) {
  expect(rows.size() == static_cast<std::size_t>(grid.ranks()), "every rank of a grid has a row");
  std::set<std::string> hosts;
  for (const auto& row : rows) hosts.insert(row.host);
  std::string text = fmt::format("ranks     {} on {} host{}\n", grid.ranks(), hosts.size(),
                                 hosts.size() == 1 ? "" : "s");
  text += groups_text(grid, rows);
  text += fmt::format("memory of a rank at the planned peak, in MiB; budget {}\n",
                      format_bytes(budget_bytes));
  text +=
      grid.ranks() <= most_ranks_one_by_one ? ranks_one_by_one(grid, rows) : ranks_by_class(rows);
  return text;
}

std::string describe_memory(const Setup& setup, const Choice& choice, std::int64_t budget_bytes,
                            const Saving& saving, dist::Session& session) {
  const MemoryTable memory =
      memory_table(choice.prediction, budget_bytes, saving.bytes_in_budget());
  const std::vector<TierRow> below =
      tier_rows(choice.program, choice.prediction, saving.bytes_on_host());
  if (setup.grid.ranks() == 1)
    return format_memory_table(memory, budget_bytes) + format_tier_rows(below);
  const std::vector<std::string> texts = session.gather(to_text(
      {session.host(), session.node_rank(), std::string(to_string(device_kind(setup.config))),
       plan::program_hash(choice.program), memory}));
  if (session.rank() != 0) return {};
  std::vector<GridRow> rows;
  for (const auto& text : texts) rows.push_back(row_from_text(text));
  return format_grid_table(setup.grid, rows, budget_bytes);
}

}  // namespace garonne::train
