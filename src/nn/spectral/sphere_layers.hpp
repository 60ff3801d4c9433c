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
#include "kernels/sphere_transform.hpp"
#include "nn/fields/field_rows.hpp"
#include "nn/node.hpp"

namespace garonne::nn {

// A grid and the harmonics on it. The table of Legendre functions is made when it is first asked
// for, so that a model can be planned without; it is ordinary memory, outside the device tier, and
// shared by all nodes of a basis.
class SphereBasis {
 public:
  // With `rows`, which are mirrored, that of one part of a cut grid: analyses are parts of a sum.
  SphereBasis(SphereGridKind kind, std::int64_t latitudes, std::int64_t longitudes,
              std::int64_t degrees, std::int64_t orders, const FieldRows& rows = {});

  const SphereGrid& grid() const { return grid_; }
  const kernels::SphereShape& shape() const { return shape_; }
  const FieldRows& rows() const { return rows_; }
  std::string text() const;  // as "equiangular 721x1440 degrees 240 orders 240"
  // Float32 or Float64; bytes of one are sphere_table_elements · element size.
  const void* table(kernels::ElementType type) const;
  std::int64_t table_bytes(kernels::ElementType type) const;
  // What copies of that table and of the rows' weights are called.
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

// Which rows of coefficients share weights: those of a degree, or each has its own. A member of a
// tensor group has a run (nn/fields/field_rows.hpp) of the groups; all have space for as many.
struct SphereGroups {
  std::vector<std::int64_t> begins;  // first row of each group that there is, then of the next
  std::int64_t rows = 0;             // with space for those of any member
  std::int64_t weights = 0;          // groups, likewise
  bool single = false;               // each is one row
  std::string text;                  // for keys of costs; equal on all members
};
SphereGroups sphere_groups(const kernels::SphereShape& shape, SphereWeights weights,
                           const FieldCut& cut = {});
// Of the groups of all members: the first packed row of each member's, then the number of rows.
std::vector<std::int64_t> sphere_runs(const kernels::SphereShape& shape, SphereWeights weights,
                                      std::int64_t members);
// Groups of all members.
std::int64_t sphere_weights(const kernels::SphereShape& shape, SphereWeights weights);

// coefficients [rows, batch, inputs, 2], weight [weights, inputs, outputs, 2] ->
// [rows, batch, outputs, 2]: y_{l,m,o} = Σ_i x_{l,m,i} w_{l,i,o} of complex numbers.
std::unique_ptr<Node> make_sphere_contraction(SphereGroups groups, std::int64_t batch,
                                              std::int64_t inputs, std::int64_t outputs);

}  // namespace garonne::nn
