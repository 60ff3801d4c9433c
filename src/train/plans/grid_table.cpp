#include "train/plans/grid_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/error.hpp"
#include "train/plans/tier_rows.hpp"
#include "train/setup/run_device.hpp"

namespace garonne::train {
namespace {

constexpr std::size_t most_groups_shown = 4;
constexpr std::size_t most_members_shown = 4;
constexpr std::size_t most_ranges_columns = 20;

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

std::size_t width_of(const char* title) {
  constexpr std::size_t least = 9;
  return std::max(std::string_view(title).size(), least);
}

std::string memory_cells(const MemoryTable& memory, const std::vector<Column>& columns) {
  constexpr double mebibyte = 1048576.0;
  std::string text;
  for (const auto& [name, member] : columns) {
    text +=
        fmt::format(" {:>{}.2f}", static_cast<double>(memory.*member) / mebibyte, width_of(name));
  }
  return text;
}

std::string memory_titles(const std::vector<Column>& columns) {
  std::string text;
  for (const auto& [name, member] : columns) text += fmt::format(" {:>{}}", name, width_of(name));
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

// In most_ranges_columns: "0, 2, 4, 6, .. (8)" where there are more.
std::string short_ranges_text(const std::vector<int>& ranks) {
  std::string text = ranges_text(ranks);
  if (text.size() <= most_ranges_columns) return text;
  const std::string rest = fmt::format(", .. ({})", ranks.size());
  const std::size_t end = text.rfind(", ", most_ranges_columns - rest.size());
  if (end == std::string::npos) return counted(static_cast<std::int64_t>(ranks.size()), "rank");
  return text.substr(0, end) + rest;
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
        fmt::format("{:<10}{:<10}{} of {}, {}:", text.empty() ? "groups" : "", to_string(axis),
                    counted(static_cast<std::int64_t>(groups.size()), "group"), grid.size(axis),
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

// Where each rank is.
std::string places_text(const Grid& grid, const std::vector<GridRow>& rows) {
  std::size_t host_width = 4;
  for (const auto& row : rows) host_width = std::max(host_width, row.host.size());
  std::string text =
      fmt::format("  {:>5}  {:>4}  {:>8}  {:>6}  {:<{}}  {:>5}  {}\n", "rank", "data", "pipeline",
                  "tensor", "host", host_width, "local", "device");
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    const GridRow& row = rows[static_cast<std::size_t>(rank)];
    const Coordinates place = grid.coordinates_of(rank);
    text +=
        fmt::format("  {:>5}  {:>4}  {:>8}  {:>6}  {:<{}}  {:>5}  {}\n", rank, place.data,
                    place.pipeline, place.tensor, row.host, host_width, row.local_rank, row.device);
  }
  return text;
}

// Ranks that hold the same share a line.
std::string memory_text(const std::vector<GridRow>& rows) {
  struct Class {
    std::vector<int> ranks;
    const MemoryTable* memory = nullptr;
  };
  const auto equal = [](const MemoryTable& a, const MemoryTable& b) {
    return std::all_of(memory_columns.begin(), memory_columns.end(),
                       [&](const Column& column) { return a.*column.second == b.*column.second; });
  };
  std::vector<Class> classes;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    auto found = std::find_if(classes.begin(), classes.end(), [&](const Class& one) {
      return equal(*one.memory, rows[rank].memory);
    });
    if (found == classes.end()) found = classes.insert(found, Class{{}, &rows[rank].memory});
    found->ranks.push_back(static_cast<int>(rank));
  }
  const std::vector<Column> columns = columns_of(rows);
  std::string text =
      fmt::format("  {:<{}}{}\n", "ranks", most_ranges_columns, memory_titles(columns));
  for (const Class& one : classes) {
    text += fmt::format("  {:<{}}{}\n", short_ranges_text(one.ranks), most_ranges_columns,
                        memory_cells(*one.memory, columns));
  }
  return text;
}

std::string to_text(const GridRow& row) {
  nlohmann::json json = {
      {"host", row.host}, {"local_rank", row.local_rank}, {"device", row.device}};
  for (const auto& [name, member] : memory_columns) json[name] = row.memory.*member;
  return json.dump();
}

GridRow row_from_text(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text);
  GridRow row;
  row.host = json.at("host").get<std::string>();
  row.local_rank = json.at("local_rank").get<int>();
  row.device = json.at("device").get<std::string>();
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
  std::string text = fmt::format("ranks     {} on {}\n", grid.ranks(),
                                 counted(static_cast<std::int64_t>(hosts.size()), "host"));
  text += groups_text(grid, rows);
  if (grid.ranks() <= most_ranks_one_by_one) text += places_text(grid, rows);
  text += fmt::format("memory of a rank at the planned peak, in MiB; budget {}\n",
                      format_bytes(budget_bytes));
  return text + memory_text(rows);
}

std::string describe_memory(const Setup& setup, const Choice& choice, std::int64_t budget_bytes,
                            const Saving& saving, dist::Session& session) {
  const MemoryTable memory =
      memory_table(choice.prediction, budget_bytes, saving.bytes_in_budget());
  const std::vector<TierRow> below =
      tier_rows(choice.program, choice.prediction, saving.bytes_on_host());
  if (setup.grid.ranks() == 1)
    return format_memory_table(memory, budget_bytes) + format_tier_rows(below);
  const std::vector<std::string> texts =
      session.gather(to_text({session.host(), session.node_rank(),
                              std::string(to_string(device_kind(setup.config))), memory}));
  if (session.rank() != 0) return {};
  std::vector<GridRow> rows;
  for (const auto& text : texts) rows.push_back(row_from_text(text));
  return format_grid_table(setup.grid, rows, budget_bytes);
}

}  // namespace garonne::train
