// Devices without a GPU that transports between buffers of a device are tried on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/tier_memory.hpp"
#include "dist/session.hpp"
#include "dist/transport.hpp"

namespace garonne::dist {

// A device whose Compute is late by a seeded plan, its memory, and a transport for it. One thread
// uses it.
class DeviceBench {
 public:
  virtual ~DeviceBench() = default;
  DeviceBench(const DeviceBench&) = delete;
  DeviceBench& operator=(const DeviceBench&) = delete;

  virtual device::Device& device() = 0;
  // `nodes`: by member, for transports that ask. Collective over the members.
  virtual std::unique_ptr<Transport> make(Session& session, CommunicationThread& thread,
                                          const std::vector<int>& members,
                                          TransportOptions options = {},
                                          const std::vector<int>& nodes = {}) = 0;
  // What was done that a real device or library does not forgive, and what was not given back. All
  // transports are gone; ends the device.
  virtual std::vector<std::string> problems() = 0;

  // Of the device, for the life of the bench.
  std::byte* allocate(std::int64_t bytes);
  // By kernels on Compute, so late and in order. `read` waits for it.
  template <typename Value>
  void write(std::byte* to, const std::vector<Value>& values) {
    const auto* begin = reinterpret_cast<const std::byte*>(values.data());
    write_bytes(to, {begin, begin + values.size() * sizeof(Value)});
  }
  template <typename Value>
  std::vector<Value> read(const std::byte* from, std::int64_t count) {
    std::vector<Value> values(static_cast<std::size_t>(count));
    read_bytes(reinterpret_cast<std::byte*>(values.data()), from,
               count * static_cast<std::int64_t>(sizeof(Value)));
    return values;
  }

  // A kernel on Compute.
  virtual void put(std::function<void()> kernel) = 0;
  // Where a kernel finds it.
  virtual std::byte* find(const std::byte* address) = 0;

 protected:
  DeviceBench() = default;
  virtual device::TierMemory& memory() = 0;

 private:
  void write_bytes(std::byte* to, std::vector<std::byte> bytes);
  void read_bytes(std::byte* to, const std::byte* from, std::int64_t bytes);
};

// "mpi" staged, on the emulated device and on the fake CUDA runtime, and "nccl" on the fake.
enum class BenchKind { EmulatedMpi, CudaMpi, CudaNccl };
std::string to_string(BenchKind kind);

// Collective over all ranks. Without a seed nothing is late. `pinned_bytes`: what there is for what
// is staged.
std::unique_ptr<DeviceBench> make_bench(BenchKind kind, const Session& session, bool late,
                                        std::int64_t pinned_bytes = std::int64_t{12} << 20);

}  // namespace garonne::dist
