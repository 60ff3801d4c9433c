#include "kernels/device/sphere_transform.hpp"

#include "kernels/device/spaces.hpp"
#include "kernels/device/team.hpp"
#include "kernels/sphere_table.hpp"

#include <algorithm>

namespace garonne::kernels::device {

namespace {

// A team has a lane for each channel of a chunk; a group has some results one after the other, for
// which what is read once serves.
constexpr int groups = 8;
constexpr int results_of_group = 4;
constexpr std::int64_t results_of_team = groups * results_of_group;

template <typename T>
struct Complex {
  T re = 0;
  T im = 0;
};

// One chunk of channels of one batch entry. The workspace has the spectrum, [orders][sums,
// differences of mirrored rows][northern rows + 1][real, imaginary][channels].
template <typename T>
struct Chunk {
  static constexpr std::int64_t most_channels = sphere_panel_bytes / (2 * sizeof(T));

  Chunk(const SphereArguments& arguments, std::int64_t entry_, std::int64_t first_)
      : shape(arguments.shape),
        north(arguments.shape.northern_rows()),
        factors(arguments.factors),
        orders(static_cast<const SphereTableOrder*>(arguments.table)),
        table(static_cast<const T*>(arguments.table)),
        grid(static_cast<T*>(arguments.grid)),
        coefficients(static_cast<T*>(arguments.coefficients)),
        spectrum(static_cast<T*>(arguments.workspace)),
        batch(arguments.batch),
        all_channels(arguments.channels),
        entry(entry_),
        first(first_),
        channels(std::min(most_channels, arguments.channels - first_)) {}

  KOKKOS_FUNCTION std::int64_t mirror(std::int64_t row) const { return shape.latitudes - 1 - row; }
  // The first channel of longitude 0 of a row.
  KOKKOS_FUNCTION T* row(std::int64_t latitude) const {
    return grid + (entry * shape.latitudes + latitude) * shape.longitudes * all_channels + first;
  }
  // Real parts; the imaginary ones follow most_channels later.
  KOKKOS_FUNCTION T* place(std::int64_t order, int difference, std::int64_t k) const {
    return spectrum + ((2 * order + difference) * (north + 1) + k) * 2 * most_channels;
  }
  KOKKOS_FUNCTION const T* roots() const {
    return table + shape.orders * static_cast<std::int64_t>(sizeof(SphereTableOrder) / sizeof(T));
  }
  KOKKOS_FUNCTION bool alone(std::int64_t order) const {
    return order == 0 || 2 * order == shape.longitudes;
  }
  KOKKOS_FUNCTION T factor(std::int64_t latitude, std::int64_t order) const {
    const double of_row = factors.rows == nullptr ? 1 : factors.rows[latitude];
    return static_cast<T>(of_row * (alone(order) ? factors.single : factors.paired));
  }
  // Degrees of an order with even (0) or odd (1) degree - order.
  KOKKOS_FUNCTION std::int64_t degrees(std::int64_t order, int odd) const {
    return (shape.degrees - order + 1 - odd) / 2;
  }
  // Their functions, [degrees][northern rows from the order's start on].
  KOKKOS_FUNCTION const T* functions(std::int64_t order, int odd) const {
    const T* const even = table + orders[order].first;
    return odd == 0 ? even : even + degrees(order, 0) * (north - orders[order].start);
  }
  // The two numbers of a channel, of number i of those degrees.
  KOKKOS_FUNCTION T* coefficient(std::int64_t order, int odd, std::int64_t i,
                                 std::int64_t channel) const {
    const std::int64_t degree = order + odd + 2 * i;
    return coefficients + 2 * ((shape.first_row(degree) + order) * batch * all_channels +
                               entry * all_channels + first + channel);
  }

  SphereShape shape;
  std::int64_t north;
  SphereFactors factors;
  const SphereTableOrder* orders;
  const T* table;
  T* grid;
  T* coefficients;
  T* spectrum;
  std::int64_t batch;
  std::int64_t all_channels;
  std::int64_t entry;
  std::int64_t first;
  std::int64_t channels;
};

// kernel.compute(outer, first, count, channel) for `count` results from `first` on, of a group.
template <typename Team, typename Kernel>
KOKKOS_FUNCTION void for_results(const Team& team, std::int64_t index, std::int64_t tiles,
                                 std::int64_t results, std::int64_t channels,
                                 const Kernel& kernel) {
  const std::int64_t outer = index / tiles;
  const std::int64_t begin = index % tiles * results_of_team;
  team.each(Team::threads, [&](int thread) {
    const std::int64_t channel = thread % lanes_of_group;
    const std::int64_t first = begin + thread / lanes_of_group * results_of_group;
    if (channel >= channels || first >= results) return;
    const auto count =
        static_cast<int>(Kokkos::min<std::int64_t>(results_of_group, results - first));
    kernel.compute(outer, first, count, channel);
  });
}

// Grid -> spectrum: a northern row and its mirror, some orders.
template <typename T>
struct FourierAnalysis {
  Chunk<T> chunk;
  std::int64_t tiles;

  KOKKOS_FUNCTION void compute(std::int64_t k, std::int64_t first, int count,
                               std::int64_t channel) const {
    const std::int64_t longitudes = chunk.shape.longitudes;
    const std::int64_t stride = chunk.all_channels;
    const T* const north = chunk.row(k) + channel;
    const T* const south = chunk.row(chunk.mirror(k)) + channel;
    const T* const roots = chunk.roots();
    Complex<T> of_north[results_of_group];
    Complex<T> of_south[results_of_group];
    std::int64_t turns[results_of_group] = {};  // order · j modulo the longitudes
    for (std::int64_t j = 0; j < longitudes; ++j) {
      const T a = north[j * stride];
      const T b = south[j * stride];
      for (int i = 0; i < results_of_group; ++i) {
        if (i >= count) continue;
        const T cosine = roots[2 * turns[i]];
        const T sine = -roots[2 * turns[i] + 1];
        of_north[i].re = Kokkos::fma(a, cosine, of_north[i].re);
        of_north[i].im = Kokkos::fma(a, sine, of_north[i].im);
        of_south[i].re = Kokkos::fma(b, cosine, of_south[i].re);
        of_south[i].im = Kokkos::fma(b, sine, of_south[i].im);
        turns[i] += first + i;
        if (turns[i] >= longitudes) turns[i] -= longitudes;
      }
    }
    const bool equator = chunk.mirror(k) == k;
    for (int i = 0; i < results_of_group; ++i) {
      if (i >= count) continue;
      const T factor = chunk.factor(k, first + i);
      const Complex<T> other = equator ? Complex<T>{} : of_south[i];
      T* const sums = chunk.place(first + i, 0, k) + channel;
      sums[0] = (of_north[i].re + other.re) * factor;
      sums[Chunk<T>::most_channels] = (of_north[i].im + other.im) * factor;
      // The equator is its own mirror.
      T* const differences = chunk.place(first + i, 1, k) + channel;
      differences[0] = equator ? T{0} : (of_north[i].re - other.re) * factor;
      differences[Chunk<T>::most_channels] = equator ? T{0} : (of_north[i].im - other.im) * factor;
    }
  }

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t index) const {
    for_results(team, index, tiles, chunk.shape.orders, chunk.channels, *this);
  }
};

// Spectrum -> coefficients: an order and parity, some degrees.
template <typename T>
struct LegendreAnalysis {
  Chunk<T> chunk;
  std::int64_t tiles;

  KOKKOS_FUNCTION void compute(std::int64_t outer, std::int64_t first, int count,
                               std::int64_t channel) const {
    const std::int64_t order = outer / 2;
    const int odd = static_cast<int>(outer % 2);
    const std::int64_t start = chunk.orders[order].start;
    const std::int64_t depth = chunk.north - start;
    const T* const functions = chunk.functions(order, odd) + first * depth;
    Complex<T> sums[results_of_group];
    for (std::int64_t k = 0; k < depth; ++k) {
      const T* const half = chunk.place(order, odd, start + k) + channel;
      const T re = half[0];
      const T im = half[Chunk<T>::most_channels];
      for (int i = 0; i < results_of_group; ++i) {
        if (i >= count) continue;
        const T value = functions[i * depth + k];
        sums[i].re = Kokkos::fma(value, re, sums[i].re);
        sums[i].im = Kokkos::fma(value, im, sums[i].im);
      }
    }
    for (int i = 0; i < results_of_group; ++i) {
      if (i >= count) continue;
      T* const out = chunk.coefficient(order, odd, first + i, channel);
      out[0] = sums[i].re;
      out[1] = sums[i].im;
    }
  }

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t index) const {
    const std::int64_t outer = index / tiles;
    for_results(team, index, tiles, chunk.degrees(outer / 2, static_cast<int>(outer % 2)),
                chunk.channels, *this);
  }
};

// Coefficients -> spectrum: an order and parity, some northern rows.
template <typename T>
struct LegendreSynthesis {
  Chunk<T> chunk;
  std::int64_t tiles;

  KOKKOS_FUNCTION void compute(std::int64_t outer, std::int64_t first, int count,
                               std::int64_t channel) const {
    const std::int64_t order = outer / 2;
    const int odd = static_cast<int>(outer % 2);
    const std::int64_t start = chunk.orders[order].start;
    const std::int64_t depth = chunk.north - start;
    const std::int64_t degrees = chunk.degrees(order, odd);
    const T* const functions = chunk.functions(order, odd);
    Complex<T> sums[results_of_group];
    for (std::int64_t l = 0; l < degrees; ++l) {
      const T* const pair = chunk.coefficient(order, odd, l, channel);
      for (int i = 0; i < results_of_group; ++i) {
        const std::int64_t k = first + i - start;
        if (i >= count || k < 0) continue;  // rows before the start count nothing
        const T value = functions[l * depth + k];
        sums[i].re = Kokkos::fma(value, pair[0], sums[i].re);
        sums[i].im = Kokkos::fma(value, pair[1], sums[i].im);
      }
    }
    for (int i = 0; i < results_of_group; ++i) {
      if (i >= count) continue;
      T* const half = chunk.place(order, odd, first + i) + channel;
      half[0] = sums[i].re;
      half[Chunk<T>::most_channels] = sums[i].im;
    }
  }

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t index) const {
    for_results(team, index, tiles, chunk.north, chunk.channels, *this);
  }
};

// Spectrum -> grid: a northern row and its mirror, some longitudes.
template <typename T>
struct FourierSynthesis {
  Chunk<T> chunk;
  std::int64_t tiles;

  KOKKOS_FUNCTION void compute(std::int64_t k, std::int64_t first, int count,
                               std::int64_t channel) const {
    const std::int64_t longitudes = chunk.shape.longitudes;
    const T* const roots = chunk.roots();
    T north[results_of_group] = {};
    T south[results_of_group] = {};
    std::int64_t turns[results_of_group] = {};  // order · j modulo the longitudes
    for (std::int64_t m = 0; m < chunk.shape.orders; ++m) {
      const T* const sums = chunk.place(m, 0, k) + channel;
      const T* const differences = chunk.place(m, 1, k) + channel;
      constexpr std::int64_t imaginary = Chunk<T>::most_channels;
      const T factor = chunk.factor(k, m) * (chunk.alone(m) ? T{1} : T{2});
      const T of_imaginary = chunk.alone(m) ? T{0} : factor;
      const Complex<T> a{(sums[0] + differences[0]) * factor,
                         (sums[imaginary] + differences[imaginary]) * of_imaginary};
      const Complex<T> b{(sums[0] - differences[0]) * factor,
                         (sums[imaginary] - differences[imaginary]) * of_imaginary};
      for (int i = 0; i < results_of_group; ++i) {
        if (i >= count) continue;
        const T cosine = roots[2 * turns[i]];
        const T sine = -roots[2 * turns[i] + 1];
        north[i] = Kokkos::fma(a.im, sine, Kokkos::fma(a.re, cosine, north[i]));
        south[i] = Kokkos::fma(b.im, sine, Kokkos::fma(b.re, cosine, south[i]));
        turns[i] += first + i;
        if (turns[i] >= longitudes) turns[i] -= longitudes;
      }
    }
    const std::int64_t mirror = chunk.mirror(k);
    for (int i = 0; i < results_of_group; ++i) {
      if (i >= count) continue;
      const std::int64_t at = (first + i) * chunk.all_channels + channel;
      chunk.row(k)[at] = north[i];
      if (mirror != k) chunk.row(mirror)[at] = south[i];
    }
  }

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t index) const {
    for_results(team, index, tiles, chunk.shape.longitudes, chunk.channels, *this);
  }
};

template <template <typename> typename Kernel, typename T, typename Space>
void run(const Space& space, const Chunk<T>& chunk, std::int64_t outer, std::int64_t results) {
  const std::int64_t tiles = (results + results_of_team - 1) / results_of_team;
  for_teams<groups>(space, outer * tiles, 0, Kernel<T>{chunk, tiles});
}

template <typename Use>
void for_chunks(const Place& place, const SphereArguments& arguments, const Use& use) {
  with_wide_type_and_space(
      place, arguments.type, "spherical harmonics", [&]<typename T>(T, const auto& space) {
        for (std::int64_t entry = 0; entry < arguments.batch; ++entry) {
          for (std::int64_t first = 0; first < arguments.channels; first += Chunk<T>::most_channels)
            use(space, Chunk<T>(arguments, entry, first));
        }
      });
}

}  // namespace

void sphere_analysis(const Place& place, const SphereArguments& arguments) {
  for_chunks(place, arguments, [&](const auto& space, const auto& chunk) {
    const SphereShape& shape = arguments.shape;
    run<FourierAnalysis>(space, chunk, shape.northern_rows(), shape.orders);
    run<LegendreAnalysis>(space, chunk, 2 * shape.orders, shape.degrees / 2 + 1);
  });
}

void sphere_synthesis(const Place& place, const SphereArguments& arguments) {
  for_chunks(place, arguments, [&](const auto& space, const auto& chunk) {
    const SphereShape& shape = arguments.shape;
    run<LegendreSynthesis>(space, chunk, 2 * shape.orders, shape.northern_rows());
    run<FourierSynthesis>(space, chunk, shape.northern_rows(), shape.longitudes);
  });
}

}  // namespace garonne::kernels::device
