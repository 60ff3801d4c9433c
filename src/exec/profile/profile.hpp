// Measures nodes on this machine: the rows of the cost table and the library of each product.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/device.hpp"
#include "device/device.hpp"
#include "exec/device_tier.hpp"
#include "exec/staging.hpp"
#include "nn/gemm/product.hpp"
#include "nn/model.hpp"
#include "optim/optimizer.hpp"
#include "plan/model/cost_table.hpp"

namespace garonne::exec {

// A GPU that nodes are measured on. Its tier has room for a node with all that it reads.
struct MeasuredGpu {
  device::Device* device = nullptr;
  DeviceTier* tier = nullptr;
  Staging* staging = nullptr;
  // Of products before the first row: an idle GPU has slow clocks, and takes a while to raise them.
  double warm_up_seconds = 0;
};

// Fills `table` with what it lacks for `model`; equal nodes are measured once. `progress` is told
// (done, all). Local to the rank.
void profile_model(const Queue& queue, const nn::Model& model, const nn::Declaration& declaration,
                   plan::CostTable& table, const std::function<void(int, int)>& progress,
                   const MeasuredGpu* gpu = nullptr);

// The keys of what the nodes of a model multiply, as CostTable::products has them: those of all
// models that were measured on a machine are in one table.
std::vector<std::string> product_keys(const nn::Model& model, Precision precision);

// The same for what a step does with gradients: their norm and the update by `optimizer`, whose
// name is its row's.
void profile_step(const Queue& queue, const optim::Optimizer& optimizer, const std::string& name,
                  Precision precision, plan::CostTable& table, const MeasuredGpu* gpu = nullptr);

// A product of matrices, of some milliseconds: beside what is measured while a run computes.
void compute_a_while(const Queue& queue);

}  // namespace garonne::exec
