// Transports between buffers of a device: bits are those of the host's, whatever is late.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/collective_bytes.hpp"
#include "base/error.hpp"
#include "device/device.hpp"
#include "device_bench.hpp"
#include "dist/session.hpp"
#include "dist/sum_order.hpp"
#include "rank_sums.hpp"

namespace garonne::dist {
namespace {

constexpr std::int64_t sizes[] = {0, 1, 7, 1000, 65537};

class DeviceTransportTest : public testing::TestWithParam<BenchKind> {
 protected:
  DeviceTransportTest()
      : session_(Session::start()),
        bench_(make_bench(GetParam(), session_, true)),
        thread_(std::in_place, session_) {
    members_.resize(static_cast<std::size_t>(session_.size()));
    std::iota(members_.begin(), members_.end(), 0);
  }
  ~DeviceTransportTest() override {
    thread_.reset();
    for (const std::string& problem : bench_->problems()) ADD_FAILURE() << problem;
  }

  std::unique_ptr<Transport> make(const std::vector<int>& members,
                                  const std::vector<int>& nodes = {}) {
    return bench_->make(session_, *thread_, members, {.name = "data"}, nodes);
  }

  // A buffer of the device with the values, and staging for its sum.
  template <typename Scalar>
  std::byte* buffer(const std::vector<Scalar>& values) {
    std::byte* const data =
        bench_->allocate(static_cast<std::int64_t>(values.size() * sizeof(Scalar)));
    bench_->write(data, values);
    return data;
  }
  std::byte* staging(std::int64_t elements, std::int64_t bytes, int members) {
    return bench_->allocate(all_reduce_staging_bytes(elements, bytes, members));
  }

  template <typename Scalar>
  void check_all_reduce(Transport& transport, const std::vector<Scalar>& expected, int salt = 0) {
    const auto elements = static_cast<std::int64_t>(expected.size());
    std::byte* const data = buffer(contribution<Scalar>(session_.rank(), elements, salt));
    std::byte* const room = staging(elements, sizeof(Scalar), transport.size());
    transport.wait(transport.all_reduce_sum(data, elements, scalar_type<Scalar>, room));
    EXPECT_TRUE(equal_bits(bench_->read<Scalar>(data, elements), expected)) << elements;
  }

  // Sums of what lies in bfloat16, and of float32 that travels in it.
  void check_narrow_sums(Transport& transport, const std::vector<int>& members,
                         std::int64_t elements) {
    SCOPED_TRACE(elements);
    const auto expected = narrow_reference(members, transport.sum_order(), elements, 4);
    std::byte* const narrow =
        buffer(as_bfloat16(narrow_contribution(session_.rank(), elements, 4)));
    transport.wait(transport.all_reduce_sum(narrow, elements, ScalarType::BFloat16,
                                            staging(elements, 2, transport.size())));
    EXPECT_TRUE(equal_bits(as_float(bench_->read<BFloat16>(narrow, elements)), rounded(expected)));
    const auto before = contribution<float>(session_.rank(), elements, 4);
    std::byte* const room = staging(elements, 4, transport.size());
    std::byte* const data = buffer(before);
    transport.wait(transport.all_reduce_sum(data, elements, narrow_sum, room));
    EXPECT_TRUE(equal_bits(bench_->read<float>(data, elements), rounded(expected)));
    bench_->write(data, before);
    transport.wait(transport.reduce_scatter_sum(data, elements, narrow_sum, room));
    auto scattered = before;
    for (auto index = piece_begin(elements, transport.size(), transport.member());
         index < piece_end(elements, transport.size(), transport.member()); ++index) {
      scattered[static_cast<std::size_t>(index)] = expected[static_cast<std::size_t>(index)];
    }
    EXPECT_TRUE(equal_bits(bench_->read<float>(data, elements), scattered));
  }

  Session session_;
  std::unique_ptr<DeviceBench> bench_;
  std::optional<CommunicationThread> thread_;
  std::vector<int> members_;
};

TEST_P(DeviceTransportTest, AllReduceIsTheSumInRankOrder) {
  const auto transport = make(members_);
  EXPECT_TRUE(transport->on_device());
  EXPECT_EQ(describe(transport->sum_order()), "in rank order");
  for (const std::int64_t elements : sizes) {
    check_all_reduce(*transport, reference<float>(members_, elements));
    check_all_reduce(*transport, reference<double>(members_, elements));
  }
}

TEST_P(DeviceTransportTest, SumsTravelInBFloat16) {
  const auto transport = make(members_);
  for (const std::int64_t elements : sizes) check_narrow_sums(*transport, members_, elements);
}

TEST_P(DeviceTransportTest, GroupsSumInTheirOwnOrderAndDoNotMeet) {
  const std::vector<int> reversed(members_.rbegin(), members_.rend());
  std::vector<int> mine;
  for (const int rank : members_) {
    if (rank % 2 == session_.rank() % 2) mine.push_back(rank);
  }
  const auto backwards = make(reversed);
  const auto half = mine.size() > 1 ? make(mine) : nullptr;
  if (half) check_all_reduce(*half, reference<double>(mine, 1000));
  check_all_reduce(*backwards, reference<float>(reversed, 1000));
}

// Room for one message: what another transport has waited for gives way, whoever put it.
TEST_P(DeviceTransportTest, TransportsOfOneTierHaveEachOthersRoom) {
  constexpr std::int64_t elements = 1000;
  constexpr std::int64_t bytes = 4096;
  const auto bench = make_bench(GetParam(), session_, true, bytes);
  {
    const auto one = bench->make(session_, *thread_, members_);
    const auto other = bench->make(session_, *thread_, members_);
    std::byte* const data = bench->allocate(4 * elements);
    for (int turn = 0; turn < 6; ++turn) {
      const int root = turn % session_.size();
      if (root == session_.rank())
        bench->write(data, std::vector<float>(elements, static_cast<float>(turn + 1)));
      Transport& transport = turn % 2 == 0 ? *one : *other;
      transport.wait(transport.broadcast(data, 4 * elements, root));
    }
    EXPECT_TRUE(equal_bits(bench->read<float>(data, elements), std::vector<float>(elements, 6)));
  }
  for (const std::string& problem : bench->problems()) ADD_FAILURE() << problem;
}

TEST_P(DeviceTransportTest, ReduceScatterThenAllGather) {
  const auto transport = make(members_);
  for (const std::int64_t elements : sizes) {
    SCOPED_TRACE(elements);
    const auto before = contribution<float>(session_.rank(), elements);
    std::byte* const data = buffer(before);
    std::byte* const room = staging(elements, 4, transport->size());
    transport->wait(transport->reduce_scatter_sum(data, elements, ScalarType::Float32, room));
    const auto expected = reference<float>(members_, elements);
    auto scattered = before;
    for (auto index = piece_begin(elements, transport->size(), transport->member());
         index < piece_end(elements, transport->size(), transport->member()); ++index) {
      scattered[static_cast<std::size_t>(index)] = expected[static_cast<std::size_t>(index)];
    }
    EXPECT_TRUE(equal_bits(bench_->read<float>(data, elements), scattered));
    transport->wait(transport->all_gather(data, elements, sizeof(float)));
    EXPECT_TRUE(equal_bits(bench_->read<float>(data, elements), expected));
  }
}

TEST_P(DeviceTransportTest, BroadcastFromEachMember) {
  const auto transport = make(members_);
  for (int root = 0; root < transport->size(); ++root) {
    for (const std::int64_t elements : {0, 7, 65537}) {
      std::byte* const data = buffer(contribution<float>(session_.rank(), elements));
      transport->wait(transport->broadcast(data, elements * 4, root));
      EXPECT_TRUE(
          equal_bits(bench_->read<float>(data, elements), contribution<float>(root, elements)));
    }
  }
}

// What is read and written around them is late.
TEST_P(DeviceTransportTest, ManyInFlightBesideComputation) {
  const auto transport = make(members_);
  constexpr int operations = 12;
  struct Sum {
    std::int64_t elements;
    std::byte* data;
    Ticket ticket;
  };
  std::vector<Sum> sums;
  for (int salt = 0; salt < operations; ++salt) {
    const std::int64_t elements = (salt * 7919) % 20003;
    std::byte* const data = buffer(contribution<float>(session_.rank(), elements, salt));
    std::byte* const room = staging(elements, 4, transport->size());
    sums.push_back(
        {elements, data, transport->all_reduce_sum(data, elements, ScalarType::Float32, room)});
    if (salt % 4 == session_.rank()) {
      transport->wait(sums[static_cast<std::size_t>(salt / 2)].ticket);
    }
  }
  for (int salt = operations; salt-- > 0;) {
    const Sum& sum = sums[static_cast<std::size_t>(salt)];
    transport->wait(sum.ticket);
    EXPECT_TRUE(equal_bits(bench_->read<float>(sum.data, sum.elements),
                           reference<float>(members_, sum.elements, salt)));
    EXPECT_TRUE(transport->done(sum.ticket));
    transport->wait(sum.ticket);  // again
  }
}

TEST_P(DeviceTransportTest, OperationsCompleteWithoutAWait) {
  const auto transport = make(members_);
  std::byte* const data = buffer(contribution<float>(session_.rank(), 5000));
  const Ticket ticket = transport->all_reduce_sum(data, 5000, ScalarType::Float32,
                                                  staging(5000, 4, transport->size()));
  while (!transport->done(ticket)) std::this_thread::yield();
  EXPECT_TRUE(equal_bits(bench_->read<float>(data, 5000), reference<float>(members_, 5000)));
}

// One forward, one backward over stages, receives posted one operation ahead, in lanes to and fro.
// Every stage adds its number to what passes and keeps what it met.
class Pipeline {
 public:
  static constexpr int micro_batches = 5;
  static constexpr std::int64_t elements = 3001;

  explicit Pipeline(int stages) {
    options_.name = "pipeline";
    options_.lanes = 2;
    for (int stage = 0; stage + 1 < stages; ++stage) {
      options_.message_lanes.push_back({stage, stage + 1, 0});
      options_.message_lanes.push_back({stage + 1, stage, 1});
    }
  }
  const TransportOptions& options() const { return options_; }

  // `add` adds a number to a buffer, in order with what is received and sent. Gives what the stage
  // has last: gradients of the first stage, values of the others.
  template <typename Make, typename Add>
  std::vector<std::byte*> run(Transport& transport, Make make, Add add) const {
    const int stage = transport.member();
    const int stages = transport.size();
    const bool first = stage == 0;
    const bool last = stage == stages - 1;
    const std::int64_t bytes = elements * 4;
    std::vector<std::byte*> values;
    std::vector<std::byte*> gradients;
    std::vector<Ticket> value_tickets;
    std::vector<Ticket> gradient_tickets;
    std::vector<Ticket> sent;
    for (int batch = 0; batch < micro_batches; ++batch) {
      values.push_back(make(batch));
      gradients.push_back(last ? values.back() : make(batch));
      value_tickets.emplace_back();
      gradient_tickets.emplace_back();
    }
    const auto number = [](int batch) { return static_cast<std::size_t>(batch); };
    const auto post = [&](bool forward, int batch) {
      if (batch >= micro_batches) return;
      if (forward && !first) {
        value_tickets[number(batch)] =
            transport.receive(values[number(batch)], bytes, stage - 1, 2 * batch);
      }
      if (!forward && !last) {
        gradient_tickets[number(batch)] =
            transport.receive(gradients[number(batch)], bytes, stage + 1, 2 * batch + 1);
      }
    };
    const auto forward = [&](int batch) {
      if (!first) transport.wait(value_tickets[number(batch)]);
      add(values[number(batch)], 1.0F + static_cast<float>(stage));
      if (!last) sent.push_back(transport.send(values[number(batch)], bytes, stage + 1, 2 * batch));
    };
    const auto backward = [&](int batch) {
      if (!last) transport.wait(gradient_tickets[number(batch)]);
      add(gradients[number(batch)], 0.25F * static_cast<float>(stage));
      if (!first) {
        sent.push_back(transport.send(gradients[number(batch)], bytes, stage - 1, 2 * batch + 1));
      }
    };
    const int ahead = std::min(stages - 1 - stage, micro_batches);
    post(true, 0);
    for (int batch = 0; batch < ahead; ++batch) {
      post(true, batch + 1);
      forward(batch);
    }
    for (int batch = 0; batch < micro_batches; ++batch) {
      post(false, batch);
      if (ahead + batch < micro_batches) {
        if (batch + ahead + 1 < micro_batches) post(true, batch + ahead + 1);
        forward(ahead + batch);
      }
      backward(batch);
    }
    for (const Ticket ticket : sent) transport.wait(ticket);
    return first ? gradients : values;
  }

 private:
  TransportOptions options_;
};

TEST_P(DeviceTransportTest, PipelinesPassTheBitsOfTheHost) {
  if (session_.size() == 1) return;
  const Pipeline pipeline(session_.size());
  std::vector<std::vector<float>> expected;
  {
    const auto host = make_transport("mpi", session_, *thread_, members_);
    std::vector<std::vector<float>> memory;
    memory.reserve(2 * Pipeline::micro_batches);
    const auto reached = pipeline.run(
        *host,
        [&](int batch) {
          memory.push_back(contribution<float>(session_.rank(), Pipeline::elements, batch));
          return reinterpret_cast<std::byte*>(memory.back().data());
        },
        [](std::byte* data, float number) {
          auto* const values = reinterpret_cast<float*>(data);
          for (std::int64_t index = 0; index < Pipeline::elements; ++index) {
            values[index] += number;
          }
        });
    for (const std::byte* data : reached) {
      const auto* const values = reinterpret_cast<const float*>(data);
      expected.emplace_back(values, values + Pipeline::elements);
    }
  }
  const auto transport = bench_->make(session_, *thread_, members_, pipeline.options());
  const auto reached = pipeline.run(
      *transport,
      [&](int batch) {
        return buffer(contribution<float>(session_.rank(), Pipeline::elements, batch));
      },
      [&](std::byte* data, float number) {
        bench_->put([this, data, number] {
          auto* const values = reinterpret_cast<float*>(bench_->find(data));
          for (std::int64_t index = 0; index < Pipeline::elements; ++index) {
            values[index] += number;
          }
        });
      });
  ASSERT_EQ(reached.size(), expected.size());
  for (std::size_t batch = 0; batch < reached.size(); ++batch) {
    EXPECT_TRUE(
        equal_bits(bench_->read<float>(reached[batch], Pipeline::elements), expected[batch]));
  }
}

INSTANTIATE_TEST_SUITE_P(Benches, DeviceTransportTest,
                         testing::Values(BenchKind::EmulatedMpi, BenchKind::CudaMpi,
                                         BenchKind::CudaNccl),
                         [](const auto& each) { return to_string(each.param); });

// The nodes are made up: half of the ranks each, or an odd one out.
class TwoLevelTest : public DeviceTransportTest {};

TEST_P(TwoLevelTest, SumsWithinNodesThenOverThem) {
  if (session_.size() < 4) return;
  std::vector<int> halves;
  std::vector<int> in_turn;
  std::vector<int> uneven;
  for (const int rank : members_) {
    halves.push_back(rank < session_.size() / 2 ? 0 : 1);
    in_turn.push_back(rank % 2);
    uneven.push_back(rank == 0 ? 0 : 1);
  }
  for (const auto& nodes : {halves, in_turn, uneven}) {
    const auto transport = make(members_, nodes);
    const SumOrder order = transport->sum_order();
    EXPECT_EQ(order.two_levels(), nodes != uneven);
    for (const std::int64_t elements : {1, 7, 1000, 4099}) {
      check_all_reduce(*transport, reference<float>(members_, order, elements));
      check_narrow_sums(*transport, members_, elements);
      // The other pieces keep what they hold.
      const auto before = contribution<double>(session_.rank(), elements, 3);
      std::byte* const data = buffer(before);
      transport->wait(transport->reduce_scatter_sum(data, elements, ScalarType::Float64,
                                                    staging(elements, 8, transport->size())));
      const auto expected = reference<double>(members_, order, elements, 3);
      const auto found = bench_->read<double>(data, elements);
      const auto begin = piece_begin(elements, transport->size(), transport->member());
      const auto end = piece_end(elements, transport->size(), transport->member());
      for (std::int64_t index = 0; index < elements; ++index) {
        const auto place = static_cast<std::size_t>(index);
        ASSERT_EQ(found[place], index >= begin && index < end ? expected[place] : before[place]);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Nccl, TwoLevelTest, testing::Values(BenchKind::CudaNccl),
                         [](const auto& each) { return to_string(each.param); });

}  // namespace
}  // namespace garonne::dist
