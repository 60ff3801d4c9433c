// How good an ensemble of forecasts is: the continuous ranked probability score, spread beside
// error, and ranks of the truth. No model, no file: numbers in, numbers out.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "train/evaluation/skill.hpp"

namespace garonne::train {

// Of one field; means are weighted, over the points where the truth has values.
struct EnsembleSkill {
  std::int64_t points = 0;  // those; where there are none the rest means nothing
  // Fair CRPS (Ferro 2014, "Fair scores for ensemble forecasts"): mean over members of |x − y| less
  // half the mean of |x − x'| over pairs of different members. In expectation that of endlessly
  // many members.
  double crps = 0;
  double variance = 0;        // mean of the unbiased variance of the members
  double squared_error = 0;   // of the mean of the members
  std::vector<double> ranks;  // [members + 1]: share of points with so many members below the
                              // truth, of those as large half
};

// Members, at least two, and truth all [points…], first axis as the weights'.
EnsembleSkill ensemble_skill(std::span<const std::span<const float>> members,
                             std::span<const float> truth, const Weighting& weighting);

// By lead and channel, over samples that are added one by one.
class EnsembleTable {
 public:
  EnsembleTable(std::size_t leads, std::size_t channels, std::size_t members);
  void add(std::size_t lead, std::size_t channel, const EnsembleSkill& skill);

  // All [leads, channels]; NaN where nothing was added.
  std::vector<double> crps() const;
  std::vector<double> spread() const;  // root of the mean variance
  // √((members + 1) / members) · spread / RMSE of the mean: 1 where the truth could be a member.
  std::vector<double> spread_skill_ratio() const;
  std::vector<double> ranks() const;  // [leads, channels, members + 1], mean shares

 private:
  std::size_t channels_;
  std::size_t members_;
  std::vector<EnsembleSkill> sums_;
  std::vector<std::int64_t> counts_;
};

}  // namespace garonne::train
