#include "nn/gemm/gpu_products.hpp"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <c10/util/Exception.h>

namespace garonne::nn {
namespace {

class Silent final : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

void prefer(at::BlasBackend library) {
  at::Context& context = at::globalContext();
  if (context.blasPreferredBackend() == library) return;
  // It would say that the switch is new.
  static Silent silent;
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  context.setBlasPreferredBackend(library);
}

}  // namespace

PreferredBlas::PreferredBlas(at::BlasBackend library)
    : before_(at::globalContext().blasPreferredBackend()) {
  prefer(library);
}

PreferredBlas::~PreferredBlas() {
  prefer(before_);
}

bool GpuProducts::available() const {
  return at::globalContext().hasCuBLASLt();
}

void GpuProducts::input_gradient(const Queue&, const at::Tensor& gradient, const at::Tensor& weight,
                                 at::Tensor& result, double scale) const {
  const PreferredBlas preferred(backend());
  if (scale == 1) {
    at::mm_out(result, gradient, weight);
  } else {
    at::addmm_out(result, result, gradient, weight, /*beta=*/0, /*alpha=*/scale);
  }
}

void GpuProducts::weight_gradient(const Queue&, const at::Tensor& gradient, const at::Tensor& x,
                                  at::Tensor& result, bool accumulate, double scale) const {
  const PreferredBlas preferred(backend());
  const int beta = accumulate ? 1 : 0;
  if (x.scalar_type() == at::kBFloat16) {
    // Added in float32 within the product, which is not rounded before.
    at::addmm_out(result, result, gradient.t(), x, at::kFloat, beta, /*alpha=*/scale);
  } else {
    at::addmm_out(result, result, gradient.t(), x, beta, /*alpha=*/scale);
  }
}

}  // namespace garonne::nn
