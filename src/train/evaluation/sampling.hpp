// Which token comes next, by the logits of a model.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/philox.hpp"

namespace garonne::train {

// Applied in this order, as transformers does.
struct Sampling {
  // Logits of tokens that were there before are divided by it where they are above 0, else
  // multiplied (Keskar et al. 2019); 1 = no difference.
  double repetition_penalty = 1.0;
  double temperature = 0.8;  // 0 = the most likely token, of equals the first
  std::int64_t top_k = 0;    // of the likeliest only; 0 = of all
  // Of the fewest likeliest tokens that are this likely together (Holtzman et al. 2020); 1 = of
  // all.
  double top_p = 1.0;
};

// `before`: the tokens before, which a penalty is for. `random`: a word of [0, 2^32) that decides.
std::uint32_t choose_token(std::span<const double> logits, const Sampling& sampling,
                           std::span<const std::uint32_t> before, std::uint32_t random);

}  // namespace garonne::train
