// Factorised spectral weights beside weights that are made by definition and multiplied in complex
// numbers, with gradients by autograd.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <string>
#include <vector>

#include "nn/node_runner.hpp"
#include "nn/spectral/spectral_contraction.hpp"

namespace garonne::nn {
namespace {

struct FactorsCase {
  std::string factorization;
  bool factorized;
  ContractionSizes sizes;
  double rank;
};

std::vector<FactorsCase> factors_cases() {
  std::vector<FactorsCase> all;
  for (const char* const factorization : {"tucker", "cp"}) {
    for (const bool factorized : {true, false}) {
      all.push_back({factorization, factorized, {2, {5}, 3, 4}, 0.5});
      all.push_back({factorization, factorized, {3, {4, 6}, 5, 2}, 0.4});
      all.push_back({factorization, factorized, {1, {3, 4, 2}, 3, 3}, 0.6});
      // Ranks of one, and of more than there are modes.
      all.push_back({factorization, factorized, {2, {2, 3}, 4, 4}, 0.01});
      all.push_back({factorization, factorized, {2, {3, 2}, 4, 5}, 2.5});
      all.push_back({factorization, factorized, {1, {9, 8}, 24, 20}, 0.5});
    }
  }
  return all;
}

std::unique_ptr<SpectralContraction> contraction_of(const FactorsCase& item) {
  return item.factorization == "cp"
             ? make_cp_contraction(item.sizes, item.rank, 0.5, item.factorized)
             : make_tucker_contraction(item.sizes, item.rank, 0.5, item.factorized);
}

// [modes…, inputs, outputs] of complex factors.
at::Tensor weights_of(const FactorsCase& item, const std::vector<at::Tensor>& factors) {
  const std::size_t axes = item.sizes.kept.size();
  if (item.factorization == "tucker") {
    // Each product takes the first dimension and puts another one last.
    at::Tensor weights = factors[0];
    for (std::size_t axis = 0; axis < axes; ++axis)
      weights = at::tensordot(weights, factors[1 + axis], {0}, {1});
    weights = at::tensordot(weights, factors[1 + axes], {0}, {1});
    return at::tensordot(weights, factors[2 + axes], {0}, {0});
  }
  const std::string letters = std::string("abc").substr(0, axes);
  std::string equation = "r";
  for (const char letter : letters) equation += std::string(",") + letter + "r";
  return at::einsum(equation + ",ir,ro->" + letters + "io", factors);
}

struct Passes {
  at::Tensor y;
  at::Tensor of_x;
  std::vector<at::Tensor> of_parameters;
};

Passes reference(const FactorsCase& item, const at::Tensor& x,
                 const std::vector<at::Tensor>& parameters, const at::Tensor& of_y) {
  const at::AutoGradMode with_gradients(true);
  std::vector<at::Tensor> leaves;
  std::vector<at::Tensor> factors;
  for (const auto& parameter : parameters) {
    leaves.push_back(parameter.clone().requires_grad_(true));
    factors.push_back(at::view_as_complex(leaves.back()));
  }
  const at::Tensor weights =
      weights_of(item, factors)
          .reshape({item.sizes.modes(), item.sizes.inputs, item.sizes.outputs});
  const at::Tensor leaf = x.clone().requires_grad_(true);
  leaves.push_back(leaf);
  const at::Tensor y = at::einsum(
      "bmi,mio->bmo",
      {at::complex(leaf.select(1, 0).contiguous(), leaf.select(1, 1).contiguous()), weights});
  const at::Tensor parts = at::stack({at::real(y), at::imag(y)}, 1);
  Passes passes;
  passes.of_parameters = torch::autograd::grad({parts}, leaves, {of_y});
  passes.of_x = passes.of_parameters.back();
  passes.of_parameters.pop_back();
  passes.y = parts.detach();
  return passes;
}

TEST(SpectralFactors, ValuesAndGradientsAreThoseOfTheDefinition) {
  for (const FactorsCase& item : factors_cases()) {
    const auto contraction = contraction_of(item);
    SCOPED_TRACE(contraction->key());
    at::manual_seed(5);
    const auto random = [](at::IntArrayRef shape) {
      return at::randn(shape, at::TensorOptions().dtype(at::kDouble));
    };
    std::vector<at::Tensor> parameters;
    for (const auto& parameter : contraction->parameters())
      parameters.push_back(random(parameter.shape));
    const std::int64_t modes = item.sizes.modes();
    const at::Tensor x = random({item.sizes.batch, 2, modes, item.sizes.inputs});
    const at::Tensor of_y = random({item.sizes.batch, 2, modes, item.sizes.outputs});
    const Passes wanted = reference(item, x, parameters, of_y);

    const at::NoGradGuard no_gradients;
    EXPECT_LT(test::relative_error(contraction->forward(x, parameters), wanted.y), 1e-13);
    for (const bool accumulate : {false, true}) {
      std::vector<at::Tensor> targets;
      std::vector<ParameterGradient> gradients;
      for (const auto& parameter : parameters) {
        targets.push_back(at::full({parameter.numel()}, accumulate ? 0.25 : std::nan(""),
                                   at::TensorOptions().dtype(at::kDouble)));
        gradients.push_back({targets.back(), accumulate});
      }
      const at::Tensor of_x = contraction->backward(x, of_y, parameters, gradients.data());
      EXPECT_LT(test::relative_error(of_x, wanted.of_x), 1e-13);
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        const at::Tensor made = (targets[p] - (accumulate ? 0.25 : 0)).view(parameters[p].sizes());
        EXPECT_LT(test::relative_error(made, wanted.of_parameters[p]), 1e-12)
            << contraction->parameters()[p].name;
      }
    }
  }
}

}  // namespace
}  // namespace garonne::nn
