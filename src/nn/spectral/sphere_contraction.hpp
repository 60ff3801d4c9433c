// The product of harmonic coefficients with the weights of their degrees, or of degrees and orders.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/sphere_transform.hpp"
#include "nn/fields/field_rows.hpp"
#include "nn/node.hpp"

namespace garonne::nn {

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
