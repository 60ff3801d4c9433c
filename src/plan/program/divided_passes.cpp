#include "plan/program/divided_passes.hpp"

#include <vector>

#include "base/contains.hpp"
#include "plan/program/replay.hpp"

namespace garonne::plan {
void DividedPasses::fail(const char* reason) const {
  throw ReplayError(number_, describe(*instruction_), reason);
}

bool DividedPasses::reads(int buffer) const {
  return contains(instruction_->reads, buffer);
}

bool DividedPasses::writes(int buffer) const {
  return contains(instruction_->writes, buffer);
}

void DividedPasses::check(int number, const Instruction& instruction) {
  number_ = number;
  instruction_ = &instruction;
  const Operation operation = instruction.operation;
  const bool is_pass = is_forward(operation) || is_backward(operation);
  says(!is_pass || !instruction.channel, "meets other ranks within a pass of a node");
  const int exchanged = instruction.arguments.exchanged;
  if (exchanged < 0) {
    says(!is_finish(operation), "finishes what has not begun");
  } else if (is_pass) {
    begin();
  } else if (is_collective(operation)) {
    meet();
  } else if (is_finish(operation)) {
    const Pass pass = pass_of();
    open_.erase(exchanged);
    if (operation == Operation::FinishForward) {
      finish_forward(pass);
    } else {
      finish_backward(pass);
    }
  } else {
    fail("is no part of a pass and exchanges something");
  }
  for (const int freed : instruction.frees)
    says(!open_.contains(freed), "frees what a pass has not finished with");
}

void DividedPasses::finish() const {
  if (open_.empty()) return;
  const Pass& pass = open_.begin()->second;
  throw ReplayError(pass.number, "pass of a node", "is begun and never finished");
}

void DividedPasses::begin() {
  const Arguments& arguments = instruction_->arguments;
  const int exchanged = arguments.exchanged;
  says(writes(exchanged), "does not write what it exchanges");
  says(is_forward(instruction_->operation)
           ? arguments.inputs.size() == 1 && arguments.output_gradient < 0
           : arguments.inputs.empty() && arguments.output_gradient >= 0,
       "is given something else than its input or the gradient of its output");
  // Over the gradient that it is given, or into new memory.
  says(reads(exchanged) == (exchanged == arguments.output_gradient),
       "makes what it exchanges of something else");
  const bool alone = arguments.record.empty() && arguments.output < 0 &&
                     arguments.input_gradients.empty() && arguments.parameters.empty() &&
                     arguments.parameter_gradients.empty();
  says(alone, "makes more than what it exchanges");
  const Pass pass{number_,
                  instruction_->node_index,
                  instruction_->micro_batch,
                  is_forward(instruction_->operation),
                  arguments.output_gradient,
                  false};
  says(open_.emplace(exchanged, pass).second, "begins where another pass is not finished");
}

DividedPasses::Pass& DividedPasses::pass_of() {
  const auto found = open_.find(instruction_->arguments.exchanged);
  says(found != open_.end() && found->second.node == instruction_->node_index &&
           found->second.micro_batch == instruction_->micro_batch,
       "goes on with a pass that has not begun");
  return found->second;
}

void DividedPasses::meet() {
  Pass& pass = pass_of();
  const Arguments& arguments = instruction_->arguments;
  says(!pass.met, "exchanges what has been exchanged");
  says(arguments.inputs.size() == 1 && arguments.inputs[0] == arguments.exchanged &&
           reads(arguments.exchanged) && writes(arguments.exchanged),
       "exchanges something else");
  says(instruction_->operation != Operation::AllGather || arguments.output == arguments.exchanged,
       "gathers elsewhere");
  says(instruction_->channel && instruction_->channel->group == GroupAxis::Tensor,
       "exchanges in another group than the tensor axis");
  pass.met = true;
}

void DividedPasses::finish_forward(const Pass& pass) const {
  const Arguments& arguments = instruction_->arguments;
  says(pass.forward && pass.met && reads(arguments.exchanged), "finishes too early");
  says(arguments.output >= 0 && writes(arguments.output), "does not make its output");
  says(reads(arguments.output) == (arguments.output == arguments.exchanged),
       "makes its output of something else");
}

void DividedPasses::finish_backward(const Pass& pass) const {
  const Arguments& arguments = instruction_->arguments;
  says(!pass.forward && pass.met && reads(arguments.exchanged), "finishes too early");
  says(arguments.input_gradients.size() == 1 && arguments.accumulated.size() == 1 &&
           arguments.placements.size() == 1,
       "does not say where its gradient goes");
  const int gradient = arguments.input_gradients[0];
  const int existing = arguments.accumulated[0];
  const Placement placement = arguments.placements[0];
  says(gradient >= 0 && writes(gradient), "does not make its gradient");
  says((existing >= 0) == (placement == Placement::AddExisting), "loses what is there");
  says(existing < 0 || (existing != gradient && reads(existing)), "does not read what is there");
  const bool over = placement == Placement::Overwrite;
  says(over || placement == Placement::Fresh || placement == Placement::AddExisting,
       "puts its gradient where it cannot");
  says(over == (gradient == pass.output_gradient), "is not over the gradient of the output");
  says(reads(gradient) == (over || gradient == arguments.exchanged),
       "makes its gradient of something else");
}

}  // namespace garonne::plan
