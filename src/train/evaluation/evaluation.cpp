#include "train/evaluation/evaluation.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/error.hpp"
#include "base/philox.hpp"
#include "train/workload/program_loads.hpp"

namespace garonne::train {
namespace {

// Cuts `text` before the first of the texts in it; false where it has none.
bool cut_at_stop(const std::vector<std::string>& stop_texts, std::string& text) {
  std::size_t first = std::string::npos;
  for (const std::string& stop : stop_texts) first = std::min(first, text.find(stop));
  if (first == std::string::npos) return false;
  text.erase(first);
  return true;
}

}  // namespace

std::int64_t validation_micro_batches(const RunConfig& config, std::int64_t validation_samples) {
  return std::min(config.evaluation.batches, validation_samples / config.train.micro_batch);
}

double validation_loss(const Setup& setup, const plan::Program& program,
                       const exec::Machine& machine, const Workload& workload,
                       const std::shared_ptr<data::Reader>& reader, std::int64_t micro_batches,
                       dist::Session& session, std::int64_t& peak_bytes) {
  const auto ranks = static_cast<std::int64_t>(setup.grid.shape().data);
  const auto mine = static_cast<std::int64_t>(setup.grid.coordinates_of(session.rank()).data);
  const std::int64_t rounds = (micro_batches + ranks - 1) / ranks;
  const std::int64_t batch = setup.config.train.micro_batch;
  const auto samples_of = [=](std::int64_t round) {
    std::vector<std::int64_t> samples;
    // A rank that has nothing left runs along where parameters are gathered.
    const std::int64_t place = round * ranks + mine;
    const std::int64_t first = (place < micro_batches ? place : 0) * batch;
    for (std::int64_t i = 0; i < batch; ++i) samples.push_back(first + i);
    return samples;
  };
  const std::int64_t my_rounds =
      mine < micro_batches ? (micro_batches - mine + ranks - 1) / ranks : 0;
  const bool gathers = std::any_of(program.instructions.begin(), program.instructions.end(),
                                   [](const auto& instruction) {
                                     return instruction.operation == plan::Operation::AllGather &&
                                            instruction.arguments.exchanged < 0;
                                   });
  const std::int64_t runs = gathers ? rounds : my_rounds;
  const auto stream = workload.open(reader, Part::Validation,
                                    {.samples_of = samples_of,
                                     .first_ordinal = 0,
                                     .end_ordinal = runs,
                                     .micro_batches = {0},
                                     .rows = setup.model.rows,
                                     .values = loaded_names(program, setup.model.graph)});
  exec::Executor executor(setup.model, program, machine);
  exec::StepInputs inputs;
  inputs.training = false;
  inputs.load = [&](int micro_batch) { return stream->next(micro_batch); };
  const int loss_stage = stage_with_loss(setup);
  std::vector<double> losses(static_cast<std::size_t>(rounds), 0.0);
  for (std::int64_t round = 0; round < runs; ++round) {
    const exec::StepOutputs outputs = executor.run(inputs);
    if (round < my_rounds && !outputs.report.empty())
      losses[static_cast<std::size_t>(round)] = outputs.report[0];
    peak_bytes = std::max(peak_bytes, outputs.peak_bytes);
  }
  const std::vector<double> all = session.all_gather(losses);
  double sum = 0;
  for (std::int64_t j = 0; j < micro_batches; ++j) {
    const int owner = setup.grid.rank_of({static_cast<int>(j % ranks), loss_stage, 0});
    sum += all[static_cast<std::size_t>(owner * rounds + j / ranks)];
  }
  return sum / static_cast<double>(micro_batches);
}

std::vector<std::string> generate(const Setup& setup, const Generation& generation,
                                  const data::Tokenizer& tokenizer, exec::Machine machine,
                                  std::int64_t budget_bytes) {
  const nn::Model model = make_generator(setup);
  const std::int64_t rows_of_table = model.graph.values.back().shape[1];
  plan::StepShape step = setup.step;
  step.micro_batches = 1;
  plan::Program program =
      plan::make_forward_program(model.graph, step, model.graph.nodes.back().output);
  const plan::Prediction prediction = plan::replay(program);
  if (prediction.peak_bytes > budget_bytes) {
    throw PlanError(prediction.peak_bytes, budget_bytes, "that is for generating text");
  }
  exec::Executor executor(model, program, machine);

  std::vector<std::uint32_t> tokens = tokenizer.encode(generation.prompt);
  if (tokens.empty()) {
    // Something has to be continued; what comes before a text, or a line break, says least.
    tokens = tokenizer.begin_of_text() ? std::vector{*tokenizer.begin_of_text()}
                                       : tokenizer.encode("\n");
  }
  const auto vocabulary =
      static_cast<std::size_t>(std::min<std::int64_t>(rows_of_table, tokenizer.vocabulary()));
  const auto logits_after = [&](const std::vector<std::uint32_t>& text) {
    const auto window = static_cast<std::size_t>(model.sequence);
    const std::size_t first = text.size() > window ? text.size() - window : 0;
    const std::size_t length = text.size() - first;
    exec::StepInputs inputs;
    inputs.training = false;
    inputs.load = [&](int) {
      // Attention is causal: what stands after the last token changes nothing before it.
      std::vector<std::int64_t> padded(window, 0);
      for (std::size_t i = 0; i < length; ++i) padded[i] = text[first + i];
      return exec::HostBatch{{0}, {{"tokens", std::move(padded)}}, {}};
    };
    const std::vector<double> logits = executor.run(inputs).report;
    const auto row = logits.begin() + static_cast<std::ptrdiff_t>(
                                          (length - 1) * static_cast<std::size_t>(rows_of_table));
    return std::vector<double>(row, row + static_cast<std::ptrdiff_t>(vocabulary));
  };
  std::vector<std::string> made;
  for (std::int64_t number = 0; number < generation.continuations; ++number) {
    const PhiloxKey key =
        philox_key(generation.seed, "generate", static_cast<std::uint64_t>(number));
    std::vector<std::uint32_t> text = tokens;
    std::string written;
    for (std::int64_t n = 0; n < generation.tokens; ++n) {
      const std::uint32_t random = philox_at(key, 0, 0, static_cast<std::uint64_t>(n)).word[0];
      text.push_back(choose_token(logits_after(text), generation.sampling, text, random));
      if (tokenizer.end_of_text() && text.back() == *tokenizer.end_of_text()) break;
      written += tokenizer.decode(std::span(&text.back(), 1));
      if (cut_at_stop(generation.stop_texts, written)) break;
    }
    made.push_back(std::move(written));
  }
  return made;
}

}  // namespace garonne::train
