#include "data/generate_darcy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "data/darcy_solver.hpp"
#include "data/gaussian_field.hpp"
#include "data/hdf5.hpp"
#include "data/partial_file.hpp"
#include "data/shared_work.hpp"

namespace garonne::data {
namespace {

void check(const DarcyGeneration& generation) {
  const auto refuse = [](const char* key, auto value, const char* reason) {
    throw ConfigError(key, fmt::format("{}", value), reason);
  };
  if (generation.samples < 1) refuse("samples", generation.samples, "must be at least 1");
  if (generation.test_samples < 0) refuse("test-samples", generation.test_samples, "is negative");
  if (generation.stride < 1 || (generation.resolution - 1) % generation.stride != 0) {
    refuse("stride", generation.stride, "must divide resolution − 1, so that both ends are kept");
  }
  if (generation.coefficient != "threshold" && generation.coefficient != "lognormal") {
    refuse("coefficient", generation.coefficient, "is neither threshold nor lognormal");
  }
  if (!(generation.small > 0 && generation.large > 0)) {
    refuse("values", std::min(generation.small, generation.large), "must be positive");
  }
  if (!(generation.alpha > 1)) refuse("alpha", generation.alpha, "must be above 1");
  if (!(generation.tau > 0)) refuse("tau", generation.tau, "must be positive");
  if (generation.output == generation.test_output) {
    refuse("test", generation.test_output, "is the file of the training samples too");
  }
}

// One of PDEBench's files for steady flow.
class DarcyFile {
 public:
  DarcyFile(const DarcyGeneration& generation, const std::string& path, std::int64_t samples)
      : partial_(path),
        file_(Hdf5File::create(partial_.path())),
        points_((generation.resolution - 1) / generation.stride + 1) {
    const std::vector<std::int64_t> inputs = {samples, points_, points_};
    const std::vector<std::int64_t> outputs = {samples, 1, points_, points_};
    inputs_.emplace(file_.create_array<float>("nu", inputs));
    outputs_.emplace(file_.create_array<float>("tensor", outputs));
    std::vector<float> coordinate;
    for (std::int64_t point = 0; point < points_; ++point) {
      coordinate.push_back(static_cast<float>(point) / static_cast<float>(points_ - 1));
    }
    const std::vector<std::int64_t> length = {points_};
    for (const char* name : {"x-coordinate", "y-coordinate"}) {
      file_.create_array<float>(name, length).write(0, std::span<const float>(coordinate));
    }
    Hdf5Attributes attributes = file_.attributes("/");
    const auto number = [&](const char* name, double value) {
      attributes.write(name, std::span<const double>(&value, 1));
    };
    number("beta", generation.force);
    attributes.write("generator", std::string("garonne data darcy"));
    attributes.write("coefficient", generation.coefficient);
    if (generation.coefficient == "threshold") {
      number("small", generation.small);
      number("large", generation.large);
    }
    number("alpha", generation.alpha);
    number("tau", generation.tau);
    file_.write_attribute("seed", static_cast<std::int64_t>(generation.seed));
    file_.write_attribute("resolution", generation.resolution);
    file_.write_attribute("stride", generation.stride);
  }

  void write(std::int64_t sample, std::span<const float> values) {
    const std::vector<std::int64_t> first_input = {sample, 0, 0};
    const std::vector<std::int64_t> input = {1, points_, points_};
    const std::vector<std::int64_t> first_output = {sample, 0, 0, 0};
    const std::vector<std::int64_t> output = {1, 1, points_, points_};
    inputs_->write_box(first_input, input, values.first(values.size() / 2));
    outputs_->write_box(first_output, output, values.last(values.size() / 2));
  }

  void publish() {
    inputs_.reset();
    outputs_.reset();
    file_.close();
    partial_.publish();
  }

 private:
  PartialFile partial_;
  Hdf5File file_;
  std::int64_t points_;
  std::optional<Hdf5Dataset> inputs_;
  std::optional<Hdf5Dataset> outputs_;
};

// Coefficient and solution at every stride-th node; sums of u, u² and the share, the maximum of u.
MadeSample make(DarcySolver& solver, const DarcyGeneration& generation, std::int64_t sample) {
  const std::int64_t points = generation.resolution;
  std::vector<double> a = neumann_gaussian_field({generation.alpha, generation.tau}, points,
                                                 philox_key(generation.seed, "data darcy"),
                                                 static_cast<std::uint64_t>(sample));
  double share = 0;
  for (double& value : a) {
    share += value >= 0 ? 1 : 0;
    if (generation.coefficient == "lognormal") {
      value = std::exp(value);
    } else {
      value = value >= 0 ? generation.large : generation.small;
    }
  }
  const std::vector<double> u = solver.solve(a, generation.force);
  MadeSample made;
  for (const std::vector<double>* field : {&std::as_const(a), &u}) {
    for (std::int64_t i = 0; i < points; i += generation.stride) {
      for (std::int64_t j = 0; j < points; j += generation.stride) {
        made.values.push_back(
            static_cast<float>((*field)[static_cast<std::size_t>(i * points + j)]));
      }
    }
  }
  double sum = 0;
  double squares = 0;
  double largest = u[0];
  for (const double value : u) {
    sum += value;
    squares += value * value;
    largest = std::max(largest, value);
  }
  made.facts = {sum, squares, share, largest};
  return made;
}

}  // namespace

DarcySummary generate_darcy(dist::Session& session, const DarcyGeneration& generation) {
  std::optional<DarcySolver> solver;
  std::optional<DarcyFile> training;
  std::optional<DarcyFile> held_out;
  const std::int64_t test_samples = generation.test_output.empty() ? 0 : generation.test_samples;
  session.agree([&] {
    check(generation);
    solver.emplace(generation.resolution);
    if (session.rank() != 0) return;
    const std::int64_t points = (generation.resolution - 1) / generation.stride + 1;
    const std::int64_t bytes = 8 * points * points;
    check_space(generation.output, bytes * (generation.samples + test_samples) + 65536);
    training.emplace(generation, generation.output, generation.samples);
    if (test_samples > 0) {
      check_space(generation.test_output, bytes * test_samples + 65536);
      held_out.emplace(generation, generation.test_output, test_samples);
    }
  });
  double sum = 0;
  double squares = 0;
  DarcySummary summary;
  make_and_take(
      session, "darcy", generation.show_progress, generation.samples + test_samples,
      [&](std::int64_t sample) { return make(*solver, generation, sample); },
      [&](std::int64_t sample, const MadeSample& made) {
        if (sample < generation.samples) {
          training->write(sample, made.values);
        } else {
          held_out->write(sample - generation.samples, made.values);
        }
        sum += made.facts[0];
        squares += made.facts[1];
        summary.share += made.facts[2];
        summary.largest = std::max(summary.largest, made.facts[3]);
      });
  session.agree([&] {
    if (training) training->publish();
    if (held_out) held_out->publish();
  });
  const auto count = static_cast<double>((generation.samples + test_samples) *
                                         generation.resolution * generation.resolution);
  summary.mean = sum / count;
  summary.deviation = std::sqrt(squares / count - summary.mean * summary.mean);
  summary.share /= count;
  return summary;
}

}  // namespace garonne::data
