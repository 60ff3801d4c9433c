#include "plan/model/software.hpp"

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

}  // namespace

ModelGraph with_equal_blocks(const ModelGraph& graph) {
  ModelGraph equal = graph;
  int counted = 0;
  for (NodeSpec& node : equal.nodes) {
    const bool counts = node.block > counted && node.block < graph.blocks() - 1;
    node.forward_keep.seconds = counts ? 1 : 0;
    node.backward.seconds = node.backward_weight.seconds = 0;
    if (counts) counted = node.block;
  }
  return equal;
}

SoftwarePass software_forward(const Software& software, const NodeSpec& node, double number_bytes) {
  const auto scores = static_cast<double>(node.scores);
  if (is_attention_core(node))
    return software.stores_scores ? SoftwarePass{scores * score_bytes_forward(number_bytes), 2}
                                  : SoftwarePass{};
  return software.unfused_loss ? SoftwarePass{scores * logit_bytes_forward(number_bytes), 1}
                               : SoftwarePass{};
}

SoftwarePass software_backward(const Software& software, const NodeSpec& node,
                               double number_bytes) {
  const auto scores = static_cast<double>(node.scores);
  // Of five products over half of the scores four are left, over all of them.
  if (is_attention_core(node)) {
    return software.stores_scores
               ? SoftwarePass{scores * score_bytes_backward(number_bytes), 2 * 4.0 / 5}
               : SoftwarePass{};
  }
  return software.unfused_loss ? SoftwarePass{scores * logit_bytes_backward(number_bytes), 1}
                               : SoftwarePass{};
}

}  // namespace garonne::plan
