// Spherical harmonic transforms of one chunk of channels: Fourier sums of rows of latitude, and
// Legendre sums of orders.
// clang-format off: each file uses those above it
#include "kernels/cpu/loops_wide.inl"
#include "kernels/cpu/loops_fourier.inl"
#include "kernels/cpu/loops_legendre.inl"
// clang-format on

// Where a chunk finds its things. Workspace: the spectrum [orders][sums, differences of mirrored
// rows][northern rows + 1][columns], then what one thread has for itself.
template <typename T>
struct SphereChunk {
  explicit SphereChunk(const SphereLoopArguments& loop)
      : call(*loop.call),
        shape(call.shape),
        north(shape.northern_rows()),
        entry(loop.entry),
        first(loop.first_channel),
        channels(std::min(Wide<T>::channels, call.channels - first)),
        lines((channels + Wide<T>::line - 1) / Wide<T>::line),
        compact(2 * channels <= Wide<T>::line),
        spectrum(static_cast<T*>(call.workspace)),
        scratch(static_cast<T*>(loop.scratch)),
        orders(static_cast<const SphereTableOrder*>(call.table)),
        roots(static_cast<const T*>(call.table) +
              shape.orders * static_cast<std::int64_t>(sizeof(SphereTableOrder) / sizeof(T))) {}

  // Columns of the panels in use. Few channels have real and imaginary parts in one line.
  std::int64_t used() const { return compact ? Wide<T>::line : 2 * lines * Wide<T>::line; }
  std::int64_t imaginary() const { return compact ? Wide<T>::line / 2 : Wide<T>::line; }
  void store(T* place, const Complex<T>& value) const {
    if (compact) {
      std::memcpy(place, &value.re, 32);
      std::memcpy(place + Wide<T>::line / 2, &value.im, 32);
    } else {
      store_complex(place, value);
    }
  }
  void load(const T* place, Complex<T>& value) const {
    if (compact) {
      value = Complex<T>();
      std::memcpy(&value.re, place, 32);
      std::memcpy(&value.im, place + Wide<T>::line / 2, 32);
    } else {
      load_complex(place, value);
    }
  }
  T* half(std::int64_t order, int difference) const {
    return spectrum + (2 * order + difference) * (north + 1) * Wide<T>::columns;
  }
  // Channels first … of one point, or the first of a row of longitudes.
  T* row(std::int64_t latitude) const {
    return static_cast<T*>(call.grid) +
           (entry * shape.latitudes + latitude) * shape.longitudes * call.channels + first;
  }
  T factor(std::int64_t latitude, std::int64_t order) const {
    const double of_row = call.factors.rows == nullptr ? 1 : call.factors.rows[latitude];
    return static_cast<T>(of_row *
                          (alone(order) ? call.factors.single : call.factors.paired));
  }
  bool alone(std::int64_t order) const { return order == 0 || 2 * order == shape.longitudes; }
  // Of the Legendre functions of one order: [degrees of even l - m, then odd][northern rows from
  // start on].
  const T* table(std::int64_t order) const {
    return static_cast<const T*>(call.table) + orders[order].first;
  }
  std::int64_t start(std::int64_t order) const { return orders[order].start; }

  // Rows of the table for one order and even (0) or odd (1) l - m.
  std::int64_t degrees(std::int64_t order, int odd) const {
    return (shape.degrees - order + 1 - odd) / 2;
  }

  const SphereArguments& call;
  const SphereShape& shape;
  std::int64_t north;
  std::int64_t entry;
  std::int64_t first;
  std::int64_t channels;
  std::int64_t lines;
  bool compact;
  T* spectrum;
  T* scratch;
  const SphereTableOrder* orders;
  const T* roots;
};

// Moves `count` channels of every longitude between a row of the grid and the real (0) or imaginary
// (1) parts of a complex sequence.
template <typename T>
void read_row(const T* row, std::int64_t longitudes, std::int64_t channels, std::int64_t count,
              T* sequence) {
  constexpr std::int64_t line = Wide<T>::line;
  if (count == line) {
    for (std::int64_t j = 0; j < longitudes; ++j)
      std::memcpy(sequence + 2 * j * line, row + j * channels, 64);
    return;
  }
  for (std::int64_t j = 0; j < longitudes; ++j) {
    T* place = sequence + 2 * j * line;
    std::memset(place, 0, 64);
    std::copy_n(row + j * channels, count, place);
  }
}
template <typename T>
void write_row(const T* sequence, std::int64_t longitudes, std::int64_t channels,
               std::int64_t count, T* row) {
  constexpr std::int64_t line = Wide<T>::line;
  if (count == line) {
    for (std::int64_t j = 0; j < longitudes; ++j)
      std::memcpy(row + j * channels, sequence + 2 * j * line, 64);
    return;
  }
  for (std::int64_t j = 0; j < longitudes; ++j)
    std::copy_n(sequence + 2 * j * line, count, row + j * channels);
}

// Grid -> spectrum, of northern rows [begin, end) and their mirrors: a row and its mirror are the
// real and the imaginary part of one complex sequence.
template <typename T>
void fourier_analysis(const SphereLoopArguments& loop, std::int64_t begin, std::int64_t end) {
  using Line = typename Wide<T>::Line;
  constexpr std::int64_t line = Wide<T>::line;
  const SphereChunk<T> chunk(loop);
  const std::int64_t length = chunk.shape.longitudes;
  T* const values = chunk.scratch;
  T* const other = values + 2 * length * line;
  for (std::int64_t k = begin; k < end; ++k) {
    const std::int64_t mirror = chunk.shape.latitudes - 1 - k;
    const bool equator = mirror == k;
    for (std::int64_t i = 0; i < chunk.lines; ++i) {
      const std::int64_t count = std::min(line, chunk.channels - i * line);
      read_row(chunk.row(k) + i * line, length, chunk.call.channels, count, values);
      read_row(chunk.row(mirror) + i * line, length, chunk.call.channels, count, values + line);
      const T* const result = fourier_transform<T, -1>(values, other, length, chunk.roots);
      for (std::int64_t m = 0; m < chunk.shape.orders; ++m) {
        const T factor = chunk.factor(k, m) / 2;
        Complex<T> a;
        Complex<T> b;
        load_complex(result + 2 * m * line, a);
        load_complex(result + 2 * (m == 0 ? 0 : length - m) * line, b);
        // Twice the coefficients of the two real sequences.
        const Line north_re = a.re + b.re;
        const Line north_im = a.im - b.im;
        const Line south_re = a.im + b.im;
        const Line south_im = b.re - a.re;
        const std::int64_t place = k * Wide<T>::columns + 2 * i * line;
        if (equator) {
          // It is its own mirror: the sum is the row, the difference nothing.
          chunk.store(chunk.half(m, 0) + place, {north_re * factor, north_im * factor});
          chunk.store(chunk.half(m, 1) + place, {Line{}, Line{}});
        } else {
          chunk.store(chunk.half(m, 0) + place,
                           {(north_re + south_re) * factor, (north_im + south_im) * factor});
          chunk.store(chunk.half(m, 1) + place,
                           {(north_re - south_re) * factor, (north_im - south_im) * factor});
        }
      }
    }
  }
}

// Spectrum -> grid.
template <typename T>
void fourier_synthesis(const SphereLoopArguments& loop, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t line = Wide<T>::line;
  const SphereChunk<T> chunk(loop);
  const std::int64_t length = chunk.shape.longitudes;
  T* const values = chunk.scratch;
  T* const other = values + 2 * length * line;
  for (std::int64_t k = begin; k < end; ++k) {
    const std::int64_t mirror = chunk.shape.latitudes - 1 - k;
    for (std::int64_t i = 0; i < chunk.lines; ++i) {
      const std::int64_t count = std::min(line, chunk.channels - i * line);
      // Orders from the last to where their conjugates begin.
      for (std::int64_t j = chunk.shape.orders; j + chunk.shape.orders <= length; ++j)
        std::memset(values + 2 * j * line, 0, 128);
      for (std::int64_t m = 0; m < chunk.shape.orders; ++m) {
        const T factor = chunk.factor(k, m);
        const std::int64_t place = k * Wide<T>::columns + 2 * i * line;
        Complex<T> sum;
        Complex<T> difference;
        chunk.load(chunk.half(m, 0) + place, sum);
        chunk.load(chunk.half(m, 1) + place, difference);
        const Complex<T> north = {(sum.re + difference.re) * factor,
                                  (sum.im + difference.im) * factor};
        const Complex<T> south = {(sum.re - difference.re) * factor,
                                  (sum.im - difference.im) * factor};
        if (chunk.alone(m)) {
          store_complex<T>(values + 2 * m * line, {north.re, south.re});
        } else {
          store_complex<T>(values + 2 * m * line, {north.re - south.im, north.im + south.re});
          store_complex<T>(values + 2 * (length - m) * line,
                           {north.re + south.im, south.re - north.im});
        }
      }
      const T* const result = fourier_transform<T, 1>(values, other, length, chunk.roots);
      write_row(result, length, chunk.call.channels, count, chunk.row(k) + i * line);
      if (mirror != k) {
        write_row(result + line, length, chunk.call.channels, count, chunk.row(mirror) + i * line);
      }
    }
  }
}

// Copies the coefficients of one order and parity between where they are packed by degree, complex,
// and a panel [degrees][columns].
template <typename T, bool to_panel>
void move_coefficients(const SphereChunk<T>& chunk, std::int64_t order, int odd, T* panel) {
  constexpr std::int64_t line = Wide<T>::line;
  const SphereShape& shape = chunk.shape;
  const std::int64_t row_elements = 2 * chunk.call.batch * chunk.call.channels;
  T* coefficients = static_cast<T*>(chunk.call.coefficients) +
                    2 * (chunk.entry * chunk.call.channels + chunk.first);
  for (std::int64_t l = order + odd; l < shape.degrees; l += 2, panel += Wide<T>::columns) {
    T* row = coefficients + (shape.first_row(l) + order) * row_elements;
    for (std::int64_t i = 0; i < chunk.lines; ++i) {
      const std::int64_t count = std::min(line, chunk.channels - i * line);
      T* const re = panel + 2 * i * line;
      T* const im = re + chunk.imaginary();
      T* const pairs = row + 2 * i * line;
      if (count == line) {
        // With a known count this becomes shuffles.
        for (std::int64_t c = 0; c < line; ++c) {
          if constexpr (to_panel) {
            re[c] = pairs[2 * c];
            im[c] = pairs[2 * c + 1];
          } else {
            pairs[2 * c] = re[c];
            pairs[2 * c + 1] = im[c];
          }
        }
      } else if constexpr (to_panel) {
        for (std::int64_t c = 0; c < count; ++c) {
          re[c] = pairs[2 * c];
          im[c] = pairs[2 * c + 1];
        }
        std::fill(re + count, re + chunk.imaginary(), T{0});
        std::fill(im + count, im + chunk.imaginary(), T{0});
      } else {
        for (std::int64_t c = 0; c < count; ++c) {
          pairs[2 * c] = re[c];
          pairs[2 * c + 1] = im[c];
        }
      }
    }
  }
}

// Spectrum -> coefficients or back, of orders. Low orders have more degrees: positions [begin, end)
// take them in turns from both ends.
template <typename T, bool analysis>
void legendre_orders(const SphereLoopArguments& loop, std::int64_t begin, std::int64_t end) {
  const SphereChunk<T> chunk(loop);
  const SphereShape& shape = chunk.shape;
  const std::int64_t used = chunk.used();
  const auto order_at = [&](std::int64_t position) {
    if (position >= shape.orders) return std::int64_t{0};
    return position % 2 == 0 ? position / 2 : shape.orders - 1 - position / 2;
  };
  for (std::int64_t position = begin; position < end; ++position) {
    const std::int64_t order = order_at(position);
    const T* table = chunk.table(order);
    const std::int64_t start = chunk.start(order);
    const std::int64_t depth = chunk.north - start;
    for (const int odd : {0, 1}) {
      const std::int64_t degrees = chunk.degrees(order, odd);
      T* const half = chunk.half(order, odd);
      T* const counted = half + start * Wide<T>::columns;
      const std::int64_t order_after = odd == 0 ? order : order_at(position + 1);
      const T* const next = odd == 0 ? table + degrees * depth : chunk.table(order_after);
      const T* const next_end = next + chunk.degrees(order_after, odd == 0 ? 1 : 0) *
                                           (chunk.north - chunk.start(order_after));
      const TableAhead ahead{reinterpret_cast<const char*>(next),
                             reinterpret_cast<const char*>(next_end)};
      if constexpr (analysis) {
        legendre_sums<T, false>(table, depth, counted, depth, chunk.scratch, degrees, used, ahead);
        move_coefficients<T, false>(chunk, order, odd, chunk.scratch);
      } else {
        move_coefficients<T, true>(chunk, order, odd, chunk.scratch);
        legendre_sums<T, true>(table, depth, chunk.scratch, degrees, counted, depth, used, ahead);
        std::fill(half, counted, T{0});
      }
      table += degrees * depth;
    }
  }
}
