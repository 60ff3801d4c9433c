// What a run's model says after each of some tokens: `model_logits RUN-DIRECTORY TOKEN...` writes
// the logits to the standard output, float64 [tokens, vocabulary], as --generate has them. For
// comparisons with other programs, which a text is too coarse for.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

#include "train/checkpoint/trained_model.hpp"
#include "train/evaluation/text_passes.hpp"

int main(int count, char** arguments) try {
  using namespace garonne;
  if (count < 3) {
    std::fputs("usage: model_logits RUN-DIRECTORY TOKEN...\n", stderr);
    return 2;
  }
  dist::Session session = dist::Session::single();
  train::TrainedModel trained = train::open_trained_model(arguments[1], -1, session);
  const train::Setup& setup = trained.setup;
  const exec::RankResources resources = trained.resources();
  const train::ParameterPlacement on_device;
  train::TextPasses passes(setup, resources, on_device, trained.budget_bytes, 1, count - 2,
                           session);
  const auto vocabulary =
      static_cast<std::size_t>(std::max(setup.config.model.vocabulary, setup.facts.vocabulary));
  std::vector<std::uint32_t> text;
  for (int i = 2; i < count; ++i) {
    text.push_back(static_cast<std::uint32_t>(std::atoll(arguments[i])));
    const std::vector<double> logits = passes.logits_after(text);
    if (std::fwrite(logits.data(), sizeof(double), vocabulary, stdout) != vocabulary) return 1;
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "model_logits: %s\n", error.what());
  return 1;
}
