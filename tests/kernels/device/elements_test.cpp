// Device kernels that treat every element alike, and sums over rows, against the CPU's loops.
#include "kernels/device/places.hpp"

#include "kernels/bias.hpp"
#include "kernels/convert.hpp"
#include "kernels/device/bias.hpp"
#include "kernels/device/convert.hpp"
#include "kernels/device/gelu.hpp"
#include "kernels/gelu.hpp"

#include <limits>

namespace garonne::kernels::test {

namespace {

TEST(DeviceKernels, ThereIsAPlaceToTestOn) {
  ASSERT_FALSE(places().empty());
}

TEST(DeviceBias, IsAddedAsOnCpus) {
  for (const device::Place& place : places()) {
    for (const ElementType type : all_types) {
      for (const std::int64_t n : odd_sizes) {
        for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{16}, std::int64_t{35}}) {
          const Array bias = random_array(type, n, 1);
          Array wanted = random_array(type, rows * n, 2);
          Array got = wanted;
          add_bias(host, type, wanted.data(), bias.data(), rows, n);
          {
            OnPlace y(place, got);
            device::add_bias(place, type, y.data(), OnPlace(place, bias).data(), rows, n);
          }
          ASSERT_TRUE(got.same_bits(wanted))
              << name_of(place) << ", type " << static_cast<int>(type) << ", " << rows << " x "
              << n;
        }
      }
    }
  }
}

void expect_bias_gradient(const device::Place& place, const Array& given, std::int64_t rows,
                          std::int64_t n) {
  for (const bool accumulate : {false, true}) {
    Array wanted = random_array(accumulation_type(given.type()), n, 4);
    Array got = wanted;
    bias_gradient(host, given.type(), given.data(), wanted.data(), accumulate, rows, n);
    {
      OnPlace gradient(place, got);
      device::bias_gradient(place, given.type(), OnPlace(place, given).data(), gradient.data(),
                            accumulate, rows, n);
    }
    ASSERT_TRUE(got.same_bits(wanted))
        << name_of(place) << ", type " << static_cast<int>(given.type()) << ", " << rows << " x "
        << n << (accumulate ? ", accumulated" : "");
  }
}

TEST(DeviceBias, GradientIsAddedUpInTheOrderOfCpus) {
  for (const device::Place& place : places()) {
    for (const ElementType type : all_types) {
      for (const std::int64_t rows : odd_sizes) {
        for (const std::int64_t n : {std::int64_t{1}, std::int64_t{31}, std::int64_t{65}})
          expect_bias_gradient(place, random_array(type, rows * n, 3), rows, n);
      }
      expect_bias_gradient(place, random_array(type, 5000 * 33, 3), 5000, 33);
      expect_bias_gradient(place, random_array(type, 65 * 1001, 3), 65, 1001);
      // Of few columns tiles are narrow, of so many wide.
      expect_bias_gradient(place, random_array(type, 130 * 2049, 3), 130, 2049);
      expect_bias_gradient(place, random_array(type, 20000 * 5, 3), 20000, 5);
      // More blocks of rows than are added up at once; packed and not.
      expect_bias_gradient(place, random_array(type, 140003 * 3, 3), 140003, 3);
      expect_bias_gradient(place, random_array(type, 140000 * 8, 3), 140000, 8);
      // Of whole packs; more rows than a team has at once.
      expect_bias_gradient(place, random_array(type, 65 * 1000, 3), 65, 1000);
      expect_bias_gradient(place, random_array(type, 130 * 2056, 3), 130, 2056);
      expect_bias_gradient(place, random_array(type, 40001 * 8, 3), 40001, 8);
    }
  }
}

TEST(DeviceBias, GradientOfNumbersWhoseOrderIsSeen) {
  const double cycle[] = {1e8, 1, -1e8, 1};
  for (const device::Place& place : places()) {
    for (const ElementType type : all_types) {
      const std::int64_t rows = 4099;
      for (const std::int64_t n : {3, 8}) {
        Array given(type, rows * n);
        for (std::int64_t i = 0; i < given.count(); ++i) given.set(i, cycle[(i * 7 / 3) % 4]);
        expect_bias_gradient(place, given, rows, n);
      }
    }
  }
}

TEST(DeviceConvert, RoundsAsOnCpus) {
  for (const device::Place& place : places()) {
    for (const std::int64_t n : odd_sizes) {
      Array source = random_array(ElementType::Float32, n, 5, 1e4);
      source.set(0, std::numeric_limits<double>::quiet_NaN());
      if (n > 3) source.set(1, std::numeric_limits<double>::infinity());
      if (n > 3) source.set(2, 1.00390625);  // half way
      Array wanted(ElementType::BFloat16, n);
      Array got(ElementType::BFloat16, n);
      to_bfloat16(host, static_cast<const float*>(source.data()), wanted.data(), n);
      {
        OnPlace destination(place, got);
        device::to_bfloat16(place, OnPlace(place, source).as<float>(), destination.data(), n);
      }
      ASSERT_TRUE(got.same_bits(wanted)) << name_of(place) << ", " << n;
    }
  }
}

TEST(DeviceConvert, AccumulatesAsOnCpus) {
  for (const device::Place& place : places()) {
    for (const ElementType type : all_types) {
      for (const std::int64_t n : odd_sizes) {
        for (const bool accumulate : {false, true}) {
          const Array source = random_array(type, n, 6);
          Array wanted = random_array(accumulation_type(type), n, 7);
          Array got = wanted;
          accumulate_from(host, type, source.data(), wanted.data(), n, accumulate);
          {
            OnPlace destination(place, got);
            device::accumulate_from(place, type, OnPlace(place, source).data(), destination.data(),
                                    n, accumulate);
          }
          ASSERT_TRUE(got.same_bits(wanted)) << name_of(place) << ", " << n;
        }
      }
    }
  }
}

TEST(DeviceGelu, IsTheCpusButForTheLastBits) {
  for (const device::Place& place : places()) {
    for (const ElementType type : all_types) {
      for (const std::int64_t n : odd_sizes) {
        const Array x = random_array(type, n, 8, 9.0);
        const Array given = random_array(type, n, 9);
        Array y(type, n);
        Array slope(type, n);
        gelu_forward(host, type, x.data(), y.data(), n);
        gelu_backward(host, type, given.data(), x.data(), slope.data(), n);
        Array in_place = x;
        Array got = given;
        {
          OnPlace both(place, in_place);
          device::gelu_forward(place, type, both.data(), both.data(), n);
          OnPlace gradient(place, got);
          device::gelu_backward(place, type, gradient.data(), OnPlace(place, x).data(),
                                gradient.data(), n);
        }
        // The exponential's argument is up to 70, and its rounding as many times as large after.
        const double last_bits = 128 * rounding(accumulation_type(type)) + 2 * rounding(type);
        expect_near(in_place, values_of(y), last_bits, last_bits * 1e-3, name_of(place));
        expect_near(got, values_of(slope), last_bits, last_bits, name_of(place));
      }
    }
  }
}

}  // namespace

}  // namespace garonne::kernels::test
