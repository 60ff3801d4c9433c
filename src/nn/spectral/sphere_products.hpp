// Spherical harmonic transforms as matrix products of the tensor library, for GPUs
// (kernels/sphere_products.hpp).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "kernels/sphere_products.hpp"
#include "nn/node.hpp"

namespace garonne::nn {

class SphereProducts {
 public:
  SphereProducts(const kernels::SphereShape& shape, std::int64_t batch, std::int64_t channels);

  // `table` is the two tables of kernels::fill_sphere_product_tables, functions first, of
  // coefficients' type. field [batch · points, channels] -> coefficients [rows, batch, channels, 2]
  // and back, as kernels::sphere_analysis and kernels::sphere_synthesis.
  void analyse(const Queue& queue, const at::Tensor& table, const kernels::SphereFactors& factors,
               const at::Tensor& field, const at::Tensor& coefficients) const;
  void synthesise(const Queue& queue, const at::Tensor& table,
                  const kernels::SphereFactors& factors, const at::Tensor& coefficients,
                  const at::Tensor& field) const;

  // What either allocates, and puts on a GPU.
  std::int64_t transient_bytes(const Declaration& declaration) const;
  double operations() const;
  int kernel_count(const Declaration& declaration) const;

 private:
  struct Space;
  Space make_space(const at::Tensor& coefficients) const;
  template <typename Work>
  void for_chunks(const kernels::SphereFactors& factors, const at::Tensor& field,
                  const Space& space, const Work& work) const;

  std::int64_t columns() const { return batch_ * channels_; }
  // Columns that go through the products at a time.
  std::int64_t columns_at_once(std::int64_t number_bytes) const;

  kernels::SphereShape shape_;
  kernels::SphereProductSizes sizes_;
  std::int64_t batch_;
  std::int64_t channels_;
};

}  // namespace garonne::nn
