// Reads cluster files: the table of their keys. To add one: a member of Cluster and a line here.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/byte_units.hpp"
#include "base/bytes.hpp"
#include "base/config.hpp"
#include "base/error.hpp"
#include "base/toml.hpp"
#include "plan/model/cluster.hpp"
#include "plan/model/job_facts.hpp"

namespace garonne::plan {
namespace {

constexpr int latest_version = 2;
// Of GPUs whose file does not say otherwise.
constexpr double least_kernel_seconds = 3e-6;
constexpr double kernel_issue_seconds = 5e-6;

// What numbers of a kind are on any machine there is or may soon be; others are slips of a unit.
struct Plausible {
  double least;
  double most;
  const char* what;  // and how it is written
};
constexpr Plausible operation_rate{1e9, 1e17, "operations a second, such as 989e12"};
constexpr Plausible byte_rate{1e6, 1e15, "bytes a second, such as 50e9"};
// Of small messages it may be next to nothing.
constexpr Plausible curve_rate{1e2, 1e15, "bytes a second, such as 50e9"};
constexpr Plausible latency{0, 1, "seconds, such as 5e-6"};
constexpr std::int64_t least_memory_bytes = std::int64_t{1} << 20;

struct ClusterKey {
  std::string name;
  int version = 1;  // that it is of, and of all later ones
  bool required = false;
  std::function<void(Cluster&, const TomlEntry&)> set;
};

std::string text_of(const TomlEntry& entry) {
  if (const auto* text = std::get_if<std::string>(&entry.value)) return *text;
  refuse_entry(entry, "must be text");
}

double number_of(const TomlEntry& entry) {
  if (const auto* integer = std::get_if<std::int64_t>(&entry.value))
    return static_cast<double>(*integer);
  if (const auto* real = std::get_if<double>(&entry.value)) return *real;
  refuse_entry(entry, "must be a number");
}

bool truth_of(const TomlEntry& entry) {
  if (const auto* given = std::get_if<bool>(&entry.value)) return *given;
  refuse_entry(entry, "must be true or false");
}

std::int64_t bytes_of(const TomlEntry& entry, std::int64_t least = 1) {
  std::int64_t bytes = 0;
  if (const auto* integer = std::get_if<std::int64_t>(&entry.value)) bytes = *integer;
  if (const auto* text = std::get_if<std::string>(&entry.value))
    bytes = parse_bytes(*text).value_or(0);
  if (bytes <= 0) {
    refuse_entry(entry, fmt::format("must be a number of bytes such as \"80 GiB\"; units are {}",
                                    byte_units));
  }
  if (bytes < least) {
    refuse_entry(entry, fmt::format("is {} bytes, and must be at least {}; write the unit, such as "
                                    "\"80 GB\"",
                                    bytes, format_bytes(least)));
  }
  return bytes;
}

void expect_plausible(const TomlEntry& entry, double given, const Plausible& range) {
  if (given >= range.least && given <= range.most) return;
  refuse_entry(entry,
               fmt::format("must be {}, from {:g} to {:g}", range.what, range.least, range.most));
}

std::int64_t integer_of(const TomlEntry& entry, std::int64_t most) {
  const auto* count = std::get_if<std::int64_t>(&entry.value);
  if (count == nullptr || *count < 1 || *count > most)
    refuse_entry(entry, fmt::format("must be an integer from 1 to {}", most));
  return *count;
}

// Gives each element its number; the first of several lists says how many there are.
template <typename Element, typename Give>
void set_list(const TomlEntry& entry, std::vector<Element>& elements, const Give& give) {
  const auto* numbers = std::get_if<std::vector<double>>(&entry.value);
  if (numbers == nullptr || numbers->empty()) refuse_entry(entry, "must be a list of numbers");
  if (elements.empty()) elements.resize(numbers->size());
  if (elements.size() != numbers->size()) {
    refuse_entry(entry, fmt::format("has {} numbers where the other lists of its table have {}",
                                    numbers->size(), elements.size()));
  }
  for (std::size_t k = 0; k < elements.size(); ++k) give(elements[k], (*numbers)[k]);
}

// Keys of one version after the other.
class KeyTable {
 public:
  void begin_version(int version) { version_ = version; }

  void text(const std::string& name, std::string Cluster::*member) {
    add(name, false,
        [member](Cluster& cluster, const TomlEntry& entry) { cluster.*member = text_of(entry); });
  }
  template <typename Access>
  void count(const std::string& name, bool required, std::int64_t most, Access access) {
    add(name, required, [=](Cluster& cluster, const TomlEntry& entry) {
      auto& member = access(cluster);
      member = static_cast<std::remove_reference_t<decltype(member)>>(integer_of(entry, most));
    });
  }
  template <typename Access>
  void bytes(const std::string& name, bool required, Access access, std::int64_t least = 1) {
    add(name, required, [=](Cluster& cluster, const TomlEntry& entry) {
      access(cluster) = bytes_of(entry, least);
    });
  }
  template <typename Access>
  void number(const std::string& name, bool required, const Plausible& range, Access access) {
    add(name, required, [=](Cluster& cluster, const TomlEntry& entry) {
      const double given = number_of(entry);
      expect_plausible(entry, given, range);
      access(cluster) = given;
    });
  }
  template <typename Access>
  void truth(const std::string& name, Access access) {
    add(name, false,
        [=](Cluster& cluster, const TomlEntry& entry) { access(cluster) = truth_of(entry); });
  }
  // Above 0, or from 0 where `may_be_zero`; at most `most`.
  template <typename Access>
  void number(const std::string& name, bool required, Access access, bool may_be_zero = false,
              double most = std::numeric_limits<double>::max()) {
    add(name, required, [=](Cluster& cluster, const TomlEntry& entry) {
      const double given = number_of(entry);
      if (!(given <= most) || given < 0 || (given == 0 && !may_be_zero)) {
        refuse_entry(entry, fmt::format("must be {} 0{}", may_be_zero ? "at least" : "above",
                                        most < 1e300 ? fmt::format(" and at most {}", most) : ""));
      }
      access(cluster) = given;
    });
  }
  void add(const std::string& name, bool required,
           std::function<void(Cluster&, const TomlEntry&)> set) {
    keys_.push_back({name, version_, required, std::move(set)});
  }

  std::vector<ClusterKey> take() { return std::move(keys_); }

 private:
  std::vector<ClusterKey> keys_;
  int version_ = 1;
};

// Of a member, or of a member's member.
template <typename Member>
auto at(Member Cluster::*member) {
  return [member](Cluster& cluster) -> Member& { return cluster.*member; };
}
template <typename Part, typename Member>
auto at(Part Cluster::*part, Member Part::*member) {
  return [=](Cluster& cluster) -> Member& { return cluster.*part.*member; };
}

void set_share(Cluster& cluster, const TomlEntry& entry) {
  const std::string text = text_of(entry);
  if (text != "device" && text != "node") refuse_entry(entry, "must be \"device\" or \"node\"");
  cluster.shared_by_node = text == "node";
}

void set_kind(Cluster& cluster, const TomlEntry& entry) {
  const std::string text = text_of(entry);
  if (text != to_string(DeviceKind::Cpu) && text != to_string(DeviceKind::Cuda))
    refuse_entry(entry, "must be \"cpu\" or \"cuda\"");
  cluster.device.kind = text == to_string(DeviceKind::Cuda) ? DeviceKind::Cuda : DeviceKind::Cpu;
}

void add_link_keys(const std::string& name, Link Cluster::*link, KeyTable& table) {
  table.number("link." + name + ".latency_seconds", true, latency,
               at(link, &Link::latency_seconds));
  table.number("link." + name + ".bytes_per_second", true, byte_rate,
               at(link, &Link::bytes_per_second));
}

void add_curve_keys(const std::string& name, Link Cluster::*link, KeyTable& table) {
  const auto list = [&](const char* what, double RatePoint::*number,
                        const Plausible* range = nullptr) {
    table.add("link." + name + what, false, [=](Cluster& cluster, const TomlEntry& entry) {
      set_list(entry, (cluster.*link).curve.points, [&](RatePoint& point, double given) {
        if (range != nullptr) expect_plausible(entry, given, *range);
        point.*number = given;
      });
    });
  };
  list(".curve_bytes", &RatePoint::bytes);
  list(".curve_bytes_per_second", &RatePoint::bytes_per_second, &curve_rate);
}

constexpr std::int64_t most_product_size = std::int64_t{1} << 40;

void add_product_keys(KeyTable& table) {
  const auto size = [&](const char* name, std::int64_t ProductSize::*member) {
    table.add(name, false, [=](Cluster& cluster, const TomlEntry& entry) {
      set_list(entry, cluster.products.points, [&](ProductPoint& point, double given) {
        if (!(given >= 1 && given <= static_cast<double>(most_product_size)) ||
            given != std::floor(given))
          refuse_entry(entry, fmt::format("must be integers from 1 to {}", most_product_size));
        point.size.*member = static_cast<std::int64_t>(given);
      });
    });
  };
  size("device.products.rows", &ProductSize::rows);
  size("device.products.columns", &ProductSize::columns);
  size("device.products.depth", &ProductSize::depth);
  table.add("device.products.efficiency", false, [](Cluster& cluster, const TomlEntry& entry) {
    set_list(entry, cluster.products.points, [&](ProductPoint& point, double given) {
      if (!(given > 0 && given <= 1)) refuse_entry(entry, "must be above 0 and at most 1");
      point.efficiency = given;
    });
  });
  table.count("device.products.alignment", false, most_product_size,
              at(&Cluster::products, &ProductEfficiency::alignment));
  table.number("device.products.unaligned", false,
               at(&Cluster::products, &ProductEfficiency::unaligned), false, 1);
}

void add_first_keys(KeyTable& table) {
  constexpr std::int64_t most_devices = 1 << 24;
  table.text("name", &Cluster::name);
  table.text("source", &Cluster::source);
  table.count("devices_per_node", true, most_devices, at(&Cluster::devices_per_node));
  table.count("nodes", true, most_devices, at(&Cluster::nodes));
  table.bytes("device.memory", true, at(&Cluster::memory_bytes), least_memory_bytes);
  table.truth("device.profiled_here", at(&Cluster::profiled_here));
  table.number("device.flops.float32", false, operation_rate, at(&Cluster::float32_flops));
  table.number("device.flops.bfloat16", false, operation_rate, at(&Cluster::bfloat16_flops));
  table.number("device.flops.float64", false, operation_rate, at(&Cluster::float64_flops));
  table.number("device.efficiency", false, at(&Cluster::efficiency), false, 1);
  table.number("device.bytes_per_second", true, byte_rate, at(&Cluster::bytes_per_second));
  add_link_keys("inside_node", &Cluster::inside_node, table);
  add_link_keys("between_nodes", &Cluster::between_nodes, table);
  table.add("link.between_nodes.per", false, set_share);
  // Of jobs, not of plans: they are looked at and left to load_job_facts().
  for (const std::string& name : job_keys()) {
    table.add(name, false, [](Cluster&, const TomlEntry& entry) {
      JobFacts checked;
      set_job_key(entry, checked);
    });
  }
}

// How another framework works, by what it does as Garonne does not.
void add_software_keys(KeyTable& table) {
  table.add("software.name", false, [](Cluster& cluster, const TomlEntry& entry) {
    cluster.software.name = text_of(entry);
  });
  // The first of the words is ours.
  const auto choice = [&](const char* name, const std::vector<std::string>& words,
                          const std::function<void(Software&, std::size_t)>& set) {
    table.add(name, false, [=](Cluster& cluster, const TomlEntry& entry) {
      const auto found = std::find(words.begin(), words.end(), text_of(entry));
      if (found == words.end())
        refuse_entry(entry, fmt::format("must be one of \"{}\"", fmt::join(words, "\", \"")));
      set(cluster.software, static_cast<std::size_t>(found - words.begin()));
    });
  };
  choice("software.attention", {"fused", "stored"},
         [](Software& software, std::size_t word) { software.stores_scores = word == 1; });
  choice("software.loss", {"fused", "unfused"},
         [](Software& software, std::size_t word) { software.unfused_loss = word == 1; });
  choice("software.norms", {"fused", "unfused"},
         [](Software& software, std::size_t word) { software.unfused_norms = word == 1; });
  choice("software.stages", {"seconds", "blocks", "all-blocks"},
         [](Software& software, std::size_t word) {
           software.balances_stages = word == 0;
           software.counts_ends = word == 2;
         });
  choice("software.gradient_sums", {"fused", "compute", "float32"},
         [](Software& software, std::size_t word) {
           software.gradient_sums =
               std::array{GradientSums::Fused, GradientSums::Compute, GradientSums::Float32}[word];
         });
  choice("software.host", {"ahead", "waits", "blocks"}, [](Software& software, std::size_t word) {
    software.host_waits = word > 0;
    software.waits_for_operations = word == 2;
  });
  table.truth("software.overlap_reductions",
              at(&Cluster::software, &Software::overlaps_reductions));
  table.truth("software.overlap_collectives",
              at(&Cluster::software, &Software::overlaps_collectives));
  table.truth("software.overlap_copies", at(&Cluster::software, &Software::overlaps_copies));
  constexpr double most_block_seconds = 60;
  table.number("software.block_issue_seconds", false,
               at(&Cluster::software, &Software::block_issue_seconds), true, most_block_seconds);
  table.number("software.collective_issue_seconds", false,
               at(&Cluster::software, &Software::collective_issue_seconds), true,
               most_block_seconds);
}

void add_second_keys(KeyTable& table) {
  constexpr std::int64_t most_architecture = 1000;
  constexpr std::int64_t most_multiprocessors = 1 << 16;
  constexpr double most_kernel_seconds = 1;
  // Read before all others: version_of().
  table.add("version", false, [](Cluster&, const TomlEntry&) {});
  table.add("device.kind", false, set_kind);
  table.text("device.name", &Cluster::device_name);
  table.text("device.driver", &Cluster::driver);
  table.count("device.architecture", false, most_architecture,
              at(&Cluster::device, &DeviceFacts::architecture));
  table.count("device.multiprocessors", false, most_multiprocessors,
              at(&Cluster::device, &DeviceFacts::multiprocessors));
  table.bytes("device.reserved", false, at(&Cluster::reserved_bytes));
  table.number("device.flops.tfloat32", false, operation_rate, at(&Cluster::tfloat32_flops));
  table.number("device.flops.float16", false, operation_rate, at(&Cluster::float16_flops));
  table.number("device.least_seconds", false, at(&Cluster::least_seconds), true,
               most_kernel_seconds);
  table.number("device.issue_seconds", false, at(&Cluster::issue_seconds), true,
               most_kernel_seconds);
  add_product_keys(table);
  add_curve_keys("inside_node", &Cluster::inside_node, table);
  add_curve_keys("between_nodes", &Cluster::between_nodes, table);
  table.number("copy.latency_seconds", false, latency,
               at(&Cluster::copies, &CopyRates::latency_seconds));
  table.number("copy.out", false, byte_rate, at(&Cluster::copies, &CopyRates::out));
  table.number("copy.in", false, byte_rate, at(&Cluster::copies, &CopyRates::in));
  table.number("copy.out_with_in", false, byte_rate, at(&Cluster::copies, &CopyRates::out_with_in));
  table.number("copy.in_with_out", false, byte_rate, at(&Cluster::copies, &CopyRates::in_with_out));
  table.bytes("disk.bytes", false, at(&Cluster::disk, &DiskRates::bytes), least_memory_bytes);
  table.number("disk.latency_seconds", false, latency,
               at(&Cluster::disk, &DiskRates::latency_seconds));
  table.number("disk.write", false, byte_rate, at(&Cluster::disk, &DiskRates::write));
  table.number("disk.read", false, byte_rate, at(&Cluster::disk, &DiskRates::read));
  table.truth("disk.half_duplex", at(&Cluster::disk, &DiskRates::half_duplex));
  table.bytes("host.memory", false, at(&Cluster::host, &HostFacts::memory_bytes),
              least_memory_bytes);
  table.number("host.bytes_per_second", false, byte_rate,
               at(&Cluster::host, &HostFacts::bytes_per_second));
  table.number("host.communication_seconds_per_byte", false,
               at(&Cluster::host, &HostFacts::communication_seconds_per_byte), true);
  add_software_keys(table);
}

const std::vector<ClusterKey>& cluster_keys() {
  static const std::vector<ClusterKey> keys = [] {
    KeyTable table;
    add_first_keys(table);
    table.begin_version(latest_version);
    add_second_keys(table);
    return table.take();
  }();
  return keys;
}

// Of one file, once all its keys are set.
class FileCheck {
 public:
  FileCheck(const std::string& name, const std::map<std::string, int>& lines)
      : name_(name), lines_(lines) {}

  void run(Cluster& cluster) const {
    for (const auto& key : cluster_keys()) {
      if (key.required && !has(key.name)) missing(key.name);
    }
    if (cluster.float32_flops + cluster.bfloat16_flops + cluster.float64_flops <= 0) {
      throw ConfigError(
          "device.flops", "",
          fmt::format("{} has none of device.flops.float32, bfloat16, float64", name_));
    }
    expect_all({"device.products.rows", "device.products.columns", "device.products.depth",
                "device.products.efficiency"});
    expect_all({"copy.out", "copy.in", "copy.out_with_in", "copy.in_with_out"});
    expect_all({"disk.bytes", "disk.write", "disk.read"});
    check_curve("link.inside_node", cluster.inside_node);
    check_curve("link.between_nodes", cluster.between_nodes);
    check_device(cluster);
  }

 private:
  bool has(const std::string& key) const { return lines_.contains(key); }

  [[noreturn]] void missing(const std::string& key, const std::string& beside = "") const {
    throw ConfigError(key, "",
                      fmt::format("is missing in {}{}", name_,
                                  beside.empty() ? ""
                                                 : fmt::format(", which has {} (line {})", beside,
                                                               lines_.at(beside))));
  }

  // None of them, or all.
  void expect_all(const std::vector<std::string>& keys) const {
    for (const std::string& given : keys) {
      if (!has(given)) continue;
      for (const std::string& key : keys) {
        if (!has(key)) missing(key, given);
      }
    }
  }

  void check_curve(const std::string& link, const Link& checked) const {
    const std::string bytes = link + ".curve_bytes";
    const std::string rates = link + ".curve_bytes_per_second";
    expect_all({bytes, rates});
    if (const char* wrong = checked.curve.refusal()) {
      throw ConfigError(rates, "",
                        fmt::format("with {} {} (line {})", bytes, wrong, lines_.at(rates)));
    }
  }

  void check_device(Cluster& cluster) const {
    const std::vector<std::string> of_gpus = {"device.architecture", "device.multiprocessors"};
    if (cluster.device.is_gpu()) {
      for (const auto& key : of_gpus) {
        if (!has(key)) missing(key, "device.kind");
      }
      if (!has("device.least_seconds")) cluster.least_seconds = least_kernel_seconds;
      if (!has("device.issue_seconds")) cluster.issue_seconds = kernel_issue_seconds;
    } else {
      for (const auto& key : of_gpus) {
        if (!has(key)) continue;
        throw ConfigError(
            key, "",
            fmt::format("is of devices of device.kind = \"cuda\" (line {})", lines_.at(key)));
      }
    }
    if (cluster.reserved_bytes >= cluster.memory_bytes) {
      throw ConfigError("device.reserved", fmt::format("{}", cluster.reserved_bytes),
                        fmt::format("leaves nothing of device.memory = {} (line {})",
                                    cluster.memory_bytes, lines_.at("device.reserved")));
    }
  }

  const std::string& name_;
  const std::map<std::string, int>& lines_;  // by key
};

int version_of(const std::vector<TomlEntry>& entries) {
  for (const TomlEntry& entry : entries) {
    if (entry.key == "version") return static_cast<int>(integer_of(entry, latest_version));
  }
  return 1;
}

}  // namespace

Cluster parse_cluster(const std::string& toml_text, const std::string& name) {
  Cluster cluster;
  std::map<std::string, int> lines;
  const std::vector<TomlEntry> entries = parse_toml(toml_text, name);
  const int version = version_of(entries);
  for (const TomlEntry& entry : entries) {
    const ClusterKey* key = nullptr;
    std::vector<std::string> names;
    for (const auto& known : cluster_keys()) {
      names.push_back(known.name);
      if (known.name == entry.key) key = &known;
    }
    if (key == nullptr) {
      const std::string near = nearest_word(entry.key, names);
      throw ConfigError(entry.key, "",
                        fmt::format("unknown key of a cluster file ({}:{}){}", name, entry.line,
                                    near.empty() ? "" : fmt::format("; did you mean {}?", near)));
    }
    if (key->version > version && entry.key != "version") {
      throw ConfigError(entry.key, "",
                        fmt::format("is a key of version {} of cluster files ({}:{}); begin the "
                                    "file with version = {}",
                                    key->version, name, entry.line, key->version));
    }
    key->set(cluster, entry);
    lines.emplace(entry.key, entry.line);
  }
  FileCheck(name, lines).run(cluster);
  if (cluster.name.empty()) cluster.name = name;
  return cluster;
}

}  // namespace garonne::plan
