// Texts to tokens of a byte-level BPE, block by block and by several threads, as if each text were
// encoded as a whole.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/tokenizers/added_tokens.hpp"
#include "data/tokenizers/merge_table.hpp"
#include "data/tokenizers/pattern.hpp"
#include "data/tokenizers/tokenizer.hpp"

namespace garonne::data {

// What all encoders of a tokenizer share.
struct BpeRules {
  struct Split {
    Pattern pattern;
    bool keeps_rest = true;
  };
  std::vector<Split> splits;
  bool leading_space = false;
  bool normal_form_c = false;
  AddedTokenSearch added;             // in the text as it comes
  AddedTokenSearch normalised_added;  // in its normal form
  MergeTable merges;
};

// Cuts text into words and encodes them; for one thread.
class WordEncoder {
 public:
  explicit WordEncoder(const BpeRules& rules);

  // Where the piece of `text` that begins at `from` ends, by the first of the splits. Nothing where
  // text that follows may move its end. A piece depends on nothing before it, so that any two ways
  // through a text that meet at one place go on alike.
  std::optional<std::size_t> end_of_piece(std::string_view text, std::size_t from, bool complete);
  // Appends the tokens of a piece as end_of_piece has found it last.
  void encode_piece(std::string_view piece, std::vector<std::uint32_t>& tokens);

 private:
  void encode_within(std::string_view piece, std::size_t split, std::vector<std::uint32_t>& tokens);

  const BpeRules* rules_;
  std::vector<PatternMatcher> matchers_;
  WordCache cache_;
  bool kept_ = true;  // whether the piece found last is a word
};

class BpeEncoder final : public TokenEncoder {
 public:
  BpeEncoder(const BpeRules& rules, int threads);

  void add(std::span<const std::byte> block, std::vector<std::uint32_t>& tokens) override;
  void finish(std::vector<std::uint32_t>& tokens) override;

 private:
  // Text between two added tokens, in normal form.
  struct Run {
    std::string text;
    bool started = false;                // the space that leads it has been seen to
    bool complete = false;               // nothing more of it follows
    std::optional<std::uint32_t> token;  // the added token behind it
  };
  // A part of a run that one thread encodes, perhaps from the midst of a piece on.
  struct Job {
    const Run* run = nullptr;
    std::size_t begin = 0;
    std::size_t end = 0;
    std::size_t stopped = 0;  // where the piece begins that was not encoded
    std::vector<std::uint32_t> tokens;
    // Ends of the first pieces, and how many tokens there were.
    std::vector<std::pair<std::size_t, std::size_t>> marks;
  };

  void encode(bool text_ends, std::vector<std::uint32_t>& tokens);
  void read_runs(bool text_ends);
  void normalise(std::string_view text, bool complete);
  void close_run(std::uint32_t token);
  std::vector<Job> make_jobs() const;
  void work(std::vector<Job>& jobs);
  void encode_job(Job& job, WordEncoder& words) const;
  std::size_t join(std::span<Job> jobs, std::vector<std::uint32_t>& tokens);

  const BpeRules& rules_;
  std::vector<WordEncoder> workers_;
  std::string cut_;       // bytes of a character that is not complete
  std::string text_;      // in which added tokens have not been looked for
  std::string normal_;    // nor those of the normal form
  std::deque<Run> runs_;  // the last one goes on
};

}  // namespace garonne::data
