// The terms that losses of fields are made of. Sums are in float64 whatever the compute type.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "nn/fields/field_model.hpp"

namespace garonne::nn {

// Differences along one axis of a grid: out (+)= D · field, or Dᵀ · field.
class AxisDifference {
 public:
  AxisDifference(std::int64_t before, std::int64_t count, std::int64_t after, bool periodic)
      : before_(before), count_(count), after_(after), periodic_(periodic) {}

  void apply(const double* field, double* out) const;
  void add_transposed(const double* field, double* out) const;
  // Makes 0 what `out` = D · field has from points that are not there.
  template <typename There>
  void clear_incomplete(const There& there, double* out) const;

 private:
  // The nonzero elements of D.
  template <typename Visit>
  void for_terms(const Visit& visit) const;

  std::int64_t before_;
  std::int64_t count_;
  std::int64_t after_;
  bool periodic_;
};

struct FieldLossForm {
  bool relative = false;
  bool by_channel = false;   // of relative norms
  bool area = false;         // rows count by their area
  bool differences = false;  // H1
};

// Squares of the error and of the wanted field, summed over a group, and the weights of its points.
struct FieldNorms {
  double error = 0;
  double wanted = 0;
  double weights = 0;
};

template <typename T>
struct FieldView;

// A loss is the mean over groups, samples or channels of samples, of a function of two norms. Of a
// cut field they are those of this member's rows: their sums over the members are the norms.
class FieldLossTerms {
 public:
  // Throws ConfigError (train.loss).
  static FieldLossForm form(const std::string& loss);

  // Throws ConfigError (train.loss). Differences want all rows: no cut field.
  FieldLossTerms(const std::string& loss, const FieldShape& shape, std::int64_t batch,
                 std::int64_t step);

  std::string key() const;  // of costs
  std::int64_t groups() const { return batch_ * channels_ / pairs_in_group(); }
  // Of float64.
  std::int64_t scratch_elements() const { return form_.differences ? 3 * points_ : 0; }
  at::Tensor make_scratch(const at::Tensor& like) const;
  double operations() const;  // of the norms of all groups

  // The loss of a whole field and its gradient by the prediction, times `outer`. Both allocate the
  // scratch.
  double mean_loss(const std::vector<at::Tensor>& inputs) const;
  void write_mean_gradient(const std::vector<at::Tensor>& inputs, double outer,
                           const at::Tensor& gradient) const;

  // Prediction, target and, where the field is masked, mask: as make_field_loss takes them.
  std::size_t inputs() const { return shape_.masked ? 3 : 2; }
  FieldNorms norms(const std::vector<at::Tensor>& inputs, std::int64_t group,
                   const at::Tensor& scratch) const;
  double loss(const FieldNorms& norms) const;  // of one group
  // Twice the derivative of a group's loss by the square of its error.
  double slope(const FieldNorms& norms) const;
  // Of the prediction: `slope` times the error as the square weights it; 0 in rows that are not
  // there.
  void write_gradient(const std::vector<at::Tensor>& inputs, std::int64_t group, double slope,
                      const at::Tensor& scratch, const at::Tensor& gradient) const;

 private:
  // A pair is a channel of a sample. A relative norm over channels takes all pairs of a sample
  // together, a mean of squares can take any.
  std::int64_t pairs_in_group() const {
    return form_.relative && !form_.by_channel ? channels_ : 1;
  }

  template <typename Use>
  void for_points(const Use& use) const;
  double weight(std::int64_t point) const;
  template <typename T>
  FieldView<T> view_of(const std::vector<at::Tensor>& inputs, std::int64_t pair) const;
  template <typename T>
  double sum_of_weights(const FieldView<T>& view) const;
  template <typename T>
  void difference_of(const FieldView<T>& view, const AxisDifference& difference,
                     const double* field, double* slope) const;
  template <typename T>
  double square_of_differences(const FieldView<T>& view, double* field) const;
  template <typename T>
  FieldNorms norms_of(const std::vector<at::Tensor>& inputs, std::int64_t group,
                      const at::Tensor& scratch) const;
  template <typename T>
  void write_gradient_of(const std::vector<at::Tensor>& inputs, std::int64_t pair, double slope,
                         const at::Tensor& scratch, T* gradient) const;
  void check_tables() const;

  std::string name_;
  FieldLossForm form_;
  FieldShape shape_;
  std::int64_t batch_;
  std::int64_t step_;
  std::int64_t points_;
  std::int64_t channels_;
  std::vector<AxisDifference> differences_;
};

}  // namespace garonne::nn
