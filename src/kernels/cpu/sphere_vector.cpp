#include "kernels/sphere_vector.hpp"

#include "kernels/cpu/expect_host.hpp"

#include <numbers>
#include <vector>

namespace garonne::kernels {

namespace {

// Scalar transforms of one call, with a workspace of their own.
class Transforms {
 public:
  Transforms(const Queue& queue, const SphereVectorArguments& given, const SphereFactors& factors)
      : queue_(queue),
        given_(given),
        factors_(factors),
        workspace_(static_cast<std::size_t>(
                       sphere_workspace_bytes(given.type, given.shape, given.threads)) +
                   64) {}

  void analyse(LegendreFunction function, const void* field, void* coefficients) {
    sphere_analysis(queue_, call(function, const_cast<void*>(field), coefficients));
  }
  void synthesise(LegendreFunction function, const void* coefficients, void* field) {
    sphere_synthesis(queue_, call(function, field, const_cast<void*>(coefficients)));
  }

 private:
  SphereArguments call(LegendreFunction function, void* field, void* coefficients) {
    const auto address = reinterpret_cast<std::uintptr_t>(workspace_.data());
    SphereArguments arguments;
    arguments.type = given_.type;
    arguments.shape = given_.shape;
    arguments.function = function;
    arguments.table = function == LegendreFunction::PolarDerivative ? given_.derivative_table
                                                                    : given_.order_table;
    arguments.factors = factors_;
    arguments.grid = field;
    arguments.coefficients = coefficients;
    arguments.batch = given_.batch;
    arguments.channels = given_.channels;
    arguments.workspace = workspace_.data() + (64 - address % 64) % 64;
    arguments.threads = given_.threads;
    return arguments;
  }

  Queue queue_;
  const SphereVectorArguments& given_;
  SphereFactors factors_;
  std::vector<unsigned char> workspace_;
};

std::size_t coefficient_pairs(const SphereVectorArguments& given) {
  return static_cast<std::size_t>(given.shape.rows() * given.batch * given.channels);
}

// to += sign · i · from, of complex numbers.
template <typename T>
void add_turned(const std::vector<T>& from, T sign, T* to) {
  for (std::size_t i = 0; i < from.size(); i += 2) {
    to[i] -= sign * from[i + 1];
    to[i + 1] += sign * from[i];
  }
}

// u · ∇Y and u · (r̂ × ∇Y), integrated: divergence = -(D u_s - i M u_e), vorticity = -(D u_e + i M
// u_s), with D the sums with dP̄/dθ and M those with m P̄ / sin θ.
template <typename T>
void analyse(const Queue& queue, const SphereVectorArguments& given) {
  const double step = 2 * std::numbers::pi / static_cast<double>(given.shape.longitudes);
  // The sign of both is in the factors.
  Transforms transforms(queue, given, {given.weights, -step, -step});
  std::vector<T> turned(2 * coefficient_pairs(given));
  T* const divergence = static_cast<T*>(given.divergence);
  T* const vorticity = static_cast<T*>(given.vorticity);
  transforms.analyse(LegendreFunction::PolarDerivative, given.southward, divergence);
  transforms.analyse(LegendreFunction::OrderOverSine, given.eastward, turned.data());
  add_turned(turned, T{-1}, divergence);
  transforms.analyse(LegendreFunction::PolarDerivative, given.eastward, vorticity);
  transforms.analyse(LegendreFunction::OrderOverSine, given.southward, turned.data());
  add_turned(turned, T{1}, vorticity);
}

// Coefficients over -l(l+1), and those times i.
template <typename T>
void solve_laplacian(const SphereVectorArguments& given, const void* coefficients,
                     std::vector<T>& potential, std::vector<T>& turned) {
  const T* const from = static_cast<const T*>(coefficients);
  const std::int64_t width = 2 * given.batch * given.channels;
  potential.resize(2 * coefficient_pairs(given));
  turned.resize(potential.size());
  for (std::int64_t l = 0; l < given.shape.degrees; ++l) {
    const double factor = l == 0 ? 0 : -1 / static_cast<double>(l * (l + 1));
    const auto begin = static_cast<std::size_t>(given.shape.first_row(l) * width);
    const auto end = static_cast<std::size_t>(given.shape.first_row(l + 1) * width);
    for (std::size_t i = begin; i < end; i += 2) {
      potential[i] = l == 0 ? T{0} : static_cast<T>(factor * static_cast<double>(from[i]));
      potential[i + 1] = l == 0 ? T{0} : static_cast<T>(factor * static_cast<double>(from[i + 1]));
      turned[i] = -potential[i + 1];
      turned[i + 1] = potential[i];
    }
  }
}

// u_s = ∂Φ/∂θ - (1/sin θ) ∂Ψ/∂λ, u_e = (1/sin θ) ∂Φ/∂λ + ∂Ψ/∂θ
template <typename T>
void synthesise(const Queue& queue, const SphereVectorArguments& given) {
  Transforms transforms(queue, given, {});
  std::vector<T> potential;
  std::vector<T> turned;
  std::vector<T> part(
      static_cast<std::size_t>(given.shape.points() * given.batch * given.channels));
  T* const southward = static_cast<T*>(given.southward);
  T* const eastward = static_cast<T*>(given.eastward);
  solve_laplacian(given, given.divergence, potential, turned);
  transforms.synthesise(LegendreFunction::PolarDerivative, potential.data(), southward);
  transforms.synthesise(LegendreFunction::OrderOverSine, turned.data(), eastward);
  solve_laplacian(given, given.vorticity, potential, turned);
  transforms.synthesise(LegendreFunction::OrderOverSine, turned.data(), part.data());
  for (std::size_t i = 0; i < part.size(); ++i) southward[i] -= part[i];
  transforms.synthesise(LegendreFunction::PolarDerivative, potential.data(), part.data());
  for (std::size_t i = 0; i < part.size(); ++i) eastward[i] += part[i];
}

}  // namespace

void sphere_vector_analysis(const Queue& queue, const SphereVectorArguments& arguments) {
  expect_host(queue);
  if (arguments.type == ElementType::Float32) {
    analyse<float>(queue, arguments);
  } else {
    analyse<double>(queue, arguments);
  }
}

void sphere_vector_synthesis(const Queue& queue, const SphereVectorArguments& arguments) {
  expect_host(queue);
  if (arguments.type == ElementType::Float32) {
    synthesise<float>(queue, arguments);
  } else {
    synthesise<double>(queue, arguments);
  }
}

}  // namespace garonne::kernels
