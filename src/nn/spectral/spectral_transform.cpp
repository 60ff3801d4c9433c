#include "nn/spectral/spectral_transform.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.hpp"
#include "nn/element_type.hpp"
#include "nn/tensor_options.hpp"

namespace garonne::nn {
namespace {

// cos and sin of -2π · frequency · point / points, exact where they are 0 or ±1.
struct Wave {
  Wave(std::int64_t frequency, std::int64_t point, std::int64_t points) {
    const std::int64_t turn = ((frequency * point) % points + points) % points;
    const double angle =
        -2.0 * std::numbers::pi * static_cast<double>(turn) / static_cast<double>(points);
    real = 4 * turn == points || 4 * turn == 3 * points ? 0.0 : std::cos(angle);
    imaginary = 2 * turn % points == 0 ? 0.0 : std::sin(angle);
  }
  double real;
  double imaginary;
};

// left · right for each of `count` matrices of `right`; left is one for all.
at::Tensor product(const at::Tensor& left, const at::Tensor& right, std::int64_t count) {
  const std::int64_t inner = left.size(1);
  if (count == 1) return at::mm(left, right.view({inner, -1}));
  return at::bmm(left.expand({count, left.size(0), inner}), right.view({count, inner, -1}));
}

}  // namespace

at::Tensor for_transform(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 ? tensor.to(at::kFloat) : tensor;
}

void SpectralTransform::Table::set(std::vector<double> values) {
  in_float32.assign(values.begin(), values.end());
  in_float64 = std::move(values);
}

const void* SpectralTransform::Table::data(at::ScalarType type) const {
  return type == at::kDouble ? static_cast<const void*>(in_float64.data()) : in_float32.data();
}

std::int64_t SpectralTransform::Table::bytes(at::ScalarType type) const {
  return rows * columns * (type == at::kDouble ? 8 : 4);
}

std::string SpectralTransform::Table::name_in(at::ScalarType type) const {
  return name + (type == at::kDouble ? " float64" : " float32");
}

at::Tensor SpectralTransform::Table::tensor(const Context& context, at::ScalarType type) const {
  if (context.tables != nullptr)
    return context.table(name_in(type), bytes(type)).view(type).view({rows, columns});
  // The tensor library takes no pointer to constants; nothing writes here.
  return at::from_blob(const_cast<void*>(data(type)), {rows, columns}, host_tensor_options(type));
}

SpectralTransform::SpectralTransform(std::vector<std::int64_t> points,
                                     const Frequencies& frequencies, const FieldRows& rows)
    : points_(std::move(points)) {
  expect(!points_.empty() && points_.size() == frequencies.size(),
         "a spectral transform wants frequencies for every axis");
  expect(!rows.cut() ||
             (points_.size() > 1 && points_[0] == static_cast<std::int64_t>(rows.slots.size())),
         "a spectral transform of a part wants its rows along the first of several axes");
  const std::int64_t whole_rows = rows.cut() ? rows.whole : points_[0];
  auto all_points = static_cast<double>(whole_rows);
  for (std::size_t axis = 1; axis < points_.size(); ++axis)
    all_points *= static_cast<double>(points_[axis]);
  for (std::size_t axis = 0; axis < points_.size(); ++axis) {
    const auto& kept = frequencies[axis];
    kept_.push_back(static_cast<std::int64_t>(kept.size()));
    modes_ *= kept_.back();
    frequencies_text_ += fmt::format(" {}..{}", kept.front(), kept.back());
    const auto zero = std::find(kept.begin(), kept.end(), 0);
    if (zero == kept.end()) has_zero_mode_ = false;
    zero_mode_ = zero_mode_ * kept_.back() + (zero - kept.begin());
  }

  const std::int64_t count = points_.back();
  const auto& kept = frequencies.back();
  const std::size_t elements = 2 * kept.size() * static_cast<std::size_t>(count);
  std::vector<double> plain(elements);
  std::vector<double> adjoint(elements);
  for (std::size_t k = 0; k < kept.size(); ++k) {
    // A field takes a frequency together with its opposite, unless they are the same one.
    const double weight = 2 * kept[k] % count == 0 ? 1 : 2;
    for (std::int64_t n = 0; n < count; ++n) {
      const Wave wave(kept[k], n, count);
      const std::size_t real = k * static_cast<std::size_t>(count) + static_cast<std::size_t>(n);
      const std::size_t imaginary = real + elements / 2;
      plain[real] = wave.real / all_points;
      plain[imaginary] = wave.imaginary / all_points;
      adjoint[real] = wave.real * weight;
      adjoint[imaginary] = wave.imaginary * weight;
    }
  }
  last_.rows = last_adjoint_.rows = 2 * kept_.back();
  last_.columns = last_adjoint_.columns = count;
  last_.set(std::move(plain));
  last_adjoint_.set(std::move(adjoint));

  for (std::size_t axis = 0; axis + 1 < points_.size(); ++axis) {
    const auto& chosen = frequencies[axis];
    Table table;
    table.rows = 2 * kept_[axis];
    table.columns = 2 * points_[axis];
    std::vector<double> values(static_cast<std::size_t>(table.rows * table.columns));
    const std::int64_t whole = axis == 0 ? whole_rows : points_[axis];
    for (std::size_t k = 0; k < chosen.size(); ++k) {
      for (std::int64_t n = 0; n < points_[axis]; ++n) {
        const std::int64_t place = axis == 0 ? rows.row(n) : n;
        if (place == FieldRows::none) continue;  // zeros
        const Wave wave(chosen[k], place, whole);
        const auto width = static_cast<std::size_t>(table.columns);
        const std::size_t real = k * width + 2 * static_cast<std::size_t>(n);
        const std::size_t imaginary = real + chosen.size() * width;
        values[real] = wave.real;
        values[real + 1] = -wave.imaginary;
        values[imaginary] = wave.imaginary;
        values[imaginary + 1] = wave.real;
      }
    }
    table.set(std::move(values));
    others_.push_back(std::move(table));
  }

  const std::string name =
      fmt::format("transform {}{}", text(), rows.cut() ? fmt::format(" of {}", rows.whole) : "");
  last_.name = name;
  last_adjoint_.name = name + " adjoint";
  for (std::size_t axis = 0; axis < others_.size(); ++axis)
    others_[axis].name = fmt::format("{} axis {}", name, axis);
}

std::vector<ConstantTable> SpectralTransform::tables(Precision precision) const {
  const at::ScalarType type = state_scalar_type(precision);
  std::vector<ConstantTable> tables;
  const auto add = [&](const Table& table) {
    tables.push_back(
        {table.name_in(type), table.bytes(type), [&table, type] { return table.data(type); }});
  };
  add(last_);
  add(last_adjoint_);
  for (const Table& table : others_) add(table);
  return tables;
}

std::string SpectralTransform::text() const {
  return fmt::format("{} of{}", fmt::join(points_, "x"), frequencies_text_);
}

std::int64_t SpectralTransform::before(std::size_t axis) const {
  std::int64_t count = 1;
  for (std::size_t a = 0; a < axis; ++a) count *= points_[a];
  return count;
}

std::int64_t SpectralTransform::after(std::size_t axis) const {
  std::int64_t count = 1;
  for (std::size_t a = axis + 1; a < kept_.size(); ++a) count *= kept_[a];
  return count;
}

std::int64_t SpectralTransform::zero_mode() const {
  expect(has_zero_mode_, "a spectral transform without frequency 0");
  return zero_mode_;
}

at::Tensor SpectralTransform::analyse(const Context& context, const at::Tensor& x,
                                      bool adjoint) const {
  const std::size_t last = points_.size() - 1;
  const std::int64_t channels = x.size(1);
  const std::int64_t batch = x.size(0) / (before(last) * points_[last]);
  // [batch, points before the axis, (part, kept), modes after it, channels]
  at::Tensor spectrum =
      product(last_table(adjoint).tensor(context, x.scalar_type()), x, batch * before(last));
  for (std::size_t axis = last; axis-- > 0;) {
    spectrum =
        product(others_[axis].tensor(context, x.scalar_type()), spectrum, batch * before(axis));
  }
  return spectrum.view({batch, 2, modes_, channels});
}

void SpectralTransform::synthesise(const Context& context, const at::Tensor& spectrum,
                                   const at::Tensor& y, bool adjoint) const {
  const std::size_t last = points_.size() - 1;
  const auto type = y.scalar_type();
  const std::int64_t batch = spectrum.size(0);
  at::Tensor partial = spectrum;
  for (std::size_t axis = 0; axis < last; ++axis)
    partial = product(others_[axis].tensor(context, type).t(), partial, batch * before(axis));
  // Synthesis is the adjoint of the other table's analysis.
  const at::Tensor table = last_table(!adjoint).tensor(context, type).t();
  const std::int64_t lines = batch * before(last);
  y.view({lines, points_[last], -1})
      .baddbmm_(table.expand({lines, table.size(0), table.size(1)}),
                partial.view({lines, table.size(1), -1}));
}

std::int64_t SpectralTransform::sketch_analyse(AllocationSketch& sketch, std::int64_t batch,
                                               std::int64_t channels,
                                               std::int64_t element_bytes) const {
  std::int64_t bytes = 0;
  for (std::size_t axis = points_.size(); axis-- > 0;) {
    const std::int64_t made =
        sketch.make(batch * before(axis) * 2 * kept_[axis] * after(axis) * channels, element_bytes);
    sketch.drop(bytes);
    bytes = made;
  }
  return bytes;
}

void SpectralTransform::sketch_synthesise(AllocationSketch& sketch, std::int64_t batch,
                                          std::int64_t channels, std::int64_t element_bytes) const {
  std::int64_t bytes = 0;
  for (std::size_t axis = 0; axis + 1 < points_.size(); ++axis) {
    const std::int64_t made = sketch.make(
        batch * before(axis) * points_[axis] * 2 * after(axis) * channels, element_bytes);
    sketch.drop(bytes);
    bytes = made;
  }
  sketch.drop(bytes);
}

double SpectralTransform::operations(std::int64_t batch, std::int64_t channels) const {
  const std::size_t last = points_.size() - 1;
  double all = 0;
  for (std::size_t axis = 0; axis < points_.size(); ++axis) {
    all += 2.0 * static_cast<double>(batch * before(axis) * after(axis) * channels) *
           static_cast<double>(2 * kept_[axis] * points_[axis] * (axis < last ? 2 : 1));
  }
  return all;
}

}  // namespace garonne::nn
