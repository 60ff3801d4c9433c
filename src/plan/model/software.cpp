#include "plan/model/software.hpp"

#include <algorithm>
#include <cstddef>

#include "plan/model/attention_core.hpp"
#include "plan/model/model_graph.hpp"

namespace garonne::plan {
namespace {

// By operation, reads and writes of all scores. A mask of dropout has a byte for each.
constexpr double mask_bytes = 1;

double score_bytes_forward(double number_bytes) {
  // Written by the first product; read and written by the softmax, which scales and masks, and by
  // dropout; read by the second product.
  return (1 + 2 + 2 + 1) * number_bytes + mask_bytes;
}

double score_bytes_backward(double number_bytes) {
  // Read by the product for the values; written by that for the gradient of the weights, read and
  // written by dropout; the softmax reads them and its result, and writes; read by two products.
  return (1 + 1 + 2 + 3 + 2) * number_bytes + mask_bytes;
}

constexpr double float32_bytes = 4;

double logit_bytes_forward(double number_bytes) {
  // Converted; the largest of a row; its subtraction, exponentials, their sum, and the quotient.
  return number_bytes + (1 + 1 + 2 + 2 + 1 + 2) * float32_bytes;
}

double logit_bytes_backward(double number_bytes) {
  // Multiplied by the gradient of a row, and converted back.
  return (2 + 1) * float32_bytes + number_bytes;
}

bool is_norm(const NodeSpec& node) {
  return node.kind == "layer_norm" || node.kind == "instance_norm" || node.kind == "rms_norm";
}

// Beside what its kernel reads and writes.
double norm_bytes_forward(const NodeSpec& node, double number_bytes) {
  // Each operation reads, and all but the means write: squares, their mean, the quotient and the
  // gain; before them a mean and its subtraction, and behind them a shift.
  constexpr double of_squares = 2 + 1 + 2 + 2;
  constexpr double of_mean_and_shift = 1 + 2 + 2;
  const double passes = of_squares + (node.kind == "rms_norm" ? 0 : of_mean_and_shift);
  // To float32 and back.
  const double converted = number_bytes < float32_bytes ? 2 * (number_bytes + float32_bytes) : 0;
  return passes * std::max(number_bytes, float32_bytes) + converted - 2 * number_bytes;
}

// One after the other.
void add_issue(OperationCost& cost) {
  cost.seconds += cost.issue_seconds;
  cost.issue_seconds = 0;
}

}  // namespace

std::vector<double> equal_block_seconds(int blocks, bool counting_ends, int parts) {
  std::vector<double> seconds(static_cast<std::size_t>(blocks), 1);
  if (!counting_ends) seconds.front() = seconds.back() = 0;
  const int dealt = counting_ends ? blocks : blocks - 2;
  const int most = (dealt + parts - 1) / parts;
  // So that the others are full.
  seconds.back() += std::max(0, std::min(most * parts - dealt, most - 1));
  return seconds;
}

ModelGraph with_equal_blocks(const ModelGraph& graph, bool counting_ends, int parts) {
  ModelGraph equal = graph;
  const std::vector<double> seconds = equal_block_seconds(graph.blocks(), counting_ends, parts);
  int before = -1;  // block
  for (NodeSpec& node : equal.nodes) {
    node.forward_keep.seconds =
        node.block > before ? seconds[static_cast<std::size_t>(node.block)] : 0;
    node.backward.seconds = node.backward_weight.seconds = 0;
    before = node.block;
  }
  return equal;
}

double gradient_sum_bytes(const Software& software, double number_bytes) {
  // What was made is read, and the sum is read and written.
  switch (software.gradient_sums) {
    case GradientSums::Fused:
      return 0;
    case GradientSums::Compute:
      return 3 * number_bytes;
    case GradientSums::Float32:
      return number_bytes + 2 * float32_bytes;
  }
  return 0;
}

void wait_for_operations(ModelGraph& graph) {
  for (NodeSpec& node : graph.nodes) {
    add_issue(node.forward);
    for (int k = 0; k < node.keep_options(); ++k) {
      KeepOption& option = node.keep_option(k);
      add_issue(option.forward_keep);
      add_issue(option.backward);
      add_issue(option.backward_weight);
    }
  }
}

SoftwarePass software_forward(const Software& software, const NodeSpec& node, double elements,
                              double number_bytes) {
  const auto scores = static_cast<double>(node.scores);
  if (is_attention_core(node))
    return software.stores_scores ? SoftwarePass{scores * score_bytes_forward(number_bytes), 2}
                                  : SoftwarePass{};
  if (is_norm(node))
    return {software.unfused_norms ? elements * norm_bytes_forward(node, number_bytes) : 0, 1};
  return software.unfused_loss ? SoftwarePass{scores * logit_bytes_forward(number_bytes), 1}
                               : SoftwarePass{};
}

SoftwarePass software_backward(const Software& software, const NodeSpec& node, double elements,
                               double number_bytes) {
  const auto scores = static_cast<double>(node.scores);
  // Of five products over half of the scores four are left, over all of them.
  if (is_attention_core(node)) {
    return software.stores_scores
               ? SoftwarePass{scores * score_bytes_backward(number_bytes), 2 * 4.0 / 5}
               : SoftwarePass{};
  }
  // Each factor of a product has a gradient.
  if (is_norm(node))
    return {software.unfused_norms ? 2 * elements * norm_bytes_forward(node, number_bytes) : 0, 1};
  return software.unfused_loss ? SoftwarePass{scores * logit_bytes_backward(number_bytes), 1}
                               : SoftwarePass{};
}

}  // namespace garonne::plan
