// Training graphs of made-up networks with plausible sizes and costs, for tests and benchmarks of
// solvers: operations and bytes of the usual layers at 1e13 operations and 1e12 bytes a second.
#pragma once

#include <cstdint>
#include <string>

#include "plan/graph/computation_graph.hpp"

namespace garonne::plan {

// About `tasks` tasks, forward and backward together; the seed varies widths, depths and the ratio
// of computing to moving.
ComputationGraph make_residual_graph(int tasks, std::uint64_t seed);  // convolutions, four stages
ComputationGraph make_transformer_graph(int tasks, std::uint64_t seed);  // pre-norm decoder
ComputationGraph make_u_shaped_graph(int tasks, std::uint64_t seed);     // skips across the whole

// "residual", "transformer" or "u-shaped"; throws ConfigError for another.
ComputationGraph make_sample_graph(const std::string& family, int tasks, std::uint64_t seed);

// One block of a GPT: norm, qkv, attention, projection, residual, norm, up, gelu, down, residual,
// and their backwards.
ComputationGraph make_gpt_block_graph(std::int64_t tokens, std::int64_t hidden);

// A random graph of `forwards` forward and as many backward tasks with small integer sizes and
// seconds; about `skips` reads beyond the task before.
ComputationGraph make_random_graph(int forwards, int skips, std::uint64_t seed);

}  // namespace garonne::plan
