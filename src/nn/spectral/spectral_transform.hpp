// Discrete Fourier transform of real fields to a few frequencies and back, as matrix products.
//
// Only the kept frequencies are computed, so there is no full spectrum and no copy to cut it: along
// the last axis one real product for each line of points, along the others one for each plane. This
// is faster than a fast transform and a cut up to some hundred points an axis at all frequencies,
// and beyond that as long as few are kept.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "nn/allocation_sketch.hpp"
#include "nn/fields/field_rows.hpp"

namespace garonne::nn {

// What transforms are done in; a tensor of that type already is not copied.
at::Tensor for_transform(const at::Tensor& tensor);

// The kept frequencies along each axis, ascending; of the last axis none is negative, since the
// fields are real.
using Frequencies = std::vector<std::vector<std::int64_t>>;

// Spectra are [batch, 2, modes, channels]: real parts, then imaginary parts; modes in the order of
// the frequencies, the last axis fastest. Forward transforms are divided by the number of points.
class SpectralTransform {
 public:
  // `points` along each axis. With `rows` they are those of one member of a tensor group: the first
  // of several axes has its slots, and what analyse makes is the member's part of a sum over all.
  SpectralTransform(std::vector<std::int64_t> points, const Frequencies& frequencies,
                    const FieldRows& rows = {});

  std::int64_t modes() const { return modes_; }
  std::string text() const;  // as "32x16 of -8..7 0..8", for keys of costs
  // Of the frequencies that are all 0, which must be among the kept ones.
  std::int64_t zero_mode() const;

  // The transform of x [batch · points, channels], float32 or float64; or, with `adjoint`, the
  // gradient of the spectrum whose synthesis has the gradient x.
  at::Tensor analyse(const Context& context, const at::Tensor& x, bool adjoint) const;
  // y [batch · points, channels] += the field of the spectrum, which takes for each kept frequency
  // its opposite too; or, with `adjoint`, the gradient of the field whose transform has this one.
  void synthesise(const Context& context, const at::Tensor& spectrum, const at::Tensor& y,
                  bool adjoint) const;
  // The matrices of both, in the type of the transform of such a run.
  std::vector<ConstantTable> tables(Precision precision) const;

  // What the two allocate; the spectrum that analyse makes included, its bytes returned.
  std::int64_t sketch_analyse(AllocationSketch& sketch, std::int64_t batch, std::int64_t channels,
                              std::int64_t element_bytes) const;
  void sketch_synthesise(AllocationSketch& sketch, std::int64_t batch, std::int64_t channels,
                         std::int64_t element_bytes) const;
  double operations(std::int64_t batch, std::int64_t channels) const;  // of either

 private:
  // A matrix in both types, row-major.
  struct Table {
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    std::vector<float> in_float32;
    std::vector<double> in_float64;

    std::string name;

    void set(std::vector<double> values);
    const void* data(at::ScalarType type) const;
    std::int64_t bytes(at::ScalarType type) const;
    std::string name_in(at::ScalarType type) const;
    // [rows, columns], not of the device tier where it is the host's.
    at::Tensor tensor(const Context& context, at::ScalarType type) const;
  };

  const Table& last_table(bool adjoint) const { return adjoint ? last_adjoint_ : last_; }
  // Lines, planes, … before `axis` with all their points, for each sample.
  std::int64_t before(std::size_t axis) const;
  // Modes of the axes after `axis`.
  std::int64_t after(std::size_t axis) const;

  std::vector<std::int64_t> points_;
  std::vector<std::int64_t> kept_;  // frequencies along each axis
  std::string frequencies_text_;
  std::int64_t modes_ = 1;
  std::int64_t zero_mode_ = 0;
  bool has_zero_mode_ = true;
  Table last_;                 // [2 · kept, points]: real parts, imaginary parts
  Table last_adjoint_;         // the same for gradients of the synthesis
  std::vector<Table> others_;  // by axis: [(part, kept), (point, part)]
};

}  // namespace garonne::nn
