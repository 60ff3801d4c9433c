// Nodes of spherical harmonics. Coefficients are values of the state type (float32 where the
// compute type is bfloat16), [rows, batch, channels, 2] in the packed rows of
// kernels/sphere_transform.hpp: by degree, orders 0 … degree.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/sphere_grid.hpp"
#include "kernels/sphere_products.hpp"
#include "nn/fields/field_rows.hpp"
#include "nn/node.hpp"

namespace garonne::nn {

// A grid and the harmonics on it. Tables of Legendre functions are made when they are first asked
// for, so that a model can be planned without; they are ordinary memory, outside the device tier,
// and shared by all nodes of a basis. A GPU has a copy of what it takes, within its budget.
class SphereBasis {
 public:
  // With `rows`, which are mirrored, that of one part of a cut grid: analyses are parts of a sum.
  SphereBasis(SphereGridKind kind, std::int64_t latitudes, std::int64_t longitudes,
              std::int64_t degrees, std::int64_t orders, const FieldRows& rows = {});

  const SphereGrid& grid() const { return grid_; }
  const kernels::SphereShape& shape() const { return shape_; }
  const FieldRows& rows() const { return rows_; }
  std::string text() const;  // as "equiangular 721x1440 degrees 240 orders 240"
  // Of kernels/sphere_transform.hpp, Float32 or Float64.
  const void* table(kernels::ElementType type) const;
  std::int64_t table_bytes(kernels::ElementType type) const;
  // Whether a GPU takes transforms as products; then those tables of kernels/sphere_products.hpp,
  // functions first.
  bool multiplies_on_gpus() const { return kernels::is_sphere_folded(shape_); }
  const void* product_table(kernels::ElementType type) const;
  std::int64_t product_table_bytes(kernels::ElementType type) const;
  // What copies on a GPU, of the one of these tables that it takes and of the rows' weights, are
  // called.
  std::string table_name(kernels::ElementType type) const;
  std::string weights_name() const;
  std::int64_t weight_bytes() const { return 8 * shape_.latitudes; }
  std::vector<ConstantTable> tables(kernels::ElementType type) const;

 private:
  struct Table;
  SphereGrid grid_;
  kernels::SphereShape shape_;
  FieldRows rows_;
  std::shared_ptr<Table> tables_[2];
  std::shared_ptr<Table> product_tables_[2];
};

// x [batch · points of the basis, channels] -> coefficients; linear, backward by the adjoint.
std::unique_ptr<Node> make_sphere_analysis(std::shared_ptr<const SphereBasis> basis,
                                           std::int64_t batch, std::int64_t channels);

// coefficients -> [batch · points of the basis, channels]; linear, backward by the adjoint.
std::unique_ptr<Node> make_sphere_synthesis(std::shared_ptr<const SphereBasis> basis,
                                            std::int64_t batch, std::int64_t channels);

}  // namespace garonne::nn
