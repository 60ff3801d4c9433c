// Curves of links from samples that are made up.
#include "train/bench/link_curve.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace garonne::train {
namespace {

const std::vector<std::int64_t> sizes = {64, 512, 4096, 32768, 262144, 2097152, 8388608};

// Between two ranks and on a ring of four, of a link that takes `seconds_of` beside its latency.
template <typename Seconds>
std::vector<dist::LinkSeries> series_of(double latency, const Seconds& seconds_of) {
  std::vector<dist::LinkSeries> all = {{dist::LinkPattern::Message, {0, 1}, {}},
                                       {dist::LinkPattern::AllReduce, {0, 1}, {}},
                                       {dist::LinkPattern::AllReduce, {0, 1, 2, 3}, {}}};
  for (dist::LinkSeries& one : all) {
    const auto members = static_cast<double>(one.members.size());
    const bool message = one.pattern == dist::LinkPattern::Message;
    for (const std::int64_t bytes : sizes) {
      const double seconds = message ? latency + seconds_of(bytes)
                                     : 2 * (members - 1) * latency +
                                           2 * (members - 1) / members * seconds_of(bytes);
      one.samples.push_back({bytes, seconds, seconds, seconds});
    }
  }
  return all;
}

TEST(LinkCurve, IsThatOfALinkWhoseRateRisesWithSize) {
  const double latency = 5e-6;
  // Half of 20 GB/s at 256 KiB.
  const auto seconds_of = [](std::int64_t bytes) {
    return (static_cast<double>(bytes) + 262144) / 20e9;
  };
  const auto series = series_of(latency, seconds_of);
  const dist::LinkFit fit = dist::fit_link(series);
  const plan::RateCurve curve = link_curve(series, {latency, 20e9, fit.median_error, 1});
  ASSERT_EQ(curve.points.size(), sizes.size());
  EXPECT_EQ(curve.refusal(), nullptr);
  for (const std::int64_t bytes : sizes)
    EXPECT_NEAR(curve.seconds(static_cast<double>(bytes)) / seconds_of(bytes), 1, 1e-9) << bytes;
  EXPECT_LT(curve_error(curve, series, latency), 1e-9);
}

TEST(LinkCurve, IsNoneWhereOneRateSaysAll) {
  const auto series =
      series_of(3e-6, [](std::int64_t bytes) { return static_cast<double>(bytes) / 10e9; });
  EXPECT_TRUE(link_curve(series, dist::fit_link(series)).empty());
}

// A token bucket lets the first bytes pass at once.
TEST(LinkCurve, DoesNotPromiseWhatPassesInABurstAlone) {
  const auto series = series_of(50e-6, [](std::int64_t bytes) {
    return static_cast<double>(bytes) / 5e9 +
           std::max(0.0, static_cast<double>(bytes) - 65536) / 12e6;
  });
  const plan::RateCurve curve = link_curve(series, {50e-6, 12e6, 1, 1});
  ASSERT_FALSE(curve.empty());
  EXPECT_EQ(curve.refusal(), nullptr);
  for (const plan::RatePoint& point : curve.points) EXPECT_LT(point.bytes_per_second, 12.2e6);
}

TEST(LinkCurve, IsTakenByAClusterFileWhateverWasMeasured) {
  std::mt19937 random(11);
  std::uniform_real_distribution<double> noise(-2, 2);
  int curves = 0;
  for (int turn = 0; turn < 200; ++turn) {
    auto series = series_of(1e-6, [&](std::int64_t bytes) {
      return static_cast<double>(bytes) / 4e9 * std::exp(noise(random));
    });
    const plan::RateCurve curve = link_curve(series, dist::fit_link(series));
    if (curve.empty()) continue;
    ++curves;
    EXPECT_EQ(curve.refusal(), nullptr) << turn;
  }
  EXPECT_GT(curves, 20);
}

}  // namespace
}  // namespace garonne::train
