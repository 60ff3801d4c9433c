// NCCL itself on one GPU: a communicator of one rank that sends to itself, and the kernel of the
// sums. Fails where there is no GPU.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include "device/cuda_device.hpp"
#include "dist/device_sum.hpp"
#include "dist/nccl_lane.hpp"
#include "rank_sums.hpp"

namespace garonne::dist {
namespace {

// The most that a kernel adds up at once, all of them on the device.
constexpr std::int64_t most_elements = 1 << 20;
constexpr std::int64_t device_bytes = (most_device_terms + 1) * most_elements * 4;
constexpr std::int64_t pinned_bytes = 2 * most_elements * 4;

class NcclLoopTest : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    ASSERT_EQ(runtime_->device_count(count), device::CudaStatus::Success);
    ASSERT_GT(count, 0) << "the label gpu is for machines that have one";
    device_ = std::make_unique<device::CudaDevice>(
        *runtime_, device::CudaSettings{.longest_wait_seconds = 60});
    memory_ = &device_->reserve(Tier::Device, device_bytes);
    pinned_ = &device_->reserve(Tier::Host, pinned_bytes);
  }

  template <typename Value>
  std::byte* upload(const std::vector<Value>& values) {
    const auto bytes = static_cast<std::int64_t>(values.size() * sizeof(Value));
    const device::Span staged = pinned_->allocate(bytes, "values");
    const device::Span there = memory_->allocate(bytes, "values");
    std::memcpy(staged.data, values.data(), static_cast<std::size_t>(bytes));
    device_->wait(device_->copy(Lane::CopyIn, {Tier::Device, there.data, bytes},
                                {Tier::Host, staged.data, bytes}, "values"));
    pinned_->release(staged);
    return there.data;
  }
  std::vector<float> download(std::byte* from, std::int64_t elements) {
    const device::Span staged = pinned_->allocate(elements * 4, "values");
    device_->wait(device_->copy(Lane::CopyOut, {Tier::Host, staged.data, elements * 4},
                                {Tier::Device, from, elements * 4}, "values"));
    std::vector<float> values(static_cast<std::size_t>(elements));
    std::memcpy(values.data(), staged.data, values.size() * sizeof(float));
    pinned_->release(staged);
    return values;
  }
  device::CudaStream compute() const {
    return static_cast<device::CudaStream>(device_->queue(Lane::Compute).native);
  }

  std::unique_ptr<device::CudaRuntime> runtime_ = device::make_cuda_runtime();
  std::unique_ptr<device::CudaDevice> device_;
  device::TierMemory* memory_ = nullptr;
  device::TierMemory* pinned_ = nullptr;
};

TEST_F(NcclLoopTest, OneRankSendsToItself) {
  const auto nccl = make_nccl_library();
  int version = 0;
  ASSERT_EQ(nccl->version(version), NcclStatus::Success);
  EXPECT_GE(version, 22800);
  const NcclCalls calls(*runtime_, *nccl, 0, 60);
  NcclId id;
  calls.nccl(nccl->make_id(id), "ncclGetUniqueId", "loop", nullptr);
  NcclLane lane(calls, "loop", 8);
  lane.start(id, 1, 0);
  device::CudaEvent ready = nullptr;
  calls.cuda(runtime_->create_event(ready, false), "cudaEventCreateWithFlags", "loop");
  std::uint64_t number = 0;
  for (const std::int64_t elements : {std::int64_t{1}, std::int64_t{1000}, most_elements}) {
    const auto values = contribution<float>(3, elements);
    std::byte* const from = upload(values);
    std::byte* const to = upload(contribution<float>(4, elements));
    calls.cuda(runtime_->record_event(ready, compute()), "cudaEventRecord", "loop");
    lane.begin(ready, "loop");
    lane.grouped([&] {
      lane.send(from, elements * 4, 0);
      lane.receive(to, elements * 4, 0);
    });
    lane.all_gather(to, to, elements * 4);
    lane.broadcast(to, elements * 4, 0);
    lane.end(++number);
    calls.wait(
        [&] {
          lane.look(std::chrono::steady_clock::now());
          const auto trouble = lane.trouble(std::chrono::steady_clock::now());
          if (trouble) throw CommunicationError(*trouble);
          return lane.idle();
        },
        "loop");
    EXPECT_TRUE(equal_bits(download(to, elements), values)) << elements;
  }
  lane.finish();
  calls.cuda(runtime_->destroy_event(ready), "cudaEventDestroy", "loop");
}

// What a graph has of NCCL is carried out each time, with what is there then.
TEST_F(NcclLoopTest, OneRankSendsToItselfInAGraph) {
  const auto nccl = make_nccl_library();
  const NcclCalls calls(*runtime_, *nccl, 0, 60);
  NcclId id;
  calls.nccl(nccl->make_id(id), "ncclGetUniqueId", "loop", nullptr);
  NcclLane lane(calls, "loop", 8);
  lane.start(id, 1, 0);
  device::CudaEvent ready = nullptr;
  calls.cuda(runtime_->create_event(ready, false), "cudaEventCreateWithFlags", "loop");
  constexpr std::int64_t elements = 1 << 16;
  const device::Span staged = pinned_->allocate(elements * 4, "values");
  const device::Span from = memory_->allocate(elements * 4, "values");
  const device::Span to = memory_->allocate(elements * 4, "values");
  const auto exchange = [&] {
    calls.cuda(runtime_->record_event(ready, compute()), "cudaEventRecord", "loop");
    lane.begin(ready, "loop");
    lane.grouped([&] {
      lane.send(from.data, elements * 4, 0);
      lane.receive(to.data, elements * 4, 0);
    });
    lane.end(1);
  };
  exchange();  // connects
  calls.wait(
      [&] {
        lane.look(std::chrono::steady_clock::now());
        return lane.idle();
      },
      "loop");
  device_->begin_capture("loop");
  device_->order(Lane::Compute, device_->copy(Lane::CopyIn, from, staged, "values"));
  exchange();
  calls.cuda(runtime_->wait_event(compute(), lane.last_ended()), "cudaStreamWaitEvent", "loop");
  lane.forget_recorded();
  const int graph = device_->end_capture("loop");
  for (const int turn : {1, 2, 3}) {
    const auto values = contribution<float>(turn, elements);
    std::memcpy(staged.data, values.data(), static_cast<std::size_t>(elements) * 4);
    device_->wait(device_->launch(graph, "loop"));
    EXPECT_TRUE(equal_bits(download(to.data, elements), values)) << turn;
  }
  device_->drop(graph);  // before its communicator
  lane.finish();
  calls.cuda(runtime_->destroy_event(ready), "cudaEventDestroy", "loop");
}

TEST_F(NcclLoopTest, TheKernelRoundsWhatTravelsInBFloat16) {
  constexpr std::int64_t elements = 1001;
  DeviceTerms terms;
  std::vector<int> members;
  for (int term = 0; term < 5; ++term) {
    members.push_back(term);
    if (term == 2) terms.wide = term;
    terms.terms[terms.count++] = term == 2
                                     ? upload(contribution<float>(term, elements))
                                     : upload(as_bfloat16(narrow_contribution(term, elements)));
  }
  auto* const result = static_cast<std::byte*>(const_cast<void*>(terms.terms[2]));
  ASSERT_EQ(device_sum_in_order(result, terms, elements, narrow_sum, compute()),
            device::CudaStatus::Success);
  device_->launched(Lane::Compute, "sum");
  EXPECT_TRUE(equal_bits(download(result, elements), narrow_reference(members, elements)));
}

TEST_F(NcclLoopTest, TheKernelAddsInTheOrderOfTheTerms) {
  for (const int count : {1, 2, 3, most_device_terms}) {
    for (const std::int64_t elements :
         {std::int64_t{1}, std::int64_t{31}, std::int64_t{1001}, most_elements}) {
      DeviceTerms terms;
      std::vector<int> members;
      for (int term = 0; term < count; ++term) {
        members.push_back(term);
        terms.terms[terms.count++] = upload(contribution<float>(term, elements));
      }
      // In the place of the last term.
      auto* const result = static_cast<std::byte*>(const_cast<void*>(terms.terms[count - 1]));
      ASSERT_EQ(device_sum_in_order(result, terms, elements, ScalarType::Float32, compute()),
                device::CudaStatus::Success);
      device_->launched(Lane::Compute, "sum");
      EXPECT_TRUE(equal_bits(download(result, elements), reference<float>(members, elements)));
      for (int term = 0; term < count; ++term) {
        memory_->release({Tier::Device,
                          static_cast<std::byte*>(const_cast<void*>(terms.terms[term])),
                          elements * 4});
      }
    }
  }
}

}  // namespace
}  // namespace garonne::dist
