// What a run's model says after each of some tokens: `model_logits RUN-DIRECTORY TOKEN...` writes
// the logits to the standard output, float64 [model.sequence, vocabulary]; rows behind the tokens
// given are of token 0. For comparisons with other programs, which --generate is too coarse for.
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "exec/executor.hpp"
#include "plan/program/replay.hpp"
#include "plan/step/generator.hpp"
#include "train/checkpoint/trained_model.hpp"

int main(int count, char** arguments) try {
  using namespace garonne;
  if (count < 3) {
    std::fputs("usage: model_logits RUN-DIRECTORY TOKEN...\n", stderr);
    return 2;
  }
  dist::Session session = dist::Session::single();
  train::TrainedModel trained = train::open_trained_model(arguments[1], -1, session);
  const nn::Model model = train::make_generator(trained.setup);
  plan::StepShape step = trained.setup.step;
  step.micro_batches = 1;
  const plan::Program program =
      plan::make_forward_program(model.graph, step, model.graph.nodes.back().output);
  exec::Executor executor(model, program, trained.machine());
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(model.sequence), 0);
  for (std::size_t i = 2; i < static_cast<std::size_t>(count) && i - 2 < tokens.size(); ++i)
    tokens[i - 2] = std::atoll(arguments[i]);
  exec::StepInputs inputs;
  inputs.training = false;
  inputs.load = [&](int) { return exec::HostBatch{{0}, {{"tokens", tokens}}, {}}; };
  const std::vector<double> logits = executor.run(inputs).report;
  return std::fwrite(logits.data(), sizeof(double), logits.size(), stdout) == logits.size() ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "model_logits: %s\n", error.what());
  return 1;
}
