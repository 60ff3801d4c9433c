// How far rounding moves what a model comes to, from no constant of a model: it is run in float64
// with every number that a lower precision stores between nodes moved at random by at most half a
// unit in its last place. To first order a result is then off by the sum of all these roundings,
// each times how much it matters there, which is what the precision itself does: its errors are of
// the same size, whatever the number of operations and their condition. Inside of nodes numbers are
// float32 or better, or are rounded once more at most.
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "nn/element_type.hpp"
#include "nn/model.hpp"

namespace garonne::test {

// Half a unit in the last place of 1; 0 for what is not rounded.
inline double half_unit(NumberType type) {
  switch (type) {
    case NumberType::Float64:
      return std::ldexp(1.0, -53);
    case NumberType::Float32:
      return std::ldexp(1.0, -24);
    case NumberType::BFloat16:
      return std::ldexp(1.0, -8);
    case NumberType::Int64:
      break;
  }
  return 0;
}

class Roundings {
 public:
  // `model` as it is made for the precision.
  Roundings(const nn::Model& model, Precision precision, std::uint64_t seed)
      : generator_(at::detail::createCPUGenerator(seed)) {
    for (const auto& value : model.graph.values) types_.push_back(value.type);
    parameters_ = precision == Precision::BFloat16  ? NumberType::BFloat16
                  : precision == Precision::Float32 ? NumberType::Float32
                                                    : NumberType::Float64;
  }

  // A value of the graph or its gradient.
  at::Tensor value(std::size_t which, const at::Tensor& exact) {
    return moved(exact, types_.at(which));
  }
  at::Tensor parameter(const at::Tensor& exact) { return moved(exact, parameters_); }

 private:
  // What the type has stays.
  at::Tensor moved(const at::Tensor& exact, NumberType type) {
    if (exact.scalar_type() != at::kDouble) return exact;
    const at::Tensor random = at::rand(exact.sizes(), generator_, exact.options());
    const at::Tensor off = exact * (1 + half_unit(type) * (2 * random - 1));
    return at::where(exact == exact.to(nn::scalar_type_of(type)).to(at::kDouble), exact, off);
  }

  at::Generator generator_;
  std::vector<NumberType> types_;
  NumberType parameters_;
};

// Root mean squares of errors over runs with roundings, by the names of what was computed.
class ErrorsOfRounding {
 public:
  static constexpr int runs = 12;
  // An error of one number exceeds so many of its deviations, as known from these runs, once in
  // three thousand times; those of many numbers together hardly differ from run to run.
  static constexpr double deviations = 5;

  using Named = std::map<std::string, at::Tensor>;

  // A run with roundings.
  void add(const Named& found, const Named& exact) {
    for (const auto& [name, wanted] : exact)
      squares_[name] += std::pow(error(found.at(name), wanted), 2) / runs;
  }
  // The run in the precision itself.
  void check(const Named& found, const Named& exact) const {
    for (const auto& [name, wanted] : exact) {
      const double allowed = deviations * std::sqrt(squares_.at(name));
      const double off = error(found.at(name), wanted);
      EXPECT_LE(off, allowed) << name;
    }
  }

 private:
  static double error(const at::Tensor& found, const at::Tensor& exact) {
    return (found.to(at::kDouble) - exact).norm().item<double>();
  }

  std::map<std::string, double> squares_;
};

}  // namespace garonne::test
