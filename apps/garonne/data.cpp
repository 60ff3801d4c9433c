#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json_output.hpp"
#include "command.hpp"
#include "counts.hpp"
#include "data/sample_order.hpp"
#include "data/tokens/text_converter.hpp"
#include "data/tokens/token_file.hpp"
#include "data/tokens/token_stream.hpp"
#include "train/workload/text_workload.hpp"
#include "train/workload/workload_kind.hpp"

namespace garonne::apps {
namespace {

void add_text(CLI::App& data, Chosen& chosen) {
  CLI::App* command =
      data.add_subcommand("text", "turn plain text files into a tokens file (HDF5)");
  const auto conversion = std::make_shared<data::TextConversion>();
  command->add_option("inputs", conversion->inputs, "text files to train on")->required();
  command
      ->add_option("--validation", conversion->validation_inputs,
                   "whole text files set aside for validation")
      ->type_name("FILE");
  command->add_option("--output", conversion->output, "tokens file to write")
      ->type_name("FILE")
      ->required();
  command
      ->add_option("--tokenizer", conversion->tokenizer,
                   "how text becomes tokens: byte, a tokenizer.json of Hugging Face, GPT-2's "
                   "vocab.json with merges.txt beside it, or a .model of SentencePiece")
      ->option_text("byte | FILE");
  command->add_option("--threads", conversion->threads, "that encode [one a core]")
      ->check(count(1, 1024));
  command->callback([=, &chosen] {
    chosen.action = [=](dist::Session& session) {
      expect_one_rank(session, "data text");
      const std::string replaced = data::tokens_at(conversion->output);
      std::vector<std::string> notes;
      conversion->note = [&](const std::string& note) { notes.push_back(note); };
      fmt::print("{}", data::describe(data::convert_text(*conversion)));
      for (const std::string& note : notes) fmt::print("  note        {}\n", note);
      if (!replaced.empty()) fmt::print("  replaced    {}\n", replaced);
      return ExitCode::Done;
    };
  });
}

void add_batch(CLI::App& data, Chosen& chosen) {
  CLI::App* command = data.add_subcommand("batch", "print the global batch of a step");
  const auto config = add_config_options(*command);
  const auto step = std::make_shared<std::int64_t>(1);
  const auto json = std::make_shared<bool>(false);
  command->add_option("--step", *step, "which step, from 1")->check(count())->capture_default_str();
  command->add_flag("--json", *json, "print samples, tokens and targets as JSON");
  command->callback([=, &chosen] {
    chosen.action = [=](dist::Session& session) {
      expect_one_rank(session, "data batch");
      const RunConfig loaded = config->load();
      if (&train::workload_kind(loaded.model.kind) != &train::text_kind()) {
        throw ConfigError("model.kind", loaded.model.kind,
                          "learns from fields; `data batch` prints tokens, of models of text");
      }
      const data::TokenSamples training = train::training_samples(loaded);
      const std::int64_t sequence = loaded.model.sequence;
      const data::SampleOrder order(training.samples(),
                                    static_cast<std::uint64_t>(loaded.train.seed),
                                    data::shuffle_block(sequence));
      const auto samples = order.step_samples(*step, loaded.train.global_batch);
      if (!*json) {
        fmt::print("step {}: samples {}\n", *step, fmt::join(samples, " "));
        return ExitCode::Done;
      }
      const data::MicroBatch batch = data::read_micro_batch(training, samples);
      nlohmann::ordered_json tokens = nlohmann::ordered_json::array();
      nlohmann::ordered_json targets = nlohmann::ordered_json::array();
      for (std::size_t i = 0; i < samples.size(); ++i) {
        const auto first = static_cast<std::ptrdiff_t>(i) * sequence;
        tokens.push_back(std::vector<std::int64_t>(batch.tokens.begin() + first,
                                                   batch.tokens.begin() + first + sequence));
        targets.push_back(std::vector<std::int64_t>(batch.targets.begin() + first,
                                                    batch.targets.begin() + first + sequence));
      }
      const nlohmann::ordered_json result = {{"step", *step},
                                             {"samples", samples},
                                             {"tokens", std::move(tokens)},
                                             {"targets", std::move(targets)}};
      fmt::print("{}\n", json_text(result));
      return ExitCode::Done;
    };
  });
}

}  // namespace

void add_data(CLI::App& app, Chosen& chosen) {
  CLI::App* command = app.add_subcommand("data", "make and look at training data");
  command->require_subcommand(1);
  add_text(*command, chosen);
  add_data_inspect(*command, chosen);
  add_data_statistics(*command, chosen);
  add_batch(*command, chosen);
  add_data_generators(*command, chosen);
}

}  // namespace garonne::apps
