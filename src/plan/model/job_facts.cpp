#include "plan/model/job_facts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>
#include <sstream>
#include <variant>

#include "base/contains.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/whole_number.hpp"

namespace garonne::plan {

const std::vector<std::string>& job_networks() {
  static const std::vector<std::string> names = {"ethernet", "infiniband", "omni-path",
                                                 "slingshot"};
  return names;
}

const std::vector<std::string>& job_launchers() {
  static const std::vector<std::string> names = {"srun", "mpirun"};
  return names;
}

namespace {

constexpr std::int64_t most_number = 1'000'000;

std::optional<std::int64_t> number(const std::string& text) {
  const auto value = whole_number(text);
  return value && *value >= 0 && *value <= most_number ? value : std::nullopt;
}

}  // namespace

std::optional<std::int64_t> parse_time_limit(const std::string& text) {
  const std::size_t dash = text.find('-');
  const bool has_days = dash != std::string::npos;
  const auto days = has_days ? number(text.substr(0, dash)) : 0;
  std::vector<std::int64_t> parts;
  for (std::size_t begin = has_days ? dash + 1 : 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(':', begin), text.size());
    const auto part = number(text.substr(begin, end - begin));
    if (!part) return std::nullopt;
    parts.push_back(*part);
    begin = end + 1;
  }
  if (!days || parts.empty() || parts.size() > 3) return std::nullopt;
  // With days they begin with hours; alone one is minutes and two are minutes and seconds.
  if (has_days || parts.size() == 3)
    parts.resize(3, 0);
  else
    parts = {0, parts[0], parts.size() == 2 ? parts[1] : 0};
  const std::int64_t minutes = *days * 24 * 60 + parts[0] * 60 + parts[1] + (parts[2] + 59) / 60;
  if (minutes == 0) return std::nullopt;
  return minutes;
}

std::string format_time_limit(std::int64_t minutes) {
  const std::int64_t hours = minutes / 60;
  const std::string clock = fmt::format("{:02}:{:02}:00", hours % 24, minutes % 60);
  return hours < 24 ? clock : fmt::format("{}-{}", hours / 24, clock);
}

namespace {

constexpr std::int64_t most_cores = 1 << 16;

// Text that ends up in a script; nothing in it may begin another line there.
std::string line_of(const TomlEntry& entry) {
  const auto* text = std::get_if<std::string>(&entry.value);
  if (text == nullptr) refuse_entry(entry, "must be text");
  for (const char character : *text) {
    if (static_cast<unsigned char>(character) < ' ' || character == '\x7f')
      refuse_entry(entry, "must be one line without control characters");
  }
  return *text;
}

std::string choice_of(const TomlEntry& entry, const std::vector<std::string>& choices) {
  const std::string text = line_of(entry);
  if (!contains(choices, text))
    refuse_entry(entry, fmt::format("must be one of {}", fmt::join(choices, ", ")));
  return text;
}

void set_cores(const TomlEntry& entry, JobFacts& facts) {
  const auto* cores = std::get_if<std::int64_t>(&entry.value);
  if (cores == nullptr || *cores < 1 || *cores > most_cores)
    refuse_entry(entry, fmt::format("must be an integer from 1 to {}", most_cores));
  facts.cores = *cores;
}

void set_interface(const TomlEntry& entry, JobFacts& facts) {
  const std::string text = line_of(entry);
  const auto plain = [](char character) {
    return std::isalnum(static_cast<unsigned char>(character)) != 0 ||
           std::string(".,_-/:").find(character) != std::string::npos;
  };
  if (text.empty() || !std::all_of(text.begin(), text.end(), plain))
    refuse_entry(entry, "must be a network device such as \"eth0\", or several with commas");
  facts.interface = text;
}

void set_directives(const TomlEntry& entry, JobFacts& facts) {
  facts.directives = line_of(entry);
  std::istringstream words(facts.directives);
  for (std::string word; words >> word;) {
    if (word.front() != '-')
      refuse_entry(entry,
                   "must be options of sbatch such as \"--constraint=a100 --account=abc@a100\"");
  }
}

void set_time_limit(const TomlEntry& entry, JobFacts& facts) {
  const auto minutes = parse_time_limit(line_of(entry));
  if (!minutes)
    refuse_entry(entry, "must be a time limit of Slurm such as \"20:00:00\" or \"1-12\"");
  facts.most_minutes = *minutes;
}

void set_requeue(const TomlEntry& entry, JobFacts& facts) {
  const auto* requeues = std::get_if<bool>(&entry.value);
  if (requeues == nullptr) refuse_entry(entry, "must be true or false");
  facts.requeues = *requeues;
}

using Setter = std::function<void(const TomlEntry&, JobFacts&)>;

const std::map<std::string, Setter>& setters() {
  static const std::map<std::string, Setter> table = {
      {"host.cores", set_cores},
      {"link.between_nodes.interface", set_interface},
      {"link.between_nodes.network",
       [](const TomlEntry& entry, JobFacts& facts) {
         facts.network = choice_of(entry, job_networks());
       }},
      {"slurm.directives", set_directives},
      {"slurm.launcher",
       [](const TomlEntry& entry, JobFacts& facts) {
         facts.launcher = choice_of(entry, job_launchers());
       }},
      {"slurm.requeue", set_requeue},
      {"slurm.time_limit", set_time_limit}};
  return table;
}

}  // namespace

const std::vector<std::string>& job_keys() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> keys;
    for (const auto& [name, set] : setters()) keys.push_back(name);
    return keys;
  }();
  return names;
}

void set_job_key(const TomlEntry& entry, JobFacts& facts) {
  setters().at(entry.key)(entry, facts);
}

JobFacts parse_job_facts(const std::string& toml_text, const std::string& name) {
  JobFacts facts;
  for (const TomlEntry& entry : parse_toml(toml_text, name)) {
    if (setters().contains(entry.key)) set_job_key(entry, facts);
  }
  return facts;
}

JobFacts load_job_facts(const std::string& path) {
  return parse_job_facts(
      read_given_file(path, "give the path of a cluster file (config/clusters/*.toml)",
                      most_toml_bytes),
      path);
}

}  // namespace garonne::plan
