#include "dist/host_ranks.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <system_error>

namespace garonne::dist {
namespace {

template <typename Number>
std::optional<Number> number_of(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Empty where it cannot be read: it has ended meanwhile, or is somebody else's.
std::string contents(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Status {
  char state = '?';
  pid_t parent = 0;
};

// The name before them may hold anything, brackets too.
std::optional<Status> status_of(const std::filesystem::path& process) {
  const std::string text = contents(process / "stat");
  const std::size_t bracket = text.rfind(") ");
  if (bracket == std::string::npos || bracket + 4 >= text.size()) return std::nullopt;
  const std::size_t begin = bracket + 4;
  const std::size_t end = std::min(text.find(' ', begin), text.size());
  const auto parent = number_of<pid_t>(std::string_view(text).substr(begin, end - begin));
  if (!parent) return std::nullopt;
  return Status{text[bracket + 2], *parent};
}

HostRank::State state_of(char letter) {
  if (letter == 'T') return HostRank::State::Stopped;
  return letter == 'D' || letter == 't' ? HostRank::State::Busy : HostRank::State::Awake;
}

// Of a process that was started together with this one.
std::optional<int> rank_of(const std::filesystem::path& process, const Launcher& launcher,
                           bool same_parent) {
  const std::string environment = contents(process / "environ");
  const std::string variable = launcher.rank_variable + "=";
  std::optional<int> rank;
  bool same_job = launcher.job.empty() && same_parent;
  for (std::size_t begin = 0; begin < environment.size();) {
    const std::size_t end = std::min(environment.find('\0', begin), environment.size());
    const std::string_view entry = std::string_view(environment).substr(begin, end - begin);
    if (entry.starts_with(variable)) rank = number_of<int>(entry.substr(variable.size()));
    if (!launcher.job.empty() && entry == launcher.job) same_job = true;
    begin = end + 1;
  }
  return same_job ? rank : std::nullopt;
}

}  // namespace

std::vector<HostRank> host_ranks(const Launcher& launcher, const std::filesystem::path& processes) {
  std::map<int, HostRank> found;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(processes, error), end; !error && entry != end;
       entry.increment(error)) {
    const auto process = number_of<pid_t>(entry->path().filename().string());
    if (!process || *process == getpid()) continue;
    const std::optional<Status> status = status_of(entry->path());
    if (!status || status->state == 'Z') continue;
    const auto rank = rank_of(entry->path(), launcher, status->parent == getppid());
    if (!rank || rank == launcher.rank) continue;
    const HostRank one{*rank, *process, state_of(status->state)};
    HostRank& known = found.try_emplace(*rank, one).first->second;
    if (one.state > known.state || (one.state == known.state && one.process < known.process)) {
      known = one;
    }
  }
  std::vector<HostRank> ranks;
  for (const auto& [rank, one] : found) ranks.push_back(one);
  return ranks;
}

}  // namespace garonne::dist
