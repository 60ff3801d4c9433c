// Toy programs on the GPU's device over the fake runtime.
#pragma once

#include <string>

#include "device/cuda_device.hpp"
#include "fake_cuda_runtime.hpp"
#include "toy_program.hpp"

namespace garonne::device {

// What is wrong after a program was carried out and the device closed: "other bits", what the
// runtime does not forgive, what is left of streams, events and memory, or what was thrown. Empty
// where nothing is.
std::string problem_of_cuda_toy(const ToyProgram& program, const ToyResult& reference,
                                FakeCudaRuntime& runtime, CudaSettings settings = {});

// The program with all kernels on Compute.
ToyProgram on_streams(ToyProgram program);
// The same for a program on streams that is recorded and carried out `launches` times. Something
// that was carried out while it was recorded is a problem, too.
std::string problem_of_cuda_graph(const ToyProgram& program, const ToyResult& reference,
                                  FakeCudaRuntime& runtime, int launches);

}  // namespace garonne::device
