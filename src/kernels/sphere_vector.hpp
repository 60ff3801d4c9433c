// Divergence and vorticity of tangential vector fields on the unit sphere, and back.
#pragma once

#include "base/device.hpp"
#include "kernels/sphere_transform.hpp"

namespace garonne::kernels {

// With u = ∇Φ + r̂ × ∇Ψ: divergence ΔΦ and vorticity ΔΨ = r̂ · ∇ × u. On a sphere of radius R both
// are R times smaller for the same field, and the field R times larger for the same coefficients.
struct SphereVectorArguments {
  ElementType type = ElementType::Float64;  // or Float32
  SphereShape shape;
  const void* derivative_table = nullptr;  // of LegendreFunction::PolarDerivative
  const void* order_table = nullptr;       // of LegendreFunction::OrderOverSine
  const double* weights = nullptr;         // [latitudes] of the quadrature; analysis only
  void* southward = nullptr;               // [batch, latitudes, longitudes, channels]
  void* eastward = nullptr;
  void* divergence = nullptr;  // [rows, batch, channels, 2]
  void* vorticity = nullptr;
  std::int64_t batch = 0;
  std::int64_t channels = 0;
  int threads = 1;
};

// Four scalar analyses. Exact for fields of the degrees of the shape where the quadrature is.
// Allocates as much as the results, and the workspace of the scalar transform.
void sphere_vector_analysis(const Queue& queue, const SphereVectorArguments& arguments);

// Four scalar syntheses. The coefficient of degree 0, which no vector field has, is not read.
// Allocates as much as the two fields and the coefficients, and the workspace.
void sphere_vector_synthesis(const Queue& queue, const SphereVectorArguments& arguments);

}  // namespace garonne::kernels
