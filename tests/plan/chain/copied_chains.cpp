#include "plan/chain/copied_chains.hpp"

#include <cmath>
#include <random>

#include "plan/chain/random_chains.hpp"

namespace garonne::plan::test {
namespace {

Chain chain_of(const std::vector<std::int64_t>& values, const std::vector<std::int64_t>& saved,
               const std::vector<double>& forward, const std::vector<double>& backward) {
  Chain chain;
  chain.input_bytes = values[0];
  for (std::size_t i = 0; i < saved.size(); ++i) {
    ChainBlock block;
    block.name = "block." + std::to_string(i);
    block.output_bytes = values[i + 1];
    block.forward = {forward[i], 0};
    block.options = {{"keep", saved[i], {forward[i], 0}, {backward[i], 0}}};
    chain.blocks.push_back(block);
  }
  return chain;
}

}  // namespace

Chain equal_blocks(int blocks) {
  const auto count = static_cast<std::size_t>(blocks);
  return chain_of(std::vector<std::int64_t>(count + 1, 1), std::vector<std::int64_t>(count, 2),
                  std::vector<double>(count, 1), std::vector<double>(count, 2));
}

Chain mixed_blocks() {
  return chain_of({1, 2, 1, 2, 1}, {3, 2, 4, 2}, {1, 2, 1, 2}, {2, 3, 2, 3});
}

Chain with_links(Chain chain, double out_bytes_per_second, double in_bytes_per_second) {
  chain.links = ChainLinks{out_bytes_per_second, in_bytes_per_second};
  return chain;
}

std::vector<CopyTableRow> copy_table() {
  using enum CopyTableMode;
  constexpr double none = no_plan;
  std::vector<CopyTableRow> rows;
  const auto add = [&](const std::string& name, Chain chain, CopyTableMode mode, double rate,
                       std::int64_t first_budget, std::vector<double> seconds) {
    if (mode != RecomputeOnly) chain = with_links(std::move(chain), rate, rate);
    rows.push_back({name, std::move(chain), mode, first_budget, std::move(seconds)});
  };
  const Chain three = equal_blocks(3);
  add("3 recompute", three, RecomputeOnly, 0, 5, {none, 12, 10, 10, 9, 9, 9});
  add("3 offload 1", three, OffloadOnly, 1, 5, {none, 13, 10, 9, 9, 9, 9});
  add("3 both 0.5", three, Both, 0.5, 5, {16, 11, 10, 9, 9, 9, 9});
  add("3 both 1", three, Both, 1, 5, {13, 11, 10, 9, 9, 9, 9});
  add("3 both 2", three, Both, 2, 5, {12, 10.5, 10, 9, 9, 9, 9});
  const Chain four = equal_blocks(4);
  add("4 recompute", four, RecomputeOnly, 0, 5, {none, 18, 15, 14, 13, 13, 12});
  add("4 offload 1", four, OffloadOnly, 1, 5, {none, 19, 16, 12, 12, 12, 12});
  add("4 both 0.5", four, Both, 0.5, 5, {22, 15, 14, 13, 13, 12, 12});
  add("4 both 1", four, Both, 1, 5, {18, 15, 13, 12, 12, 12, 12});
  add("4 both 2", four, Both, 2, 5, {16.5, 14.5, 13, 12, 12, 12, 12});
  add("4 both in turn 1", four, BothInTurn, 1, 5, {18, 15, 13, 12, 12, 12, 12});
  const Chain mixed = mixed_blocks();
  add("mixed recompute", mixed, RecomputeOnly, 0, 8, {none, 20, 18, 18, 17, 17, 17, 16});
  add("mixed offload 1", mixed, OffloadOnly, 1, 8, {none, 21, 19, 17, 17, 17, 16, 16});
  add("mixed offload 2", mixed, OffloadOnly, 2, 8, {none, 18.5, 18, 17, 16, 16, 16, 16});
  add("mixed both 1", mixed, Both, 1, 8, {22, 19, 18, 17, 17, 17, 16, 16});
  add("mixed both 2", mixed, Both, 2, 8, {21, 18.5, 18, 17, 16, 16, 16, 16});
  const auto add_records = [&](int blocks, double rate, std::vector<double> seconds) {
    add(std::to_string(blocks) + " records " + std::to_string(rate), equal_blocks(blocks),
        RecordsOnly, rate, 7, std::move(seconds));
  };
  add_records(4, 0.5, {26, 25, 16, 15, 12});
  add_records(4, 1, {18, 17, 12, 12, 12});
  add_records(5, 0.5, {36, 35, 24, 23, 16, 15, 15});
  add_records(5, 1, {24, 23, 16, 15, 15, 15, 15});
  add_records(6, 0.5, {46, 45, 32, 31, 24, 23, 18});
  add_records(6, 1, {30, 29, 20, 19, 18, 18, 18});
  add_records(6, 2, {22, 22, 18, 18, 18, 18, 18});
  return rows;
}

Chain random_copied_chain(std::uint64_t seed, int blocks, int most_options) {
  std::mt19937_64 random(seed + 77);
  const auto rate = [&] { return std::ldexp(1, static_cast<int>(random() % 5) - 2); };
  Chain chain = random_chain(static_cast<int>(seed % chain_families), seed, blocks, most_options);
  const double unit = seed % chain_families == 7 ? 0x1p40 : 1;
  chain.links = ChainLinks{rate() * unit, rate() * unit};
  if (seed % 4 != 3) return chain;
  for (ChainBlock& block : chain.blocks)
    block.weight_bytes = static_cast<std::int64_t>(random() % 6) * static_cast<std::int64_t>(unit);
  return chain;
}

}  // namespace garonne::plan::test
