#include "device/cuda_host_functions.hpp"

#include <exception>
#include <utility>

#include "device/lane_error.hpp"

namespace garonne::device {

void CudaHostFunctions::launch(CudaStream stream, Lane lane, std::function<void()> work,
                               const std::string& activity) {
  auto made = std::make_unique<Function>(Function{this, lane, std::move(work), activity});
  Function* function = made.get();
  {
    const std::lock_guard lock(mutex_);
    functions_.emplace(function, std::move(made));
  }
  const CudaStatus status =
      check_.runtime().launch_host(stream, &CudaHostFunctions::call, function);
  if (status != CudaStatus::Success) take(function);
  check_(status, "cudaLaunchHostFunc", lane, activity);
}

void CudaHostFunctions::call(void* function) {
  auto* const called = static_cast<Function*>(function);
  CudaHostFunctions& owner = *called->owner;
  const std::unique_ptr<Function> mine = owner.take(called);
  if (owner.over()) return;
  if (const std::exception_ptr failure = failure_of(mine->lane, mine->activity, mine->work)) {
    owner.clock_.fail(failure);
  }
}

std::unique_ptr<CudaHostFunctions::Function> CudaHostFunctions::take(Function* function) {
  const std::lock_guard lock(mutex_);
  auto node = functions_.extract(function);
  return std::move(node.mapped());
}

bool CudaHostFunctions::over() {
  const std::lock_guard lock(mutex_);
  return abandoned_ || clock_.over();
}

void CudaHostFunctions::abandon() {
  const std::lock_guard lock(mutex_);
  abandoned_ = true;
}

void CudaHostFunctions::drop() {
  std::unordered_map<Function*, std::unique_ptr<Function>> dropped;
  const std::lock_guard lock(mutex_);
  dropped.swap(functions_);
}

}  // namespace garonne::device
