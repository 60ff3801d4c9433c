// Logits after a growing text: with keys and values kept and without, on one rank and on grids.
#include "train/evaluation/text_passes.hpp"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "base/error.hpp"
#include "nn/compute_session.hpp"
#include "nn/gemm/product_library.hpp"
#include "train/evaluation/small_texts.hpp"
#include "train/setup/cluster.hpp"

namespace garonne::train {
namespace {

// A rank with its part of the model.
class Part {
 public:
  Part(const RunConfig& config, dist::Session& session) {
    const int rank = session.rank();
    setup = make_setup(config, {vocabulary, {}, {}}, 1, rank);
    setup.step.optimizer_states.clear();
    setup = setup_of_stage(setup, setup.grid.coordinates_of(rank).pipeline, Cut::AsDeclared);
    tier_ = device_.make_tier(any_budget);
    {
      const exec::DeviceScope scope(*tier_);
      state_ = exec::initial_state(device_.compute(), setup.model, setup.declaration.precision, 7,
                                   std::vector<StateSpec>());
      make_parameters_tell(state_);
    }
    axes_ = std::make_unique<Axes>(setup, plan::Program(), device_, session);
    resources.device = &device_.device();
    resources.tier = tier_.get();
    resources.state = &state_;
    resources.products = &products_;
    resources.data = axes_->data();
    resources.tensor = axes_->tensor();
    resources.pipeline = axes_->pipeline();
    resources.world = axes_->world();
  }

  Setup setup;
  exec::RankResources resources;

 private:
  RunDevice device_;
  nn::Products products_;
  std::unique_ptr<exec::DeviceTier> tier_;
  exec::ModelState state_;
  std::unique_ptr<Axes> axes_;
};

void expect_near(const std::vector<std::vector<double>>& mine,
                 const std::vector<std::vector<double>>& wanted, double tolerance) {
  ASSERT_EQ(mine.size(), wanted.size());
  for (std::size_t i = 0; i < mine.size(); ++i) {
    ASSERT_EQ(mine[i].size(), wanted[i].size());
    double most = 0;
    for (const double logit : wanted[i]) most = std::max(most, std::abs(logit));
    EXPECT_GT(most, 0.3);
    for (std::size_t k = 0; k < mine[i].size(); ++k)
      EXPECT_NEAR(mine[i][k], wanted[i][k], tolerance * most) << "text " << i << " token " << k;
  }
}

class TextPassesTest : public testing::Test {
 protected:
  TextPassesTest() { garonne::test::use_threads(1); }

  dist::Session session_ = dist::Session::start();
  dist::Session alone_ = dist::Session::single();
  const ParameterPlacement on_device_;
};

// A prompt of one token, of some, of the whole window and of more; texts within it and beyond.
TEST_F(TextPassesTest, KeysAndValuesThatAreKeptChangeNothing) {
  for (const std::string kind : {"gpt", "llama"}) {
    for (const auto& [precision, tolerance] :
         {std::pair{"float32", 1e-5}, std::pair{"float64", 1e-13}, std::pair{"bfloat16", 0.1}}) {
      for (const auto& [prompt, longest] :
           {std::pair{1, 12}, std::pair{5, 9}, std::pair{5, 17}, std::pair{12, 14},
            std::pair{15, 16}, std::pair{4, 4}}) {
        SCOPED_TRACE(kind + " " + precision + " " + std::to_string(prompt) + " to " +
                     std::to_string(longest));
        Part part(config_of(kind, precision, {}), alone_);
        TextPasses kept(part.setup, part.resources, on_device_, any_budget, prompt, longest,
                        alone_);
        const bool keeps = prompt < window && longest > prompt;
        const std::int64_t heads = kind == "gpt" ? 4 : 2;
        const std::int64_t bytes = part.setup.declaration.element_bytes();
        EXPECT_EQ(kept.kept_bytes(),
                  keeps ? 3 * 2 * std::min<std::int64_t>(longest, window) * heads * 8 * bytes : 0);
        const auto of_kept =
            all_logits(kept, static_cast<std::size_t>(prompt), static_cast<std::size_t>(longest));
        EXPECT_LE(kept.peak_bytes(), kept.planned_peak_bytes());
        // Planned for is what any library of products takes at most; that of oneDNN, in float32 a
        // copy of weights, is not here: nothing was chosen.
        const std::int64_t inputs = kind == "gpt" ? 4 * 32 : 32;
        const std::int64_t not_taken =
            part.setup.declaration.precision == Precision::Float32
                ? nn::product_transients(part.setup.declaration, 1, 32, inputs).forward_bytes
                : 0;
        EXPECT_GT(kept.peak_bytes() + not_taken, kept.planned_peak_bytes() * 9 / 10);
        // Each text as a prompt of its own: nothing is kept.
        std::vector<std::vector<double>> of_whole;
        Part other(config_of(kind, precision, {}), alone_);
        for (int tokens = prompt; tokens <= longest; ++tokens) {
          TextPasses whole(other.setup, other.resources, on_device_, any_budget, tokens, tokens,
                           alone_);
          EXPECT_EQ(whole.kept_bytes(), 0);
          of_whole.push_back(all_logits(whole, static_cast<std::size_t>(tokens),
                                        static_cast<std::size_t>(tokens))[0]);
        }
        expect_near(of_kept, of_whole, tolerance);
        // A continuation from the same prompt.
        expect_near(
            all_logits(kept, static_cast<std::size_t>(prompt), static_cast<std::size_t>(longest)),
            of_kept, 0);
      }
    }
  }
}

TEST_F(TextPassesTest, WhatDoesNotFitIsNotKept) {
  for (const std::string kind : {"gpt", "llama"}) {
    SCOPED_TRACE(kind);
    Part part(config_of(kind, "float32", {}), alone_);
    const std::int64_t least =
        TextPasses(part.setup, part.resources, on_device_, any_budget, 12, 12, alone_)
            .planned_peak_bytes();
    const std::int64_t most =
        TextPasses(part.setup, part.resources, on_device_, any_budget, 11, 12, alone_)
            .planned_peak_bytes();
    ASSERT_GT(most, least);
    for (const auto& [budget, fits] :
         {std::pair{most, true}, std::pair{most - 1, false}, std::pair{least, false}}) {
      Part again(config_of(kind, "float32", {}), alone_);
      TextPasses passes(again.setup, again.resources, on_device_, budget, 11, 12, alone_);
      EXPECT_EQ(passes.kept_bytes() > 0, fits);
      EXPECT_EQ(passes.description().find("whole text") == std::string::npos, fits)
          << passes.description();
      EXPECT_LE(passes.planned_peak_bytes(), budget);
      EXPECT_EQ(all_logits(passes, 11, 12).size(), 2U);
      EXPECT_LE(passes.peak_bytes(), passes.planned_peak_bytes());
    }
    try {
      TextPasses(part.setup, part.resources, on_device_, least - 1, 12, 12, alone_);
      ADD_FAILURE() << "a byte less does not do";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::Infeasible);
      EXPECT_NE(std::string(error.what()).find(std::to_string(least)), std::string::npos);
    }
  }
}

// Stages have the bits of one rank, tensor ranks its numbers.
TEST_F(TextPassesTest, GridsGiveWhatOneRankGives) {
  const int ranks = session_.size();
  std::vector<GridShape> grids = {{.data = ranks, .pipeline = 1, .tensor = 1},
                                  {.data = 1, .pipeline = ranks, .tensor = 1},
                                  {.data = 1, .pipeline = 1, .tensor = ranks}};
  if (ranks == 4) grids.push_back({.data = 1, .pipeline = 2, .tensor = 2});
  for (const std::string kind : {"gpt", "llama"}) {
    for (const GridShape& grid : grids) {
      if (kind == "llama" && grid.tensor > 2) continue;  // of two heads of keys
      for (const int prompt : {3, 12}) {
        SCOPED_TRACE(kind + " on " + to_string(grid) + " after " + std::to_string(prompt));
        Part whole(config_of(kind, "float32", {}), alone_);
        TextPasses wanted(whole.setup, whole.resources, on_device_, any_budget, prompt, 15, alone_);
        Part part(config_of(kind, "float32", grid), session_);
        TextPasses passes(part.setup, part.resources, on_device_, any_budget, prompt, 15, session_);
        EXPECT_EQ(passes.kept_bytes() > 0, prompt < window);
        if (grid.pipeline == 1) {
          EXPECT_EQ(passes.kept_bytes() * grid.tensor, wanted.kept_bytes());
        }
        const auto mine = all_logits(passes, static_cast<std::size_t>(prompt), 15);
        EXPECT_LE(passes.peak_bytes(), passes.planned_peak_bytes());
        const Coordinates place = part.setup.grid.coordinates_of(session_.rank());
        if (place.pipeline == stage_with_loss(part.setup)) {
          expect_near(mine, all_logits(wanted, static_cast<std::size_t>(prompt), 15),
                      grid.tensor == 1 ? 0 : 1e-5);
        } else {
          EXPECT_TRUE(std::all_of(mine.begin(), mine.end(),
                                  [](const auto& logits) { return logits.empty(); }));
        }
        session_.barrier();
      }
    }
  }
}

}  // namespace
}  // namespace garonne::train
