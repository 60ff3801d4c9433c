#include "train/evaluation/ensemble_skill.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.hpp"

namespace garonne::train {

EnsembleSkill ensemble_skill(std::span<const std::span<const float>> members,
                             std::span<const float> truth, const Weighting& weighting) {
  const std::size_t count = members.size();
  expect(count >= 2, "an ensemble has two members or more");
  for (const auto& member : members) {
    expect(member.size() == truth.size(), "fields of different sizes were compared");
  }
  const auto size = static_cast<double>(count);
  const std::size_t columns = truth.size() / weighting.rows.size();
  EnsembleSkill skill;
  skill.ranks.assign(count + 1, 0.0);
  double weights = 0;
  std::vector<double> values(count);
  for (std::size_t point = 0; point < truth.size(); ++point) {
    const double y = truth[point];
    if (std::isnan(y)) continue;
    const double weight = weighting.rows[point / columns];
    for (std::size_t member = 0; member < count; ++member) values[member] = members[member][point];
    std::sort(values.begin(), values.end());
    double sum = 0;
    double apart = 0;    // Σ |x − y|
    double between = 0;  // Σ |x − x'| over pairs
    for (std::size_t place = 0; place < count; ++place) {
      sum += values[place];
      apart += std::abs(values[place] - y);
      between += (2 * static_cast<double>(place) + 1 - size) * values[place];
    }
    const double mean = sum / size;
    double squares = 0;
    for (const double value : values) squares += (value - mean) * (value - mean);
    ++skill.points;
    weights += weight;
    skill.crps += weight * (apart / size - between / (size * (size - 1)));
    skill.variance += weight * squares / (size - 1);
    skill.squared_error += weight * (mean - y) * (mean - y);
    // Of members that are as large as the truth it is above none and all equally.
    const auto [low, high] = std::equal_range(values.begin(), values.end(), y);
    skill.ranks[static_cast<std::size_t>(low - values.begin())] += weight / 2;
    skill.ranks[static_cast<std::size_t>(high - values.begin())] += weight / 2;
  }
  for (double* mean : {&skill.crps, &skill.variance, &skill.squared_error}) *mean /= weights;
  for (double& rank : skill.ranks) rank /= weights;
  return skill;
}

EnsembleTable::EnsembleTable(std::size_t leads, std::size_t channels, std::size_t members)
    : channels_(channels), members_(members), sums_(leads * channels), counts_(leads * channels) {
  for (EnsembleSkill& sum : sums_) sum.ranks.assign(members + 1, 0.0);
}

void EnsembleTable::add(std::size_t lead, std::size_t channel, const EnsembleSkill& skill) {
  if (skill.points == 0) return;
  EnsembleSkill& sum = sums_[lead * channels_ + channel];
  sum.crps += skill.crps;
  sum.variance += skill.variance;
  sum.squared_error += skill.squared_error;
  for (std::size_t rank = 0; rank < sum.ranks.size(); ++rank) sum.ranks[rank] += skill.ranks[rank];
  ++counts_[lead * channels_ + channel];
}

namespace {

double mean_of(double sum, std::int64_t count) {
  return count > 0 ? sum / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

std::vector<double> EnsembleTable::crps() const {
  std::vector<double> means;
  for (std::size_t at = 0; at < sums_.size(); ++at)
    means.push_back(mean_of(sums_[at].crps, counts_[at]));
  return means;
}

std::vector<double> EnsembleTable::spread() const {
  std::vector<double> roots;
  for (std::size_t at = 0; at < sums_.size(); ++at)
    roots.push_back(std::sqrt(mean_of(sums_[at].variance, counts_[at])));
  return roots;
}

std::vector<double> EnsembleTable::spread_skill_ratio() const {
  const auto size = static_cast<double>(members_);
  std::vector<double> ratios;
  for (const EnsembleSkill& sum : sums_)
    ratios.push_back(std::sqrt((size + 1) / size * sum.variance / sum.squared_error));
  return ratios;
}

std::vector<double> EnsembleTable::ranks() const {
  std::vector<double> shares;
  for (std::size_t at = 0; at < sums_.size(); ++at) {
    for (const double rank : sums_[at].ranks) shares.push_back(mean_of(rank, counts_[at]));
  }
  return shares;
}

}  // namespace garonne::train
