// What the tensor library and the libraries below it are told about GPUs. In builds without CUDA
// gpu_library_absent.cpp stands in.
//
// The order in a process: the environment before any thread, the rest of prepare_gpu_library before
// the first tensor on a GPU, use_gpu on each thread that computes with tensors.
#pragma once

#include <string>

#include "base/device.hpp"

namespace garonne::exec {

// Whether this build has CUDA.
bool built_with_cuda();

// What libraries read when they start, on which bits depend, unless the user has set it: sizes of
// workspaces. At the very start, as long as there is one thread. Nothing in builds without CUDA.
void set_gpu_environment();

// Tensors of GPUs are blocks of device tiers from now on (exec/device_tier.hpp), and operations
// give equal bits each time; how products round is for exec/product_switches.hpp to say. Can be
// called again. NotBuiltError in builds without CUDA.
void prepare_gpu_library();

// Tensors that the calling thread makes on a GPU are on device `ordinal` of the visible ones, and
// its operations go to `queue`, which is that device's Compute.
void use_gpu(const Queue& queue, int ordinal);

// Makes what the libraries of matrix products keep for the queue: handles and workspaces. The
// latter are blocks of the tier whose scope is open.
void warm_up_gpu_library(const Queue& queue);

// Gives all workspaces back to their tiers; nothing that uses them may be under way.
void drop_gpu_workspaces();

// What those workspaces are by, for the table at the start: "CUBLAS_WORKSPACE_CONFIG=:4096:8, …".
std::string gpu_environment_text();

}  // namespace garonne::exec
