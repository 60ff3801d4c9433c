#include "data/generate_navier_stokes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "data/gaussian_field.hpp"
#include "data/hdf5.hpp"
#include "data/partial_file.hpp"
#include "data/shared_work.hpp"
#include "data/vorticity_solver.hpp"

namespace garonne::data {
namespace {

void check(const NavierStokesGeneration& generation) {
  const auto refuse = [](const char* key, auto value, const char* reason) {
    throw ConfigError(key, fmt::format("{}", value), reason);
  };
  if (generation.samples < 1) refuse("samples", generation.samples, "must be at least 1");
  if (generation.test_samples < 0) refuse("test-samples", generation.test_samples, "is negative");
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
  if (generation.output == generation.test_output) {
    refuse("test", generation.test_output, "is the file of the training samples too");
  }
}

// One of PDEBench's files for series of fields, with the initial states beside them.
class SeriesFile {
 public:
  SeriesFile(const NavierStokesGeneration& generation, const std::string& path,
             std::int64_t samples)
      : partial_(path),
        file_(Hdf5File::create(partial_.path())),
        points_(generation.resolution / generation.stride),
        frames_(generation.time) {
    const std::vector<std::int64_t> series = {samples, frames_, points_, points_};
    const std::vector<std::int64_t> initial = {samples, points_, points_};
    series_.emplace(file_.create_array<float>("tensor", series));
    initial_.emplace(file_.create_array<float>("initial", initial));
    const auto write_line = [&](const char* name, std::int64_t count, double first, double step) {
      std::vector<float> line;
      for (std::int64_t index = 0; index < count; ++index) {
        line.push_back(static_cast<float>(first + step * static_cast<double>(index)));
      }
      const std::vector<std::int64_t> length = {count};
      file_.create_array<float>(name, length).write(0, std::span<const float>(line));
    };
    write_line("x-coordinate", points_, 0, 1 / static_cast<double>(points_));
    write_line("y-coordinate", points_, 0, 1 / static_cast<double>(points_));
    write_line("t-coordinate", frames_, 1, 1);
    Hdf5Attributes attributes = file_.attributes("/");
    const auto number = [&](const char* name, double value) {
      attributes.write(name, std::span<const double>(&value, 1));
    };
    number("nu", generation.viscosity);
    attributes.write("generator", std::string("garonne data navier-stokes"));
    attributes.write("quantity", std::string("vorticity"));
    attributes.write("grid", std::string("periodic"));
    number("alpha", generation.alpha);
    number("tau", generation.tau);
    number("step", generation.step);
    file_.write_attribute("seed", static_cast<std::int64_t>(generation.seed));
    file_.write_attribute("resolution", generation.resolution);
    file_.write_attribute("stride", generation.stride);
  }

  // The initial state, then the frames.
  void write(std::int64_t sample, std::span<const float> values) {
    const auto area = static_cast<std::size_t>(points_ * points_);
    const std::vector<std::int64_t> first_initial = {sample, 0, 0};
    const std::vector<std::int64_t> initial = {1, points_, points_};
    const std::vector<std::int64_t> first_series = {sample, 0, 0, 0};
    const std::vector<std::int64_t> series = {1, frames_, points_, points_};
    initial_->write_box(first_initial, initial, values.first(area));
    series_->write_box(first_series, series, values.subspan(area));
  }

  void publish() {
    initial_.reset();
    series_.reset();
    file_.close();
    partial_.publish();
  }

 private:
  PartialFile partial_;
  Hdf5File file_;
  std::int64_t points_;
  std::int64_t frames_;
  std::optional<Hdf5Dataset> initial_;
  std::optional<Hdf5Dataset> series_;
};

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
  std::optional<SeriesFile> training;
  std::optional<SeriesFile> held_out;
  const std::int64_t test_samples = generation.test_output.empty() ? 0 : generation.test_samples;
  const std::int64_t points = generation.resolution / std::max<std::int64_t>(generation.stride, 1);
  session.agree([&] {
    check(generation);
    solver.emplace(generation.resolution, generation.viscosity, generation.step);
    solver->set_force(diagonal_force(generation.resolution));
    if (session.rank() != 0) return;
    const std::int64_t bytes = 4 * points * points * (generation.time + 1);
    check_space(generation.output, bytes * (generation.samples + test_samples) + 65536);
    training.emplace(generation, generation.output, generation.samples);
    if (test_samples > 0) {
      check_space(generation.test_output, bytes * test_samples + 65536);
      held_out.emplace(generation, generation.test_output, test_samples);
    }
  });
  NavierStokesSummary summary;
  make_and_take(
      session, "navier-stokes", generation.show_progress, generation.samples + test_samples,
      [&](std::int64_t sample) { return make(*solver, generation, sample); },
      [&](std::int64_t sample, const MadeSample& made) {
        if (sample < generation.samples) {
          training->write(sample, made.values);
        } else {
          held_out->write(sample - generation.samples, made.values);
        }
        summary.mean_square += made.facts[0];
        summary.largest = std::max(summary.largest, made.facts[1]);
        summary.largest_mean = std::max(summary.largest_mean, made.facts[2]);
      });
  session.agree([&] {
    if (training) training->publish();
    if (held_out) held_out->publish();
  });
  summary.mean_square /=
      static_cast<double>((generation.samples + test_samples) * generation.time * points * points);
  return summary;
}

}  // namespace garonne::data
