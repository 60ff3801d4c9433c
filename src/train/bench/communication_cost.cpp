#include "train/bench/communication_cost.hpp"

#include <ATen/Functions.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "base/collective_bytes.hpp"
#include "base/median.hpp"
#include "base/seconds.hpp"
#include "dist/transport.hpp"
#include "plan/model/group_links.hpp"

namespace garonne::train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t small_product = 192;
constexpr int rounds = 9;
// So that nothing of the all-reduce is left when the products are done.
constexpr double times_as_long = 2;

// Products on one thread after the other.
class Work {
 public:
  void run(std::int64_t products) {
    for (std::int64_t k = 0; k < products; ++k) at::mm_out(c_, a_, b_);
  }

 private:
  at::Tensor a_ = at::ones({small_product, small_product});
  at::Tensor b_ = at::ones({small_product, small_product});
  at::Tensor c_ = at::zeros({small_product, small_product});
};

double median_of_rounds(const std::function<void()>& round) {
  std::vector<double> seconds;
  for (int k = 0; k < rounds; ++k) {
    const auto start = Clock::now();
    round();
    seconds.push_back(seconds_since(start));
  }
  return high_median(std::move(seconds));
}

}  // namespace

double communication_seconds_per_byte(dist::Session& session, dist::CommunicationThread& thread,
                                      std::string_view transport, const std::vector<int>& members,
                                      std::int64_t bytes, double seconds_alone) {
  double found = 0;
  const bool is_in = std::find(members.begin(), members.end(), session.rank()) != members.end();
  Work work;
  work.run(rounds);
  session.barrier();
  // All ranks at once, as they are in a step.
  const double product = median_of_rounds([&] { work.run(1); });
  const auto products = static_cast<std::int64_t>(
      session.all_reduce_max(std::vector{times_as_long * seconds_alone / product})[0] + 1);
  session.barrier();
  const double alone = median_of_rounds([&] { work.run(products); });
  session.barrier();
  if (is_in) {
    const auto count = static_cast<std::int64_t>(members.size());
    std::vector<float> data(static_cast<std::size_t>(bytes / 4));
    std::vector<char> staging(
        static_cast<std::size_t>(all_reduce_staging_bytes(bytes / 4, 4, count)));
    const auto link = dist::make_transport(transport, session, thread, members);
    const double beside = median_of_rounds([&] {
      const dist::Ticket ticket =
          link->all_reduce_sum(data.data(), bytes / 4, dist::ScalarType::Float32, staging.data());
      work.run(products);
      link->wait(ticket);
    });
    const double sent = plan::collective_traffic("all-reduce", bytes, count, {}).inside;
    found = std::max(0.0, beside - alone) / sent;
  }
  return session.all_reduce_max(std::vector{found})[0];
}

}  // namespace garonne::train
