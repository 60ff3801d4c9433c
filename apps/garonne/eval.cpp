#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/grid.hpp"
#include "base/json_output.hpp"
#include "base/key_limits.hpp"
#include "command.hpp"
#include "counts.hpp"
#include "eval_fields.hpp"
#include "eval_texts.hpp"
#include "memory_options.hpp"
#include "train/checkpoint/trained_model.hpp"
#include "train/evaluation/evaluation.hpp"
#include "train/evaluation/validation_batches.hpp"
#include "train/run/run_directory.hpp"
#include "train/run/run_tokenizer.hpp"
#include "train/workload/text_workload.hpp"
#include "train/workload/workload_kind.hpp"

namespace garonne::apps {
namespace {

constexpr std::int64_t most_grid_ranks = 1 << 14;

struct EvalOptions {
  std::string run;
  std::int64_t step = -1;
  TextEvalOptions texts;
  GridShape grid = {.data = 0};  // data 0 = what is left of the ranks
  FieldEvalOptions fields;
  std::string data;           // in the place of the run's validation data
  std::string part;           // of its tokens files
  std::int64_t batches = -1;  // 0 = all; −1 = those of the run
  bool no_validation = false;
  std::shared_ptr<MemoryOptions> memory;
  bool json = false;
};

// Options that one kind of model has and the other has not, as given.
struct Given {
  bool generate = false;
  std::string of_validation;  // the first such; empty = none
  std::string of_grid;        // likewise
  std::string of_fields;      // likewise
  std::string of_generate;    // likewise
};

void check_given(const EvalOptions& options, const Given& given, const std::string& kind) {
  if (given.generate)
    train::expect_model_of(train::text_kind(), kind, "--generate", options.texts.prompt);
  if (!given.of_grid.empty()) train::expect_model_of(train::text_kind(), kind, given.of_grid, "");
  if (!given.of_fields.empty())
    train::expect_model_of(train::fields_kind(), kind, given.of_fields, "");
  if (!options.part.empty())
    train::expect_model_of(train::text_kind(), kind, "--part", options.part);
  if (!options.part.empty() && options.data.empty())
    throw ConfigError("--part", options.part, "is of the files of --data, which is not given");
  if (options.no_validation)
    train::expect_model_of(train::text_kind(), kind, "--no-validation", "");
  if (options.no_validation && !given.generate)
    throw ConfigError("--no-validation", "",
                      "leaves nothing to do; ask for a text with --generate or --generate-from");
  if (options.no_validation && !given.of_validation.empty())
    throw ConfigError(given.of_validation, "",
                      "is of the validation that --no-validation leaves out; give one of them");
  if (!given.generate && !given.of_generate.empty())
    throw ConfigError(given.of_generate, "",
                      "is of texts that --generate or --generate-from asks for, and neither is "
                      "given");
  check_text_options(options.texts);
}

// What a session of so many ranks is; none where every rank has the whole model.
std::optional<GridShape> grid_of(const EvalOptions& options, const Given& given, int ranks) {
  if (given.of_grid.empty()) return std::nullopt;
  GridShape shape = options.grid;
  if (shape.data == 0) shape.data = std::max(1, ranks / (shape.pipeline * shape.tensor));
  return shape;
}

std::string name_of(const train::ValidationSource& source) {
  if (source.part.empty()) return source.path;
  return fmt::format(
      "{} ({})", source.path,
      source.part == data::validation_dataset ? "its validation tokens" : "its tokens");
}

// Of all, or of each source where there are several; for people.
std::string sources_text(const train::ValidationBatches& batches, const std::vector<double>& means,
                         std::int64_t micro_batch) {
  std::string text;
  for (std::size_t i = 0; i < batches.sources().size(); ++i) {
    const train::ValidationSource& source = batches.sources()[i];
    const std::int64_t evaluated = batches.batches_of(i) * micro_batch;
    text += fmt::format("{} of {} of {}", evaluated, counted(source.samples, "sample"),
                        name_of(source));
    if (batches.sources().size() > 1)
      text += fmt::format(", whose loss is {:.4f} and weighs {:.4g}", means[i], batches.share(i));
    text += "\n";
  }
  return text;
}

nlohmann::ordered_json sources_json(const train::ValidationBatches& batches,
                                    const std::vector<double>& means, std::int64_t micro_batch) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < batches.sources().size(); ++i) {
    const train::ValidationSource& source = batches.sources()[i];
    nlohmann::ordered_json entry = {{"path", source.path}};
    if (!source.part.empty()) entry["part"] = source.part;
    entry["weight"] = batches.share(i);
    entry["samples"] = source.samples;
    entry["evaluated"] = batches.batches_of(i) * micro_batch;
    entry["loss"] = means[i];
    list.push_back(std::move(entry));
  }
  return list;
}

// The loss over the validation part, whose micro-batches the data ranks share. Says nothing where
// there is no such part.
void evaluate_loss(train::TrainedModel& trained, train::Setup setup,
                   const train::Workload& workload, std::int64_t wanted, bool quiet,
                   nlohmann::ordered_json& result, dist::Session& session) {
  const auto& config = trained.config;
  const std::int64_t of_run = std::max<std::int64_t>(1, config.evaluation.batches);
  setup.config.evaluation.batches = wanted < 0    ? of_run
                                    : wanted == 0 ? std::numeric_limits<std::int64_t>::max()
                                                  : wanted;
  const std::int64_t most =
      train::validation_micro_batches(setup.config, workload.samples(train::Part::Validation));
  result["validation_loss"] = nullptr;
  if (most == 0) {
    // Forecasts say themselves what they are of.
    if (!quiet && workload.item() == train::token_item) {
      const std::string& data =
          config.data.validation.empty() ? config.data.path : config.data.validation;
      fmt::print("step {}: {} holds no validation part of a micro-batch ({})\n", trained.step, data,
                 counted(config.train.micro_batch, "sample"));
    }
    return;
  }
  const std::int64_t micro_batch = config.train.micro_batch;
  const train::ValidationBatches batches(workload.validation_sources(), most, micro_batch);
  plan::Program program;
  plan::Prediction prediction;
  session.agree([&] {
    const plan::ModelGraph& graph = setup.model.graph;
    program = trained.placement.place(plan::make_forward_program(graph, setup.step, graph.loss));
    if (trained.axes) program = train::program_of_rank(setup, std::move(program), session.rank());
    prediction = plan::replay(program);
    if (prediction.peak_bytes > trained.budget_bytes) {
      throw PlanError(prediction.peak_bytes, trained.budget_bytes,
                      "that is for a validation" + trained.placement.advice());
    }
  });
  std::int64_t peak = 0;
  const std::vector<double> means =
      train::validation_losses(setup, program, trained.resources(), workload,
                               std::make_shared<data::Reader>(), batches, session, peak);
  const double loss = batches.weighted(means);
  const auto peaks = session.all_reduce_max(std::vector{peak, prediction.peak_bytes});
  result["validation_loss"] = loss;
  const std::int64_t items = batches.batches() * micro_batch * workload.items_per_sample();
  result[workload.item() == train::token_item ? "validation_tokens" : "validation_samples"] = items;
  result["validation_data"] = sources_json(batches, means, micro_batch);
  result["peak_bytes"] = peaks[0];
  result["planned_peak_bytes"] = peaks[1];
  if (quiet) return;
  fmt::print("step {}: validation loss {:.4f} {} over {} (peak {} of {} planned)\n", trained.step,
             loss, workload.loss_unit(),
             counted(items, workload.item() == train::token_item ? "token" : "sample"),
             format_bytes(peaks[0]), format_bytes(peaks[1]));
  fmt::print("{}", sources_text(batches, means, micro_batch));
}

// As a tokens file calls them; empty = its validation tokens where there are some.
std::string dataset_of(const EvalOptions& options) {
  if (options.part == "training") return data::training_dataset;
  return options.part == "validation" ? data::validation_dataset : "";
}

// `below`: bytes of parameters on tiers below, of the rank with most.
void say_what_is_below(const train::TrainedModel& trained, std::int64_t below, bool quiet) {
  if (quiet || below == 0) return;
  fmt::print("{} of parameters on {}\n", format_bytes(below), train::name_of_tiers(trained.setup));
}

ExitCode evaluate(const EvalOptions& options, const Given& given, dist::Session& session) {
  const bool quiet = options.json || session.rank() != 0;
  session.agree(
      [&] { check_given(options, given, train::run_directory_config(options.run).model.kind); });
  train::TrainedModel trained = train::open_trained_model(
      options.run, options.step, session, grid_of(options, given, session.size()),
      options.data.empty() && !options.no_validation, options.memory->given());
  if (!options.data.empty()) trained.config.data.validation = options.data;
  // What was imported has seen no data, and writes texts without.
  const bool without_data =
      options.no_validation ||
      (given.generate && trained.config.data.path.empty() && options.data.empty());
  std::unique_ptr<train::Workload> workload;
  const bool text = &train::workload_kind(trained.config.model.kind) == &train::text_kind();
  if (!without_data) {
    session.agree([&] {
      if (text && !options.data.empty()) {
        workload = std::make_unique<train::TextWorkload>(
            trained.config, trained.setup.facts, "--data", options.data, dataset_of(options),
            [&] { return train::tokenizer_of_run(options.run, trained.setup.facts.tokenizer); });
        return;
      }
      if (text && trained.config.data.path.empty()) {
        throw ConfigError("--data", "",
                          fmt::format("is needed: {} names no data.path, as what was imported has "
                                      "none, so say what to evaluate on",
                                      options.run));
      }
      const std::string key = options.data.empty() ? "data.validation" : "--data";
      if (text) {
        workload = train::open_workload(trained.config, key);
      } else {
        workload = std::make_unique<train::FieldWorkload>(trained.config, key, trained.data);
      }
    });
    dist::agree_on(session, [&] { return workload->contents(); });
    session.agree([&] {
      if (session.rank() != 0) return;
      const std::string warning =
          train::other_statistics_warning(*workload, trained.data, trained.config.data.statistics);
      if (!warning.empty()) fmt::print(stderr, "warning: {}\n", warning);
    });
  }
  std::optional<TextEval> texts;
  if (given.generate) texts.emplace(options.texts, options.run, trained, session);
  const std::int64_t below =
      session.all_reduce_max(std::vector{trained.placement.bytes_below()})[0];
  say_what_is_below(trained, below, quiet);
  nlohmann::ordered_json result = {
      {"run", options.run}, {"step", trained.step}, {"parameter_bytes_below", below}};
  std::optional<FieldEval> fields;
  if (const auto* found = dynamic_cast<const train::FieldWorkload*>(workload.get())) {
    fields.emplace(options.fields, options.run, trained, *found, session);
  }
  train::Setup setup = trained.setup;
  // Where every rank has the whole model, the ranks are data ranks.
  if (given.of_grid.empty()) setup.grid = Grid({session.size(), 1, 1});
  if (without_data) {
    result["validation_loss"] = nullptr;
    if (!quiet)
      fmt::print(
          "step {}: no validation{}\n", trained.step,
          options.no_validation ? "" : fmt::format(", since {} names no data.path", options.run));
  } else {
    evaluate_loss(trained, setup, *workload, options.batches, quiet, result, session);
  }
  if (fields) result["skill"] = fields->run(quiet, session);
  if (texts) texts->run(setup, trained, quiet, result, session);
  // A model in its first steps makes bytes that are no UTF-8.
  if (options.json && session.rank() == 0) {
    fmt::print("{}\n", json_text(result, 2));
  }
  return ExitCode::Done;
}

// What is about the validation; in its order.
std::vector<const CLI::Option*> add_validation_options(CLI::App& command, EvalOptions& options) {
  return {
      command
          .add_option("--data", options.data,
                      "files to evaluate on, as a test set, in the place of the validation data "
                      "of the run")
          ->option_text("PATH"),
      command
          .add_option("--part", options.part,
                      "text: which tokens of the files of --data: training or validation "
                      "[validation where a file has them]")
          ->check(CLI::IsMember({"training", "validation"}))
          ->option_text("NAME"),
      command
          .add_option("--batches", options.batches,
                      "micro-batches of the loss, spread evenly over the data; 0 = all "
                      "[evaluation.batches of the run]")
          ->check(count(0)),
  };
}

std::vector<const CLI::Option*> add_grid_options(CLI::App& command, EvalOptions& options) {
  return {
      command
          .add_option("--grid.tensor", options.grid.tensor,
                      "text: tensor ranks that share each layer of the model, whatever grid the "
                      "run had [1]")
          ->check(count(1, most_grid_ranks)),
      command
          .add_option("--grid.pipeline", options.grid.pipeline,
                      "text: stages that share its layers, likewise [1]")
          ->check(count(1, most_grid_ranks)),
      command
          .add_option("--grid.data", options.grid.data,
                      "text: data ranks, which share samples and continuations [the others]")
          ->check(count(1, most_grid_ranks)),
  };
}

std::vector<const CLI::Option*> add_field_options(CLI::App& command, FieldEvalOptions& fields) {
  return {
      command
          .add_option("--lead-steps", fields.evaluation.lead_steps,
                      "fields: steps of each forecast [20, or what the data hold]")
          ->check(count()),
      command
          .add_option("--samples", fields.evaluation.samples,
                      "fields: forecasts at most, evenly spread over the data")
          ->check(count())
          ->capture_default_str(),
      command
          .add_option("--weighting", fields.evaluation.weighting,
                      "fields: what points count in means: cos-latitude, cell-area, quadrature, "
                      "uniform [cell-area on latitudes, else uniform]")
          ->option_text("NAME"),
      command
          .add_option("--climatology", fields.evaluation.climatology,
                      "fields: of the training data: mean, or annual, which adds a yearly cycle "
                      "[annual where the data tell it]")
          ->option_text("NAME"),
      command
          .add_option("--maps", fields.evaluation.maps, "fields: forecasts that maps are kept of")
          ->check(count(0))
          ->capture_default_str(),
      command
          .add_option("--map-leads", fields.evaluation.map_leads,
                      "fields: leads that maps are kept of, evenly spread; 0 = all")
          ->check(count(0))
          ->capture_default_str(),
      command
          .add_option("--members", fields.evaluation.members,
                      "fields: of ensembles with noise in their initial states; more than 1 gives "
                      "CRPS, spread and ranks")
          ->check(count())
          ->capture_default_str(),
      command
          .add_option("--noise", fields.evaluation.noise,
                      "fields: of the initial states of members but the first, in deviations of "
                      "each channel")
          ->check(CLI::NonNegativeNumber)
          ->capture_default_str(),
      command.add_option("--noise-seed", fields.evaluation.seed, "fields: of that noise")
          ->capture_default_str(),
      command
          .add_option("--output", fields.output,
                      "fields: the HDF5 file of results; skill.json, which `garonne report` "
                      "shows, is written only beside the usual one [<run>/skill.h5]")
          ->type_name("FILE"),
  };
}

}  // namespace

void add_eval(CLI::App& app, Chosen& chosen) {
  CLI::App* command = app.add_subcommand(
      "eval",
      "validation loss of a run, and text that its model writes, or the skill of "
      "its forecasts of fields; ranks share the samples, or with --grid the model");
  const auto options = std::make_shared<EvalOptions>();
  command->add_option("run", options->run, "run directory")->required();
  command
      ->add_option("--step", options->step,
                   "a saved step; 0 = what the run began with [the newest checkpoint]")
      ->check(count(0, most_steps));
  const auto of_validation = add_validation_options(*command, *options);
  command->add_flag("--no-validation", options->no_validation,
                    "text: only write it; no data are read");
  const TextEvalFlags texts = add_text_options(*command, options->texts);
  const auto of_grid = add_grid_options(*command, *options);
  const auto of_fields = add_field_options(*command, options->fields);
  options->memory = add_memory_options(*command);
  command->add_flag("--json", options->json, "print JSON");
  command->callback([=, &chosen] {
    chosen.action = [=](dist::Session& session) {
      const auto first_of = [](const std::vector<const CLI::Option*>& several) {
        const auto found = std::find_if(several.begin(), several.end(),
                                        [](const auto* option) { return option->count() > 0; });
        return found == several.end() ? std::string() : (*found)->get_name();
      };
      const Given given{!first_of(texts.prompts).empty(), first_of(of_validation),
                        first_of(of_grid), first_of(of_fields), first_of(texts.of_generate)};
      return evaluate(*options, given, session);
    };
  });
}

}  // namespace garonne::apps
