#include "plan/model/cluster.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/toml.hpp"

namespace garonne::plan {

double Cluster::flops(Precision precision, ProductRounding rounding) const {
  if (rounding == ProductRounding::Tf32) {
    expect(precision == Precision::Float32, "TF32 is of float32 numbers");
    if (tfloat32_flops > 0) return tfloat32_flops * efficiency;
    throw ConfigError("device.flops.tfloat32", "",
                      fmt::format("is needed for train.products = tf32 and is not in the cluster "
                                  "file of {}",
                                  name));
  }
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

Cluster load_cluster(const std::string& path) {
  return parse_cluster(
      read_given_file(path, "give the path of a cluster file (config/clusters/*.toml)",
                      most_toml_bytes),
      path);
}

namespace {

std::string quoted(const std::string& text) {
  std::string escaped;
  for (const char character : text) {
    if (character == '"' || character == '\\') escaped += '\\';
    escaped += character == '\n' ? ' ' : character;
  }
  return "\"" + escaped + "\"";
}

// TOML wants a point or an exponent in a float.
std::string real(double value) {
  const std::string text = fmt::format("{}", value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

// Of what has a value only: nothing else is written.
class TomlWriter {
 public:
  void table(const std::string& name) { heading_ = fmt::format("\n[{}]\n", name); }
  void line(const std::string& key, const std::string& value) {
    text_ += std::exchange(heading_, "") + fmt::format("{} = {}\n", key, value);
  }
  void text(const std::string& key, const std::string& value) {
    if (!value.empty()) line(key, quoted(value));
  }
  void number(const std::string& key, double value) {
    if (value > 0) line(key, real(value));
  }
  void count(const std::string& key, std::int64_t value) {
    if (value > 0) line(key, fmt::format("{}", value));
  }
  void truth(const std::string& key, bool value) {
    if (value) line(key, "true");
  }
  template <typename Element, typename Number>
  void list(const std::string& key, const std::vector<Element>& elements, const Number& number) {
    std::vector<std::string> numbers;
    for (const Element& element : elements) numbers.push_back(number(element));
    if (!numbers.empty()) line(key, fmt::format("[{}]", fmt::join(numbers, ", ")));
  }

  std::string take() { return std::move(text_); }

 private:
  std::string text_;
  std::string heading_;  // of a table with nothing in it so far
};

void write_products(const ProductEfficiency& products, TomlWriter& file) {
  file.table("device.products");
  const auto size = [&](const char* key, std::int64_t ProductSize::*member) {
    file.list(key, products.points,
              [&](const ProductPoint& point) { return fmt::format("{}", point.size.*member); });
  };
  size("rows", &ProductSize::rows);
  size("columns", &ProductSize::columns);
  size("depth", &ProductSize::depth);
  file.list("efficiency", products.points,
            [](const ProductPoint& point) { return real(point.efficiency); });
  if (products.alignment > 1) file.count("alignment", products.alignment);
  if (products.unaligned < 1) file.number("unaligned", products.unaligned);
}

void write_device(const Cluster& cluster, TomlWriter& file) {
  file.table("device");
  file.text("kind", std::string(to_string(cluster.device.kind)));
  file.text("name", cluster.device_name);
  file.text("driver", cluster.driver);
  file.count("architecture", cluster.device.architecture);
  file.count("multiprocessors", cluster.device.multiprocessors);
  file.count("memory", cluster.memory_bytes);
  file.count("reserved", cluster.reserved_bytes);
  file.number("efficiency", cluster.efficiency);
  file.number("bytes_per_second", cluster.bytes_per_second);
  const bool may_be_left_out = !cluster.device.is_gpu();
  for (const auto& [key, seconds] : {std::pair{"least_seconds", cluster.least_seconds},
                                     std::pair{"issue_seconds", cluster.issue_seconds}}) {
    if (seconds > 0 || !may_be_left_out) file.line(key, real(seconds));
  }
  file.truth("profiled_here", cluster.profiled_here);
  file.table("device.flops");
  file.number("float32", cluster.float32_flops);
  file.number("bfloat16", cluster.bfloat16_flops);
  file.number("float64", cluster.float64_flops);
  file.number("tfloat32", cluster.tfloat32_flops);
  file.number("float16", cluster.float16_flops);
  write_products(cluster.products, file);
}

void write_link(const char* name, const Link& link, TomlWriter& file) {
  file.table(fmt::format("link.{}", name));
  file.line("latency_seconds", real(link.latency_seconds));
  file.line("bytes_per_second", real(link.bytes_per_second));
  const auto& points = link.curve.points;
  file.list("curve_bytes", points, [](const RatePoint& point) { return real(point.bytes); });
  file.list("curve_bytes_per_second", points,
            [](const RatePoint& point) { return real(point.bytes_per_second); });
}

}  // namespace

std::string to_toml(const Cluster& cluster) {
  TomlWriter file;
  file.count("version", 2);
  file.line("name", quoted(cluster.name));
  file.line("source", quoted(cluster.source));
  file.count("devices_per_node", cluster.devices_per_node);
  file.count("nodes", cluster.nodes);
  write_device(cluster, file);
  write_link("inside_node", cluster.inside_node, file);
  write_link("between_nodes", cluster.between_nodes, file);
  if (cluster.shared_by_node) file.text("per", "node");
  file.table("copy");
  file.number("latency_seconds", cluster.copies.latency_seconds);
  file.number("out", cluster.copies.out);
  file.number("in", cluster.copies.in);
  file.number("out_with_in", cluster.copies.out_with_in);
  file.number("in_with_out", cluster.copies.in_with_out);
  file.table("disk");
  file.count("bytes", cluster.disk.bytes);
  file.number("latency_seconds", cluster.disk.latency_seconds);
  file.number("write", cluster.disk.write);
  file.number("read", cluster.disk.read);
  file.truth("half_duplex", cluster.disk.half_duplex);
  file.table("host");
  file.count("memory", cluster.host.memory_bytes);
  file.number("bytes_per_second", cluster.host.bytes_per_second);
  file.number("communication_seconds_per_byte", cluster.host.communication_seconds_per_byte);
  file.table("software");
  file.text("name", cluster.software.name);
  if (cluster.software.stores_scores) file.text("attention", "stored");
  if (cluster.software.unfused_loss) file.text("loss", "unfused");
  if (cluster.software.unfused_norms) file.text("norms", "unfused");
  if (!cluster.software.balances_stages)
    file.text("stages", cluster.software.counts_ends ? "all-blocks" : "blocks");
  if (cluster.software.gradient_sums != GradientSums::Fused) {
    file.text("gradient_sums",
              cluster.software.gradient_sums == GradientSums::Compute ? "compute" : "float32");
  }
  if (cluster.software.host_waits)
    file.text("host", cluster.software.waits_for_operations ? "blocks" : "waits");
  if (!cluster.software.overlaps_reductions) file.line("overlap_reductions", "false");
  if (!cluster.software.overlaps_collectives) file.line("overlap_collectives", "false");
  if (!cluster.software.overlaps_copies) file.line("overlap_copies", "false");
  file.number("block_issue_seconds", cluster.software.block_issue_seconds);
  file.number("collective_issue_seconds", cluster.software.collective_issue_seconds);
  return file.take();
}

}  // namespace garonne::plan
