// Nodes of spherical harmonics. Coefficients are values of the state type (float32 where the
// compute type is bfloat16), [rows, batch, channels, 2] in the packed rows of
// kernels/sphere_transform.hpp: by degree, orders 0 … degree.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/sphere_grid.hpp"
#include "kernels/sphere_transform.hpp"
#include "nn/node.hpp"

namespace garonne::nn {

// A grid and the harmonics on it. The table of Legendre functions is made when it is first asked
// for, so that a model can be planned without; it is ordinary memory, outside the device tier, and
// shared by all nodes of a basis.
class SphereBasis {
 public:
  SphereBasis(SphereGridKind kind, std::int64_t latitudes, std::int64_t longitudes,
              std::int64_t degrees, std::int64_t orders);

  const SphereGrid& grid() const { return grid_; }
  const kernels::SphereShape& shape() const { return shape_; }
  std::string text() const;  // as "equiangular 721x1440 degrees 240 orders 240"
  // Float32 or Float64; bytes of one are sphere_table_elements · element size.
  const void* table(kernels::ElementType type) const;

 private:
  struct Table;
  SphereGrid grid_;
  kernels::SphereShape shape_;
  std::shared_ptr<Table> tables_[2];
};

// x [batch · points of the basis, channels] -> coefficients; linear, backward by the adjoint.
std::unique_ptr<Node> make_sphere_analysis(std::shared_ptr<const SphereBasis> basis,
                                           std::int64_t batch, std::int64_t channels);

// coefficients -> [batch · points of the basis, channels]; linear, backward by the adjoint.
std::unique_ptr<Node> make_sphere_synthesis(std::shared_ptr<const SphereBasis> basis,
                                            std::int64_t batch, std::int64_t channels);

// Weights that a coefficient is multiplied by, by its degree l alone (the convolution of Driscoll
// and Healy, which commutes with rotations) or by degree and order.
enum class SphereWeights { ByDegree, ByDegreeAndOrder };

// coefficients [rows, batch, inputs, 2], weight [degrees or rows, inputs, outputs, 2] ->
// [rows, batch, outputs, 2]: y_{l,m,o} = Σ_i x_{l,m,i} w_{l,i,o} of complex numbers.
std::unique_ptr<Node> make_sphere_contraction(const kernels::SphereShape& shape,
                                              SphereWeights weights, std::int64_t batch,
                                              std::int64_t inputs, std::int64_t outputs);

}  // namespace garonne::nn
