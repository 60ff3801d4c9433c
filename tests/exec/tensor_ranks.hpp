// Models cut over the tensor axis, a rank of each process, and the same models whole on one.
#pragma once

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "device/device.hpp"
#include "dist/session.hpp"
#include "exec/executor.hpp"
#include "nn/model.hpp"
#include "plan/program/replay.hpp"

namespace garonne::exec {

struct CutModel {
  // The part of a member of so many tensor ranks; the whole model where there is one.
  std::function<nn::Model(const nn::Declaration&, int member, int ranks)> make;
  // What such a part loads of the micro-batch of that number.
  std::function<HostBatch(const nn::Model&, std::int64_t number)> load;
  std::string name;
  Precision precision = Precision::Float64;
  std::string plan = "keep-all";
  std::string optimizer = "adamw";
  // What puts collectives of nodes beside compute, if anything does.
  plan::Program (*beside_compute)(plan::Program) = nullptr;
  // Gradients are summed over the group once more, as if it were the data group, too.
  bool sums_again = false;
  // What a member computes on; the CPU where there is none.
  std::function<std::unique_ptr<device::Device>(int member)> device;
};

// One rank of a group with all that its steps need, alone in it where there is no transport.
class TensorRank {
 public:
  // Collective over the session where there is a transport.
  TensorRank(const CutModel& cut, dist::Session& session, dist::Transport* transport);

  // Trains. Collective over the group.
  StepOutputs step(std::int64_t number) { return step(number, program_, true); }
  // The loss of the first step's micro-batches, without dropout. Collective over the group.
  double evaluate() { return step(1, evaluation_, false).report.at(0); }

  const nn::Model& model() const { return model_; }
  const ModelState& state() const { return state_; }
  const plan::Program& program() const { return program_; }
  const plan::Prediction& prediction() const { return prediction_; }
  // Pieces of work that its device was given for the lane.
  std::uint64_t works_on(Lane lane) { return device_->mark(lane).number; }
  // Of the last step, by parameter, float64 and flat.
  const std::vector<at::Tensor>& gradients() const { return gradients_; }

 private:
  StepOutputs step(std::int64_t number, const plan::Program& program, bool training);
  void profile(dist::Session& session, const nn::Declaration& declaration);

  CutModel cut_;
  dist::Transport* transport_;
  nn::Model model_;
  nn::Products products_;
  plan::Program program_;
  plan::Program evaluation_;
  plan::Prediction prediction_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<DeviceTier> tier_;
  ModelState state_;
  std::vector<at::Tensor> gradients_;
  std::map<std::size_t, std::vector<double>> gradient_values_;  // what they point to
};

// All ranks of the session are one group.
class TensorRanks : public testing::Test {
 protected:
  TensorRanks();

  // Ten steps in float64 come to what one rank comes to, in the bytes that were planned: losses and
  // norms to 1e-9, gradients to 1e-12 of each or to `rounding` of all, whichever is more.
  void compare(const CutModel& cut, double rounding);
  // In another precision, whose sums round otherwise, five losses do to `tolerance`.
  void compare_loosely(const CutModel& cut, double tolerance);
  // No instruction takes more than was planned, and all together hardly less.
  static void check_bytes(const TensorRank& rank, const StepOutputs& outputs);

  dist::Session session_;
  dist::CommunicationThread thread_;
  std::unique_ptr<dist::Transport> transport_;
};

}  // namespace garonne::exec
