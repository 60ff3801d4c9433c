#include "data/generate/generate_darcy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "data/generate/darcy_solver.hpp"
#include "data/generate/gaussian_field.hpp"
#include "data/generate/pdebench_output.hpp"
#include "data/generate/shared_work.hpp"

namespace garonne::data {
namespace {

void check(const DarcyGeneration& generation) {
  const auto refuse = [](const char* key, auto value, const char* reason) {
    throw ConfigError(key, fmt::format("{}", value), reason);
  };
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
}

PdebenchFields describe(const DarcyGeneration& generation) {
  const std::int64_t points = (generation.resolution - 1) / generation.stride + 1;
  std::vector<float> line;
  for (std::int64_t point = 0; point < points; ++point) {
    line.push_back(static_cast<float>(point) / static_cast<float>(points - 1));
  }
  PdebenchFields fields;
  fields.arrays = {{"nu", {points, points}, "permeability", ""},
                   {"tensor", {1, points, points}, "pressure", ""}};
  fields.coordinates = {{"x-coordinate", line}, {"y-coordinate", line}};
  fields.attributes = {{"beta", generation.force},
                       {"generator", "garonne data darcy"},
                       {"coefficient", generation.coefficient}};
  if (generation.coefficient == "threshold") {
    fields.attributes.emplace_back("small", generation.small);
    fields.attributes.emplace_back("large", generation.large);
  }
  fields.attributes.insert(fields.attributes.end(),
                           {{"alpha", generation.alpha},
                            {"tau", generation.tau},
                            {"seed", static_cast<std::int64_t>(generation.seed)},
                            {"resolution", generation.resolution},
                            {"stride", generation.stride}});
  return fields;
}

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
  std::optional<PdebenchOutput> output;
  const SampleFiles files = {generation.output, generation.test_output, generation.samples,
                             generation.test_samples};
  session.agree([&] {
    check(files);
    check(generation);
    solver.emplace(generation.resolution);
    if (session.rank() == 0) output.emplace(describe(generation), files);
  });
  double sum = 0;
  double squares = 0;
  DarcySummary summary;
  make_and_take(
      session, "darcy", generation.show_progress, files.count(),
      [&](std::int64_t sample) { return make(*solver, generation, sample); },
      [&](std::int64_t sample, const MadeSample& made) {
        output->write(sample, made.values);
        sum += made.facts[0];
        squares += made.facts[1];
        summary.share += made.facts[2];
        summary.largest = std::max(summary.largest, made.facts[3]);
      });
  session.agree([&] {
    if (output) output->publish();
  });
  const auto count =
      static_cast<double>(files.count() * generation.resolution * generation.resolution);
  summary.mean = sum / count;
  summary.deviation = std::sqrt(squares / count - summary.mean * summary.mean);
  summary.share /= count;
  return summary;
}

}  // namespace garonne::data
