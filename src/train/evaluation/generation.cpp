#include "train/evaluation/generation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "base/philox.hpp"
#include "train/evaluation/text_passes.hpp"

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

std::vector<std::uint32_t> tokens_of_prompt(const data::Tokenizer* given, const TextMarks& marks,
                                            const Generation& generation) {
  if (!generation.prompt_ids.empty()) return generation.prompt_ids;
  expect(given != nullptr, "a prompt of text needs a tokenizer");
  const data::Tokenizer& tokenizer = *given;
  std::vector<std::uint32_t> tokens = tokenizer.encode(generation.prompt);
  if (generation.begins) {
    if (!marks.begin) {
      throw ConfigError("--begin", "",
                        fmt::format("puts a token in front that begins texts, and {} has none; "
                                    "leave it out",
                                    tokenizer.name()));
    }
    tokens.insert(tokens.begin(), *marks.begin);
  }
  if (!tokens.empty()) return tokens;
  // Something has to be continued; what comes before a text, or a line break, says least.
  if (marks.begin) return {*marks.begin};
  if (!marks.ends.empty()) return {marks.ends.front()};
  tokens = tokenizer.encode("\n");
  if (!tokens.empty()) return tokens;
  throw ConfigError(generation.prompt_key, generation.prompt,
                    fmt::format("is no token of {}, which has none that begins or ends a text "
                                "either; give a word at least, or ids of tokens with --ids",
                                tokenizer.name()));
}

std::int64_t vocabulary_of(const Setup& setup) {
  return std::max(setup.config.model.vocabulary, setup.facts.vocabulary);
}

void expect_known(const std::vector<std::uint32_t>& prompt, const Generation& generation,
                  std::int64_t vocabulary) {
  for (const std::uint32_t token : prompt) {
    if (static_cast<std::int64_t>(token) < vocabulary) continue;
    throw ConfigError(
        generation.prompt_key, "",
        fmt::format("the prompt has the token {}, which is outside the model's vocabulary of {}{}",
                    token, vocabulary,
                    generation.prompt_ids.empty() ? ": the tokenizer is not the model's" : ""));
  }
}

bool is_end(const TextMarks& marks, std::uint32_t token) {
  return std::find(marks.ends.begin(), marks.ends.end(), token) != marks.ends.end();
}

std::string bytes_of(const std::vector<std::uint32_t>& ids) {
  return {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(std::uint32_t)};
}

std::vector<std::uint32_t> ids_of(const std::string& bytes) {
  std::vector<std::uint32_t> ids(bytes.size() / sizeof(std::uint32_t));
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(ids.data()));
  return ids;
}

// A continuation as it grows.
class Continuation {
 public:
  // `absent`: tokens that are not chosen.
  Continuation(const Generation& generation, const data::Tokenizer* tokenizer,
               const TextMarks& marks, const std::vector<std::uint32_t>& absent,
               std::vector<std::uint32_t> prompt, std::int64_t number)
      : generation_(generation),
        tokenizer_(generation.prompt_ids.empty() ? tokenizer : nullptr),
        marks_(marks),
        absent_(absent),
        key_(philox_key(generation.seed, "generate", static_cast<std::uint64_t>(number))),
        prompt_tokens_(prompt.size()),
        tokens_(std::move(prompt)),
        ended_(number >= generation.continuations || generation.tokens == 0) {}

  bool ended() const { return ended_; }
  const std::vector<std::uint32_t>& tokens() const { return tokens_; }
  std::int64_t made() const { return static_cast<std::int64_t>(tokens_.size() - prompt_tokens_); }
  const std::string& written() const { return written_; }
  std::vector<std::uint32_t> ids() const {
    return {tokens_.begin() + static_cast<std::ptrdiff_t>(prompt_tokens_), tokens_.end()};
  }

  std::uint32_t choose(std::vector<double> logits, std::size_t vocabulary) const {
    logits.resize(vocabulary);
    for (const std::uint32_t token : absent_)
      logits[token] = -std::numeric_limits<double>::infinity();
    const auto number = static_cast<std::uint64_t>(made());
    const std::uint32_t random = philox_at(key_, 0, 0, number).word[0];
    return choose_token(logits, generation_.sampling, tokens_, random);
  }

  void add(std::uint32_t token) {
    tokens_.push_back(token);
    ended_ = made() == generation_.tokens;
    if (is_end(marks_, token)) {
      ended_ = true;
      return;
    }
    if (tokenizer_ == nullptr) return;
    written_ += tokenizer_->decode(std::span(&token, 1));
    if (cut_at_stop(generation_.stop_texts, written_)) ended_ = true;
  }

 private:
  const Generation& generation_;
  const data::Tokenizer* tokenizer_;  // null where no text is written
  const TextMarks& marks_;
  const std::vector<std::uint32_t>& absent_;
  PhiloxKey key_;
  std::size_t prompt_tokens_;
  std::vector<std::uint32_t> tokens_;
  std::string written_;
  bool ended_;
};

}  // namespace

std::vector<std::uint32_t> prompt_of(const Setup& setup, const Generation& generation,
                                     const data::Tokenizer* tokenizer) {
  std::vector<std::uint32_t> prompt =
      tokens_of_prompt(tokenizer, marks_of(setup.facts.marks, tokenizer), generation);
  expect_known(prompt, generation, vocabulary_of(setup));
  return prompt;
}

Generated generate(const Setup& setup, const Generation& generation,
                   const data::Tokenizer* tokenizer, const exec::RankResources& resources,
                   const ParameterPlacement& placement, std::int64_t budget_bytes,
                   dist::Session& session, const std::function<void(const std::string&)>& say) {
  const auto start = std::chrono::steady_clock::now();
  const TextMarks marks = marks_of(setup.facts.marks, tokenizer);
  std::vector<std::uint32_t> prompt;
  session.agree([&] { prompt = prompt_of(setup, generation, tokenizer); });
  const auto prompt_tokens = static_cast<std::int64_t>(prompt.size());
  TextPasses passes(setup, resources, placement, budget_bytes, prompt_tokens,
                    prompt_tokens + std::max<std::int64_t>(generation.tokens, 1) - 1, session);
  say(passes.description());
  // The table of a rank may have padding behind.
  const auto vocabulary = static_cast<std::size_t>(vocabulary_of(setup));
  // A model has logits for ids that stand for nothing in the tokenizer, too; an end needs no text.
  std::vector<std::uint32_t> absent;
  for (std::uint32_t token = 0; tokenizer != nullptr && token < vocabulary; ++token) {
    if (!tokenizer->has(token) && !is_end(marks, token)) absent.push_back(token);
  }
  const Coordinates mine = setup.grid.coordinates_of(session.rank());
  const int data_ranks = setup.grid.shape().data;
  const int last_stage = stage_with_loss(setup);
  // Where the token of a data rank is chosen, from which all others have it.
  const auto chooser = [&](int data) {
    return static_cast<std::size_t>(setup.grid.rank_of({data, last_stage, 0}));
  };
  constexpr std::int64_t none = -1;
  Generated result;
  std::int64_t made = 0;
  for (std::int64_t first = 0; first < generation.continuations; first += data_ranks) {
    Continuation text(generation, tokenizer, marks, absent, prompt, first + mine.data);
    for (;;) {
      std::int64_t token = none;
      if (!text.ended()) {
        std::vector<double> logits = passes.logits_after(text.tokens());
        if (!logits.empty()) token = text.choose(std::move(logits), vocabulary);
      }
      // All ranks meet until the last text of these is done.
      const std::vector<std::int64_t> all = session.all_gather(std::vector{token});
      bool any = false;
      for (int data = 0; data < data_ranks; ++data) any = any || all[chooser(data)] != none;
      if (!any) break;
      if (!text.ended()) text.add(static_cast<std::uint32_t>(all[chooser(mine.data)]));
    }
    const bool tells = mine.pipeline == 0 && mine.tensor == 0;
    if (tells) made += text.made();
    const std::vector<std::string> texts = session.gather(tells ? text.written() : std::string());
    const std::vector<std::string> ids =
        session.gather(tells ? bytes_of(text.ids()) : std::string());
    if (session.rank() != 0) continue;
    for (int data = 0; data < data_ranks && first + data < generation.continuations; ++data) {
      const auto rank = static_cast<std::size_t>(setup.grid.rank_of({data, 0, 0}));
      result.texts.push_back(texts[rank]);
      result.ids.push_back(ids_of(ids[rank]));
      const std::vector<std::uint32_t>& own = result.ids.back();
      if (!own.empty() && is_end(marks, own.back())) ++result.ended;
    }
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  result.tokens = session.all_reduce_sum(std::vector{made})[0];
  result.kept_bytes = passes.kept_bytes();
  result.planned_peak_bytes = passes.planned_peak_bytes();
  result.peak_bytes = session.all_reduce_max(std::vector{passes.peak_bytes()})[0];
  return result;
}

}  // namespace garonne::train
