#include "dist/link_measurement.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "base/error.hpp"

namespace garonne::dist {
namespace {

constexpr double latency = 20e-6;
constexpr double rate = 1e9;

// What a link with `latency` and `rate` would do, each sample off by `error` in turn.
LinkSeries made_up(LinkPattern pattern, int members, double error) {
  LinkSeries series;
  series.pattern = pattern;
  series.members.resize(static_cast<std::size_t>(members));
  std::iota(series.members.begin(), series.members.end(), 0);
  double sign = 1;
  for (std::int64_t bytes = 64; bytes <= 1 << 24; bytes *= 4) {
    const auto b = static_cast<double>(bytes);
    const double n = members;
    // Message and ring by hand.
    const double seconds = pattern == LinkPattern::Message ? latency + b / rate
                                                           : 2 * (n - 1) * (latency + b / n / rate);
    series.samples.push_back({bytes, seconds * (1 + sign * error), 0, 0});
    sign = -sign;
  }
  return series;
}

TEST(FitLink, FindsLatencyAndRateOfMessagesAndAllReducesTogether) {
  const LinkFit fit =
      fit_link({made_up(LinkPattern::Message, 2, 0), made_up(LinkPattern::AllReduce, 2, 0),
                made_up(LinkPattern::AllReduce, 5, 0)});
  EXPECT_NEAR(fit.latency_seconds, latency, 1e-9 * latency);
  EXPECT_NEAR(fit.bytes_per_second, rate, 1e-9 * rate);
  EXPECT_LT(fit.worst_error, 1e-9);
}

TEST(FitLink, ErrorsOfSamplesDoNotAddUp) {
  const LinkFit fit = fit_link({made_up(LinkPattern::Message, 2, 0.05)});
  EXPECT_NEAR(fit.latency_seconds, latency, 0.06 * latency);
  EXPECT_NEAR(fit.bytes_per_second, rate, 0.06 * rate);
  EXPECT_GT(fit.median_error, 0);
  // Of a sample that is 5 % too small, where latency and rate are 6 % too slow.
  EXPECT_GT(fit.worst_error, 0.04);
  EXPECT_LT(fit.worst_error, 1 / 0.95 / 0.94 - 1);
}

TEST(FitLink, LeavesAsideWhatPassesWithinABurst) {
  LinkSeries series = made_up(LinkPattern::Message, 2, 0);
  for (auto& sample : series.samples) {
    // 16 and 64 KiB as if they were nothing.
    if (sample.bytes >= 1 << 14 && sample.bytes <= 1 << 16) sample.median_seconds = latency;
  }
  const LinkFit fit = fit_link({series});
  EXPECT_NEAR(fit.latency_seconds, latency, 0.01 * latency);
  EXPECT_NEAR(fit.bytes_per_second, rate, 0.01 * rate);
  EXPECT_LT(fit.median_error, 0.01);
  EXPECT_GT(fit.worst_error, 2);
}

TEST(FitLink, HasNoNegativeLatency) {
  LinkSeries series;
  series.samples = {{1000, 0.5e-6, 0, 0}, {2000, 2e-6, 0, 0}, {4000, 4e-6, 0, 0}};
  const LinkFit fit = fit_link({series});
  EXPECT_EQ(fit.latency_seconds, 0);
  EXPECT_GT(fit.bytes_per_second, 0);
  series.samples.resize(1);
  EXPECT_THROW(fit_link({series}), InternalError);
}

TEST(LinkGroups, ArePairsAndGroupsOfEachKind) {
  const LinkGroups groups = link_groups({"a", "a", "a", "b", "b", "c"}, 4);
  using Pairs = std::vector<std::vector<int>>;
  EXPECT_EQ(groups.pairs_on_one_host, (Pairs{{0, 1}, {0, 2}, {3, 4}}));
  EXPECT_EQ(groups.pairs_across_hosts, (Pairs{{0, 3}, {3, 5}, {0, 5}}));
  EXPECT_EQ(groups.one_host, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(groups.across_hosts, (std::vector<int>{0, 3, 5}));

  const LinkGroups fewer = link_groups({"a", "b", "c", "d", "e"}, 2);
  EXPECT_EQ(fewer.pairs_across_hosts, (Pairs{{0, 1}, {0, 4}}));
  EXPECT_TRUE(fewer.pairs_on_one_host.empty());
  EXPECT_TRUE(fewer.one_host.empty());

  const LinkGroups one = link_groups({"a", "a"}, 4);
  EXPECT_TRUE(one.across_hosts.empty());
  EXPECT_TRUE(one.pairs_across_hosts.empty());
  EXPECT_EQ(one.one_host, (std::vector<int>{0, 1}));
}

TEST(LinkMeasurement, EveryRankGetsTheSeriesOfEveryPair) {
  Session session = Session::start();
  CommunicationThread thread(session);
  constexpr std::int64_t large = 16 << 20;
  const LinkMeasurementOptions options{{64, 4096, large}, 0.005};
  const int last = session.size() - 1;
  std::vector<int> everybody(static_cast<std::size_t>(session.size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  const auto messages = measure_messages(session, thread, "mpi", 0, last, options);
  const auto sums = measure_all_reduces(session, thread, "mpi", everybody, options);
  for (const auto* series : {&messages, &sums}) {
    ASSERT_EQ(series->samples.size(), options.bytes.size());
    for (std::size_t i = 0; i < options.bytes.size(); ++i) {
      const LinkSample& sample = series->samples[i];
      EXPECT_EQ(sample.bytes, options.bytes[i]);
      EXPECT_GT(sample.lower_seconds, 0);
      EXPECT_LE(sample.lower_seconds, sample.median_seconds);
      EXPECT_LE(sample.median_seconds, sample.upper_seconds);
    }
    // No core takes over a terabyte a second from another one, however busy or idle they are.
    EXPECT_GT(series->samples[2].lower_seconds, static_cast<double>(large) / 1e12);
  }
  std::string text;
  for (const auto& sample : sums.samples) text += std::to_string(sample.median_seconds) + " ";
  EXPECT_TRUE(session.all_agree(text));
}

TEST(Ring, EveryRankHasTheSecondsFromTheOneBefore) {
  Session session = Session::start();
  if (session.size() == 1) return;
  CommunicationThread thread(session);
  const double seconds = seconds_from_neighbour(session, thread, 1 << 20, 3);
  EXPECT_GT(seconds, 0);
  EXPECT_LT(seconds, 5);
}

}  // namespace
}  // namespace garonne::dist
