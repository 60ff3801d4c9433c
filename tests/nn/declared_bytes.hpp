// What a node declares beside what a profile of it found.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "nn/gemm/onednn_workspace.hpp"
#include "nn/model.hpp"
#include "plan/model/cost_table.hpp"

namespace garonne::test {

// `bound`: transient bytes may be less than declared, as where a library takes workspaces that only
// it knows; everything else is exact, but for a float32 product in a forward: by that workspace
// less where another library does it.
inline void expect_declared_bytes(const plan::CostRow& row, const nn::Model& model,
                                  const nn::Declaration& declaration, const plan::NodeSpec& node,
                                  bool bound) {
  std::int64_t workspace = 0;
  for (const int p : node.parameters) {
    const auto& shape = model.graph.parameters[static_cast<std::size_t>(p)].shape;
    if (declaration.precision != Precision::Float32 || shape.size() != 2) continue;
    workspace = std::max(workspace, nn::float32_workspace_bytes(declaration, shape[1]));
  }

  EXPECT_EQ(row.value_bytes, model.graph.values[static_cast<std::size_t>(node.output)].bytes);
  // A node without a backward keeps nothing, where its equals do.
  if (model.graph.has_backward(node)) {
    EXPECT_EQ(row.private_bytes, std::accumulate(node.private_slot_bytes.begin(),
                                                 node.private_slot_bytes.end(), std::int64_t{0}));
  }
  const auto check = [&](const char* what, std::int64_t measured, std::int64_t declared) {
    if (bound) {
      EXPECT_LE(measured, declared) << what;
    } else {
      EXPECT_EQ(measured, declared) << what;
    }
  };
  const auto check_forward = [&](const char* what, std::int64_t measured, std::int64_t declared) {
    if (bound || workspace == 0) return check(what, measured, declared);
    EXPECT_LE(measured, declared) << what;
    EXPECT_GE(measured, declared - workspace) << what;
  };
  check_forward("forward", row.forward_transient_bytes, node.forward.transient_bytes);
  check_forward("forward that keeps", row.forward_keep_transient_bytes,
                node.forward_keep.transient_bytes);
  check("backward", row.backward_transient_bytes, node.backward.transient_bytes);
  check("backward in place", row.in_place_transient_bytes,
        node.in_place_transient_bytes.value_or(node.backward.transient_bytes));
  check("backward of weights", row.backward_weight_transient_bytes,
        node.backward_weight.transient_bytes);
}

}  // namespace garonne::test
