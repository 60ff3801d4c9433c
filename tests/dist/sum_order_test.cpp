// The canonical order of sums over nodes, and the exchange that keeps it, against sums made
// directly.
#include "dist/sum_order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/index.hpp"
#include "dist/device_sum.hpp"
#include "dist/reduction.hpp"
#include "rank_sums.hpp"

namespace garonne::dist {
namespace {

using Nodes = std::vector<std::vector<int>>;

TEST(SumOrder, IsAFunctionOfRanksAndRanksANode) {
  EXPECT_EQ(order_over_nodes({0}).nodes, Nodes({{0}}));
  EXPECT_EQ(order_over_nodes({5, 5, 5}).nodes, Nodes({{0, 1, 2}}));
  EXPECT_EQ(order_over_nodes({0, 0, 4, 4}).nodes, Nodes({{0, 1}, {2, 3}}));
  EXPECT_EQ(order_over_nodes({4, 0, 4, 0}).nodes, Nodes({{0, 2}, {1, 3}})) << "by first member";
  EXPECT_EQ(order_over_nodes({0, 1, 2}).nodes, Nodes({{0, 1, 2}})) << "one on each: the same sum";
  EXPECT_EQ(order_over_nodes({0, 0, 1}).nodes, Nodes({{0, 1, 2}})) << "nodes with unequal ranks";
  EXPECT_EQ(describe(order_over_nodes({0, 0, 0})), "in rank order");
  EXPECT_EQ(describe(order_over_nodes({0, 0, 4, 4})),
            "within each of 2 nodes over 2 ranks in rank order, then over the nodes");
}

// Of `nodes` nodes with so many members each, in a random order.
std::vector<int> random_placing(int nodes, int each, std::mt19937& random) {
  std::vector<int> placing;
  for (int node = 0; node < nodes; ++node)
    placing.insert(placing.end(), static_cast<std::size_t>(each), 100 - node);
  std::shuffle(placing.begin(), placing.end(), random);
  return placing;
}

TEST(SumOrder, TheHostAddsWithinNodesThenOverThem) {
  std::mt19937 random(5);
  int other_bits = 0;
  for (int round = 0; round < 60; ++round) {
    const int nodes = 1 + static_cast<int>(random() % 4);
    const int each = 1 + static_cast<int>(random() % 5);
    const std::int64_t elements = static_cast<std::int64_t>(random() % 300);
    const SumOrder order = order_over_nodes(random_placing(nodes, each, random));
    std::vector<int> members(static_cast<std::size_t>(nodes * each));
    std::iota(members.begin(), members.end(), 0);
    std::vector<std::vector<double>> terms;
    std::vector<const void*> addresses;
    for (const int member : members) {
      terms.push_back(contribution<double>(member, elements, round));
      addresses.push_back(terms.back().data());
    }
    const auto flat = reference<double>(members, elements, round);
    // In the place of some term.
    std::vector<double>& result = terms[random() % terms.size()];
    sum_in_order(result.data(), order, addresses, elements, ScalarType::Float64);
    EXPECT_TRUE(equal_bits(result, reference<double>(members, order, elements, round)));
    other_bits += !equal_bits(result, flat);
  }
  EXPECT_GT(other_bits, 20) << "two levels are another order";
}

// All members of a group in one process, step by step as on a device.
template <typename Scalar>
class Group {
 public:
  Group(const SumOrder& order, int members, std::int64_t elements, int salt)
      : members_(members), elements_(elements), piece_(piece_elements(elements, members)) {
    for (int member = 0; member < members; ++member) {
      steps_.push_back(reduction_of(order, member));
      data_.push_back(contribution<Scalar>(member, elements, salt));
      staging_.push_back(staging_for<Scalar>(elements, members));
    }
  }

  void reduce() {
    for (std::size_t step = 0; step < steps_.front().size(); ++step) {
      std::map<std::pair<int, int>, std::deque<std::vector<Scalar>>> wire;
      for (int member = 0; member < members_; ++member) {
        for (const auto& [peer, place] : steps_[as_index(member)][step].sends) {
          EXPECT_NE(peer, member);
          const Scalar* const begin = find(member, place);
          wire[{member, peer}].emplace_back(begin, begin + length(place.piece));
        }
      }
      for (int member = 0; member < members_; ++member) {
        for (const auto& [peer, place] : steps_[as_index(member)][step].receives) {
          EXPECT_GE(place.slot, 0) << "the data is received into";
          EXPECT_TRUE(written_[member].insert(place.slot).second) << "a slot is used twice";
          auto& messages = wire[{peer, member}];
          ASSERT_FALSE(messages.empty());
          ASSERT_EQ(std::ssize(messages.front()), length(place.piece));
          std::copy(messages.front().begin(), messages.front().end(), find(member, place));
          messages.pop_front();
        }
      }
      for (const auto& [ends, messages] : wire) EXPECT_TRUE(messages.empty()) << "sent to nobody";
      for (int member = 0; member < members_; ++member) {
        for (const PieceSum& sum : steps_[as_index(member)][step].sums) add(member, sum);
      }
    }
  }

  const std::vector<Scalar>& data(int member) const { return data_[as_index(member)]; }

 private:
  std::int64_t length(int piece) const {
    return piece_end(elements_, members_, piece) - piece_begin(elements_, members_, piece);
  }
  Scalar* find(int member, const PiecePlace& place) {
    if (place.slot < 0)
      return data_[as_index(member)].data() + piece_begin(elements_, members_, place.piece);
    EXPECT_LT(place.slot, members_ - 1) << "more staging than is there";
    return staging_[as_index(member)].data() + place.slot * piece_;
  }

  void add(int member, const PieceSum& sum) {
    EXPECT_TRUE(sum.result.slot >= 0 || sum.result.piece == member) << "foreign data is written";
    DeviceTerms terms;
    for (const PiecePlace& term : sum.terms) terms.terms[terms.count++] = find(member, term);
    add_device_terms(find(member, sum.result), terms, length(sum.result.piece), 0, 1);
  }

  int members_;
  std::int64_t elements_;
  std::int64_t piece_;
  std::vector<std::vector<ReductionStep>> steps_;
  std::vector<std::vector<Scalar>> data_;
  std::vector<std::vector<Scalar>> staging_;
  std::map<int, std::set<int>> written_;
};

TEST(Reduction, EveryMemberHasItsPieceOfTheSum) {
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    const int nodes = 1 + static_cast<int>(random() % 4);
    const int each = 1 + static_cast<int>(random() % 4);
    const int count = nodes * each;
    const std::int64_t elements = static_cast<std::int64_t>(random() % 200);
    const SumOrder order = order_over_nodes(random_placing(nodes, each, random));
    std::vector<int> members(static_cast<std::size_t>(count));
    std::iota(members.begin(), members.end(), 0);
    Group<float> group(order, count, elements, round);
    group.reduce();
    const auto expected = reference<float>(members, order, elements, round);
    for (const int member : members) {
      const auto before = contribution<float>(member, elements, round);
      for (std::int64_t index = 0; index < elements; ++index) {
        const auto place = static_cast<std::size_t>(index);
        const bool own = index >= piece_begin(elements, count, member) &&
                         index < piece_end(elements, count, member);
        ASSERT_EQ(group.data(member)[place], own ? expected[place] : before[place])
            << count << " members, " << elements << " elements, member " << member;
      }
    }
  }
}

// Of g ranks on each of n nodes, a node sends as much as if it were one member.
TEST(Reduction, LittleLeavesANode) {
  const SumOrder order = order_over_nodes({0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2});
  for (int member = 0; member < 12; ++member) {
    const auto steps = reduction_of(order, member);
    ASSERT_EQ(steps.size(), 2U);
    for (const PieceMove& move : steps[0].sends) EXPECT_EQ(move.peer / 4, member / 4);
    ASSERT_EQ(steps[1].sends.size(), 2U) << "of 12 pieces, to each other node";
    for (const PieceMove& move : steps[1].sends) {
      EXPECT_EQ(move.peer % 4, member % 4);
      EXPECT_EQ(move.place.piece, move.peer);
    }
  }
}

}  // namespace
}  // namespace garonne::dist
