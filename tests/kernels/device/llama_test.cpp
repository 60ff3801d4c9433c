// Device kernels of Llama's nodes against the CPU's.
#include "kernels/device/places.hpp"

#include "kernels/device/rms_norm.hpp"
#include "kernels/device/rotary.hpp"
#include "kernels/device/swiglu.hpp"
#include "kernels/rms_norm.hpp"
#include "kernels/rotary.hpp"
#include "kernels/swiglu.hpp"

#include <cmath>

namespace garonne::kernels::test {

namespace {

void expect_rms_norm(const device::Place& place, ElementType type, std::int64_t rows,
                     std::int64_t hidden, bool accumulate) {
  const ElementType sums = accumulation_type(type);
  const Array x = random_array(type, rows * hidden, 1);
  const Array gain = random_array(type, hidden, 2);
  const Array given = random_array(type, rows * hidden, 4);
  Array workspace(ElementType::Float64, rms_norm_workspace_bytes(type, rows, hidden) / 8 + 1);
  Array wanted_y(type, rows * hidden);
  Array wanted_inverse(sums, rows);
  Array wanted_x = random_array(type, rows * hidden, 5);
  Array wanted_gain = random_array(sums, hidden, 6);
  Array y = wanted_y;
  Array inverse = wanted_inverse;
  Array gradient_x = wanted_x;
  Array gradient_gain = wanted_gain;
  rms_norm_forward(host, type, x.data(), gain.data(), 1e-5, wanted_y.data(), wanted_inverse.data(),
                   rows, hidden);
  rms_norm_backward(host, type, given.data(), x.data(), gain.data(), wanted_inverse.data(),
                    wanted_x.data(), accumulate, wanted_gain.data(), accumulate, workspace.data(),
                    rows, hidden);
  {
    OnPlace from(place, x);
    OnPlace gains(place, gain);
    OnPlace out(place, y);
    OnPlace inverses(place, inverse);
    OnPlace of_x(place, gradient_x);
    OnPlace of_gain(place, gradient_gain);
    OnPlace space(place, workspace);
    device::rms_norm_forward(place, type, from.data(), gains.data(), 1e-5, out.data(),
                             inverses.data(), rows, hidden);
    device::rms_norm_backward(place, type, OnPlace(place, given).data(), from.data(), gains.data(),
                              inverses.data(), of_x.data(), accumulate, of_gain.data(), accumulate,
                              space.data(), rows, hidden);
  }
  const double sum = rounding(sums);
  const double along = 64 * sum * std::sqrt(static_cast<double>(hidden)) + 2 * rounding(type);
  const double down = 64 * sum * std::sqrt(static_cast<double>(rows));
  const std::string what =
      name_of(place) + ", " + std::to_string(rows) + " x " + std::to_string(hidden);
  expect_near(y, values_of(wanted_y), along, along, "y " + what);
  expect_near(inverse, values_of(wanted_inverse), along, 0, "inverse " + what);
  expect_near(gradient_x, values_of(wanted_x), along, 4 * along, "x " + what);
  // The inverse is a factor, with what its own sum has lost.
  const double factor = down + along;
  expect_near(gradient_gain, values_of(wanted_gain), factor, factor * static_cast<double>(rows),
              "gain " + what);
}

TEST(DeviceRmsNorm, IsTheCpusButForTheOrderOfSums) {
  for (const device::Place& place : places()) {
    for (const ElementType type : types_at(place)) {
      for (const std::int64_t hidden : {1, 31, 32, 33, 1001, 2300}) {
        for (const std::int64_t rows : {1, 33, 600}) {
          if (rows == 600 && hidden != 33) continue;
          for (const bool accumulate : {false, true})
            expect_rms_norm(place, type, rows, hidden, accumulate);
        }
      }
      // Rows for the registers of a team, of a large one, and of none.
      for (const std::int64_t hidden : {2304, 5120, 16392}) {
        for (const bool accumulate : {false, true})
          expect_rms_norm(place, type, 3, hidden, accumulate);
      }
    }
  }
}

TEST(DeviceSwiglu, IsTheCpusButForTheLastBits) {
  for (const device::Place& place : places()) {
    for (const ElementType type : types_at(place)) {
      for (const std::int64_t inner : odd_sizes) {
        const std::int64_t rows = 3;
        const Array x = random_array(type, rows * 2 * inner, 1, 6);
        const Array given = random_array(type, rows * inner, 2);
        Array wanted(type, rows * inner);
        Array wanted_gradient(type, rows * 2 * inner);
        Array y = wanted;
        Array gradient = wanted_gradient;
        swiglu_forward(host, type, x.data(), wanted.data(), rows, inner);
        swiglu_backward(host, type, given.data(), x.data(), wanted_gradient.data(), rows, inner);
        {
          OnPlace from(place, x);
          OnPlace out(place, y);
          OnPlace of_x(place, gradient);
          device::swiglu_forward(place, type, from.data(), out.data(), rows, inner);
          device::swiglu_backward(place, type, OnPlace(place, given).data(), from.data(),
                                  of_x.data(), rows, inner);
        }
        const double last = 2 * rounding(type) + 32 * rounding(accumulation_type(type));
        const std::string what = name_of(place) + ", " + std::to_string(inner);
        expect_near(y, values_of(wanted), last, last, "y " + what);
        expect_near(gradient, values_of(wanted_gradient), last, last, "gradient " + what);
      }
    }
  }
}

TEST(DeviceRotary, IsTheCpusButForTheLastBits) {
  for (const device::Place& place : places()) {
    for (const ElementType type : types_at(place)) {
      for (const RotaryHeads heads :
           {RotaryHeads{1, 1, 0, 2}, RotaryHeads{2, 3, 1, 6}, RotaryHeads{3, 2, 1, 64}}) {
        const std::int64_t sequence = 33;
        const std::int64_t rows = 2 * sequence;
        const auto table = rotary_table(sequence, heads.head_size, 10000);
        const Array x = random_array(type, rows * heads.width(), 1);
        for (const bool back : {false, true}) {
          Array wanted(type, rows * heads.width());
          Array y = x;  // turned in place
          rotate_heads(host, type, x.data(), table.data(), wanted.data(), heads, back, rows,
                       sequence);
          {
            OnPlace out(place, y);
            device::rotate_heads(place, type, out.data(), OnPlace(place, table).as<float>(),
                                 out.data(), heads, back, rows, sequence);
          }
          const double last = 2 * rounding(type) + 4 * rounding(accumulation_type(type));
          expect_near(y, values_of(wanted), last, last, "turned " + name_of(place));
        }
      }
    }
  }
}

}  // namespace

}  // namespace garonne::kernels::test
