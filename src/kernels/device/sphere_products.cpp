#include "kernels/device/sphere_products.hpp"

#include "kernels/device/elementwise.hpp"
#include "kernels/device/quotient.hpp"
#include "kernels/device/spaces.hpp"
#include "kernels/sphere_columns.hpp"

namespace garonne::kernels::device {

namespace {

// Some columns of a row and a place of the quarter; they are of one batch entry where there are
// several.
struct FoldedPlace {
  KOKKOS_FUNCTION FoldedPlace(const SphereColumns& columns, const SphereProductSizes& sizes,
                              std::int64_t first)
      : row(quotient(quotient(first, columns.count), sizes.quarter)),
        mirror(columns.shape.latitudes - 1 - row),
        circle(columns.shape.longitudes, quotient(first, columns.count) - row * sizes.quarter),
        longitudes(columns.shape.longitudes),
        channels(columns.channels) {
    const std::int64_t column =
        columns.first + first - quotient(first, columns.count) * columns.count;
    const std::int64_t entry = quotient(column, channels);
    first_row = entry * columns.shape.latitudes;
    channel = column - entry * channels;
  }

  KOKKOS_FUNCTION std::int64_t in_grid(std::int64_t latitude, int point) const {
    return ((first_row + latitude) * longitudes + circle.place[point]) * channels + channel;
  }

  std::int64_t row;
  std::int64_t mirror;
  CirclePoints circle;
  std::int64_t longitudes;
  std::int64_t channels;
  std::int64_t first_row;  // of the entry
  std::int64_t channel;
};

template <typename T>
struct Fold {
  SphereColumns columns;
  SphereProductSizes sizes;
  const T* grid;
  Accumulation<T>* folded;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) const {
    using G = Accumulation<T>;
    const FoldedPlace place(columns, sizes, first);
    const bool equator = place.mirror == place.row;
    Fetched<T, count> north[4];
    Fetched<T, count> south[4];
    GARONNE_UNROLLED
    for (int point = 0; point < 4; ++point) {
      // What is not there is fetched from where something is, and is not looked at.
      const int from = place.circle.has(point) ? point : 0;
      north[point] = fetch<count>(grid + place.in_grid(place.row, from));
      south[point] = fetch<count>(grid + place.in_grid(place.mirror, from));
    }
    const G factor = static_cast<G>(factor_of_row(columns, place.row));
    GARONNE_UNROLLED
    for (int mirrored = 0; mirrored < 2; ++mirrored) {
      GARONNE_UNROLLED
      for (int block = 0; block < 4; ++block) {
        Values<G, count> values;
        GARONNE_UNROLLED
        for (int i = 0; i < count; ++i) {
          G points[4];
          GARONNE_UNROLLED
          for (int point = 0; point < 4; ++point) {
            const G a = load(north[point].elements[i]);
            const G b = equator ? G{0} : load(south[point].elements[i]);
            const G both = mirrored == 0 ? a + b : equator ? G{0} : a - b;
            points[point] = place.circle.has(point) ? both : G{0};
          }
          values[i] = folded_circle(points, block / 2, block % 2) * factor;
        }
        write<count>(
            folded + folded_block(sizes, block / 2, block % 2, mirrored, columns.count) + first,
            values);
      }
    }
  }
};

template <typename T>
struct Unfold {
  SphereColumns columns;
  SphereProductSizes sizes;
  const Accumulation<T>* folded;
  T* grid;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) const {
    using G = Accumulation<T>;
    const FoldedPlace place(columns, sizes, first);
    const bool equator = place.mirror == place.row;
    Fetched<G, count> fetched[2][4];
    GARONNE_UNROLLED
    for (int mirrored = 0; mirrored < 2; ++mirrored) {
      GARONNE_UNROLLED
      for (int block = 0; block < 4; ++block) {
        fetched[mirrored][block] = fetch<count>(
            folded + folded_block(sizes, block / 2, block % 2, mirrored, columns.count) + first);
      }
    }
    const G factor = static_cast<G>(factor_of_row(columns, place.row));
    GARONNE_UNROLLED
    for (int south = 0; south < 2; ++south) {
      if (south == 1 && equator) continue;
      GARONNE_UNROLLED
      for (int point = 0; point < 4; ++point) {
        if (!place.circle.has(point)) continue;
        Values<G, count> values;
        GARONNE_UNROLLED
        for (int i = 0; i < count; ++i) {
          G sums[2][2];
          GARONNE_UNROLLED
          for (int block = 0; block < 4; ++block) {
            const G even = fetched[0][block].elements[i];
            const G odd = equator ? G{0} : fetched[1][block].elements[i];
            sums[block / 2][block % 2] = south == 0 ? even + odd : even - odd;
          }
          values[i] = unfolded_circle(sums, point) * factor;
        }
        write<count>(grid + place.in_grid(south == 0 ? place.row : place.mirror, point), values);
      }
    }
  }
};

// Of one pair: its place, and where it is.
struct SeriesElement {
  KOKKOS_FUNCTION SeriesElement(const SphereColumns& columns, const SphereProductSizes& sizes,
                                std::int64_t index)
      : pair(quotient(index, columns.count)),
        column(index - pair * columns.count),
        place(columns.shape, sizes, pair),
        real(2 * pair * columns.count + column),
        imaginary(real + columns.count) {}

  KOKKOS_FUNCTION std::int64_t coefficient(const SphereColumns& columns) const {
    const std::int64_t row = columns.shape.first_row(place.degree) + place.order;
    return 2 * (row * columns.batch * columns.channels + columns.first + column);
  }

  std::int64_t pair;
  std::int64_t column;
  SeriesPlace place;
  std::int64_t real;
  std::int64_t imaginary;
};

template <typename T>
struct SeriesToCoefficients {
  SphereColumns columns;
  SphereProductSizes sizes;
  const T* series;
  T* coefficients;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) const {
    static_assert(count == 1);
    const SeriesElement element(columns, sizes, first);
    if (!element.place.exists) return;
    const T factor = static_cast<T>(factor_of_order(columns, element.place));
    T* const out = coefficients + element.coefficient(columns);
    out[0] = series[element.real] * factor;
    out[1] = series[element.imaginary] * factor;
  }
};

template <typename T>
struct CoefficientsToSeries {
  SphereColumns columns;
  SphereProductSizes sizes;
  const T* coefficients;
  T* series;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) const {
    static_assert(count == 1);
    const SeriesElement element(columns, sizes, first);
    T re = 0;
    T im = 0;
    if (element.place.exists) {
      const bool alone = element.place.alone;
      const T factor = static_cast<T>(factor_of_order(columns, element.place) * (alone ? 1 : 2));
      const T* const from = coefficients + element.coefficient(columns);
      re = from[0] * factor;
      im = from[1] * (alone ? T{0} : factor);
    }
    series[element.real] = re;
    series[element.imaginary] = im;
  }
};

// Whether packs of `width` columns are of one batch entry and begin where packs do.
bool has_packs_of(const SphereColumns& columns, int width) {
  return columns.channels % width == 0 && columns.first % width == 0 && columns.count % width == 0;
}

// Puts the kernel of all folded places; a thread has a pack of columns where it can be.
template <typename T, typename Space, typename Kernel>
void for_folded(const Space& space, const SphereColumns& columns, const SphereProductSizes& sizes,
                const Kernel& kernel) {
  constexpr unsigned resident = 2;  // eight packs are in registers
  const std::int64_t n = sizes.northern_rows * sizes.quarter * columns.count;
  if (has_packs_of(columns, pack<T>)) {
    elementwise<pack<T>, resident>(space, n, kernel);
  } else {
    elementwise<1>(space, n, kernel);
  }
}

// Puts make(T, sizes) for each pair of a series.
template <typename Make>
void for_pairs(const Place& place, const SphereColumns& columns, const Make& make) {
  const SphereProductSizes sizes(columns.shape);
  const std::int64_t n = sizes.series(columns.count) / 2;
  with_space(place, [&](const auto& space) {
    if (columns.field_type == ElementType::Float64) {
      elementwise<1>(space, n, make(double{}, sizes));
    } else {
      elementwise<1>(space, n, make(float{}, sizes));
    }
  });
}

}  // namespace

void sphere_fold(const Place& place, const SphereColumns& columns, const void* grid, void* folded) {
  const SphereProductSizes sizes(columns.shape);
  with_type_and_space(place, columns.field_type, [&]<typename T>(T, const auto& space) {
    for_folded<T>(space, columns, sizes,
                  Fold<T>{columns, sizes, static_cast<const T*>(grid),
                          static_cast<Accumulation<T>*>(folded)});
  });
}

void sphere_unfold(const Place& place, const SphereColumns& columns, const void* folded,
                   void* grid) {
  const SphereProductSizes sizes(columns.shape);
  with_type_and_space(place, columns.field_type, [&]<typename T>(T, const auto& space) {
    for_folded<T>(space, columns, sizes,
                  Unfold<T>{columns, sizes, static_cast<const Accumulation<T>*>(folded),
                            static_cast<T*>(grid)});
  });
}

void sphere_coefficients(const Place& place, const SphereColumns& columns, const void* series,
                         void* coefficients) {
  for_pairs(place, columns, [&]<typename T>(T, const SphereProductSizes& sizes) {
    return SeriesToCoefficients<T>{columns, sizes, static_cast<const T*>(series),
                                   static_cast<T*>(coefficients)};
  });
}

void sphere_series(const Place& place, const SphereColumns& columns, const void* coefficients,
                   void* series) {
  for_pairs(place, columns, [&]<typename T>(T, const SphereProductSizes& sizes) {
    return CoefficientsToSeries<T>{columns, sizes, static_cast<const T*>(coefficients),
                                   static_cast<T*>(series)};
  });
}

}  // namespace garonne::kernels::device
