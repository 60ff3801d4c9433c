// The terms that losses of fields are made of. Sums are in float64 whatever the compute type.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/field_loss.hpp"
#include "nn/fields/field_model.hpp"
#include "nn/node.hpp"

namespace garonne::nn {

struct FieldLossForm {
  bool relative = false;
  bool by_channel = false;   // of relative norms
  bool area = false;         // rows count by their area
  bool differences = false;  // H1
  bool ensemble = false;     // compares all members of a sample
};

// What train.loss may be of a model on fields; the first is what auto means.
std::vector<std::string> field_losses();

// What a loss compares: a mean over groups, samples or channels of samples, of a function of two
// norms. Of a cut field they are those of this member's rows: their sums over the members are the
// norms.
class FieldLossTerms {
 public:
  // Throws ConfigError (train.loss).
  static FieldLossForm form(const std::string& loss);

  // Throws ConfigError (train.loss, train.members, train.noise). Differences want all rows: no cut
  // field.
  FieldLossTerms(const std::string& loss, const FieldShape& shape, std::int64_t batch,
                 std::int64_t step);

  std::string key() const;  // of costs
  std::int64_t groups() const { return batch_ * channels_ / pairs_in_group(); }
  // Of float64.
  std::int64_t scratch_elements() const { return form_.differences ? 3 * points_ : 0; }
  at::Tensor make_scratch(const at::Tensor& like) const;
  double operations() const;  // of the norms of all groups

  // Prediction, target and, where the field is masked, mask: as make_field_loss takes them.
  std::size_t inputs() const { return shape_.masked ? 3 : 2; }
  // Statistics of the target and areas of rows.
  std::vector<ConstantTable> tables() const;
  // As kernels take it; it points into the inputs, the scratch (undefined where it has no elements)
  // and this, or the device's tables.
  kernels::FieldComparison comparison(const Context& context, const std::vector<at::Tensor>& inputs,
                                      const at::Tensor& scratch) const;
  // The norms of all members, float64 [members, 3, groups].
  kernels::GatheredNorms gathered(const at::Tensor& norms) const;

 private:
  // A pair is a channel of a sample. A relative norm over channels takes all pairs of a sample
  // together, a mean of squares can take any.
  std::int64_t pairs_in_group() const {
    return form_.relative && !form_.by_channel ? channels_ : 1;
  }

  void check_members() const;
  void check_tables() const;

  std::string name_;
  FieldLossForm form_;
  FieldShape shape_;
  std::int64_t batch_;  // samples
  std::int64_t step_;
  std::int64_t points_;
  std::int64_t channels_;
  std::vector<kernels::PointRun> runs_;  // the points of the rows that are there
  std::vector<kernels::AxisDifference> differences_;
};

}  // namespace garonne::nn
