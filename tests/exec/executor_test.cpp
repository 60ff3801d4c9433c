// The executor, end to end on a small GPT: bits, bytes and refusals.
#include "exec/executor.hpp"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "exec/profile.hpp"
#include "nn/compute_session.hpp"
#include "nn/gpt.hpp"
#include "plan/generator.hpp"
#include "plan/policy.hpp"
#include "plan/replay.hpp"
#include "plan/stage_planner.hpp"

namespace garonne::exec {
namespace {

constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max() / 2;

struct Setting {
  Precision precision = Precision::Float32;
  int micro_batches = 1;
  std::int64_t batch = 2;
  std::string plan = "keep-all";
  double budget_share = -1;  // from the smallest budget (0) to keep-all (1); else `plan`
  double dropout = 0.25;
  std::int64_t sequence = 24;
  std::int64_t hidden = 32;

  std::string text() const {
    return std::string(precision_name(precision)) + " " + plan + ", micro-batches " +
           std::to_string(micro_batches) + " of " + std::to_string(batch);
  }
};

constexpr std::int64_t vocabulary = 61;

// The middle one of a policy's family; "any <n>" keeps an arbitrary half of all values and records.
plan::NodeSchedule schedule_of(const plan::ModelGraph& graph, const std::string& name) {
  if (name.rfind("any ", 0) == 0) {
    std::mt19937 random(static_cast<unsigned>(std::stoi(name.substr(4))));
    plan::KeptSet kept = plan::keep_everything(graph);
    for (std::size_t v = 0; v < kept.values.size(); ++v) kept.values[v] = random() % 2 == 0;
    for (std::size_t n = 0; n < kept.records.size(); ++n) kept.records[n] = random() % 2 == 0;
    return plan::recompute_on_demand(graph, kept);
  }
  for (const auto& policy : plan::policies()) {
    if (policy.name != name) continue;
    auto family = policy.schedules(graph);
    return family[family.size() / 2];
  }
  throw std::out_of_range("no policy " + name);
}

// One rank with everything that a step needs, in a tier of its own.
class Rank {
 public:
  explicit Rank(const Setting& setting, std::int64_t limit = no_limit) : setting_(setting) {
    declaration_.precision = setting.precision;
    declaration_.threads = 2;
    const nn::GptSizes sizes{3, setting.hidden, 4, setting.sequence, vocabulary, setting.dropout};
    model_ = nn::make_gpt(sizes, setting.batch, declaration_);
    profile();
    RunConfig config;
    config.optimizer.weight_decay = 0.1;
    optimizer_ = optim::make_optimizer(config);
    plan::StepShape step;
    step.micro_batches = setting.micro_batches;
    step.element_bytes.parameter = compute_bytes(setting.precision);
    step.element_bytes.master = has_master(setting.precision) ? state_bytes(setting.precision) : 0;
    step.element_bytes.gradient = step.element_bytes.state = state_bytes(setting.precision);
    step.optimizer_states = optimizer_->state_names();
    step.data_group = {0};
    if (setting.budget_share >= 0) {
      const plan::StagePlan most = plan::plan_stage(model_.graph, step, {no_limit});
      const std::int64_t least = most.minimum_budget_bytes;
      const auto more = static_cast<double>(most.prediction.peak_bytes - least);
      budget_ = least + static_cast<std::int64_t>(setting.budget_share * more);
      program_ = plan::plan_stage(model_.graph, step, {budget_}).program;
    } else {
      program_ = plan::make_training_program(
          model_.graph, step,
          plan::same_for_all(schedule_of(model_.graph, setting.plan), setting.micro_batches));
    }
    evaluation_ = plan::make_forward_program(model_.graph, step, model_.graph.loss);
    prediction_ = plan::replay(program_);
    tier_ = std::make_unique<DeviceTier>(limit);
    const DeviceScope scope(*tier_);
    state_ = initial_state(model_, setting.precision, 11, 2);
  }

  StepOutputs step(std::int64_t number = 1, double learning_rate = 1e-3) {
    return run(program_, number, learning_rate, true);
  }
  StepOutputs evaluate() { return run(evaluation_, 1, 0, false); }

  StepOutputs run(const plan::Program& program, std::int64_t number, double learning_rate,
                  bool training) {
    Machine machine;
    machine.tier = tier_.get();
    machine.state = &state_;
    machine.products = &products_;
    machine.optimizer = optimizer_.get();
    machine.watch_gradient = [this](int parameter, const at::Tensor& gradient) {
      gradients_.resize(model_.graph.parameters.size());
      std::vector<double>& kept = gradients_[static_cast<std::size_t>(parameter)];
      kept.resize(static_cast<std::size_t>(gradient.numel()));
      for (std::int64_t i = 0; i < gradient.numel(); ++i) {
        kept[static_cast<std::size_t>(i)] =
            gradient.scalar_type() == at::kDouble
                ? gradient.const_data_ptr<double>()[i]
                : static_cast<double>(gradient.const_data_ptr<float>()[i]);
      }
    };
    StepInputs inputs;
    inputs.seed = 5;
    inputs.step = number;
    inputs.training = training;
    inputs.loss_scale = 1.0 / setting_.micro_batches;
    inputs.learning_rate = learning_rate;
    inputs.clip_norm = clip_norm;
    inputs.load = [this](int micro_batch) { return batch_of(micro_batch); };
    Executor executor(model_, program, machine);
    return executor.run(inputs);
  }

  // The same samples in the same order however they are cut.
  HostBatch batch_of(int micro_batch) const {
    HostBatch batch;
    for (std::int64_t b = 0; b < setting_.batch; ++b) {
      const std::int64_t sample = micro_batch * setting_.batch + b;
      batch.samples.push_back(1000 + sample * 7);
      for (std::int64_t t = 0; t <= setting_.sequence; ++t) {
        const std::int64_t token = (sample * 13 + t * t * 5 + t) % vocabulary;
        if (t < setting_.sequence) batch.values["tokens"].push_back(token);
        if (t > 0) batch.values["targets"].push_back(token);
      }
    }
    return batch;
  }

  const nn::Model& model() const { return model_; }
  const plan::Program& program() const { return program_; }
  plan::Program& program() { return program_; }
  const plan::Prediction& prediction() const { return prediction_; }
  std::int64_t budget() const { return budget_; }
  plan::Prediction evaluation_prediction() const { return plan::replay(evaluation_); }
  const DeviceTier& tier() const { return *tier_; }
  ModelState& state() { return state_; }
  const std::vector<std::vector<double>>& gradients() const { return gradients_; }

  double clip_norm = 0;

 private:
  void profile() {
    // What a table of this machine would say; measured once for each shape of the test program.
    static std::map<std::string, plan::CostTable> tables;
    plan::CostTable& table =
        tables[std::to_string(setting_.batch) + " " + std::to_string(setting_.sequence) + " " +
               std::to_string(setting_.hidden)];
    // Another library may be as fast and be chosen another time; bits are compared, so there is
    // one.
    profile_model(model_, declaration_, table, [](int, int) {});
    plan::apply_costs(table, model_.graph);
    products_ = nn::Products::from_json(table.products);
  }

  Setting setting_;
  nn::Declaration declaration_;
  nn::Model model_;
  nn::Products products_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::int64_t budget_ = 0;
  plan::Program program_;
  plan::Program evaluation_;
  plan::Prediction prediction_;
  std::unique_ptr<DeviceTier> tier_;
  ModelState state_;
  std::vector<std::vector<double>> gradients_;
};

constexpr Precision precisions[] = {Precision::Float32, Precision::Float64, Precision::BFloat16};

std::vector<Setting> all_settings() {
  std::vector<Setting> settings;
  for (const Precision precision : precisions) {
    for (const int micro_batches : {1, 2, 4}) {
      for (const char* plan : {"keep-all", "full", "selective", "any 3"}) {
        Setting setting;
        setting.precision = precision;
        setting.micro_batches = micro_batches;
        setting.plan = plan;
        settings.push_back(setting);
      }
    }
  }
  return settings;
}

TEST(Executor, RecomputingGivesTheSameBits) {
  for (const Precision precision : precisions) {
    for (const int micro_batches : {1, 2, 4}) {
      Setting setting;
      setting.precision = precision;
      setting.micro_batches = micro_batches;
      SCOPED_TRACE(setting.text());
      Rank keeping(setting);
      std::vector<std::unique_ptr<Rank>> recomputing;
      for (const char* plan : {"full", "uniform", "selective", "any 1", "any 2"}) {
        setting.plan = plan;
        recomputing.push_back(std::make_unique<Rank>(setting));
      }
      for (std::int64_t step = 1; step <= 3; ++step) {
        const StepOutputs kept = keeping.step(step);
        for (const auto& rank : recomputing) {
          const StepOutputs recomputed = rank->step(step);
          EXPECT_EQ(kept.loss, recomputed.loss);
          EXPECT_EQ(kept.gradient_norm, recomputed.gradient_norm);
          ASSERT_EQ(keeping.gradients().size(), keeping.model().graph.parameters.size());
          EXPECT_EQ(keeping.gradients(), rank->gradients());
        }
      }
      for (const auto& rank : recomputing) {
        for (std::size_t p = 0; p < keeping.state().parameters.size(); ++p) {
          const ParameterState& a = keeping.state().parameters[p];
          const ParameterState& b = rank->state().parameters[p];
          EXPECT_TRUE(at::equal(a.parameter, b.parameter));
          EXPECT_TRUE(at::equal(a.trained(), b.trained()));
          EXPECT_TRUE(at::equal(a.states[0], b.states[0]));
          EXPECT_TRUE(at::equal(a.states[1], b.states[1]));
        }
        int recomputations = 0;
        for (const auto& instruction : rank->program().instructions)
          recomputations += instruction.recompute;
        EXPECT_GT(recomputations, 0);
      }
    }
  }
}

// From the smallest budget to everything kept: the plan's bytes are the measured ones, and the bits
// those of plain training.
TEST(Executor, AnyBudgetGivesTheSameBitsWithinItsBytes) {
  for (const int micro_batches : {1, 3}) {
    Setting setting;
    setting.micro_batches = micro_batches;
    Rank keeping(setting);
    const StepOutputs kept = keeping.step();
    for (int twelfth = 0; twelfth < 12; ++twelfth) {
      setting.budget_share = twelfth / 11.0;
      SCOPED_TRACE("budget " + std::to_string(twelfth) + " of 11, micro-batches " +
                   std::to_string(micro_batches));
      Rank rank(setting, no_limit);
      const StepOutputs outputs = rank.step();
      EXPECT_EQ(outputs.loss, kept.loss);
      EXPECT_EQ(rank.gradients(), keeping.gradients());
      EXPECT_LE(rank.prediction().peak_bytes, rank.budget());
      EXPECT_LE(outputs.peak_bytes, rank.prediction().peak_bytes);
      EXPECT_GE(static_cast<double>(outputs.peak_bytes),
                0.99 * static_cast<double>(rank.prediction().peak_bytes));
    }
  }
}

TEST(Executor, DropoutActsAndChangesFromStepToStep) {
  Setting setting;
  Rank rank(setting);
  const double first = rank.step(1, 0).loss;
  EXPECT_EQ(rank.step(1, 0).loss, first) << "a step can be done again";
  EXPECT_NE(rank.step(2, 0).loss, first);
  setting.dropout = 0;
  Rank plain(setting);
  EXPECT_NE(plain.step(1, 0).loss, first);
  EXPECT_EQ(plain.step(1, 0).loss, plain.step(2, 0).loss);
}

// How a batch is cut is a matter of rounding only, dropout included.
TEST(Executor, CuttingTheBatchOtherwiseGivesTheSameGradients) {
  Setting setting;
  setting.precision = Precision::Float64;
  setting.batch = 4;
  Rank whole(setting);
  setting.batch = 2;
  setting.micro_batches = 2;
  Rank halves(setting);
  setting.batch = 1;
  setting.micro_batches = 4;
  setting.plan = "full";
  Rank quarters(setting);
  const StepOutputs wanted = whole.step();
  for (Rank* rank : {&halves, &quarters}) {
    const StepOutputs got = rank->step();
    EXPECT_NEAR(got.loss, wanted.loss, 1e-13 * wanted.loss);
    EXPECT_NEAR(got.gradient_norm, wanted.gradient_norm, 1e-12 * wanted.gradient_norm);
    for (std::size_t p = 0; p < whole.gradients().size(); ++p) {
      double error = 0;
      double size = 0;
      for (std::size_t i = 0; i < whole.gradients()[p].size(); ++i) {
        error += std::pow(rank->gradients()[p][i] - whole.gradients()[p][i], 2);
        size += std::pow(whole.gradients()[p][i], 2);
      }
      EXPECT_LE(std::sqrt(error), 1e-11 * std::sqrt(size))
          << whole.model().graph.parameters[p].name;
    }
  }
}

TEST(Executor, BytesAreThePredictedOnes) {
  for (const auto& setting : all_settings()) {
    SCOPED_TRACE(setting.text());
    Rank rank(setting);
    const plan::Prediction& predicted = rank.prediction();
    EXPECT_EQ(rank.tier().live_bytes(), predicted.static_bytes);
    for (std::int64_t step = 1; step <= 2; ++step) {
      const StepOutputs outputs = rank.step(step);
      ASSERT_EQ(outputs.measurements.size(), rank.program().instructions.size());
      for (std::size_t i = 0; i < outputs.measurements.size(); ++i) {
        const std::string what = plan::describe(rank.program().instructions[i]);
        EXPECT_EQ(outputs.measurements[i].live_bytes, predicted.live_bytes[i]) << "after " << what;
        EXPECT_LE(outputs.measurements[i].peak_bytes, predicted.during_bytes[i])
            << "during " << what;
        EXPECT_GE(outputs.measurements[i].seconds, 0);
      }
      EXPECT_LE(outputs.peak_bytes, predicted.peak_bytes);
      EXPECT_GE(static_cast<double>(outputs.peak_bytes),
                0.99 * static_cast<double>(predicted.peak_bytes));
      EXPECT_EQ(rank.tier().live_bytes(), predicted.static_bytes) << "a step leaves nothing behind";
    }
  }
}

TEST(Executor, BytesOfAnEvaluationToo) {
  for (const Precision precision : precisions) {
    Setting setting;
    setting.precision = precision;
    SCOPED_TRACE(setting.text());
    Rank rank(setting);
    const plan::Prediction predicted = rank.evaluation_prediction();
    const StepOutputs outputs = rank.evaluate();
    EXPECT_LE(outputs.peak_bytes, predicted.peak_bytes);
    EXPECT_GE(static_cast<double>(outputs.peak_bytes),
              0.99 * static_cast<double>(predicted.peak_bytes));
    for (std::size_t i = 0; i < outputs.measurements.size(); ++i) {
      EXPECT_EQ(outputs.measurements[i].live_bytes, predicted.live_bytes[i]);
    }
    EXPECT_EQ(rank.tier().live_bytes(), predicted.static_bytes);
    ASSERT_EQ(outputs.report.size(), 1U);
    // Untrained: about the logarithm of the vocabulary.
    EXPECT_NEAR(outputs.report[0], std::log(static_cast<double>(vocabulary)), 0.2);
    EXPECT_EQ(rank.evaluate().report, outputs.report) << "nothing is dropped";
  }
}

TEST(Executor, NothingIsLeftWhenEverythingIsGone) {
  Setting setting;
  setting.precision = Precision::BFloat16;
  auto rank = std::make_unique<Rank>(setting);
  rank->step();
  rank->state().parameters.clear();
  EXPECT_EQ(rank->tier().live_bytes(), 0);
}

TEST(Executor, OneByteLessThanThePeakIsRefusedByName) {
  for (const char* plan : {"keep-all", "full"}) {
    for (const Precision precision : precisions) {
      Setting setting;
      setting.plan = plan;
      setting.precision = precision;
      SCOPED_TRACE(setting.text());
      std::int64_t peak = 0;
      std::string where;
      {
        Rank rank(setting);
        const StepOutputs outputs = rank.step();
        peak = outputs.peak_bytes;
        for (std::size_t i = 0; i < outputs.measurements.size() && where.empty(); ++i) {
          if (outputs.measurements[i].peak_bytes == peak)
            where = plan::describe(rank.program().instructions[i]);
        }
      }
      {
        Rank enough(setting, peak);
        EXPECT_NO_THROW(enough.step()) << "blocks that are kept must not stand in the way";
        EXPECT_NO_THROW(enough.step(2));
      }
      Rank short_of(setting, peak - 1);
      const at::Tensor before = short_of.state().parameters[0].trained().clone();
      try {
        short_of.step();
        ADD_FAILURE() << "not refused";
      } catch (const RefusedError& error) {
        EXPECT_NE(std::string(error.what()).find(where), std::string::npos)
            << error.what() << "; wanted " << where;
      }
      EXPECT_TRUE(at::equal(before, short_of.state().parameters[0].trained()))
          << "nothing was updated";
      EXPECT_EQ(short_of.tier().live_bytes(), short_of.prediction().static_bytes)
          << "what was made is gone";
    }
  }
}

TEST(Executor, SecondStepTakesNoNewBlocks) {
  Setting setting;
  Rank rank(setting);
  rank.step(1);
  // Addresses of the parameters stay: they are updated where they are.
  std::vector<const void*> addresses;
  for (const auto& parameter : rank.state().parameters)
    addresses.push_back(parameter.parameter.data_ptr());
  rank.step(2);
  for (std::size_t p = 0; p < addresses.size(); ++p) {
    EXPECT_EQ(rank.state().parameters[p].parameter.data_ptr(), addresses[p]);
  }
}

TEST(Executor, LossGoesDown) {
  for (const Precision precision : precisions) {
    Setting setting;
    setting.precision = precision;
    setting.micro_batches = 2;
    setting.dropout = 0;
    SCOPED_TRACE(setting.text());
    Rank rank(setting);
    const double first = rank.step(1, 3e-3).loss;
    double last = first;
    for (std::int64_t step = 2; step <= 40; ++step) last = rank.step(step, 3e-3).loss;
    EXPECT_NEAR(first, std::log(static_cast<double>(vocabulary)), 0.2);
    EXPECT_LT(last, 0.6 * first);
  }
}

TEST(Executor, MastersAndTheirComputeCopiesStayTogether) {
  Setting setting;
  setting.precision = Precision::BFloat16;
  Rank rank(setting);
  for (std::int64_t step = 1; step <= 3; ++step) rank.step(step);
  for (const auto& parameter : rank.state().parameters) {
    ASSERT_TRUE(parameter.master.defined());
    EXPECT_EQ(parameter.master.scalar_type(), at::kFloat);
    EXPECT_TRUE(at::equal(parameter.parameter, parameter.master.to(at::kBFloat16)));
  }
}

TEST(Executor, GradientNormIsThatOfTheGradients) {
  Setting setting;
  setting.precision = Precision::Float64;
  Rank rank(setting);
  const double norm = rank.step().gradient_norm;
  double squares = 0;
  for (const auto& gradient : rank.gradients()) {
    for (const double element : gradient) squares += element * element;
  }
  EXPECT_NEAR(norm, std::sqrt(squares), 1e-12 * norm);
}

TEST(Executor, ClippingScalesTheFirstMoment) {
  Setting setting;
  setting.precision = Precision::Float64;
  Rank plain(setting);
  Rank clipped(setting);
  const double norm = plain.step().gradient_norm;
  clipped.clip_norm = norm / 4;
  EXPECT_EQ(clipped.step().gradient_norm, norm) << "reported before clipping";
  for (std::size_t p = 0; p < plain.state().parameters.size(); ++p) {
    EXPECT_TRUE(at::allclose(clipped.state().parameters[p].states[0] * 4,
                             plain.state().parameters[p].states[0], 1e-5, 1e-15));
  }
}

TEST(Executor, ANumberThatIsNoneIsRefusedBeforeTheUpdate) {
  Setting setting;
  Rank rank(setting);
  rank.step(1);
  rank.state().parameters[4].parameter.fill_(std::numeric_limits<float>::infinity());
  std::vector<at::Tensor> before;
  for (const auto& parameter : rank.state().parameters)
    before.push_back(parameter.parameter.clone());
  try {
    rank.step(2);
    ADD_FAILURE() << "not refused";
  } catch (const RefusedError& error) {
    for (const char* part : {"step 2", "learning_rate", "checkpoint"}) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
  for (std::size_t p = 0; p < before.size(); ++p) {
    EXPECT_TRUE(at::equal(before[p], rank.state().parameters[p].parameter)) << p;
  }
}

TEST(Executor, ABufferOfOtherBytesThanTheProgramSaysIsABug) {
  Setting setting;
  Rank rank(setting);
  for (auto& buffer : rank.program().buffers) {
    if (buffer.name == "layer.1.up#0") buffer.bytes += 64;
  }
  try {
    rank.step();
    ADD_FAILURE() << "not noticed";
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("layer.1.up#0"), std::string::npos) << error.what();
  }
}

TEST(InitialState, FollowsSeedNameAndPrecision) {
  Setting setting;
  Rank a(setting);
  Rank b(setting);
  setting.precision = Precision::BFloat16;
  Rank low(setting);
  for (std::size_t p = 0; p < a.state().parameters.size(); ++p) {
    const auto& spec = a.model().graph.parameters[p];
    const at::Tensor& parameter = a.state().parameters[p].parameter;
    EXPECT_TRUE(at::equal(parameter, b.state().parameters[p].parameter));
    EXPECT_TRUE(at::equal(parameter, low.state().parameters[p].master))
        << "masters start where float32 does";
    EXPECT_EQ(parameter.sizes().vec(), spec.shape);
    const double deviation = a.model().initialisations[p].deviation;
    if (deviation == 0) {
      EXPECT_TRUE(
          at::equal(parameter, at::full_like(parameter, a.model().initialisations[p].constant)));
    } else {
      EXPECT_NEAR(parameter.std().item<double>(), deviation, 0.15 * deviation) << spec.name;
    }
    for (const auto& state : a.state().parameters[p].states)
      EXPECT_TRUE(at::equal(state, at::zeros_like(state)));
  }
  const ModelState other = initial_state(a.model(), Precision::Float32, 12, 2);
  EXPECT_FALSE(at::equal(other.parameters[0].parameter, a.state().parameters[0].parameter));
}

}  // namespace
}  // namespace garonne::exec
