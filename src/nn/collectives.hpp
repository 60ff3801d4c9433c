// Nodes whose passes are divided at a collective over the tensor group of `ranks` members, and that
// compute nothing. The backward of each is the dual of its forward.
#pragma once

#include <cstdint>
#include <memory>

#include "nn/node.hpp"

namespace garonne::nn {

// What the sums of these nodes travel in: values of bfloat16 as they are, of which every rank's is
// then rounded once already, or as float32, like gradients, in twice the bytes. They are added in
// float32 and rounded once in both. Without effect on other types.
enum class SumWire { Compute, Gradient };

// x [elements], equal on all ranks, used by each for its own part -> x. Backward: the sum of the
// gradients.
std::unique_ptr<Node> make_copy_to_tensor(std::int64_t elements, int ranks, SumWire wire);

// x [elements] -> the sum over the ranks, in rank order. Backward: the gradient as it is.
std::unique_ptr<Node> make_reduce_from_tensor(std::int64_t elements, int ranks, SumWire wire);

// This rank's piece of x [elements / ranks] -> all pieces [elements], each used by every rank for
// its own part. Backward: this rank's piece of the sum of the gradients. `ranks` divides elements.
std::unique_ptr<Node> make_gather_to_tensor(std::int64_t elements, int ranks, SumWire wire);

// x [elements] -> this rank's piece [elements / ranks] of the sum. Backward: the pieces of the
// gradient, gathered.
std::unique_ptr<Node> make_scatter_from_tensor(std::int64_t elements, int ranks, SumWire wire);

// float64 x [elements / ranks] -> those of all ranks [elements], from which every rank computes the
// same. Backward: this rank's own piece of the gradient, without communication.
std::unique_ptr<Node> make_gather_statistics(std::int64_t elements, int ranks);

}  // namespace garonne::nn
