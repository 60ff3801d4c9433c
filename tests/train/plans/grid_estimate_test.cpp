// What the search over grids estimates, held against the Programs of the same candidates.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "train/plans/grid_search.hpp"
#include "train/setup/config_choices.hpp"

namespace garonne::train {
namespace {

const std::string root = GARONNE_SOURCE_DIR;

template <typename Number>
Number one_of(std::initializer_list<Number> numbers, std::mt19937& random) {
  return *(numbers.begin() + random() % numbers.size());
}

// A GPT on a cluster of GPUs, small enough that kernels take as long to issue as to compute.
GridSearchWish random_wish(std::mt19937& random, int ranks) {
  GridSearchWish wish;
  wish.config = parse_config("", "a test", {}, config_choices());
  wish.config.model.hidden = one_of<std::int64_t>({256, 512, 1024, 2048}, random);
  wish.config.model.heads = wish.config.model.hidden / 64;
  wish.config.model.layers = one_of<std::int64_t>({2, 4, 12}, random);
  wish.config.model.sequence = one_of<std::int64_t>({256, 1024}, random);
  wish.config.model.vocabulary = one_of<std::int64_t>({1024, 50304}, random);
  wish.config.train.global_batch = one_of<std::int64_t>({4, 8, 16}, random);
  wish.config.train.precision = one_of<std::string>({"bfloat16", "float32"}, random);
  wish.config.evaluation.batches = 0;
  wish.facts.vocabulary = wish.config.model.vocabulary;
  wish.cluster = plan::load_cluster(root + "/config/clusters/dgx_h100.toml");
  wish.cluster.issue_seconds = one_of({0.0, 5e-6, 2e-5}, random);
  wish.ranks = ranks;
  wish.budget_bytes = one_of<std::int64_t>({8, 40}, random) << 30;
  wish.options.exhaustive = true;
  wish.options.best = 1000;
  return wish;
}

TEST(GridEstimate, IsTheProgramsOnOneRank) {
  std::mt19937 random(19);
  double worst = 0;
  int held = 0;
  for (int number = 0; number < 40; ++number) {
    const GridSearchWish wish = random_wish(random, 1);
    const GridSearchAnswer answer = search_grids(wish);
    for (const plan::RankedGrid& grid : answer.search.best) {
      if (!grid.outcome.fits) continue;
      const double off = grid.estimate.seconds / grid.outcome.seconds - 1;
      EXPECT_GE(grid.outcome.seconds, grid.bounds.seconds * (1 - 1e-12));
      if (std::getenv("SHOW") != nullptr) {
        printf("%d hidden %ld layers %ld seq %ld voc %ld %s issue %g batch %ld: %s plan %s est %.6f out %.6f off %.3f\n", number,
               wish.config.model.hidden, wish.config.model.layers, wish.config.model.sequence, wish.config.model.vocabulary,
               wish.config.train.precision.c_str(), wish.cluster.issue_seconds, wish.config.train.global_batch,
               to_string(grid.candidate).c_str(), grid.outcome.plans[0].c_str(), grid.estimate.seconds, grid.outcome.seconds, off);
        for (auto& [n, s] : grid.outcome.parts) printf("   %s %.6f\n", n.c_str(), s);
      }
      EXPECT_LT(std::abs(off), 0.03) << number << " " << to_string(grid.candidate);
      worst = std::max(worst, std::abs(off));
      ++held;
    }
  }
  EXPECT_GE(held, 60);
  RecordProperty("worst", std::to_string(worst));
}

}  // namespace
}  // namespace garonne::train
