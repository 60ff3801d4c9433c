#include "kernels/sphere_transform.hpp"

#include "base/error.hpp"
#include "base/legendre_table.hpp"
#include "kernels/cpu/loops.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/device/sphere_transform.hpp"
#include "kernels/dispatch.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace garonne::kernels {

namespace {

// What a tile of rows may read behind the last one.
constexpr std::int64_t table_padding_rows = 2;

void check(ElementType type, const SphereShape& shape) {
  const bool fits = shape.latitudes >= 2 && shape.orders >= 1 && shape.orders <= shape.degrees &&
                    shape.orders <= shape.longitudes / 2 + 1;
  expect(fits, "spherical harmonics with more orders than degrees or frequencies");
  expect(type != ElementType::BFloat16, "spherical harmonics want Float32 or Float64");
}

std::int64_t spectrum_bytes(const SphereShape& shape) {
  return shape.orders * 2 * (shape.northern_rows() + 1) * sphere_panel_bytes;
}

// Two sequences of complex lines, or the coefficients of one order and parity with a row behind.
std::int64_t scratch_bytes(const SphereShape& shape) {
  return std::max(2 * shape.longitudes * 128, (shape.degrees / 2 + 2) * sphere_panel_bytes);
}

// Runs one stage of a chunk on slices of [0, count), a thread each.
void run(const Queue& queue, const SphereArguments& arguments,
         Loop<SphereLoopArguments> loop_of_type, SphereLoopArguments chunk, std::int64_t count) {
  const auto loop = loop_of_type[arguments.type];
  const std::int64_t slots = std::min<std::int64_t>(arguments.threads, count);
  char* const scratch = static_cast<char*>(arguments.workspace) + spectrum_bytes(arguments.shape);
  for_ranges(queue, slots, 1, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t slot = begin; slot < end; ++slot) {
      SphereLoopArguments mine = chunk;
      mine.scratch = scratch + slot * scratch_bytes(arguments.shape);
      loop(mine, count * slot / slots, count * (slot + 1) / slots);
    }
  });
}

template <typename Work>
void for_chunks(const SphereArguments& arguments, const Work& work) {
  check(arguments.type, arguments.shape);
  expect(arguments.threads >= 1, "spherical harmonics on no thread");
  const std::int64_t width = sphere_panel_bytes / (2 * element_bytes(arguments.type));
  for (std::int64_t entry = 0; entry < arguments.batch; ++entry) {
    for (std::int64_t first = 0; first < arguments.channels; first += width)
      work(SphereLoopArguments{&arguments, entry, first, nullptr});
  }
}

// Below this nothing adds to a sum of numbers near 1, in float64 either.
constexpr double negligible = 1e-24;

// How many of the northernmost rows an order does not reach with any of its degrees.
std::int64_t rows_not_reached(const SphereShape& shape, const LegendreTable& table,
                              std::int64_t order) {
  std::int64_t start = shape.northern_rows();
  for (std::int64_t l = order; l < shape.degrees; ++l) {
    const std::span<const double> row = table.at(l, order);
    const auto reached = std::find_if(row.begin(), row.end(),
                                      [](double value) { return std::abs(value) > negligible; });
    start = std::min<std::int64_t>(start, reached - row.begin());
  }
  return start;
}

template <typename T>
std::int64_t header_elements(const SphereShape& shape) {
  return shape.orders * static_cast<std::int64_t>(sizeof(SphereTableOrder) / sizeof(T));
}

template <typename T>
void fill_table(const SphereShape& shape, const LegendreTable& table, void* place) {
  const auto convert = [](double value) { return static_cast<T>(value); };
  auto* const orders = static_cast<SphereTableOrder*>(place);
  T* const begin = static_cast<T*>(place);
  T* out = begin + header_elements<T>(shape);
  for (std::int64_t j = 0; j < shape.longitudes; ++j) {
    const long double angle = 2 * std::numbers::pi_v<long double> * static_cast<long double>(j) /
                              static_cast<long double>(shape.longitudes);
    *out++ = static_cast<T>(std::cos(angle));
    *out++ = static_cast<T>(std::sin(angle));
  }
  for (std::int64_t order = 0; order < shape.orders; ++order) {
    const std::int64_t start = rows_not_reached(shape, table, order);
    orders[order] = {out - begin, start};
    for (const std::int64_t odd : {0, 1}) {
      for (std::int64_t l = order + odd; l < shape.degrees; l += 2) {
        const std::span<const double> row = table.at(l, order);
        out = std::transform(row.begin() + start, row.end(), out, convert);
      }
    }
  }
  std::fill_n(out, table_padding_rows * shape.northern_rows(), T{0});
}

}  // namespace

std::int64_t sphere_table_elements(const SphereShape& shape) {
  return header_elements<float>(shape) + 2 * shape.longitudes +
         (shape.rows() + table_padding_rows) * shape.northern_rows();
}

void fill_sphere_table(ElementType type, const SphereShape& shape, std::span<const double> cosines,
                       void* table) {
  check(type, shape);
  const std::span<const double> north =
      cosines.subspan(0, static_cast<std::size_t>(shape.northern_rows()));
  const LegendreTable values = make_legendre_table(shape.degrees, shape.orders, north);
  if (type == ElementType::Float32) {
    fill_table<float>(shape, values, table);
  } else {
    fill_table<double>(shape, values, table);
  }
}

std::int64_t sphere_workspace_bytes(ElementType type, const SphereShape& shape, int threads) {
  check(type, shape);
  return spectrum_bytes(shape) + threads * scratch_bytes(shape);
}

void sphere_analysis(const Queue& queue, const SphereArguments& arguments) {
  const auto on_device = [&](const auto& place) { device::sphere_analysis(place, arguments); };
  if (put_on_device(queue, on_device)) return;
  const SphereLoops& sphere = *loops().sphere;
  for_chunks(arguments, [&](const SphereLoopArguments& chunk) {
    run(queue, arguments, sphere.fourier_analysis, chunk, arguments.shape.northern_rows());
    run(queue, arguments, sphere.legendre_analysis, chunk, arguments.shape.orders);
  });
}

void sphere_synthesis(const Queue& queue, const SphereArguments& arguments) {
  const auto on_device = [&](const auto& place) { device::sphere_synthesis(place, arguments); };
  if (put_on_device(queue, on_device)) return;
  const SphereLoops& sphere = *loops().sphere;
  for_chunks(arguments, [&](const SphereLoopArguments& chunk) {
    run(queue, arguments, sphere.legendre_synthesis, chunk, arguments.shape.orders);
    run(queue, arguments, sphere.fourier_synthesis, chunk, arguments.shape.northern_rows());
  });
}

}  // namespace garonne::kernels
