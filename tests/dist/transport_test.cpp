// Every transport against a sum in member order that each rank computes for itself.
#include "dist/transport.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/collective_bytes.hpp"
#include "base/error.hpp"
#include "dist/session.hpp"
#include "rank_sums.hpp"

namespace garonne::dist {
namespace {

constexpr std::int64_t sizes[] = {0, 1, 2, 3, 7, 1000, 65537, 1 << 20};

class TransportTest : public testing::Test {
 protected:
  TransportTest() : session_(Session::start()), thread_(session_) {
    members_.resize(static_cast<std::size_t>(session_.size()));
    std::iota(members_.begin(), members_.end(), 0);
  }

  std::unique_ptr<Transport> make(const std::vector<int>& members) {
    return make_transport("mpi", session_, thread_, members);
  }
  std::unique_ptr<Transport> make() { return make(members_); }

  template <typename Scalar>
  void check_all_reduce(Transport& transport) {
    for (const std::int64_t elements : sizes) {
      SCOPED_TRACE(elements);
      auto data = contribution<Scalar>(session_.rank(), elements);
      auto staging = staging_for<Scalar>(elements, transport.size());
      transport.wait(
          transport.all_reduce_sum(data.data(), elements, scalar_type<Scalar>, staging.data()));
      EXPECT_TRUE(equal_bits(data, reference<Scalar>(transport.members(), elements)));
    }
  }

  Session session_;
  CommunicationThread thread_;
  std::vector<int> members_;
};

TEST_F(TransportTest, AllReduceIsTheSumInRankOrder) {
  const auto transport = make();
  EXPECT_EQ(transport->name(), session_.size() == 1 ? "self" : "mpi");
  EXPECT_EQ(transport->member(), session_.rank());
  check_all_reduce<float>(*transport);
  check_all_reduce<double>(*transport);
}

// What lies in bfloat16 is added in float32 and rounded once, and travels as it lies.
TEST_F(TransportTest, SumsOfBFloat16AreRoundedOnce) {
  const auto transport = make();
  for (const std::int64_t elements : sizes) {
    SCOPED_TRACE(elements);
    const auto mine = as_bfloat16(narrow_contribution(session_.rank(), elements));
    const auto expected = narrow_reference(members_, elements);
    auto data = mine;
    std::vector<BFloat16> staging(
        static_cast<std::size_t>(all_reduce_staging_bytes(elements, 2, transport->size()) / 2));
    transport->wait(
        transport->all_reduce_sum(data.data(), elements, ScalarType::BFloat16, staging.data()));
    EXPECT_TRUE(equal_bits(as_float(data), rounded(expected)));
    data = mine;
    transport->wait(
        transport->reduce_scatter_sum(data.data(), elements, ScalarType::BFloat16, staging.data()));
    transport->wait(transport->all_gather(data.data(), elements, 2));
    EXPECT_TRUE(equal_bits(as_float(data), rounded(expected)));
  }
}

// What lies in float32 is rounded as it leaves, and so is what is gathered of the sum: all members
// have the same bits, whatever the pieces are. The sum that a member keeps is not rounded.
TEST_F(TransportTest, SumsOfFloat32TravelInBFloat16) {
  const auto transport = make();
  if (transport->size() == 1) return;
  for (const std::int64_t elements : sizes) {
    SCOPED_TRACE(elements);
    const auto expected = narrow_reference(members_, elements);
    auto data = contribution<float>(session_.rank(), elements);
    auto staging = staging_for<float>(elements, transport->size());
    staging.push_back(-2);
    transport->wait(transport->all_reduce_sum(data.data(), elements, narrow_sum, staging.data()));
    EXPECT_TRUE(equal_bits(data, rounded(expected)));
    EXPECT_EQ(staging.back(), -2) << "more staging than is there";
    const auto before = contribution<float>(session_.rank(), elements);
    data = before;
    transport->wait(
        transport->reduce_scatter_sum(data.data(), elements, narrow_sum, staging.data()));
    EXPECT_EQ(staging.back(), -2);
    const auto begin = piece_begin(elements, transport->size(), transport->member());
    const auto end = piece_end(elements, transport->size(), transport->member());
    for (std::int64_t index = 0; index < elements; ++index) {
      const auto place = static_cast<std::size_t>(index);
      ASSERT_EQ(data[place], index >= begin && index < end ? expected[place] : before[place]);
    }
  }
  EXPECT_THROW(static_cast<void>(transport->all_reduce_sum(
                   nullptr, 0, {ScalarType::Float64, ScalarType::BFloat16}, nullptr)),
               InternalError);
}

TEST_F(TransportTest, GroupsSumInTheirOwnOrder) {
  std::vector<int> reversed(members_.rbegin(), members_.rend());
  const auto transport = make(reversed);
  EXPECT_EQ(transport->member(), session_.size() - 1 - session_.rank());
  if (session_.size() >= 3) {
    ASSERT_FALSE(equal_bits(reference<float>(reversed, 1000), reference<float>(members_, 1000)));
  }
  check_all_reduce<float>(*transport);
}

TEST_F(TransportTest, DisjointGroupsDoNotMeet) {
  std::vector<int> mine;
  for (const int rank : members_) {
    if (rank % 2 == session_.rank() % 2) mine.push_back(rank);
  }
  const auto half = make(mine);
  const auto everybody = make();
  check_all_reduce<float>(*half);
  check_all_reduce<double>(*everybody);
}

TEST_F(TransportTest, ReduceScatterThenAllGather) {
  const auto transport = make();
  for (const std::int64_t elements : sizes) {
    SCOPED_TRACE(elements);
    const auto before = contribution<float>(session_.rank(), elements);
    auto data = before;
    auto staging = staging_for<float>(elements, transport->size());
    transport->wait(
        transport->reduce_scatter_sum(data.data(), elements, ScalarType::Float32, staging.data()));
    const auto expected = reference<float>(members_, elements);
    const auto begin = piece_begin(elements, transport->size(), transport->member());
    const auto end = piece_end(elements, transport->size(), transport->member());
    for (std::int64_t index = 0; index < elements; ++index) {
      const auto place = static_cast<std::size_t>(index);
      ASSERT_EQ(data[place], index >= begin && index < end ? expected[place] : before[place]);
    }
    transport->wait(transport->all_gather(data.data(), elements, sizeof(float)));
    EXPECT_TRUE(equal_bits(data, expected));
  }
}

TEST_F(TransportTest, AllGatherOfOddElements) {
  const auto transport = make();
  struct Three {
    unsigned char bytes[3];
  };
  const std::int64_t elements = 1001;
  std::vector<Three> data(static_cast<std::size_t>(elements), Three{{255, 255, 255}});
  const auto value = [](std::int64_t index) {
    return Three{{static_cast<unsigned char>(index), static_cast<unsigned char>(index / 7), 3}};
  };
  for (auto index = piece_begin(elements, transport->size(), transport->member());
       index < piece_end(elements, transport->size(), transport->member()); ++index) {
    data[static_cast<std::size_t>(index)] = value(index);
  }
  transport->wait(transport->all_gather(data.data(), elements, sizeof(Three)));
  for (std::int64_t index = 0; index < elements; ++index) {
    const Three expected = value(index);
    EXPECT_EQ(std::memcmp(&data[static_cast<std::size_t>(index)], &expected, sizeof expected), 0);
  }
}

TEST_F(TransportTest, BroadcastFromEachMember) {
  const auto transport = make();
  for (int root = 0; root < transport->size(); ++root) {
    for (const std::int64_t elements : sizes) {
      auto data = contribution<float>(session_.rank(), elements);
      transport->wait(transport->broadcast(data.data(), elements * 4, root));
      EXPECT_TRUE(equal_bits(data, contribution<float>(root, elements)));
    }
  }
}

TEST_F(TransportTest, MessagesMeetByTag) {
  const auto transport = make();
  if (transport->size() == 1) {
    float value = 0;
    EXPECT_THROW((void)transport->send(&value, 4, 0, 0), InternalError);
    return;
  }
  const int next = (transport->member() + 1) % transport->size();
  const int previous = (transport->member() + transport->size() - 1) % transport->size();
  for (const std::int64_t elements : sizes) {
    const auto first = contribution<float>(session_.rank(), elements, 1);
    const auto second = contribution<float>(session_.rank(), elements, 2);
    auto got_first = std::vector<float>(first.size());
    auto got_second = std::vector<float>(first.size());
    const Ticket tickets[] = {
        transport->receive(got_second.data(), elements * 4, previous, 32767),
        transport->receive(got_first.data(), elements * 4, previous, 5),
        transport->send(first.data(), elements * 4, next, 5),
        transport->send(second.data(), elements * 4, next, 32767),
    };
    for (const Ticket ticket : tickets) transport->wait(ticket);
    EXPECT_TRUE(equal_bits(got_first, contribution<float>(previous, elements, 1)));
    EXPECT_TRUE(equal_bits(got_second, contribution<float>(previous, elements, 2)));
  }
  EXPECT_THROW((void)transport->send(nullptr, 0, transport->member(), 0), InternalError);
  EXPECT_THROW((void)transport->send(nullptr, 0, next, 32768), InternalError);
}

TEST_F(TransportTest, ManyInFlightBesideComputation) {
  const auto transport = make();
  constexpr int operations = 60;
  std::vector<std::vector<float>> data;
  std::vector<std::vector<float>> staging;
  std::vector<std::int64_t> elements;
  std::vector<Ticket> tickets;
  double computed = 0;
  for (int index = 0; index < operations; ++index) {
    elements.push_back((index * 7919) % 200003);
    data.push_back(contribution<float>(session_.rank(), elements.back(), index));
    staging.push_back(staging_for<float>(elements.back(), transport->size()));
  }
  for (std::size_t index = 0; index < operations; ++index) {
    tickets.push_back(transport->all_reduce_sum(data[index].data(), elements[index],
                                                ScalarType::Float32, staging[index].data()));
    // Ranks drift apart; some wait early.
    for (int step = 0; step < 20000 * (1 + session_.rank()); ++step) computed += std::sqrt(step);
    if (index % 7 == static_cast<std::size_t>(session_.rank())) transport->wait(tickets[index / 2]);
  }
  // The session's own collectives go between them.
  const std::vector<std::int64_t> one{1};
  EXPECT_EQ(session_.all_reduce_sum(one)[0], session_.size());
  for (std::size_t index = operations; index-- > 0;) {
    transport->wait(tickets[index]);
    EXPECT_TRUE(transport->done(tickets[index]));
    EXPECT_TRUE(equal_bits(data[index],
                           reference<float>(members_, elements[index], static_cast<int>(index))));
  }
  EXPECT_GT(computed, 0);
}

TEST_F(TransportTest, OperationsCompleteWithoutAWait) {
  const auto transport = make();
  const std::int64_t elements = 65537;
  auto data = contribution<float>(session_.rank(), elements);
  auto staging = staging_for<float>(elements, transport->size());
  const Ticket ticket =
      transport->all_reduce_sum(data.data(), elements, ScalarType::Float32, staging.data());
  volatile double sink = 0;
  while (!transport->done(ticket)) sink = sink + 1;
  EXPECT_TRUE(equal_bits(data, reference<float>(members_, elements)));
}

TEST_F(TransportTest, NamesAreARegistry) {
  EXPECT_EQ(transport_names(), (std::vector<std::string>{"self", "mpi", "nccl"}));
  EXPECT_THROW((void)make_transport("smoke", session_, thread_, members_), ConfigError);
  EXPECT_THROW((void)make({session_.rank(), session_.rank()}), InternalError);
  const auto self = make_transport("self", session_, thread_, {session_.rank()});
  EXPECT_EQ(self->size(), 1);
  check_all_reduce<double>(*self);
#ifndef GARONNE_WITH_NCCL
  if (session_.size() > 1) {
    EXPECT_THROW((void)make_transport("nccl", session_, thread_, members_), NotBuiltError);
  }
#endif
}

TEST_F(TransportTest, FunctionsRunAloneOnTheThread) {
  const auto transport = make();
  const std::int64_t elements = 100000;
  auto data = contribution<float>(session_.rank(), elements);
  auto staging = staging_for<float>(elements, transport->size());
  const Ticket ticket =
      transport->all_reduce_sum(data.data(), elements, ScalarType::Float32, staging.data());
  std::thread::id thread;
  thread_.run([&] { thread = std::this_thread::get_id(); });
  EXPECT_NE(thread, std::this_thread::get_id());
  EXPECT_TRUE(transport->done(ticket));  // run() waits for what came before
  EXPECT_THROW(thread_.run([] { throw IoError("file", "reason"); }), IoError);
  check_all_reduce<float>(*transport);  // the thread survives it
}

}  // namespace
}  // namespace garonne::dist
