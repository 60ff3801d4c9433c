// `garonne bench transforms`: seconds of spherical harmonic transforms.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numbers>
#include <vector>

#include "base/device.hpp"
#include "base/json_output.hpp"
#include "base/key_limits.hpp"
#include "base/philox.hpp"
#include "base/sphere_grid.hpp"
#include "command.hpp"
#include "counts.hpp"
#include "kernels/initialise.hpp"
#include "kernels/session.hpp"
#include "kernels/sphere_transform.hpp"

namespace garonne::apps {
namespace {

struct TransformCase {
  std::string grid = "legendre-gauss";
  std::int64_t latitudes = 240;
  std::int64_t longitudes = 480;
  std::int64_t degrees = 240;
  std::int64_t channels = 32;
  std::string precision = "float32";
  int threads = 1;
  double seconds = 1;  // of repeating each direction
};

struct TransformTimes {
  double analysis = std::numeric_limits<double>::infinity();
  double synthesis = std::numeric_limits<double>::infinity();
  double error = 0;  // of coefficients after a round trip, relative
};

// The shortest of what fits into the time given, at least five.
template <typename Work>
double shortest(double allowed, const Work& work) {
  double best = std::numeric_limits<double>::infinity();
  double total = 0;
  for (int runs = 0; runs < 5 || total < allowed; ++runs) {
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    best = std::min(best, spent.count());
    total += spent.count();
  }
  return best;
}

template <typename T>
TransformTimes time_transforms(const TransformCase& item) {
  const SphereGrid grid =
      make_sphere_grid(sphere_grid_kind("--grid", item.grid), item.latitudes, item.longitudes);
  kernels::SphereArguments call;
  call.type = sizeof(T) == 4 ? kernels::ElementType::Float32 : kernels::ElementType::Float64;
  call.shape = {item.latitudes, item.longitudes, item.degrees,
                std::min(item.degrees, item.longitudes / 2 + 1)};
  std::vector<T> table(static_cast<std::size_t>(kernels::sphere_table_elements(call.shape)));
  kernels::fill_sphere_table(call.type, call.shape, grid.cosines, table.data());
  std::vector<T> field(static_cast<std::size_t>(call.shape.points() * item.channels));
  std::vector<T> coefficients(static_cast<std::size_t>(2 * call.shape.rows() * item.channels));
  std::vector<T> back(coefficients.size());
  // Whole cache lines from an aligned place.
  std::vector<T> workspace(static_cast<std::size_t>(kernels::sphere_workspace_bytes(
                               call.type, call.shape, item.threads)) /
                               sizeof(T) +
                           64);
  kernels::fill_normal(Queue(), call.type, coefficients.data(),
                       static_cast<std::int64_t>(coefficients.size()), PhiloxKey{1, 2}, 1.0, 0);
  for (std::int64_t l = 0; l < item.degrees; ++l) {
    for (std::int64_t c = 0; c < item.channels; ++c)
      coefficients[static_cast<std::size_t>(2 * (call.shape.first_row(l) * item.channels + c) +
                                            1)] = 0;
  }
  call.table = table.data();
  call.grid = field.data();
  call.batch = 1;
  call.channels = item.channels;
  auto address = reinterpret_cast<std::uintptr_t>(workspace.data());
  call.workspace = reinterpret_cast<void*>((address + 63) / 64 * 64);
  call.threads = item.threads;
  TransformTimes times;
  call.coefficients = coefficients.data();
  times.synthesis = shortest(item.seconds, [&] { kernels::sphere_synthesis(Queue(), call); });
  const double step = 2 * std::numbers::pi / static_cast<double>(item.longitudes);
  call.factors = {grid.weights.data(), step, step};
  call.coefficients = back.data();
  times.analysis = shortest(item.seconds, [&] { kernels::sphere_analysis(Queue(), call); });
  double errors = 0;
  double squares = 0;
  for (std::size_t i = 0; i < back.size(); ++i) {
    errors += std::pow(static_cast<double>(back[i]) - static_cast<double>(coefficients[i]), 2);
    squares += std::pow(static_cast<double>(coefficients[i]), 2);
  }
  times.error = std::sqrt(errors / squares);
  return times;
}

}  // namespace

void add_bench_transforms(CLI::App& bench, Chosen& chosen) {
  CLI::App* command =
      bench.add_subcommand("transforms", "seconds of spherical harmonic transforms");
  const auto item = std::make_shared<TransformCase>();
  const auto json = std::make_shared<bool>(false);
  command->add_option("--grid", item->grid, "equiangular, equiangular-midpoints or legendre-gauss")
      ->type_name("NAME")
      ->capture_default_str();
  const auto number = [&](const char* name, std::int64_t& value, const char* help) {
    command->add_option(name, value, help)->check(count(1, 1 << 20))->capture_default_str();
  };
  number("--latitudes", item->latitudes, "rows of the grid");
  number("--longitudes", item->longitudes, "columns of the grid");
  number("--degrees", item->degrees, "degrees of the harmonics, and at most as many orders");
  number("--channels", item->channels, "fields that are transformed together");
  command->add_option("--precision", item->precision, "of the numbers")
      ->type_name("NAME")
      ->check(CLI::IsMember({"float32", "float64"}))
      ->capture_default_str();
  command->add_option("--threads", item->threads, "threads")
      ->check(count(1, most_threads))
      ->capture_default_str();
  command->add_option("--seconds", item->seconds, "time to repeat each direction for")
      ->capture_default_str();
  command->add_flag("--json", *json, "print JSON");
  command->callback([=, &chosen] {
    chosen.action = [=](dist::Session& session) {
      expect_one_rank(session, "bench transforms");
      const kernels::KernelSession kernels(item->threads);
      const TransformTimes times = item->precision == "float32" ? time_transforms<float>(*item)
                                                                : time_transforms<double>(*item);
      if (*json) {
        const nlohmann::ordered_json line = {{"analysis_seconds", times.analysis},
                                             {"synthesis_seconds", times.synthesis},
                                             {"round_trip_error", times.error}};
        fmt::print("{}\n", json_text(line));
        return ExitCode::Done;
      }
      fmt::print("analysis    {:.2f} ms\nsynthesis   {:.2f} ms\nround trip  {:.1e} relative\n",
                 1e3 * times.analysis, 1e3 * times.synthesis, times.error);
      return ExitCode::Done;
    };
  });
}

}  // namespace garonne::apps
