#include "kernels/device/dropout.hpp"

#include "kernels/device/combine.hpp"
#include "kernels/device/near_samples.hpp"
#include "kernels/device/own_row.hpp"
#include "kernels/device/quotient.hpp"
#include "kernels/device/random_words.hpp"
#include "kernels/device/spaces.hpp"

#include <cstdint>
#include <type_traits>

namespace garonne::kernels::device {

namespace {

template <typename T>
struct DropoutAdd {
  const T* residual;
  const T* x;
  T* out;
  Dropout dropout;
  const std::int64_t* samples;
  std::int64_t elements_per_sample;

  // Elements of one sample.
  template <int count>
  KOKKOS_FUNCTION void add(std::int64_t first, std::int64_t sample, std::int64_t in_sample) const {
    using G = Accumulation<T>;
    Values<G, count> values;
    read<count>(x + first, values);
    drop<count>(dropout, samples[sample], in_sample, values);
    if (residual != nullptr) {
      Values<G, count> base;
      read<count>(residual + first, base);
      for (int i = 0; i < count; ++i) values[i] = base[i] + values[i];
    }
    write<count>(out + first, values);
  }

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) const {
    std::int64_t sample = quotient(dropout.first_element + first, elements_per_sample);
    std::int64_t in_sample = dropout.first_element + first - sample * elements_per_sample;
    if (in_sample + count <= elements_per_sample) return add<count>(first, sample, in_sample);
    for (int i = 0; i < count; ++i) {
      add<1>(first + i, sample, in_sample);
      if (++in_sample == elements_per_sample) {
        in_sample = 0;
        ++sample;
      }
    }
  }
};

// The same where samples, and all elements, are of whole packs of whole groups of four random
// words: one pack a thread, so that many reads are under way while words are made.
template <typename T, bool has_residual>
struct DropoutAddPacks {
  static constexpr int groups = 8;
  static constexpr unsigned resident = 4;
  static constexpr int width = pack<T> < 4 ? 4 : pack<T>;
  static constexpr std::int64_t of_team = std::int64_t{groups} * lanes_of_group * width;

  DropoutAdd<T> whole;
  std::int64_t elements;

  KOKKOS_FUNCTION void add(std::int64_t first) const {
    using G = Accumulation<T>;
    const auto fetched = fetch_packs<width>(whole.x + first);
    Fetched<T, width> base;
    if constexpr (has_residual) base = fetch_packs<width>(whole.residual + first);
    const Dropout& dropout = whole.dropout;
    const std::int64_t place = dropout.first_element + first;
    const std::int64_t sample = quotient(place, whole.elements_per_sample);
    Values<std::uint32_t, width> words;
    random_words_of_groups<width>(dropout.key, step_of(dropout), whole.samples[sample],
                                  place - sample * whole.elements_per_sample, words);
    Values<G, width> values;
    unpack<width>(fetched, values);
    drop_by<width>(dropout, words, values);
    if constexpr (has_residual) {
      Values<G, width> sums;
      unpack<width>(base, sums);
      for (int i = 0; i < width; ++i) values[i] = sums[i] + values[i];
    }
    write_packs<width>(whole.out + first, values);
  }

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t block) const {
    team.each(Team::threads, [&](int thread) {
      const std::int64_t first = block * of_team + thread * width;
      if (first < elements) add(first);
    });
  }
};

// Of nothing that is dropped.
template <typename T>
struct Sum {
  const T* residual;
  const T* x;
  T* out;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) const {
    Values<Accumulation<T>, count> values;
    Values<Accumulation<T>, count> sums;
    const auto fetched = fetch<count>(x + first);
    const auto base = fetch<count>(residual + first);
    unpack<count>(fetched, values);
    unpack<count>(base, sums);
    for (int i = 0; i < count; ++i) sums[i] = sums[i] + values[i];
    write<count>(out + first, sums);
  }
};

}  // namespace

void dropout_add(const Place& place, ElementType type, const void* residual, const void* x,
                 void* out, const Dropout& dropout, const std::int64_t* samples,
                 std::int64_t elements, std::int64_t elements_per_sample) {
  with_type_and_space(place, type, [&]<typename T>(T, const auto& space) {
    const auto* const from = static_cast<const T*>(x);
    auto* const to = static_cast<T*>(out);
    if (dropout.threshold == 0) {
      if (residual == nullptr) return combine<T, T>(space, x, out, elements, /*accumulate=*/false);
      return elementwise<pack<T>>(space, elements,
                                  Sum<T>{static_cast<const T*>(residual), from, to});
    }
    const std::int64_t of_samples =
        (dropout.first_element + elements + elements_per_sample - 1) / elements_per_sample;
    const DropoutAdd<T> whole{static_cast<const T*>(residual),
                              from,
                              to,
                              dropout,
                              near_samples(space, place, samples, of_samples),
                              elements_per_sample};
    constexpr int width = DropoutAddPacks<T, true>::width;
    const bool packed = are_packed<T>(elements, residual, x, out) &&
                        dropout.first_element % width == 0 && elements_per_sample % width == 0 &&
                        elements % width == 0;
    if (!packed) return elementwise<width, 2>(space, elements, whole);
    const auto put = [&]<bool has_residual>(std::bool_constant<has_residual>) {
      using Packs = DropoutAddPacks<T, has_residual>;
      for_teams<Packs::groups, Packs::resident>(
          space, (elements + Packs::of_team - 1) / Packs::of_team, 0, Packs{whole, elements});
    };
    if (residual == nullptr) {
      put(std::false_type());
    } else {
      put(std::true_type());
    }
  });
}

}  // namespace garonne::kernels::device
