#include <fmt/format.h>

#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/bytes.hpp"
#include "base/file.hpp"
#include "base/key_limits.hpp"
#include "command.hpp"
#include "counts.hpp"
#include "eval_fields.hpp"
#include "train/checkpoint/trained_model.hpp"
#include "train/evaluation/evaluation.hpp"
#include "train/run/run_directory.hpp"
#include "train/run/run_tokenizer.hpp"
#include "train/workload/workload_kind.hpp"

namespace garonne::apps {
namespace {

constexpr std::int64_t most_prompt_bytes = std::int64_t{1} << 24;

struct EvalOptions {
  std::string run;
  std::int64_t step = -1;
  std::string prompt;
  std::string tokenizer;
  std::string prompt_file;  // or "-"
  std::int64_t tokens = 400;
  train::Sampling sampling;
  std::vector<std::string> stop_texts;
  std::int64_t continuations = 1;
  std::uint64_t seed = 1;
  FieldEvalOptions fields;
  bool json = false;
};

// Options that one kind of model has and the other has not, as given.
struct Given {
  bool generate = false;
  std::string of_fields;  // the first such; empty = none
};

void check_given(const EvalOptions& options, const Given& given, const std::string& kind) {
  if (given.generate)
    train::expect_model_of(train::text_kind(), kind, "--generate", options.prompt);
  if (!given.of_fields.empty())
    train::expect_model_of(train::fields_kind(), kind, given.of_fields, "");
}

// The loss over the validation part, whose micro-batches the ranks share. Says nothing where there
// is no such part.
void evaluate_loss(train::TrainedModel& trained, const train::Workload& workload, bool quiet,
                   nlohmann::ordered_json& result, dist::Session& session) {
  const auto& config = trained.config;
  trained.setup.config.evaluation.batches = std::max<std::int64_t>(1, config.evaluation.batches);
  const std::int64_t batches = train::validation_micro_batches(
      trained.setup.config, workload.samples(train::Part::Validation));
  result["validation_loss"] = nullptr;
  if (batches == 0) {
    // Forecasts say themselves what they are of.
    if (!quiet && workload.item() == train::token_item)
      fmt::print("step {}: {} holds no validation part long enough\n", trained.step,
                 config.data.path);
    return;
  }
  plan::Program program;
  plan::Prediction prediction;
  session.agree([&] {
    program = plan::make_forward_program(trained.setup.model.graph, trained.setup.step,
                                         trained.setup.model.graph.loss);
    prediction = plan::replay(program);
    if (prediction.peak_bytes > trained.budget_bytes) {
      throw PlanError(prediction.peak_bytes, trained.budget_bytes, "that is for a validation");
    }
  });
  // Every rank has the whole model: in words of a grid, the ranks are data ranks.
  train::Setup setup = trained.setup;
  setup.grid = Grid({session.size(), 1, 1});
  std::int64_t peak = 0;
  const double loss =
      train::validation_loss(setup, program, trained.machine(), workload,
                             std::make_shared<data::Reader>(), batches, session, peak);
  peak = session.all_reduce_max(std::vector{peak})[0];
  result["validation_loss"] = loss;
  const std::int64_t items = batches * config.train.micro_batch * workload.items_per_sample();
  result[workload.item() == train::token_item ? "validation_tokens" : "validation_samples"] = items;
  result["peak_bytes"] = peak;
  result["planned_peak_bytes"] = prediction.peak_bytes;
  if (quiet) return;
  fmt::print("step {}: validation loss {:.4f} {} over {} {}{} (peak {} of {} planned)\n",
             trained.step, loss, workload.loss_unit(), items, workload.item(),
             items == 1 ? "" : "s", format_bytes(peak), format_bytes(prediction.peak_bytes));
}

// A whole file, or the standard input for "-". The line break that ends a file is no part of it.
std::string read_prompt(const std::string& path) {
  std::string text;
  if (path == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else {
    text = read_given_file(path, "give a file of text, or - for the standard input",
                           most_prompt_bytes);
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

ExitCode evaluate(const EvalOptions& options, const Given& given, dist::Session& session) {
  const bool quiet = options.json || session.rank() != 0;
  train::TrainedModel trained = train::open_trained_model(options.run, options.step, session);
  std::unique_ptr<train::Workload> workload;
  session.agree([&] {
    check_given(options, given, trained.config.model.kind);
    workload = train::open_workload(trained.config);
  });
  dist::agree_on(session, [&] { return workload->contents(); });
  std::unique_ptr<data::Tokenizer> tokenizer;
  std::string prompt = options.prompt;
  session.agree([&] {
    if (!given.generate) return;
    if (!options.prompt_file.empty() && session.rank() == 0)
      prompt = read_prompt(options.prompt_file);
    tokenizer =
        train::tokenizer_of_run(options.run, trained.setup.facts.tokenizer, options.tokenizer);
    if (!tokenizer) {
      throw ConfigError("--generate", options.prompt,
                        "wants a tokenizer, and the files of tokens that the run was trained on "
                        "name none: give --tokenizer FILE");
    }
  });
  nlohmann::ordered_json result = {{"run", options.run}, {"step", trained.step}};
  std::optional<FieldEval> fields;
  if (const auto* found = dynamic_cast<const train::FieldWorkload*>(workload.get())) {
    fields.emplace(options.fields, options.run, trained, *found, session);
  }
  evaluate_loss(trained, *workload, quiet, result, session);
  if (fields) result["skill"] = fields->run(quiet, session);
  if (session.rank() != 0) return ExitCode::Done;
  if (given.generate) {
    // A token follows from those before it: nothing that ranks could share.
    const std::vector<std::string> texts =
        train::generate(trained.setup,
                        {.prompt = prompt,
                         .tokens = options.tokens,
                         .sampling = options.sampling,
                         .seed = options.seed,
                         .stop_texts = options.stop_texts,
                         .continuations = options.continuations},
                        *tokenizer, trained.machine(), trained.budget_bytes);
    result["prompt"] = prompt;
    result["generated"] = texts.front();
    if (texts.size() > 1) result["continuations"] = texts;
    for (std::size_t i = 0; !options.json && i < texts.size(); ++i) {
      if (texts.size() > 1) fmt::print("--- {} of {}\n", i + 1, texts.size());
      fmt::print("{}{}\n", prompt, texts[i]);
    }
  }
  // A model in its first steps makes bytes that are no UTF-8.
  if (options.json) {
    fmt::print("{}\n",
               result.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  }
  return ExitCode::Done;
}

}  // namespace

void add_eval(CLI::App& app, Chosen& chosen) {
  CLI::App* command = app.add_subcommand(
      "eval",
      "validation loss of a run, and text that its model writes, or the skill of "
      "its forecasts of fields; ranks share the samples");
  const auto options = std::make_shared<EvalOptions>();
  command->add_option("run", options->run, "run directory")->required();
  command
      ->add_option("--step", options->step,
                   "a saved step; 0 = the initialisation [the newest checkpoint]")
      ->check(count(0, most_steps));
  const CLI::Option* generate =
      command->add_option("--generate", options->prompt, "continue this text");
  command->add_option("--tokenizer", options->tokenizer,
                      "for --generate, in the place of the run's own: byte, a tokenizer.json, or a "
                      ".model of SentencePiece");
  command->add_option("--tokens", options->tokens, "how many tokens to generate")
      ->check(count(0))
      ->capture_default_str();
  CLI::Option* from_file =
      command
          ->add_option("--generate-from", options->prompt_file,
                       "continue what is in this file; - is the standard input")
          ->option_text("FILE | -");
  from_file->excludes(command->get_option("--generate"));
  train::Sampling& sampling = options->sampling;
  command->add_option("--temperature", sampling.temperature, "of sampling; 0 = the likeliest token")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command
      ->add_option("--top-k", sampling.top_k, "sample from so many of the likeliest tokens [all]")
      ->check(count());
  command
      ->add_option("--top-p", sampling.top_p,
                   "sample from the fewest tokens that are so likely together [1]")
      ->check(CLI::Range(1e-6, 1.0));
  command
      ->add_option("--repetition-penalty", sampling.repetition_penalty,
                   "makes tokens that were there less likely; 1 = no difference")
      ->check(CLI::Range(0.01, 100.0))
      ->capture_default_str();
  command
      ->add_option("--stop", options->stop_texts, "end a continuation before this text; repeatable")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("--continuations", options->continuations, "how many of the same text")
      ->check(count(1, 10000))
      ->capture_default_str();
  command->add_option("--seed", options->seed, "of sampling")->capture_default_str();
  FieldEvalOptions& fields = options->fields;
  const std::vector<const CLI::Option*> of_fields = {
      command
          ->add_option("--lead-steps", fields.evaluation.lead_steps,
                       "fields: steps of each forecast [20, or what the data hold]")
          ->check(count()),
      command
          ->add_option("--samples", fields.evaluation.samples,
                       "fields: forecasts at most, evenly spread over the data")
          ->check(count())
          ->capture_default_str(),
      command
          ->add_option("--weighting", fields.evaluation.weighting,
                       "fields: what points count in means: cos-latitude, cell-area, quadrature, "
                       "uniform [cell-area on latitudes, else uniform]")
          ->option_text("NAME"),
      command
          ->add_option("--climatology", fields.evaluation.climatology,
                       "fields: of the training data: mean, or annual, which adds a yearly cycle "
                       "[annual where the data tell it]")
          ->option_text("NAME"),
      command
          ->add_option("--maps", fields.evaluation.maps, "fields: forecasts that maps are kept of")
          ->check(count(0))
          ->capture_default_str(),
      command
          ->add_option("--map-leads", fields.evaluation.map_leads,
                       "fields: leads that maps are kept of, evenly spread; 0 = all")
          ->check(count(0))
          ->capture_default_str(),
      command
          ->add_option("--members", fields.evaluation.members,
                       "fields: of ensembles with noise in their initial states; more than 1 gives "
                       "CRPS, spread and ranks")
          ->check(count())
          ->capture_default_str(),
      command
          ->add_option("--noise", fields.evaluation.noise,
                       "fields: of the initial states of members but the first, in deviations of "
                       "each channel")
          ->check(CLI::NonNegativeNumber)
          ->capture_default_str(),
      command->add_option("--noise-seed", fields.evaluation.seed, "fields: of that noise")
          ->capture_default_str(),
      command->add_option("--output", fields.output,
                          "fields: the HDF5 file of results; skill.json, which `garonne report` "
                          "shows, is written only beside the usual one [<run>/skill.h5]"),
  };
  command->add_flag("--json", options->json, "print JSON");
  command->callback([=, &chosen] {
    chosen.action = [=](dist::Session& session) {
      Given given{generate->count() + from_file->count() > 0, {}};
      for (const CLI::Option* option : of_fields) {
        if (option->count() > 0 && given.of_fields.empty()) given.of_fields = option->get_name();
      }
      return evaluate(*options, given, session);
    };
  });
}

}  // namespace garonne::apps
