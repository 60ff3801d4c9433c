// The threads of the tensor library and of the kernels, for the whole test program. Include it in
// one file of each.
#pragma once

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <memory>

#include "kernels/session.hpp"

namespace garonne::test {

inline std::unique_ptr<kernels::KernelSession> kernel_session;

// At most two.
inline void use_threads(int threads) {
  at::set_num_threads(threads);
  kernel_session->use_threads(threads);
}

class ComputeEnvironment : public ::testing::Environment {
 public:
  void SetUp() override {
    kernel_session = std::make_unique<kernels::KernelSession>(2);
    use_threads(2);
  }
  void TearDown() override { kernel_session.reset(); }
};

inline ::testing::Environment* const compute_environment =
    ::testing::AddGlobalTestEnvironment(new ComputeEnvironment);

}  // namespace garonne::test
