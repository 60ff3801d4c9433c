#include "data/generate/generate_navier_stokes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "data/generate/gaussian_field.hpp"
#include "data/generate/pdebench_output.hpp"
#include "data/generate/shared_work.hpp"
#include "data/generate/vorticity_solver.hpp"

namespace garonne::data {
namespace {

void check(const NavierStokesGeneration& generation) {
  const auto refuse = [](const char* key, auto value, const char* reason) {
    throw ConfigError(key, fmt::format("{}", value), reason);
  };
  if (generation.stride < 1 || generation.resolution % generation.stride != 0) {
    refuse("stride", generation.stride, "must divide the resolution");
  }
  if (generation.time < 1) refuse("time", generation.time, "must be at least 1");
  if (generation.step > 0 &&
      std::abs(std::round(1 / generation.step) * generation.step - 1) > 1e-9) {
    refuse("step", generation.step, "must divide a second");
  }
  if (!(generation.alpha > 1)) refuse("alpha", generation.alpha, "must be above 1");
  if (!(generation.tau > 0)) refuse("tau", generation.tau, "must be positive");
}

std::vector<float> line(std::int64_t count, double first, double step) {
  std::vector<float> points;
  for (std::int64_t index = 0; index < count; ++index) {
    points.push_back(static_cast<float>(first + step * static_cast<double>(index)));
  }
  return points;
}

// Series of fields, with the initial states beside them.
PdebenchFields describe(const NavierStokesGeneration& generation) {
  const std::int64_t points = generation.resolution / generation.stride;
  const std::vector<float> side = line(points, 0, 1 / static_cast<double>(points));
  PdebenchFields fields;
  fields.arrays = {{"initial", {points, points}, "vorticity at the start", "s-1"},
                   {"tensor", {generation.time, points, points}, "vorticity", "s-1"}};
  fields.coordinates = {{"x-coordinate", side},
                        {"y-coordinate", side},
                        {"t-coordinate", line(generation.time, 1, 1)}};
  fields.attributes = {{"nu", generation.viscosity},
                       {"generator", "garonne data navier-stokes"},
                       {"quantity", "vorticity"},
                       {"grid", "periodic"},
                       {"alpha", generation.alpha},
                       {"tau", generation.tau},
                       {"step", generation.step},
                       {"seed", static_cast<std::int64_t>(generation.seed)},
                       {"resolution", generation.resolution},
                       {"stride", generation.stride}};
  return fields;
}

// Facts: the sum of squares over the frames, the largest |ω|, the largest |mean| of a frame.
MadeSample make(VorticitySolver& solver, const NavierStokesGeneration& generation,
                std::int64_t sample) {
  const std::int64_t points = generation.resolution;
  const std::int64_t steps = std::llround(1 / generation.step);
  std::vector<double> vorticity = periodic_gaussian_field(
      {generation.alpha, generation.tau}, points, philox_key(generation.seed, "data navier-stokes"),
      static_cast<std::uint64_t>(sample));
  MadeSample made;
  made.facts = {0, 0, 0};
  solver.set_vorticity(vorticity);
  for (std::int64_t frame = 0; frame <= generation.time; ++frame) {
    if (frame > 0) {
      solver.advance(steps);
      vorticity = solver.vorticity();
    }
    double mean = 0;
    for (std::int64_t i = 0; i < points; i += generation.stride) {
      for (std::int64_t j = 0; j < points; j += generation.stride) {
        const double value = vorticity[static_cast<std::size_t>(i * points + j)];
        made.values.push_back(static_cast<float>(value));
        mean += value;
        if (frame == 0) continue;
        made.facts[0] += value * value;
        made.facts[1] = std::max(made.facts[1], std::abs(value));
      }
    }
    const double area = static_cast<double>(points * points) /
                        static_cast<double>(generation.stride * generation.stride);
    made.facts[2] = std::max(made.facts[2], std::abs(mean / area));
    if (!std::isfinite(mean)) {
      throw RefusedError(
          fmt::format("navier-stokes: sample {} is not finite after {} s; a step below "
                      "{} s is needed",
                      sample, frame, generation.step));
    }
  }
  return made;
}

}  // namespace

NavierStokesSummary generate_navier_stokes(dist::Session& session,
                                           const NavierStokesGeneration& generation) {
  std::optional<VorticitySolver> solver;
  std::optional<PdebenchOutput> output;
  const SampleFiles files = {generation.output, generation.test_output, generation.samples,
                             generation.test_samples};
  session.agree([&] {
    check(files);
    check(generation);
    solver.emplace(generation.resolution, generation.viscosity, generation.step);
    solver->set_force(diagonal_force(generation.resolution));
    if (session.rank() == 0) output.emplace(describe(generation), files);
  });
  NavierStokesSummary summary;
  make_and_take(
      session, "navier-stokes", generation.show_progress, files.count(),
      [&](std::int64_t sample) { return make(*solver, generation, sample); },
      [&](std::int64_t sample, const MadeSample& made) {
        output->write(sample, made.values);
        summary.mean_square += made.facts[0];
        summary.largest = std::max(summary.largest, made.facts[1]);
        summary.largest_mean = std::max(summary.largest_mean, made.facts[2]);
      });
  session.agree([&] {
    if (output) output->publish();
  });
  const std::int64_t points = generation.resolution / generation.stride;
  summary.mean_square /= static_cast<double>(files.count() * generation.time * points * points);
  return summary;
}

}  // namespace garonne::data
