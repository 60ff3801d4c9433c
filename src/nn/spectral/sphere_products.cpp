#include "nn/spectral/sphere_products.hpp"

#include <ATen/Functions.h>

#include <algorithm>

#include "nn/element_type.hpp"

namespace garonne::nn {

namespace {

// One matrix for all of a batch.
at::Tensor repeated(const at::Tensor& matrix, std::int64_t count) {
  return matrix.expand({count, matrix.size(0), matrix.size(1)});
}

}  // namespace

// Between the products, for as many columns as go at once.
struct SphereProducts::Space {
  at::Tensor folded;
  at::Tensor spectrum;
  at::Tensor series;
};

SphereProducts::SphereProducts(const kernels::SphereShape& shape, std::int64_t batch,
                               std::int64_t channels)
    : shape_(shape), sizes_(shape), batch_(batch), channels_(channels) {}

std::int64_t SphereProducts::columns_at_once(std::int64_t number_bytes) const {
  // Products of many columns are the faster ones, and what is between them takes memory.
  constexpr std::int64_t most_bytes = std::int64_t{256} << 20;
  constexpr std::int64_t least_columns = 32;  // also a multiple of what a thread takes
  const std::int64_t fitting = most_bytes / (sizes_.folded(1) * number_bytes);
  return std::min(columns(), std::max(least_columns, fitting / least_columns * least_columns));
}

std::int64_t SphereProducts::transient_bytes(const Declaration& declaration) const {
  const std::int64_t bytes = state_bytes(declaration.precision);
  const std::int64_t at_once = columns_at_once(bytes);
  return declaration.allocation(bytes * sizes_.folded(at_once)) +
         declaration.allocation(bytes * sizes_.spectrum(at_once)) +
         declaration.allocation(bytes * sizes_.series(at_once));
}

double SphereProducts::operations() const {
  const auto of_column = static_cast<double>(2 * sizes_.half_orders * sizes_.northern_rows * 8 *
                                             (sizes_.quarter + sizes_.half_degrees));
  return of_column * static_cast<double>(columns());
}

int SphereProducts::kernel_count(const Declaration& declaration) const {
  const std::int64_t at_once = columns_at_once(state_bytes(declaration.precision));
  constexpr std::int64_t of_chunk = 10;  // four products twice, and one before and after them
  return static_cast<int>(of_chunk * ((columns() + at_once - 1) / at_once));
}

SphereProducts::Space SphereProducts::make_space(const at::Tensor& coefficients) const {
  const std::int64_t at_once = columns_at_once(coefficients.element_size());
  const auto make = [&](std::int64_t numbers) {
    return at::empty({numbers}, coefficients.options());
  };
  return {make(sizes_.folded(at_once)), make(sizes_.spectrum(at_once)),
          make(sizes_.series(at_once))};
}

// work(columns, views of the space for so many columns): folded [part, parity, both rows, quarter,
// columns], spectrum [parity, mirrored, northern rows, half orders, part, columns], series [parity,
// mirrored, half orders, half degrees, part · columns].
template <typename Work>
void SphereProducts::for_chunks(const kernels::SphereFactors& factors, const at::Tensor& field,
                                const Space& space, const Work& work) const {
  const std::int64_t at_once = columns_at_once(space.folded.element_size());
  const std::int64_t north = sizes_.northern_rows;
  for (std::int64_t first = 0; first < columns(); first += at_once) {
    const std::int64_t count = std::min(at_once, columns() - first);
    const kernels::SphereColumns chunk{.field_type = element_type_of(field),
                                       .shape = shape_,
                                       .factors = factors,
                                       .batch = batch_,
                                       .channels = channels_,
                                       .first = first,
                                       .count = count};
    const auto part_of = [&](const at::Tensor& all, std::int64_t numbers, at::IntArrayRef sizes) {
      return all.narrow(0, 0, numbers).view(sizes);
    };
    work(chunk, Space{part_of(space.folded, sizes_.folded(count),
                              {2, 2, 2 * north, sizes_.quarter, count}),
                      part_of(space.spectrum, sizes_.spectrum(count),
                              {2, 2, north, sizes_.half_orders, 2, count}),
                      part_of(space.series, sizes_.series(count),
                              {2, 2, sizes_.half_orders, sizes_.half_degrees, 2 * count})});
  }
}

namespace {

struct Matrices {
  at::Tensor functions;  // [parity, mirrored, half orders, half degrees, northern rows]
  at::Tensor waves;      // [part, parity, half orders, quarter]
};

Matrices matrices_of(const at::Tensor& table, const kernels::SphereProductSizes& sizes) {
  return {table.narrow(0, 0, sizes.functions())
              .view({2, 2, sizes.half_orders, sizes.half_degrees, sizes.northern_rows}),
          table.narrow(0, sizes.functions(), sizes.waves())
              .view({2, 2, sizes.half_orders, sizes.quarter})};
}

// [both rows, half orders, columns] of a part and parity.
at::Tensor spectrum_of_waves(const at::Tensor& spectrum, std::int64_t part, std::int64_t parity) {
  return spectrum.select(0, parity).flatten(0, 1).select(2, part);
}

// [half orders, northern rows, part · columns] of a parity and mirroring.
at::Tensor spectrum_of_functions(const at::Tensor& spectrum, std::int64_t parity,
                                 std::int64_t mirrored) {
  return spectrum.select(0, parity).select(0, mirrored).flatten(2, 3).transpose(0, 1);
}

template <typename Work>
void for_four(const Work& work) {
  for (const std::int64_t first : {0, 1}) {
    for (const std::int64_t second : {0, 1}) work(first, second);
  }
}

}  // namespace

void SphereProducts::analyse(const Queue& queue, const at::Tensor& table,
                             const kernels::SphereFactors& factors, const at::Tensor& field,
                             const at::Tensor& coefficients) const {
  const Matrices matrices = matrices_of(table, sizes_);
  const Space whole = make_space(coefficients);
  for_chunks(factors, field, whole, [&](const kernels::SphereColumns& chunk, const Space& space) {
    kernels::sphere_fold(queue, chunk, field.const_data_ptr(), space.folded.data_ptr());
    for_four([&](std::int64_t part, std::int64_t parity) {
      const at::Tensor folded = space.folded.select(0, part).select(0, parity);
      const at::Tensor waves = matrices.waves.select(0, part).select(0, parity);
      at::Tensor spectrum = spectrum_of_waves(space.spectrum, part, parity);
      at::bmm_out(spectrum, repeated(waves, folded.size(0)), folded);
    });
    for_four([&](std::int64_t parity, std::int64_t mirrored) {
      at::Tensor series = space.series.select(0, parity).select(0, mirrored);
      at::bmm_out(series, matrices.functions.select(0, parity).select(0, mirrored),
                  spectrum_of_functions(space.spectrum, parity, mirrored));
    });
    kernels::sphere_coefficients(queue, chunk, space.series.const_data_ptr(),
                                 coefficients.data_ptr());
  });
}

void SphereProducts::synthesise(const Queue& queue, const at::Tensor& table,
                                const kernels::SphereFactors& factors,
                                const at::Tensor& coefficients, const at::Tensor& field) const {
  const Matrices matrices = matrices_of(table, sizes_);
  const Space whole = make_space(coefficients);
  for_chunks(factors, field, whole, [&](const kernels::SphereColumns& chunk, const Space& space) {
    kernels::sphere_series(queue, chunk, coefficients.const_data_ptr(), space.series.data_ptr());
    for_four([&](std::int64_t parity, std::int64_t mirrored) {
      at::Tensor spectrum = spectrum_of_functions(space.spectrum, parity, mirrored);
      at::bmm_out(spectrum,
                  matrices.functions.select(0, parity).select(0, mirrored).transpose(1, 2),
                  space.series.select(0, parity).select(0, mirrored));
    });
    for_four([&](std::int64_t part, std::int64_t parity) {
      at::Tensor folded = space.folded.select(0, part).select(0, parity);
      const at::Tensor waves = matrices.waves.select(0, part).select(0, parity);
      at::bmm_out(folded, repeated(waves.t(), folded.size(0)),
                  spectrum_of_waves(space.spectrum, part, parity));
    });
    kernels::sphere_unfold(queue, chunk, space.folded.const_data_ptr(), field.data_ptr());
  });
}

}  // namespace garonne::nn
