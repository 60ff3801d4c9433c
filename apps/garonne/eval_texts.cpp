#include "eval_texts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <iostream>
#include <iterator>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/file.hpp"
#include "counts.hpp"
#include "train/run/run_tokenizer.hpp"

namespace garonne::apps {
namespace {

constexpr std::int64_t most_prompt_bytes = std::int64_t{1} << 24;

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

// Numbers between blanks, line breaks or commas.
std::vector<std::uint32_t> ids_of(const std::string& prompt) {
  constexpr const char* between = " \t\r\n,";
  std::vector<std::uint32_t> ids;
  for (std::size_t begin = prompt.find_first_not_of(between); begin != std::string::npos;) {
    const std::size_t end = std::min(prompt.find_first_of(between, begin), prompt.size());
    std::uint32_t id = 0;
    const char* const last = prompt.data() + end;
    const auto [parsed, error] = std::from_chars(prompt.data() + begin, last, id);
    if (error != std::errc() || parsed != last) {
      throw ConfigError("--ids", prompt.substr(begin, end - begin),
                        "is no token: the prompt is ids from 0, with blanks or commas between");
    }
    ids.push_back(id);
    begin = prompt.find_first_not_of(between, end);
  }
  if (ids.empty())
    throw ConfigError("--ids", prompt, "wants a prompt of one id at least, as 464 or 464,3290");
  return ids;
}

}  // namespace

TextEvalFlags add_text_options(CLI::App& command, TextEvalOptions& options) {
  train::Generation& generation = options.generation;
  train::Sampling& sampling = generation.sampling;
  const CLI::Option* generate =
      command.add_option("--generate", options.prompt, "continue this text");
  const CLI::Option* from_file =
      command
          .add_option("--generate-from", options.prompt_file,
                      "continue what is in this file; - is the standard input")
          ->option_text("FILE | -")
          ->excludes(command.get_option("--generate"));
  const std::vector<const CLI::Option*> of_generate = {
      command.add_flag("--ids", options.ids,
                       "the prompt is ids of tokens, as 464,3290, and ids are written; needs no "
                       "tokenizer"),
      command
          .add_option("--tokenizer", options.tokenizer,
                      "for --generate, in the place of the run's own: byte, a tokenizer.json, or a "
                      ".model of SentencePiece")
          ->type_name("FILE"),
      command.add_flag("--begin", generation.begins,
                       "put the token that begins texts in front, as <|begin_of_text|>, for models "
                       "that learned so, as Llama 3"),
      command.add_option("--tokens", generation.tokens, "how many tokens to generate")
          ->check(count(0))
          ->capture_default_str(),
      command
          .add_option("--temperature", sampling.temperature, "of sampling; 0 = the likeliest token")
          ->check(CLI::Range(0.0, 100.0))
          ->capture_default_str(),
      command
          .add_option("--top-k", sampling.top_k,
                      "sample from so many of the likeliest tokens [all]")
          ->check(count()),
      command
          .add_option("--top-p", sampling.top_p,
                      "sample from the fewest tokens that are so likely together [1]")
          ->check(CLI::Range(1e-6, 1.0)),
      command
          .add_option("--repetition-penalty", sampling.repetition_penalty,
                      "makes tokens that were there less likely; 1 = no difference")
          ->check(CLI::Range(0.01, 100.0))
          ->capture_default_str(),
      command
          .add_option("--stop", generation.stop_texts,
                      "end a continuation before this text; repeatable")
          ->expected(1)
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll),
      command.add_option("--continuations", generation.continuations, "how many of the same text")
          ->check(count(1, 10000))
          ->capture_default_str(),
      command.add_option("--seed", generation.seed, "of sampling")->capture_default_str(),
  };
  return {{generate, from_file}, of_generate};
}

void check_text_options(const TextEvalOptions& options) {
  if (options.ids && options.generation.begins)
    throw ConfigError("--begin", "", "is of texts; with --ids give its id as the first one");
  for (const std::string& stop : options.generation.stop_texts) {
    if (stop.empty())
      throw ConfigError("--stop", stop, "is empty, as every text begins; leave it out");
    if (options.ids)
      throw ConfigError("--stop", stop, "is a text, and --ids writes none; leave out one of them");
  }
}

TextEval::TextEval(const TextEvalOptions& options, std::string run,
                   const train::TrainedModel& trained, dist::Session& session)
    : ids_(options.ids), generation_(options.generation) {
  session.agree([&] {
    if (session.rank() == 0)
      generation_.prompt =
          options.prompt_file.empty() ? options.prompt : read_prompt(options.prompt_file);
  });
  generation_.prompt = session.broadcast(generation_.prompt);
  if (!options.prompt_file.empty()) generation_.prompt_key = "--generate-from";
  session.agree([&] {
    const train::DataFacts& facts = trained.setup.facts;
    if (ids_) generation_.prompt_ids = ids_of(generation_.prompt);
    tokenizer_ = ids_ ? train::readable_tokenizer_of_run(run, facts.tokenizer, options.tokenizer)
                      : train::tokenizer_of_run(run, facts.tokenizer, options.tokenizer);
    if (!tokenizer_ && !ids_) {
      throw ConfigError("--generate", generation_.prompt,
                        "wants a tokenizer, and the files of tokens that the run was trained on "
                        "name none: give --tokenizer FILE, or ids of tokens with --ids");
    }
    if (!options.tokenizer.empty()) {
      train::expect_tokenizer_fits(*tokenizer_,
                                   std::max(trained.config.model.vocabulary, facts.vocabulary),
                                   options.tokenizer);
      const std::string warning =
          train::other_tokenizer_warning(*tokenizer_, run, facts.tokenizer, options.tokenizer);
      if (!warning.empty() && session.rank() == 0) fmt::print(stderr, "warning: {}\n", warning);
    }
    // Before a validation, which may take long.
    train::prompt_of(trained.setup, generation_, tokenizer_.get());
  });
}

void TextEval::run(const train::Setup& setup, train::TrainedModel& trained, bool quiet,
                   nlohmann::ordered_json& result, dist::Session& session) const {
  const train::Generated made =
      train::generate(setup, generation_, tokenizer_.get(), trained.resources(), trained.placement,
                      trained.budget_bytes, session, [&](const std::string& text) {
                        if (quiet) return;
                        fmt::print("text: {}\n", text);
                        std::fflush(stdout);
                      });
  if (session.rank() != 0) return;
  const double per_second = static_cast<double>(made.tokens) / made.seconds;
  if (ids_) {
    result["prompt_ids"] = generation_.prompt_ids;
    result["generated_ids"] = made.ids.front();
    if (made.ids.size() > 1) result["continuation_ids"] = made.ids;
  } else {
    result["prompt"] = generation_.prompt;
    result["generated"] = made.texts.front();
    if (made.texts.size() > 1) result["continuations"] = made.texts;
  }
  result["generation"] = {
      {"tokens", made.tokens},           {"ended", made.ended},
      {"tokens_per_second", per_second}, {"kept_bytes", made.kept_bytes},
      {"peak_bytes", made.peak_bytes},   {"planned_peak_bytes", made.planned_peak_bytes}};
  if (quiet) return;
  for (std::size_t i = 0; i < made.ids.size(); ++i) {
    if (made.ids.size() > 1) fmt::print("--- {} of {}\n", i + 1, made.ids.size());
    if (ids_) {
      fmt::print("{} {}\n", fmt::join(generation_.prompt_ids, " "), fmt::join(made.ids[i], " "));
    } else {
      fmt::print("{}{}\n", generation_.prompt, made.texts[i]);
    }
  }
  std::string ended;
  if (made.ended > 0 && made.ids.size() == 1) {
    ended = ", which the model ended";
  } else if (made.ended > 0) {
    ended = fmt::format(", {} of {} texts ended by the model", made.ended, made.ids.size());
  }
  fmt::print("{}{} in {:.2f} s, {:.1f} tok/s (peak {} of {} planned)\n",
             counted(made.tokens, "token"), ended, made.seconds, per_second,
             format_bytes(made.peak_bytes), format_bytes(made.planned_peak_bytes));
}

}  // namespace garonne::apps
