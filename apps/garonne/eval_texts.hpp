// The part of `garonne eval` that is about texts.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/tokenizers/tokenizer.hpp"
#include "train/checkpoint/trained_model.hpp"
#include "train/evaluation/generation.hpp"

namespace garonne::apps {

struct TextEvalOptions {
  std::string prompt;
  std::string prompt_file;  // or "-"
  std::string tokenizer;
  bool ids = false;  // of the prompt and of what is written
  train::Generation generation;
};

// The options that say what to continue.
struct TextEvalFlags {
  std::vector<const CLI::Option*> prompts;      // which ask for a text
  std::vector<const CLI::Option*> of_generate;  // which say something of it
};

TextEvalFlags add_text_options(CLI::App& command, TextEvalOptions& options);

// Throws ConfigError for options that are not of texts, before anything is opened.
void check_text_options(const TextEvalOptions& options);

// Everything that a text needs is read and checked on construction, before the work. Collective.
class TextEval {
 public:
  // ConfigError where the prompt cannot be read, where there is no tokenizer for it, and where the
  // one that is given has more tokens than the model. Rank 0 warns of one that is not the model's.
  TextEval(const TextEvalOptions& options, std::string run, const train::TrainedModel& trained,
           dist::Session& session);

  // Continues the prompt by the ranks of the setup's grid; adds what --json shows to `result` and,
  // unless `quiet`, prints, on rank 0. Collective.
  void run(const train::Setup& setup, train::TrainedModel& trained, bool quiet,
           nlohmann::ordered_json& result, dist::Session& session) const;

 private:
  bool ids_;
  train::Generation generation_;
  std::unique_ptr<data::Tokenizer> tokenizer_;  // null: of a prompt of ids
};

}  // namespace garonne::apps
