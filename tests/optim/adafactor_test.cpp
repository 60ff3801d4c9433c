// Adafactor against its formula written out, whole and cut as ranks have parts of a matrix.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "optim/optimizer.hpp"

namespace garonne::optim {
namespace {

RunConfig config_of(const std::string& decay = "decoupled") {
  RunConfig config;
  config.optimizer.name = "adafactor";
  config.optimizer.decay = decay;
  config.optimizer.weight_decay = 0.1;
  return config;
}

double mean_square(const at::Tensor& tensor) {
  return tensor.square().mean().item<double>();
}

// As published, of a matrix or a vector.
struct ByHand {
  at::Tensor parameter;
  at::Tensor rows = {};
  at::Tensor columns = {};

  void update(const at::Tensor& gradient, std::int64_t step, double rate,
              const RunConfig::Optimizer& keys) {
    const bool l2 = keys.decay == "l2";
    const at::Tensor slope = l2 ? gradient + keys.weight_decay * parameter : gradient;
    const at::Tensor square = slope.square() + keys.square_epsilon;
    const double kept = 1 - std::pow(static_cast<double>(step), -keys.beta2_power);
    const auto mix = [&](at::Tensor& moment, const at::Tensor& now) {
      moment = moment.defined() ? kept * moment + (1 - kept) * now : (1 - kept) * now;
    };
    at::Tensor second;
    if (parameter.dim() == 1) {
      mix(rows, square);
      second = rows;
    } else {
      mix(rows, square.mean(1));
      mix(columns, square.mean(0));
      second = at::outer(rows, columns) / rows.mean();
    }
    at::Tensor update = slope / second.sqrt();
    if (keys.update_limit > 0)
      update = update / std::max(1.0, std::sqrt(mean_square(update)) / keys.update_limit);
    double size = 1;
    if (keys.smallest_scale > 0)
      size = std::max(keys.smallest_scale, std::sqrt(mean_square(parameter)));
    const double decay = l2 ? 1 : 1 - rate * keys.weight_decay;
    parameter = parameter * decay - rate * size * update;
  }
};

// Ranks that each have a part of a matrix, with moments of their own, and add up their sums.
class Ranks {
 public:
  // `rows`, `columns`: of the box that a rank has; `part`: which of its elements.
  struct Rank {
    std::vector<std::int64_t> rows;
    std::vector<std::int64_t> columns;
    kernels::MatrixPart part;
    at::Tensor parameter;
    std::vector<at::Tensor> states;
  };

  Ranks(const Optimizer& optimizer, const at::Tensor& whole, std::vector<Rank> ranks)
      : optimizer_(optimizer), whole_(whole), ranks_(std::move(ranks)) {
    for (Rank& rank : ranks_) {
      rank.parameter = part_of(whole_, rank).clone();
      const MatrixSides sides{rank.part.rows, rank.part.columns};
      for (const StateSpec& state : optimizer.states())
        rank.states.push_back(at::zeros({state.blocks.count(0, sides)}, at::kDouble));
    }
  }

  void update(const at::Tensor& gradient, std::int64_t step, double rate, double scale) {
    std::vector<at::Tensor> sums;
    const auto updates_of = [&](Rank& rank) {
      ParameterUpdate update;
      update.parameter = rank.parameter;
      update.states = rank.states;
      update.gradient = part_of(gradient, rank);
      update.decays = true;
      update.matrix = whole_.dim() > 1;
      update.part = rank.part;
      update.sums = sums;
      return update;
    };
    for (const TensorSums& of_round : optimizer_.sums()) {
      const kernels::MatrixPart& part = ranks_.front().part;
      sums.push_back(at::zeros({of_round.count({part.rows, part.columns})}, at::kDouble));
      const at::Tensor all = at::zeros_like(sums.back());
      for (Rank& rank : ranks_) {
        sums.back().zero_();
        optimizer_.add_sums(Queue(), updates_of(rank), sums.size() - 1, step, rate,
                            {.value = scale});
        all.add_(sums.back());
      }
      sums.back().copy_(all);
    }
    for (Rank& rank : ranks_)
      optimizer_.update(Queue(), updates_of(rank), step, rate, {.value = scale});
  }

  double difference(const at::Tensor& wanted) const {
    double most = 0;
    for (const Rank& rank : ranks_)
      most = std::max(most, (rank.parameter - part_of(wanted, rank)).abs().max().item<double>());
    return most;
  }

  const std::vector<Rank>& ranks() const { return ranks_; }

 private:
  static at::Tensor part_of(const at::Tensor& whole, const Rank& rank) {
    const at::Tensor matrix = whole.dim() > 1 ? whole : whole.view({-1, 1});
    const at::Tensor box =
        matrix.index_select(0, at::tensor(rank.rows)).index_select(1, at::tensor(rank.columns));
    return box.flatten().narrow(0, rank.part.first, rank.part.elements).contiguous();
  }

  const Optimizer& optimizer_;
  at::Tensor whole_;
  std::vector<Rank> ranks_;
};

std::vector<std::int64_t> from_to(std::int64_t first, std::int64_t last) {
  std::vector<std::int64_t> indices;
  for (std::int64_t i = first; i < last; ++i) indices.push_back(i);
  return indices;
}

// Elements from these on, whatever rows they are in.
std::vector<Ranks::Rank> flat_cut(std::int64_t rows, std::int64_t columns,
                                  std::vector<std::int64_t> firsts) {
  std::vector<Ranks::Rank> ranks;
  firsts.push_back(rows * columns);
  for (std::size_t k = 0; k + 1 < firsts.size(); ++k) {
    kernels::MatrixPart part = kernels::whole_matrix(rows, columns);
    part.first = firsts[k];
    part.elements = firsts[k + 1] - firsts[k];
    part.leads = k == 0;
    ranks.push_back({from_to(0, rows), from_to(0, columns), part, {}, {}});
  }
  return ranks;
}

// Two ranks, with halves of each of some runs of rows or columns.
std::vector<Ranks::Rank> halves(std::int64_t rows, std::int64_t columns, bool of_rows,
                                std::int64_t runs) {
  std::vector<Ranks::Rank> ranks;
  const std::int64_t cut = of_rows ? rows : columns;
  for (std::int64_t k = 0; k < 2; ++k) {
    const std::int64_t half = cut / runs / 2;
    std::vector<std::int64_t> mine;
    for (std::int64_t run = 0; run < runs; ++run) {
      for (std::int64_t i = 0; i < half; ++i) mine.push_back(run * 2 * half + k * half + i);
    }
    kernels::MatrixPart part = kernels::whole_matrix(rows, columns);
    (of_rows ? part.row_cut : part.column_cut) = {half, 2 * half, k * half};
    part.elements /= 2;
    part.width = of_rows ? columns : columns / 2;
    part.leads = k == 0;
    ranks.push_back(
        {of_rows ? mine : from_to(0, rows), of_rows ? from_to(0, columns) : mine, part, {}, {}});
  }
  return ranks;
}

void expect_steps(const RunConfig& config, const std::vector<std::int64_t>& shape,
                  std::vector<std::vector<Ranks::Rank>> cuts) {
  const auto optimizer = make_optimizer(config);
  at::manual_seed(21);
  const at::Tensor start = at::randn(shape, at::kDouble);
  ByHand wanted{start};
  std::vector<Ranks> all;
  for (auto& ranks : cuts) all.emplace_back(*optimizer, start, std::move(ranks));
  for (std::int64_t step = 1; step <= 20; ++step) {
    const double rate = 1e-2 * static_cast<double>(step % 7 + 1);
    const at::Tensor gradient = at::randn(shape, at::kDouble) * static_cast<double>(step % 3 + 1);
    wanted.update(gradient * 0.5, step, rate, config.optimizer);
    for (std::size_t k = 0; k < all.size(); ++k) {
      all[k].update(gradient, step, rate, 0.5);
      ASSERT_LT(all[k].difference(wanted.parameter), 1e-12) << "cut " << k << ", step " << step;
      // Whoever has a part of a matrix has the moments of all of it.
      for (const Ranks::Rank& rank : all[k].ranks()) {
        EXPECT_TRUE(at::equal(rank.states[0], all[k].ranks()[0].states[0]));
        EXPECT_TRUE(at::equal(rank.states[1], all[k].ranks()[0].states[1]));
        EXPECT_TRUE(at::allclose(rank.states[0], wanted.rows, 1e-12, 0));
        if (shape.size() > 1) {
          EXPECT_TRUE(at::allclose(rank.states[1], wanted.columns, 1e-12, 0));
        }
      }
    }
  }
}

TEST(Adafactor, TwentyStepsByTheFormulaHoweverItIsCut) {
  for (const std::string decay : {"decoupled", "l2"}) {
    for (const double limit : {0.0, 0.4}) {
      for (const double scale : {0.0, 1e-3, 2.0}) {
        RunConfig config = config_of(decay);
        config.optimizer.update_limit = limit;
        config.optimizer.smallest_scale = scale;
        config.optimizer.square_epsilon = 1e-6;
        expect_steps(
            config, {12, 20},
            {flat_cut(12, 20, {0}), flat_cut(12, 20, {0, 1, 47, 60}), halves(12, 20, true, 1),
             halves(12, 20, true, 3), halves(12, 20, false, 1), halves(12, 20, false, 2)});
        expect_steps(config, {37}, {flat_cut(37, 1, {0}), flat_cut(37, 1, {0, 5})});
      }
    }
  }
}

TEST(Adafactor, KeepsRowsAndColumnsOnly) {
  const auto optimizer = make_optimizer(config_of());
  std::int64_t numbers = 0;
  for (const StateSpec& state : optimizer->states()) numbers += state.blocks.count(0, {1024, 4096});
  EXPECT_EQ(numbers, 5120);
  // A matrix of zeros that gets no gradient stays.
  const at::Tensor zeros = at::zeros({6, 8}, at::kDouble);
  Ranks still(*optimizer, zeros, flat_cut(6, 8, {0}));
  still.update(zeros, 1, 0.1, 1.0);
  EXPECT_EQ(still.difference(zeros), 0);
  // And grows by no more than the smallest scale says.
  still.update(at::ones({6, 8}, at::kDouble), 2, 0.1, 1.0);
  EXPECT_NEAR(still.difference(zeros), 1e-4, 1e-5);
}

TEST(Adafactor, NothingChangesWithoutAFiniteScale) {
  const auto optimizer = make_optimizer(config_of());
  const at::Tensor ones = at::ones({6, 8}, at::kDouble);
  Ranks ranks(*optimizer, ones, flat_cut(6, 8, {0, 20}));
  ranks.update(ones, 1, 0.1, std::nan(""));
  EXPECT_EQ(ranks.difference(ones), 0);
  EXPECT_EQ(ranks.ranks()[0].states[0].abs().max().item<double>(), 0);
}

TEST(Adafactor, HasNoFirstMoment) {
  RunConfig config = config_of();
  config.optimizer.beta1 = 0.5;
  try {
    make_optimizer(config);
    FAIL() << "takes a decay of what it has not";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.key(), "optimizer.beta1");
  }
}

}  // namespace
}  // namespace garonne::optim
