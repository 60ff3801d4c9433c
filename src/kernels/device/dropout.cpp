#include "kernels/device/dropout.hpp"

#include "kernels/device/combine.hpp"
#include "kernels/device/own_row.hpp"
#include "kernels/device/random_words.hpp"
#include "kernels/device/spaces.hpp"

namespace garonne::kernels::device {

namespace {

// Of numbers that are not negative; in 32 bits where they have no more, which takes a fifth.
KOKKOS_INLINE_FUNCTION std::int64_t quotient(std::int64_t a, std::int64_t b) {
  if (((a | b) >> 32) == 0) return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
  return a / b;
}

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
// words. Numbers of samples may be in memory of the host: a team reads each of its own once.
template <typename T>
struct DropoutAddPacks {
  static constexpr int groups = 8;
  static constexpr unsigned resident = 4;
  static constexpr int width = pack<T> < 4 ? 4 : pack<T>;
  static constexpr int rounds = 4;
  static constexpr std::int64_t of_round = std::int64_t{groups} * lanes_of_group * width;
  static constexpr std::int64_t of_team = rounds * of_round;
  static constexpr int most_samples = 64;
  static constexpr int scratch_bytes = shared_bytes<std::int64_t>(most_samples);

  DropoutAdd<T> whole;
  std::int64_t elements;

  KOKKOS_FUNCTION void add(std::int64_t first, std::int64_t number, std::int64_t in_sample) const {
    using G = Accumulation<T>;
    const bool has_residual = whole.residual != nullptr;
    const auto fetched = fetch_packs<width>(whole.x + first);
    // Without one something that is there, and is not looked at.
    const auto base = fetch_packs<width>((has_residual ? whole.residual : whole.x) + first);
    const Dropout& dropout = whole.dropout;
    Values<std::uint32_t, width> words;
    random_words_of_groups<width>(dropout.key, step_of(dropout), number, in_sample, words);
    Values<G, width> values;
    unpack<width>(fetched, values);
    drop_by<width>(dropout, words, values);
    if (has_residual) {
      Values<G, width> sums;
      unpack<width>(base, sums);
      for (int i = 0; i < width; ++i) values[i] = sums[i] + values[i];
    }
    write_packs<width>(whole.out + first, values);
  }

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t block) const {
    std::int64_t* const numbers = team.template shared<std::int64_t>(most_samples);
    const std::int64_t length = whole.elements_per_sample;
    const std::int64_t offset = whole.dropout.first_element;
    const std::int64_t begin = block * of_team;
    const std::int64_t end = Kokkos::min(elements, begin + of_team);
    const std::int64_t first_sample = quotient(offset + begin, length);
    const std::int64_t last_sample = quotient(offset + end - 1, length);
    const auto there =
        static_cast<int>(Kokkos::min<std::int64_t>(most_samples, last_sample - first_sample + 1));
    team.each(there, [&](int i) { numbers[i] = whole.samples[first_sample + i]; });
    team.wait();
    team.each(Team::threads, [&](int thread) {
      std::int64_t first = begin + thread * width;
      std::int64_t sample = quotient(offset + first, length);
      std::int64_t in_sample = offset + first - sample * length;
      for (; first < end; first += of_round, in_sample += of_round) {
        for (; in_sample >= length; in_sample -= length) ++sample;
        const std::int64_t place = sample - first_sample;
        add(first, place < most_samples ? numbers[place] : whole.samples[sample], in_sample);
      }
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
    const DropoutAdd<T> whole{
        static_cast<const T*>(residual), from, to, dropout, samples, elements_per_sample};
    using Packs = DropoutAddPacks<T>;
    const bool packed = are_packed<T>(elements, residual, x, out) &&
                        dropout.first_element % Packs::width == 0 &&
                        elements_per_sample % Packs::width == 0 && elements % Packs::width == 0;
    if (!packed) return elementwise<Packs::width, 2>(space, elements, whole);
    for_teams<Packs::groups, Packs::resident>(space,
                                              (elements + Packs::of_team - 1) / Packs::of_team,
                                              Packs::scratch_bytes, Packs{whole, elements});
  });
}

}  // namespace garonne::kernels::device
