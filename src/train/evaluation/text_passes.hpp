// The logits that follow a text which grows, by forward-only Programs within the budget.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dist/session.hpp"
#include "exec/executor.hpp"
#include "nn/decoding.hpp"
#include "plan/program/program.hpp"
#include "train/evaluation/parameter_placement.hpp"
#include "train/setup/planning.hpp"

namespace garonne::train {

// With keys and values kept: the prompt in one pass, then one position a pass. They take
// layers · 2 · positions · heads of keys · head size numbers of the compute type, less by what
// other stages and tensor ranks have, and are counted in every Program. Without, and where a text
// is longer than model.sequence, whose last so many tokens then begin at position 0, each token is
// a pass over all of it.
class TextPasses {
 public:
  // For texts that begin with one prompt of so many tokens and have `longest` before their last
  // token. Keys and values are kept where that saves passes and fits the budget on all ranks. What
  // `resources` name outlives this. Throws PlanError, agreed, where not even whole passes fit.
  // Collective over all ranks.
  TextPasses(const Setup& setup, const exec::RankResources& resources,
             const ParameterPlacement& placement, std::int64_t budget_bytes, std::int64_t prompt,
             std::int64_t longest, dist::Session& session);
  ~TextPasses();
  TextPasses(const TextPasses&) = delete;
  TextPasses& operator=(const TextPasses&) = delete;

  // Of all tokens of the model and padding behind them, after the last token of `text`; on the
  // ranks of other stages than the last nothing. A text goes on by one token from call to call, or
  // begins anew as the prompt. Collective over the ranks of one data rank.
  std::vector<double> logits_after(const std::vector<std::uint32_t>& text);

  // How, for people: "keys and values of 40 positions are kept in 96 KiB".
  const std::string& description() const { return description_; }
  // The largest of all ranks; 0 = none are kept.
  std::int64_t kept_bytes() const { return kept_bytes_; }
  std::int64_t planned_peak_bytes() const { return planned_peak_bytes_; }
  // Of this rank, so far.
  std::int64_t peak_bytes() const { return peak_bytes_; }

 private:
  struct Pass;

  bool plan_keeping(std::int64_t prompt, std::int64_t longest, dist::Session& session);
  void plan_whole(std::int64_t longest, dist::Session& session);
  void make_kept();
  std::unique_ptr<Pass> plan_pass(std::int64_t rows, std::int64_t kept_positions);
  void add_kept_buffers(Setup& setup) const;
  std::vector<double> run(Pass& pass, const std::vector<std::uint32_t>& text, std::size_t first,
                          std::size_t position);

  const Setup& setup_;
  exec::RankResources resources_;
  const ParameterPlacement& placement_;
  std::int64_t budget_bytes_;
  int rank_;
  std::shared_ptr<nn::Decoding> decoding_ = std::make_shared<nn::Decoding>();
  // Names of what of decoding_->kept is this stage's.
  std::vector<std::string> kept_here_;
  std::unique_ptr<Pass> whole_;   // of all that a text can be
  std::unique_ptr<Pass> prompt_;  // of the prompt, where that has several tokens
  std::unique_ptr<Pass> next_;    // of one position; null where nothing is kept
  std::size_t prompt_tokens_ = 0;
  std::vector<std::uint32_t> known_;  // tokens whose keys and values are kept
  std::vector<double> after_prompt_;
  std::string description_;
  std::int64_t kept_bytes_ = 0;
  std::int64_t planned_peak_bytes_ = 0;
  std::int64_t peak_bytes_ = 0;
};

}  // namespace garonne::train
