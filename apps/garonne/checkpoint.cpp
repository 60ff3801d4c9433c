#include "train/checkpoint/checkpoint.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/json_output.hpp"
#include "base/key_limits.hpp"
#include "base/printable.hpp"
#include "base/progress.hpp"
#include "command.hpp"
#include "counts.hpp"
#include "nn/model_kind.hpp"
#include "train/checkpoint/checkpoint_list.hpp"
#include "train/checkpoint/huggingface.hpp"
#include "train/checkpoint/huggingface_import.hpp"
#include "train/checkpoint/model_package.hpp"
#include "train/checkpoint/reshard.hpp"
#include "train/checkpoint/trained_model.hpp"
#include "train/run/run_directory.hpp"
#include "train/run/run_tokenizer.hpp"
#include "train/setup/config_choices.hpp"
#include "train/workload/workload_kind.hpp"

namespace garonne::apps {
namespace {

// A checkpoint folder, or the newest one of a run directory.
std::string resolve(const std::string& path) {
  std::error_code error;
  if (std::filesystem::exists(path + "/manifest.json", error)) return path;
  const auto steps = train::list_checkpoints(path);
  if (steps.empty())
    throw IoError(path, "is neither a checkpoint nor a run directory that has one");
  return train::checkpoint_path(path, steps.back());
}

std::int64_t bytes_of(const train::Manifest& manifest) {
  return std::accumulate(manifest.file_bytes.begin(), manifest.file_bytes.end(), std::int64_t{0});
}

void print_manifest(const std::string& path, const train::Manifest& manifest) {
  const std::int64_t bytes = bytes_of(manifest);
  fmt::print("{}\nstep {} · {} in {}, {} · {} a rank\n", path, manifest.step,
             counted(std::ssize(manifest.tensors), "tensor"),
             counted(std::ssize(manifest.files), "file"), format_bytes(bytes),
             counted(manifest.threads, "thread"));
  if (manifest.gpu) fmt::print("  {}\n", printable(to_text(*manifest.gpu)));
  for (const train::KeyChange& change : manifest.changes)
    fmt::print("  {}\n", printable(to_text(change)));
  if (manifest.beginning) fmt::print("  began with {}\n", printable(to_text(*manifest.beginning)));
  for (const auto& tensor : manifest.tensors) {
    fmt::print("  {:<52} {} [{}]\n", printable(tensor.name), printable(tensor.type),
               fmt::join(tensor.shape, ", "));
  }
}

void add_list(CLI::App& checkpoint, Chosen& chosen) {
  CLI::App* command = checkpoint.add_subcommand(
      "list", "list the checkpoints of a run by their manifests, oldest first");
  const auto run = std::make_shared<std::string>();
  const auto json = std::make_shared<bool>(false);
  command->add_option("run", *run, "run directory")->required();
  command->add_flag("--json", *json, "print a JSON line for each");
  command->callback([=, &chosen] {
    chosen.action = [=](dist::Session& session) {
      expect_one_rank(session, "checkpoint list");
      ExitCode code = ExitCode::Done;
      for (const auto& summary : train::summarise_checkpoints(*run)) {
        fmt::print("{}\n", *json ? json_text(train::to_json(summary)) : train::to_text(summary));
        if (!summary.wrong.empty()) code = ExitCode::Data;
      }
      return code;
    };
  });
}

// Beyond the elements of the largest tensor there is a file for nothing but names.
void expect_content_for(std::int64_t ranks, const train::Manifest& manifest) {
  std::int64_t most = 1;
  for (const train::GlobalTensor& tensor : manifest.tensors) {
    std::int64_t elements = 1;
    // More than any number of ranks is enough to know.
    for (const std::int64_t size : tensor.shape)
      elements = elements > ranks ? elements : elements * std::min(size, ranks + 1);
    most = std::max(most, elements);
  }
  if (ranks <= most) return;
  throw ConfigError("--ranks", std::to_string(ranks),
                    fmt::format("is more than the {} of the largest tensor: some files would hold "
                                "nothing; give {} at most",
                                counted(most, "element"), most));
}

void add_reshard(CLI::App& checkpoint, Chosen& chosen) {
  struct Options {
    std::string source;
    std::string target;
    std::int64_t ranks = 1;
  };
  CLI::App* command = checkpoint.add_subcommand(
      "reshard", "write a checkpoint again in another number of files, with the same bits");
  const auto options = std::make_shared<Options>();
  command->add_option("source", options->source, "checkpoint, or run directory (its newest)")
      ->required();
  command
      ->add_option("target", options->target,
                   "run directory to write it into, made where it is missing")
      ->required();
  constexpr std::int64_t most_ranks = 1 << 16;
  command->add_option("--ranks", options->ranks, "files, as so many data ranks write them")
      ->required()
      ->check(CLI::Range(std::int64_t{1}, most_ranks));
  command->callback([=, &chosen] {
    chosen.action = [=](dist::Session& session) {
      expect_one_rank(session, "checkpoint reshard");
      const std::string folder = resolve(options->source);
      const train::Manifest manifest = train::verify_checkpoint(folder);
      expect_content_for(options->ranks, manifest);
      Progress bar("reshard", bytes_of(manifest));
      const std::string written = train::reshard_checkpoint(
          folder, manifest, options->target, static_cast<int>(options->ranks),
          [&](std::int64_t bytes) { bar.advance_to(bytes); });
      bar.clear();
      train::verify_checkpoint(written);
      fmt::print("step {} of {} files written to {} in {}\n", manifest.step, manifest.files.size(),
                 written, options->ranks);
      return ExitCode::Done;
    };
  });
}

void add_inspect(CLI::App& checkpoint, Chosen& chosen) {
  CLI::App* command = checkpoint.add_subcommand("inspect", "say what a checkpoint holds");
  const auto path = std::make_shared<std::string>();
  command->add_option("path", *path, "checkpoint, or run directory (its newest)")->required();
  command->callback([=, &chosen] {
    chosen.action = [=](dist::Session& session) {
      expect_one_rank(session, "checkpoint inspect");
      const std::string folder = resolve(*path);
      print_manifest(folder, train::read_manifest(folder));
      return ExitCode::Done;
    };
  });
}

void add_verify(CLI::App& checkpoint, Chosen& chosen) {
  CLI::App* command = checkpoint.add_subcommand(
      "verify", "hash every file of a checkpoint (of a run: of all of them)");
  const auto path = std::make_shared<std::string>();
  command->add_option("path", *path, "checkpoint or run directory")->required();
  command->callback([=, &chosen] {
    chosen.action = [=](dist::Session& session) {
      expect_one_rank(session, "checkpoint verify");
      std::vector<std::string> folders;
      for (const std::int64_t step : train::list_checkpoints(*path)) {
        folders.push_back(train::checkpoint_path(*path, step));
      }
      if (folders.empty()) folders.push_back(resolve(*path));
      ExitCode code = ExitCode::Done;
      for (const auto& folder : folders) {
        // All are looked at, whatever is wrong with one.
        const train::VerifiedCheckpoint found = train::look_through_checkpoint(folder);
        if (found.wrong.empty()) {
          fmt::print("{}: whole ({})\n", folder, counted(found.files, "file"));
        } else {
          fmt::print(stderr, "garonne: {}\n", printable_message(found.wrong));
          code = ExitCode::Data;
        }
      }
      return code;
    };
  });
}

// The formats of other programs.
constexpr const char* huggingface = "huggingface";

std::string known_formats() {
  return fmt::format("{}, {}", huggingface, fmt::join(train::model_package_names(), ", "));
}

// Of options that are taken from the last one given, the parser does not count the values.
void expect_format_and_folder(const std::string& option, const std::vector<std::string>& given) {
  if (given.size() == 2) return;
  throw ConfigError(option, fmt::format("{}", fmt::join(given, " ")),
                    "wants a format and a folder, as: huggingface DIR");
}

// Throws ConfigError unless it is one; true = of models on fields.
bool is_package(const std::string& option, const std::string& format) {
  if (format == huggingface) return false;
  const std::vector<std::string> names = train::model_package_names();
  if (std::find(names.begin(), names.end(), format) != names.end()) return true;
  throw ConfigError(option, format, "is no known format; known are " + known_formats());
}

struct ExportOptions {
  std::string run;
  std::int64_t step = -1;
  std::vector<std::string> to;
  std::string tokenizer;
};

void export_model(const ExportOptions& options) {
  expect_format_and_folder("--to", options.to);
  const std::string& format = options.to[0];
  const std::string& folder = options.to[1];
  const bool package = is_package("--to", format);
  const std::string kind = train::run_directory_config(options.run).model.kind;
  train::expect_model_of(package ? train::fields_kind() : train::text_kind(), kind, "--to", format);
  if (package && !options.tokenizer.empty())
    train::expect_model_of(train::text_kind(), kind, "--tokenizer", options.tokenizer);
  const train::StoredModel stored = train::open_stored_model(
      options.run, options.step,
      [](const std::string& text) { fmt::print(stderr, "warning: {}\n", text); });
  if (package) {
    train::export_to_package(format, stored, folder);
    fmt::print("step {} written to {} (model.safetensors and config.json)\n", stored.step, folder);
    return;
  }
  const train::DataFacts& facts = stored.setup.facts;
  const std::unique_ptr<data::Tokenizer> tokenizer =
      train::tokenizer_of_run(options.run, facts.tokenizer, options.tokenizer);
  if (!options.tokenizer.empty()) {
    train::expect_tokenizer_fits(
        *tokenizer, std::max(stored.config.model.vocabulary, facts.vocabulary), options.tokenizer);
    const std::string warning =
        train::other_tokenizer_warning(*tokenizer, options.run, facts.tokenizer, options.tokenizer);
    if (!warning.empty()) fmt::print(stderr, "warning: {}\n", warning);
  }
  const auto [left_out, removed] = train::export_huggingface(stored, tokenizer.get(), folder);
  if (!removed.empty())
    fmt::print("note: removed what an earlier export wrote: {}\n", fmt::join(removed, ", "));
  if (!left_out.empty()) {
    fmt::print(
        "note: tokenizer.json is without the {} of the model's tokenizer: AutoTokenizer puts "
        "no tokens around a text, as training here puts none\n",
        printable(left_out));
  }
  if (tokenizer != nullptr && !tokenizer->transformers_difference().empty()) {
    fmt::print("note: {} of transformers {}\n", tokenizer->transformers_class(),
               tokenizer->transformers_difference());
  }
  fmt::print("step {} written to {} (model.safetensors, config.json, generation_config.json{})\n",
             stored.step, folder,
             tokenizer ? fmt::format(", tokenizer_config.json and {}",
                                     data::huggingface_tokenizer(*tokenizer).name)
                       : "; no tokenizer: the data of the run name none that is known here, "
                         "--tokenizer FILE adds one");
}

void add_export(CLI::App& checkpoint, Chosen& chosen) {
  CLI::App* command =
      checkpoint.add_subcommand("export", "write a model in another program's format");
  const auto options = std::make_shared<ExportOptions>();
  command->add_option("run", options->run, "run directory")->required();
  command
      ->add_option("--step", options->step,
                   "a saved step; 0 = what the run began with [the newest checkpoint]")
      ->check(count(0, most_steps));
  command
      ->add_option("--to", options->to,
                   fmt::format("format and folder, as: huggingface DIR; {}", known_formats()))
      ->required()
      ->option_text("FORMAT DIR")
      ->expected(2);
  command
      ->add_option("--tokenizer", options->tokenizer,
                   "to write beside the model, in the place of the run's own")
      ->type_name("FILE");
  command->callback([=, &chosen] {
    chosen.action = [=](dist::Session& session) {
      expect_one_rank(session, "checkpoint export");
      export_model(*options);
      return ExitCode::Done;
    };
  });
}

void expect_empty(const std::string& output) {
  std::error_code error;
  if (std::filesystem::exists(output, error) && !std::filesystem::is_empty(output, error))
    throw ConfigError("--output", output, "is there already and not empty");
}

// Makes a run directory at step 0 of the model, to be evaluated or trained on from.
void save_imported(const RunConfig& config, const train::TrainedModel& made,
                   const nlohmann::json& data, const data::Tokenizer* tokenizer) {
  const std::string& output = config.run.directory;
  train::prepare_run_directory(config);
  if (tokenizer != nullptr) train::save_tokenizer(output, *tokenizer);
  train::Manifest manifest;
  manifest.config = config_to_toml(config);
  manifest.threads = 1;
  manifest.products = nlohmann::json::object();
  manifest.data = data;
  train::save_checkpoint(output, made.setup.model, {}, made.state, manifest,
                         train::CollectivePhases());
}

// Lines of [model] of a run file: of the keys that `wanted` picks, with their values.
std::string model_keys_text(const RunConfig& config,
                            const std::function<bool(const std::string& line)>& wanted) {
  const std::string toml = config_to_toml(config);
  std::string lines;
  bool inside = false;
  std::size_t begin = 0;
  while (begin < toml.size()) {
    const std::size_t end = std::min(toml.find('\n', begin), toml.size());
    const std::string line = toml.substr(begin, end - begin);
    begin = end + 1;
    if (line.rfind('[', 0) == 0) inside = line == "[model]";
    if (inside && !line.empty() && (line[0] == '[' || wanted(line))) lines += "  " + line + "\n";
  }
  return lines;
}

// The keys that are not at their default.
std::string changed_model_keys(const RunConfig& config) {
  const std::string defaults = config_to_toml(RunConfig());
  return model_keys_text(config, [&](const std::string& line) {
    return defaults.find(line + "\n") == std::string::npos;
  });
}

// All keys of its kind, which is what another run of this model needs.
std::string all_model_keys(const RunConfig& config) {
  const std::vector<std::string>& keys = nn::model_kind(config.model.kind).keys;
  return model_keys_text(config, [&](const std::string& line) {
    const std::string key = line.substr(0, line.find(' '));
    return key == "kind" || std::find(keys.begin(), keys.end(), key) != keys.end();
  });
}

void import_huggingface_model(const std::string& from, const std::string& output,
                              dist::Session& session) {
  RunConfig config;
  config.model = train::huggingface_model_keys(from);
  config.run.directory = output;
  // Weights need none: texts can be given as ids, and another tokenizer beside them.
  const auto [tokenizer, refused] = train::tokenizer_of_folder(from);
  if (!refused.empty()) {
    fmt::print(stderr,
               "warning: the model is imported without its tokenizer: {}\n"
               "`eval --generate` takes ids of tokens with --ids, or another tokenizer with "
               "--tokenizer, as does `checkpoint export`\n",
               refused);
  }
  train::DataFacts facts;
  facts.vocabulary = config.model.vocabulary;
  if (tokenizer) facts.tokenizer = tokenizer->name();
  facts.marks = train::huggingface_marks(
      from, config.model.vocabulary,
      [](const std::string& text) { fmt::print(stderr, "warning: {}\n", text); });
  const train::TrainedModel made = train::initial_model(config, facts, session);
  train::import_huggingface(from, config.model, made.setup.model, made.state);
  nlohmann::json data = {{"path", ""},
                         {"tokens", 0},
                         {"vocabulary", facts.vocabulary},
                         {"tokenizer", facts.tokenizer}};
  const nlohmann::ordered_json marks = train::to_json(facts.marks);
  for (const auto& [key, ids] : marks.items()) {
    if (!ids.is_null()) data[key] = ids;
  }
  save_imported(config, made, data, tokenizer.get());
  fmt::print("{0} written, of a model with\n{1}train from it with these keys and --init-from {2}\n",
             train::checkpoint_path(output, 0), all_model_keys(config), output);
}

// The run file says where the data are, which say how many points and channels there are; its
// [model] is that of the package's file.
void import_package_model(const std::string& format, const std::string& from, RunConfig config,
                          const std::string& output, dist::Session& session) {
  // As a key of the model that the run file may name and that is not looked at.
  config.model = RunConfig().model;
  config.model.kind = "fno";
  config.run.directory = output;
  config.grid = RunConfig::GridKeys();
  const std::unique_ptr<train::Workload> workload =
      train::fields_kind().open(config, "data.validation");
  const train::DataFacts& facts = workload->facts();
  config.model = train::package_model_keys(format, from, facts.fields);
  const train::TrainedModel made = train::initial_model(config, facts, session);
  train::import_from_package(format, config.model, from, made.setup.model, made.state);
  save_imported(config, made, workload->manifest(), nullptr);
  fmt::print("{0} written, of a model with\n{1}train from it with these keys and --init-from {0}\n",
             train::checkpoint_path(output, 0), changed_model_keys(config));
}

void add_import(CLI::App& checkpoint, Chosen& chosen) {
  struct Options {
    std::vector<std::string> from;
    std::string output;
    std::string config;
  };
  CLI::App* command = checkpoint.add_subcommand(
      "import", "make a checkpoint of a model in another program's format");
  const auto options = std::make_shared<Options>();
  command
      ->add_option("--from", options->from,
                   fmt::format("format and folder, as: huggingface DIR; {}", known_formats()))
      ->required()
      ->option_text("FORMAT DIR")
      ->expected(2);
  command->add_option("--output", options->output, "run directory to make")
      ->type_name("DIR")
      ->required();
  command
      ->add_option("--config", options->config,
                   "models on fields: run file (TOML) of the data; its [model] is not looked at")
      ->type_name("FILE");
  command->callback([=, &chosen] {
    chosen.action = [=](dist::Session& session) {
      expect_one_rank(session, "checkpoint import");
      expect_format_and_folder("--from", options->from);
      const std::string& format = options->from[0];
      const bool package = is_package("--from", format);
      if (package == options->config.empty()) {
        throw ConfigError("--config", options->config,
                          package ? "is needed: a run file, whose data say how many points and "
                                    "channels the model has"
                                  : "is for models on fields; leave it out");
      }
      expect_empty(options->output);
      if (package) {
        import_package_model(format, options->from[1],
                             load_config(options->config, {}, train::config_choices()),
                             options->output, session);
      } else {
        import_huggingface_model(options->from[1], options->output, session);
      }
      return ExitCode::Done;
    };
  });
}

}  // namespace

void add_checkpoint(CLI::App& app, Chosen& chosen) {
  CLI::App* command =
      app.add_subcommand("checkpoint", "look at, check, cut, export and import checkpoints");
  command->require_subcommand(1);
  add_list(*command, chosen);
  add_inspect(*command, chosen);
  add_verify(*command, chosen);
  add_reshard(*command, chosen);
  add_export(*command, chosen);
  add_import(*command, chosen);
}

}  // namespace garonne::apps
