// Stands in for gpu_library.cpp in builds without CUDA.
#include "base/error.hpp"
#include "exec/gpu_library.hpp"

namespace garonne::exec {
namespace {

[[noreturn]] void refuse() {
  throw NotBuiltError("CUDA", "configure with scripts/setup --cuda, or set run.device to \"cpu\"");
}

}  // namespace

bool built_with_cuda() {
  return false;
}

void set_gpu_environment() {}

void prepare_gpu_library() {
  refuse();
}

void use_gpu(const Queue&, int) {
  refuse();
}

void warm_up_gpu_library(const Queue&) {
  refuse();
}

void drop_gpu_workspaces() {
  refuse();
}

std::string gpu_environment_text() {
  refuse();
}

}  // namespace garonne::exec
