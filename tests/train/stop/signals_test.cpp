// Requests to stop that come while kernels run.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include "nn/gemm/product_library.hpp"
#include "train/stop/signals.hpp"

namespace garonne::train {
namespace {

using namespace std::chrono_literals;

const std::array<int, 4> requests = {SIGHUP, SIGTERM, SIGINT, SIGUSR1};

bool receives(int number) {
  sigset_t blocked;
  sigemptyset(&blocked);
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  return sigismember(&blocked, number) == 0;
}

TEST(SignalGuard, WhoMakesItAndStartsThreadsReceivesNone) {
  {
    const SignalGuard guard(/*launched=*/true);
    for (const int number : requests) EXPECT_FALSE(receives(number));
    std::thread([] {
      for (const int number : requests) EXPECT_FALSE(receives(number));
    }).join();
    EXPECT_EQ(guard.request(), StopRequest::None);
    kill(getpid(), SIGTERM);
    while (guard.request() != StopRequest::AtOnce) std::this_thread::sleep_for(1ms);
  }
  for (const int number : requests) EXPECT_TRUE(receives(number));
}

// The inner products of oneDNN leave the register of the stack pointing into the heap for most of
// their time: a handler on the thread that computes overwrites whatever lies there.
TEST(SignalGuard, RequestsLeaveTheMemoryOfKernelsAlone) {
  const nn::ProductLibrary* const library = nn::find_product_library("oneDNN");
  ASSERT_NE(library, nullptr);
  at::set_num_threads(1);
  const at::Tensor x = at::ones({512, 512});
  const at::Tensor weight = at::ones({128, 512});
  const at::Tensor bias = at::zeros({128});
  const SignalGuard guard(/*launched=*/false);
  std::atomic<int> sent{0};
  std::thread sender([&] {
    for (; sent < 300; ++sent) {
      kill(getpid(), sent % 2 == 0 ? SIGUSR1 : SIGTERM);
      std::this_thread::sleep_for(1ms);
    }
  });
  while (sent < 300) {
    const at::Tensor y = library->forward(Queue(), x, weight, bias);
    EXPECT_TRUE(at::all(y == 512).item<bool>());
  }
  sender.join();
  EXPECT_EQ(guard.request(), StopRequest::AfterStep);
}

}  // namespace
}  // namespace garonne::train
