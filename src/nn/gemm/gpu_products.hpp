// What the libraries of products on GPUs have alike: the tensor library calls them.
#pragma once

#include <ATen/BlasBackend.h>

#include "nn/gemm/product_library.hpp"

namespace garonne::nn {

// While there is one the tensor library's products on GPUs are this library's. It is a switch of
// the process: one thread multiplies on GPUs.
class PreferredBlas {
 public:
  explicit PreferredBlas(at::BlasBackend library);
  ~PreferredBlas();
  PreferredBlas(const PreferredBlas&) = delete;
  PreferredBlas& operator=(const PreferredBlas&) = delete;

 private:
  at::BlasBackend before_;
};

class GpuProducts : public ProductLibrary {
 public:
  bool works_on(DeviceKind kind) const final { return kind == DeviceKind::Cuda; }
  bool available() const final;

  // Workspaces are kept from the start on (exec::warm_up_gpu_library).
  std::int64_t workspace_bytes(const Declaration&, const ProductShape&) const final { return 0; }

  void input_gradient(const Queue& queue, const at::Tensor& gradient, const at::Tensor& weight,
                      at::Tensor& result, double scale) const final;
  void weight_gradient(const Queue& queue, const at::Tensor& gradient, const at::Tensor& x,
                       at::Tensor& result, bool accumulate, double scale) const final;

 protected:
  virtual at::BlasBackend backend() const = 0;
};

}  // namespace garonne::nn
