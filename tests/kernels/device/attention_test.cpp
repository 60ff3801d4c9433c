// The device kernel of attention's weights beside the CPU's: the same masks, sums in another order.
#include "kernels/attention_tile.hpp"
#include "kernels/attention_tiles.hpp"
#include "kernels/device/attention_tile.hpp"
#include "kernels/device/places.hpp"

namespace garonne::kernels::test {

namespace {

// What is dropped is dropped on both, to the element.
void expect_same_zeros(const Array& got, const Array& wanted, const std::string& what) {
  for (std::int64_t i = 0; i < got.count(); ++i)
    ASSERT_EQ(got[i] == 0, wanted[i] == 0) << what << ", element " << i;
}

struct Made {
  Array weights;
  Array log_sums;
  Array weights_again;
  Array gradient;
};

Made given_of(const TileCase& c, ElementType type) {
  const std::int64_t elements = matrices_of(c.tile) * c.tile.rows * columns_of(c.tile);
  const Array scores = random_array(type, elements, 1, 6.0);
  return {scores, Array(type, matrices_of(c.tile) * c.tile.sequence, 9.0), scores,
          random_array(type, elements, 2)};
}

void expect_as_on_cpus(const device::Place& place, ElementType type, const TileCase& c) {
  Made wanted = given_of(c, type);
  attention_weights(host, type, c.tile, wanted.weights.data(), wanted.log_sums.data(), c.dropout,
                    c.samples.data());
  attention_weights_gradient(host, type, c.tile, wanted.weights_again.data(),
                             wanted.gradient.data(), wanted.log_sums.data(), c.dropout,
                             c.samples.data());
  // The step where the kernel reads it.
  for (const bool by_place : {false, true}) {
    Made got = given_of(c, type);
    {
      const std::vector<std::uint64_t> step = {c.dropout.step};
      OnPlace steps(place, step);
      OnPlace samples(place, c.samples);
      OnPlace weights(place, got.weights);
      OnPlace log_sums(place, got.log_sums);
      OnPlace weights_again(place, got.weights_again);
      OnPlace gradient(place, got.gradient);
      Dropout dropout = c.dropout;
      if (by_place) {
        dropout.step += 1;
        dropout.step_place = steps.as<std::uint64_t>();
      }
      device::attention_weights(place, type, c.tile, weights.data(), log_sums.data(), dropout,
                                samples.as<std::int64_t>());
      device::attention_weights_gradient(place, type, c.tile, weights_again.data(), gradient.data(),
                                         log_sums.data(), dropout, samples.as<std::int64_t>());
    }
    const std::string what = name_of(place) + ", " + describe(c);
    const double near = 80 * rounding(type);
    expect_near(got.weights, values_of(wanted.weights), near, 0, "weights " + what);
    expect_near(got.log_sums, values_of(wanted.log_sums), near, near, "sums " + what);
    expect_near(got.weights_again, values_of(wanted.weights_again), near, 0, "again " + what);
    expect_near(got.gradient, values_of(wanted.gradient), near, 4 * near, "gradient " + what);
    expect_same_zeros(got.weights, wanted.weights, what);
    expect_same_zeros(got.weights_again, wanted.weights, what);
  }
}

TEST(DeviceAttention, WeightsAreTheCpusButForTheOrderOfSums) {
  for (const device::Place& place : places()) {
    for (const ElementType type : types_at(place)) {
      if (type == ElementType::BFloat16) continue;
      for (const TileCase& c : tile_cases()) expect_as_on_cpus(place, type, c);
    }
  }
}

}  // namespace

}  // namespace garonne::kernels::test
