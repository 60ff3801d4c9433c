#include "train/evaluation/sampling.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"

namespace garonne::train {
namespace {

void penalise(std::span<const std::uint32_t> before, double penalty, std::vector<double>& logits) {
  std::vector<bool> seen(logits.size(), false);
  for (const std::uint32_t token : before) {
    if (token >= logits.size() || seen[token]) continue;
    seen[token] = true;
    logits[token] = logits[token] > 0 ? logits[token] / penalty : logits[token] * penalty;
  }
}

// Takes the weight of all tokens but the likeliest ones.
void keep_likeliest(const Sampling& sampling, std::vector<double>& weights) {
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return weights[a] > weights[b]; });
  std::size_t kept = order.size();
  if (sampling.top_k > 0) kept = std::min(kept, static_cast<std::size_t>(sampling.top_k));
  if (sampling.top_p < 1) {
    double total = 0;
    for (std::size_t i = 0; i < kept; ++i) total += weights[order[i]];
    double sum = 0;
    for (std::size_t i = 0; i < kept; ++i) {
      sum += weights[order[i]];
      if (sum >= sampling.top_p * total) kept = i + 1;
    }
  }
  for (std::size_t i = kept; i < order.size(); ++i) weights[order[i]] = 0;
}

}  // namespace

std::uint32_t choose_token(std::span<const double> given, const Sampling& sampling,
                           std::span<const std::uint32_t> before, std::uint32_t random) {
  expect(!given.empty(), "a token is chosen of none");
  std::vector<double> logits(given.begin(), given.end());
  if (sampling.repetition_penalty != 1) penalise(before, sampling.repetition_penalty, logits);
  const auto greatest = std::max_element(logits.begin(), logits.end());
  if (sampling.temperature == 0) return static_cast<std::uint32_t>(greatest - logits.begin());
  std::vector<double> weights(logits.size());
  for (std::size_t token = 0; token < logits.size(); ++token)
    weights[token] = std::exp((logits[token] - *greatest) / sampling.temperature);
  if (sampling.top_k > 0 || sampling.top_p < 1) keep_likeliest(sampling, weights);
  double total = 0;
  for (const double weight : weights) total += weight;
  double left = total * static_cast<double>(random) / 4294967296.0;
  std::size_t chosen = 0;
  while (chosen + 1 < weights.size() && left >= weights[chosen]) left -= weights[chosen++];
  // Rounding may have walked past the last token that has a weight.
  while (weights[chosen] == 0 && chosen > 0) --chosen;
  return static_cast<std::uint32_t>(chosen);
}

}  // namespace garonne::train
