#include "plan/model/cluster.hpp"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "base/bytes.hpp"
#include "base/config.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/toml.hpp"

namespace garonne::plan {
namespace {

struct ClusterKey {
  std::string name;
  bool required = false;
  std::function<void(Cluster&, const TomlEntry&)> set;
};

[[noreturn]] void refuse(const TomlEntry& entry, const std::string& reason) {
  const std::string shown =
      std::visit([](const auto& value) { return fmt::format("{}", value); }, entry.value);
  throw ConfigError(entry.key, shown, fmt::format("{} (line {})", reason, entry.line));
}

std::string text_of(const TomlEntry& entry) {
  if (const auto* text = std::get_if<std::string>(&entry.value)) return *text;
  refuse(entry, "must be text");
}

double number_of(const TomlEntry& entry) {
  if (const auto* integer = std::get_if<std::int64_t>(&entry.value))
    return static_cast<double>(*integer);
  if (const auto* real = std::get_if<double>(&entry.value)) return *real;
  refuse(entry, "must be a number");
}

template <typename Member>
ClusterKey text_key(const std::string& name, Member member) {
  return {name, false,
          [member](Cluster& cluster, const TomlEntry& entry) { cluster.*member = text_of(entry); }};
}

ClusterKey count_key(const std::string& name, int Cluster::*member) {
  return {name, true, [member](Cluster& cluster, const TomlEntry& entry) {
            const auto* count = std::get_if<std::int64_t>(&entry.value);
            constexpr int most = 1 << 24;
            if (count == nullptr || *count < 1 || *count > most)
              refuse(entry, fmt::format("must be an integer from 1 to {}", most));
            cluster.*member = static_cast<int>(*count);
          }};
}

// Numbers above 0, or from 0 where `may_be_zero`; at most `most`.
ClusterKey number_key(const std::string& name, bool required,
                      std::function<double&(Cluster&)> access, bool may_be_zero = false,
                      double most = std::numeric_limits<double>::max()) {
  return {name, required, [=](Cluster& cluster, const TomlEntry& entry) {
            const double number = number_of(entry);
            if (!(number <= most) || number < 0 || (number == 0 && !may_be_zero)) {
              refuse(entry, fmt::format("must be {} 0{}", may_be_zero ? "at least" : "above",
                                        most < 1e300 ? fmt::format(" and at most {}", most) : ""));
            }
            access(cluster) = number;
          }};
}

void set_memory(Cluster& cluster, const TomlEntry& entry) {
  std::int64_t bytes = 0;
  if (const auto* integer = std::get_if<std::int64_t>(&entry.value)) bytes = *integer;
  if (const auto* text = std::get_if<std::string>(&entry.value))
    bytes = parse_bytes(*text).value_or(0);
  if (bytes <= 0) refuse(entry, "must be a number of bytes such as \"80 GiB\"");
  cluster.memory_bytes = bytes;
}

void set_profiled(Cluster& cluster, const TomlEntry& entry) {
  const auto* given = std::get_if<bool>(&entry.value);
  if (given == nullptr) refuse(entry, "must be true or false");
  cluster.profiled_here = *given;
}

void set_share(Cluster& cluster, const TomlEntry& entry) {
  const std::string text = text_of(entry);
  if (text != "device" && text != "node") refuse(entry, "must be \"device\" or \"node\"");
  cluster.shared_by_node = text == "node";
}

const std::vector<ClusterKey>& cluster_keys() {
  const auto member = [](double Cluster::*number) {
    return [number](Cluster& cluster) -> double& { return cluster.*number; };
  };
  const auto of_link = [](Link Cluster::*link, double Link::*number) {
    return [=](Cluster& cluster) -> double& { return cluster.*link.*number; };
  };
  static const std::vector<ClusterKey> keys = {
      text_key("name", &Cluster::name),
      text_key("source", &Cluster::source),
      count_key("devices_per_node", &Cluster::devices_per_node),
      count_key("nodes", &Cluster::nodes),
      {"device.memory", true, set_memory},
      {"device.profiled_here", false, set_profiled},
      number_key("device.flops.float32", false, member(&Cluster::float32_flops)),
      number_key("device.flops.bfloat16", false, member(&Cluster::bfloat16_flops)),
      number_key("device.flops.float64", false, member(&Cluster::float64_flops)),
      number_key("device.efficiency", false, member(&Cluster::efficiency), false, 1),
      number_key("device.bytes_per_second", true, member(&Cluster::bytes_per_second)),
      number_key("link.inside_node.latency_seconds", true,
                 of_link(&Cluster::inside_node, &Link::latency_seconds), true),
      number_key("link.inside_node.bytes_per_second", true,
                 of_link(&Cluster::inside_node, &Link::bytes_per_second)),
      number_key("link.between_nodes.latency_seconds", true,
                 of_link(&Cluster::between_nodes, &Link::latency_seconds), true),
      number_key("link.between_nodes.bytes_per_second", true,
                 of_link(&Cluster::between_nodes, &Link::bytes_per_second)),
      {"link.between_nodes.per", false, set_share},
  };
  return keys;
}

}  // namespace

double Cluster::flops(Precision precision) const {
  const double rate = precision == Precision::Float32   ? float32_flops
                      : precision == Precision::Float64 ? float64_flops
                                                        : bfloat16_flops;
  if (rate <= 0) {
    throw ConfigError(fmt::format("device.flops.{}", precision_name(precision)), "",
                      fmt::format("is needed for train.precision = {} and is not in the cluster "
                                  "file of {}",
                                  precision_name(precision), name));
  }
  return rate * efficiency;
}

Cluster parse_cluster(const std::string& toml_text, const std::string& name) {
  Cluster cluster;
  std::set<std::string> given;
  for (const TomlEntry& entry : parse_toml(toml_text, name)) {
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
    key->set(cluster, entry);
    given.insert(entry.key);
  }
  for (const auto& key : cluster_keys()) {
    if (key.required && !given.contains(key.name))
      throw ConfigError(key.name, "", fmt::format("is missing in {}", name));
  }
  if (cluster.float32_flops + cluster.bfloat16_flops + cluster.float64_flops <= 0) {
    throw ConfigError("device.flops", "",
                      fmt::format("{} has none of device.flops.float32, bfloat16, float64", name));
  }
  if (cluster.name.empty()) cluster.name = name;
  return cluster;
}

Cluster load_cluster(const std::string& path) {
  return parse_cluster(
      read_given_file(path, "give the path of a cluster file (config/clusters/*.toml)",
                      most_toml_bytes),
      path);
}

std::string to_toml(const Cluster& cluster) {
  const auto quoted = [](const std::string& text) {
    std::string escaped;
    for (const char character : text) {
      if (character == '"' || character == '\\') escaped += '\\';
      escaped += character == '\n' ? ' ' : character;
    }
    return "\"" + escaped + "\"";
  };
  const auto number = [](double value) {
    // TOML wants a point or an exponent in a float.
    const std::string text = fmt::format("{}", value);
    return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
  };
  std::string text;
  text += fmt::format("name = {}\n", quoted(cluster.name));
  text += fmt::format("source = {}\n", quoted(cluster.source));
  text +=
      fmt::format("devices_per_node = {}\nnodes = {}\n", cluster.devices_per_node, cluster.nodes);
  text += fmt::format("\n[device]\nmemory = {}\nefficiency = {}\nbytes_per_second = {}\n",
                      cluster.memory_bytes, number(cluster.efficiency),
                      number(cluster.bytes_per_second));
  if (cluster.profiled_here) text += "profiled_here = true\n";
  text += "\n[device.flops]\n";
  for (const auto& [name, rate] :
       {std::pair{"float32", cluster.float32_flops}, std::pair{"bfloat16", cluster.bfloat16_flops},
        std::pair{"float64", cluster.float64_flops}}) {
    if (rate > 0) text += fmt::format("{} = {}\n", name, number(rate));
  }
  for (const auto& [name, link] : {std::pair{"inside_node", &cluster.inside_node},
                                   std::pair{"between_nodes", &cluster.between_nodes}}) {
    text += fmt::format("\n[link.{}]\nlatency_seconds = {}\nbytes_per_second = {}\n", name,
                        number(link->latency_seconds), number(link->bytes_per_second));
  }
  if (cluster.shared_by_node) text += "per = \"node\"\n";
  return text;
}

}  // namespace garonne::plan
