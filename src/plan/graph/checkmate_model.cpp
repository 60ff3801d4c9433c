#include "plan/graph/checkmate_model.hpp"

#include <algorithm>
#include <limits>

#include "base/contains.hpp"
#include "base/index.hpp"
#include "plan/graph/task_option.hpp"

namespace garonne::plan {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

}  // namespace

CheckmateModel::CheckmateModel(const ComputationGraph& graph, std::int64_t budget_bytes)
    : graph_(graph),
      budget_(static_cast<double>(std::max<std::int64_t>(budget_bytes, 1))),
      maker_(graph.values.size(), none),
      readers_(graph.values.size()) {
  double seconds = 0;
  for (std::size_t t = 0; t < graph.tasks.size(); ++t) {
    const Task& task = graph.tasks[t];
    seconds += task.options[0].seconds;
    for (const int value : made_by_any_option(task)) maker_[as_index(value)] = static_cast<int>(t);
    const auto add_reader = [&](int value) {
      std::vector<int>& readers = readers_[as_index(value)];
      if (readers.empty() || readers.back() != static_cast<int>(t))
        readers.push_back(static_cast<int>(t));
    };
    for (const int value : task.reads) add_reader(value);
    for (const int value : task.updates) add_reader(value);
    for (const TaskOption& option : task.options) {
      for (const int value : option.reads) add_reader(value);
    }
  }
  scale_ = seconds > 0 ? 1000 / seconds : 1;
  find_useful();
  add_variables();
  for (int t = 0; t < static_cast<int>(graph.tasks.size()); ++t) add_stage(t);
}

void CheckmateModel::find_useful() {
  const int tasks = static_cast<int>(graph_.tasks.size());
  useful_.assign(as_index(tasks) + 1, std::vector<bool>(as_index(tasks), false));
  wanted_.assign(as_index(tasks) + 1, std::vector<bool>(graph_.values.size(), false));
  for (int t = 0; t <= tasks; ++t) {
    const auto want = [&](int value) {
      bool wanted = graph_.values[as_index(value)].live_at_end;
      for (const int reader : readers_[as_index(value)]) {
        wanted = wanted || reader >= t || useful_[as_index(t)][as_index(reader)];
      }
      wanted_[as_index(t)][as_index(value)] = wanted;
      return wanted;
    };
    for (int i = t - 1; i >= 0; --i) {
      for (const int value : made_by_any_option(graph_.tasks[as_index(i)])) {
        const bool wanted = want(value);
        if (wanted && !graph_.tasks[as_index(i)].once) useful_[as_index(t)][as_index(i)] = true;
      }
    }
    for (int v = 0; v < static_cast<int>(maker_.size()); ++v) {
      if (maker_[as_index(v)] == none || maker_[as_index(v)] >= t) want(v);
    }
  }
}

void CheckmateModel::add_variables() {
  const int tasks = static_cast<int>(graph_.tasks.size());
  stages_.resize(as_index(tasks) + 1);
  for (int t = 0; t <= tasks; ++t) {
    Stage& stage = stages_[as_index(t)];
    stage.runs.resize(as_index(tasks));
    stage.kept.assign(graph_.values.size(), none);
    for (int i = 0; i <= std::min(t, tasks - 1); ++i) {
      if (t == tasks || (i != t && !useful_[as_index(t)][as_index(i)])) continue;
      for (const TaskOption& option : graph_.tasks[as_index(i)].options) {
        stage.runs[as_index(i)].push_back(
            program_.add_variable({0, 1, option.seconds * scale_, true}));
      }
    }
    for (int v = 0; v < static_cast<int>(maker_.size()); ++v) {
      if (!wanted_[as_index(t)][as_index(v)] || maker_[as_index(v)] >= t) continue;
      const bool at_end = t == tasks;
      stage.kept[as_index(v)] = program_.add_variable({at_end ? 1.0 : 0.0, 1, 0, false});
    }
  }
}

CheckmateModel::Entries CheckmateModel::makers_of(int t, int value) const {
  Entries entries;
  const int maker = maker_[as_index(value)];
  if (maker == none || maker > t) return entries;
  const std::vector<int>& runs = stages_[as_index(t)].runs[as_index(maker)];
  for (std::size_t o = 0; o < runs.size(); ++o) {
    if (contains(graph_.tasks[as_index(maker)].options[o].makes, value)) {
      entries.emplace_back(runs[o], 1.0);
    }
  }
  return entries;
}

CheckmateModel::Entries CheckmateModel::readers_of(int t, int value, int reader) const {
  Entries entries;
  const std::vector<int>& runs = stages_[as_index(t)].runs[as_index(reader)];
  for (std::size_t o = 0; o < runs.size(); ++o) {
    if (reads(graph_.tasks[as_index(reader)], static_cast<int>(o), value))
      entries.emplace_back(runs[o], 1.0);
  }
  return entries;
}

CheckmateModel::Term CheckmateModel::kept_after(int t, int value) const {
  return {stages_[as_index(t) + 1].kept[as_index(value)], 0};
}

void CheckmateModel::at_least(Term greater, const Entries& smaller) {
  if (smaller.empty() || (greater.variable == none && greater.constant >= 1)) return;
  Entries entries;
  for (const auto& [variable, coefficient] : smaller) entries.emplace_back(variable, -coefficient);
  if (greater.variable != none) entries.emplace_back(greater.variable, 1.0);
  program_.add_row(-greater.constant, infinity, std::move(entries));
}

// A run needs what it reads, kept or made in the stage; what is kept on was kept or made.
void CheckmateModel::add_runs(int t) {
  const Stage& stage = stages_[as_index(t)];
  for (int i = 0; i <= t; ++i) {
    const std::vector<int>& runs = stage.runs[as_index(i)];
    if (runs.empty()) continue;
    Entries once;
    for (const int run : runs) once.emplace_back(run, 1.0);
    program_.add_row(i == t ? 1 : 0, 1, once);
    const Task& task = graph_.tasks[as_index(i)];
    const auto available = [&](int value) {
      Entries entries = makers_of(t, value);
      if (stage.kept[as_index(value)] != none)
        entries.emplace_back(stage.kept[as_index(value)], 1.0);
      return entries;
    };
    for (const auto* list : {&task.reads, &task.updates}) {
      for (const int value : *list) {
        Entries entries = available(value);
        if (i < t) {
          for (const int run : runs) entries.emplace_back(run, -1.0);
        }
        program_.add_row(i == t ? 1 : 0, infinity, std::move(entries));
      }
    }
    for (std::size_t o = 0; o < runs.size(); ++o) {
      for (const int value : task.options[o].reads) {
        Entries entries = available(value);
        entries.emplace_back(runs[o], -1.0);
        program_.add_row(0, infinity, std::move(entries));
      }
    }
  }
  for (int v = 0; v < static_cast<int>(maker_.size()); ++v) {
    Entries made = makers_of(t, v);
    const int kept = stage.kept[as_index(v)];
    if (kept != none && !made.empty()) {
      // Who makes it again has no use for the old copy: readers come after makers in a stage.
      Entries either = made;
      either.emplace_back(kept, 1.0);
      program_.add_row(0, 1, std::move(either));
    }
    const int after = kept_after(t, v).variable;
    if (after == none) continue;
    if (kept != none) made.emplace_back(kept, 1.0);
    made.emplace_back(after, -1.0);
    program_.add_row(0, infinity, std::move(made));
  }
}

// Whether a value is live before each of its readers in the stage, and after the last.
std::vector<CheckmateModel::Term> CheckmateModel::add_lifetime(int t, int value,
                                                               const std::vector<int>& readers) {
  std::vector<Term> live(readers.size() + 1);
  live.back() = kept_after(t, value);
  for (std::size_t s = readers.size(); s-- > 0;) {
    const Entries runs = readers_of(t, value, readers[s]);
    const bool surely =
        readers[s] == t && runs.size() == stages_[as_index(t)].runs[as_index(t)].size();
    if (surely || (live[s + 1].variable == none && live[s + 1].constant >= 1)) {
      live[s] = {none, 1};
      continue;
    }
    live[s] = {program_.add_variable({0, 1, 0, false}), 0};
    at_least(live[s], runs);
    if (live[s + 1].variable != none) at_least(live[s], {{live[s + 1].variable, 1.0}});
  }
  return live;
}

// Whether a value is live while its maker runs, where `after` says that for afterwards.
CheckmateModel::Term CheckmateModel::add_made(int t, int value, Term after) {
  const int maker = maker_[as_index(value)];
  const Task& task = graph_.tasks[as_index(maker)];
  if (after.variable == none && after.constant >= 1) return after;
  const Entries runs = makers_of(t, value);
  if (maker == t && runs.size() == task.options.size()) return {none, 1};
  if (maker < t && most_made(task) == 1) {
    // Nothing is run again for nothing.
    at_least(after, runs);
    return after;
  }
  const Term made = {program_.add_variable({0, 1, 0, false}), 0};
  at_least(made, runs);
  if (after.variable != none) at_least(made, {{after.variable, 1.0}});
  return made;
}

void CheckmateModel::add_stage(int t) {
  add_runs(t);
  const Stage& stage = stages_[as_index(t)];
  std::vector<int> positions;
  for (int i = 0; i <= t; ++i) {
    if (!stage.runs[as_index(i)].empty()) positions.push_back(i);
  }
  std::vector<Entries> bytes(positions.size());
  std::vector<double> limit(positions.size(), 1.0);
  const auto count = [&](std::size_t place, Term term, std::int64_t size) {
    const double part = static_cast<double>(size) / budget_;
    if (term.variable != none) {
      bytes[place].emplace_back(term.variable, part);
    } else {
      limit[place] -= term.constant * part;
    }
  };
  for (int v = 0; v < static_cast<int>(maker_.size()); ++v) {
    const int maker = maker_[as_index(v)];
    const Term kept = {stage.kept[as_index(v)], 0};
    const bool made_here = maker != none && maker <= t && !stage.runs[as_index(maker)].empty();
    if (!made_here && kept.variable == none) continue;
    std::vector<int> readers;
    for (const int reader : readers_[as_index(v)]) {
      if (reader <= t && !stage.runs[as_index(reader)].empty()) readers.push_back(reader);
    }
    const std::vector<Term> live = add_lifetime(t, v, readers);
    const Term made = made_here ? add_made(t, v, live[0]) : Term{};
    std::size_t next = 0;
    for (std::size_t p = 0; p < positions.size(); ++p) {
      while (next < readers.size() && readers[next] < positions[p]) ++next;
      Term term = live[next];
      if (made_here && positions[p] < maker) term = kept;
      if (made_here && positions[p] == maker) term = made;
      count(p, term, graph_.values[as_index(v)].bytes);
    }
  }
  for (std::size_t p = 0; p < positions.size(); ++p) {
    const std::vector<int>& runs = stage.runs[as_index(positions[p])];
    for (std::size_t o = 0; o < runs.size(); ++o) {
      count(p, {runs[o], 0}, graph_.tasks[as_index(positions[p])].options[o].transient_bytes);
    }
    // A variable may be counted for several values.
    std::sort(bytes[p].begin(), bytes[p].end());
    Entries merged;
    for (const auto& [variable, part] : bytes[p]) {
      if (part == 0) continue;
      if (!merged.empty() && merged.back().first == variable) {
        merged.back().second += part;
      } else {
        merged.emplace_back(variable, part);
      }
    }
    program_.add_row(-infinity, limit[p], std::move(merged));
  }
}

TaskSchedule CheckmateModel::schedule(const std::vector<double>& values) const {
  TaskSchedule schedule;
  for (int t = 0; t < static_cast<int>(graph_.tasks.size()); ++t) {
    for (int i = 0; i <= t; ++i) {
      const std::vector<int>& runs = stages_[as_index(t)].runs[as_index(i)];
      for (std::size_t o = 0; o < runs.size(); ++o) {
        if (values[as_index(runs[o])] > 0.5) schedule.push_back({i, static_cast<int>(o)});
      }
    }
  }
  return schedule;
}

std::optional<TaskSchedule> CheckmateModel::in_class(const TaskSchedule& schedule) const {
  TaskSchedule result;
  std::vector<int> options(graph_.tasks.size(), none);
  int stage = 0;
  for (const TaskStep& step : schedule) {
    if (step.task > stage) return std::nullopt;
    if (step.task < stage) {
      int& option = options[as_index(step.task)];
      option = option == none
                   ? step.option
                   : option_of_both(graph_.tasks[as_index(step.task)], option, step.option);
      if (option == none) return std::nullopt;
      continue;
    }
    for (int i = 0; i < stage; ++i) {
      if (options[as_index(i)] == none) continue;
      if (stages_[as_index(stage)].runs[as_index(i)].empty()) return std::nullopt;
      result.push_back({i, options[as_index(i)]});
    }
    result.push_back(step);
    options.assign(graph_.tasks.size(), none);
    ++stage;
  }
  return result;
}

std::vector<std::pair<int, double>> CheckmateModel::start(const TaskSchedule& in_class) const {
  std::vector<std::pair<int, double>> result;
  std::size_t next = 0;
  for (int t = 0; t < static_cast<int>(graph_.tasks.size()); ++t) {
    for (int i = 0; i <= t; ++i) {
      const std::vector<int>& runs = stages_[as_index(t)].runs[as_index(i)];
      const bool here = next < in_class.size() && in_class[next].task == i;
      for (std::size_t o = 0; o < runs.size(); ++o) {
        const bool taken = here && in_class[next].option == static_cast<int>(o);
        result.emplace_back(runs[o], taken ? 1.0 : 0.0);
      }
      if (here) ++next;
    }
  }
  return result;
}

// Of the options that differ in what they read, that with the largest part of the run.
int CheckmateModel::rounded_reader(int t, const std::vector<double>& values) const {
  const std::vector<int>& runs = stages_[as_index(t)].runs[as_index(t)];
  const auto largest = std::max_element(runs.begin(), runs.end(), [&](int a, int b) {
    return values[as_index(a)] < values[as_index(b)];
  });
  return static_cast<int>(largest - runs.begin());
}

std::optional<TaskSchedule> CheckmateModel::rounded(const std::vector<double>& values,
                                                    double threshold) const {
  const int tasks = static_cast<int>(graph_.tasks.size());
  // By task that is once and differs in what its options read: the option; -1 of the others.
  std::vector<int> taken(as_index(tasks), none);
  std::vector<bool> of_use(graph_.values.size(), false);
  for (int t = 0; t < tasks; ++t) {
    const Task& task = graph_.tasks[as_index(t)];
    const bool differ = std::any_of(task.options.begin(), task.options.end(),
                                    [](const TaskOption& option) { return !option.reads.empty(); });
    if (differ) taken[as_index(t)] = rounded_reader(t, values);
    for (const auto* list : {&task.reads, &task.updates}) {
      for (const int value : *list) of_use[as_index(value)] = true;
    }
    if (!differ) continue;
    for (const int value : task.options[as_index(taken[as_index(t)])].reads)
      of_use[as_index(value)] = true;
  }
  const auto kept = [&](int t, int value) {
    const int variable = stages_[as_index(t)].kept[as_index(value)];
    return variable != none && values[as_index(variable)] >= threshold;
  };
  TaskSchedule schedule;
  for (int t = 0; t < tasks; ++t) {
    std::vector<bool> needed(graph_.values.size(), false);
    for (int v = 0; v < static_cast<int>(needed.size()); ++v) {
      const bool wanted = of_use[as_index(v)] || graph_.values[as_index(v)].live_at_end;
      needed[as_index(v)] = wanted && kept(t + 1, v);
    }
    TaskSchedule stage;
    for (int i = t; i >= 0; --i) {
      const Task& task = graph_.tasks[as_index(i)];
      std::vector<int> wanted;
      for (const int value : made_by_any_option(task)) {
        if (needed[as_index(value)] && !kept(t, value)) wanted.push_back(value);
      }
      if (i < t && wanted.empty()) continue;
      const int option =
          taken[as_index(i)] == none ? cheapest_option(graph_, i, wanted) : taken[as_index(i)];
      if (option == none) return std::nullopt;
      stage.push_back({i, option});
      for (const auto* list : {&task.reads, &task.updates, &task.options[as_index(option)].reads}) {
        for (const int value : *list) needed[as_index(value)] = true;
      }
    }
    schedule.insert(schedule.end(), stage.rbegin(), stage.rend());
  }
  return schedule;
}

}  // namespace garonne::plan
