#include "base/in_threads.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <thread>
#include <vector>

#include "base/index.hpp"
#include "base/process_cores.hpp"

namespace garonne {

int usable_cores() {
  const int cores = static_cast<int>(cores_of_this_process().size());
  const double quota = core_quota_of_this_process();
  const int most = quota > 0 ? static_cast<int>(std::ceil(quota)) : cores;
  return std::max(1, std::min(cores, most));
}

void in_threads(int parts, const std::function<void(int)>& work) {
  if (parts <= 0) return;
  std::vector<std::exception_ptr> failures(as_index(parts));
  std::atomic<int> next = 0;
  const auto work_on = [&] {
    for (int part = next++; part < parts; part = next++) {
      try {
        work(part);
      } catch (...) {
        failures[as_index(part)] = std::current_exception();
      }
    }
  };
  std::vector<std::thread> threads;
  for (int k = 1; k < std::min(usable_cores(), parts); ++k) threads.emplace_back(work_on);
  work_on();
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace garonne
