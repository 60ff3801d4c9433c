// Sums over latitudes and degrees: products with tables of Legendre functions.


// out[r][:] = Σ_d table(r, d) panel[d][:] for R rows and V registers of columns. The table is
// [row][depth] with `stride` elements between rows, or the transposed.
template <typename T, int R, int V, bool transposed>
inline void legendre_tile(const T* table, std::int64_t stride, const T* panel, std::int64_t depth,
                          T* out) {
  using Register = typename Wide<T>::Register;
  constexpr std::int64_t lanes = Wide<T>::lanes;
  constexpr std::int64_t columns = Wide<T>::columns;
  constexpr std::size_t rows = R;
  constexpr std::size_t registers = V;
  Register sums[rows][registers] = {};
  for (std::int64_t d = 0; d < depth; ++d) {
    Register values[registers];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v)
      values[v] = *reinterpret_cast<const Register*>(panel + d * columns + v * lanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const T factor = transposed ? table[d * stride + r] : table[r * stride + d];
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sums[r][v] += factor * values[v];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v)
      *reinterpret_cast<Register*>(out + r * columns + v * lanes) = sums[r][v];
  }
}

// As many registers as the sums of six rows leave room for.
inline constexpr int legendre_registers = GARONNE_VECTOR_BYTES == 64 ? 4 : 2;

// A part of the table that is read later, fetched meanwhile. Rows of the table are too short for
// the processor to see a pattern in time.
struct TableAhead {
  const char* at = nullptr;
  const char* end = nullptr;

  void fetch(std::int64_t lines) {
    for (std::int64_t i = 0; i < lines && at < end; ++i, at += 64) __builtin_prefetch(at, 0, 2);
  }
  std::int64_t lines() const { return (end - at) / 64 + 1; }
};

// The tiles of `rows` rows for V registers. Tiles of 2 and 4 rows end the job; they may run one
// row over, into what the table and `out` have behind.
template <typename T, int V, bool transposed>
void legendre_rows(const T* table, std::int64_t stride, const T* panel, std::int64_t depth, T* out,
                   std::int64_t rows, TableAhead& ahead) {
  const std::int64_t step = transposed ? 1 : stride;
  const std::int64_t fetched = ahead.lines() * 6 / std::max<std::int64_t>(rows, 6) + 1;
  const auto tile = [&]<int R>(std::integral_constant<int, R>) {
    ahead.fetch(fetched);
    legendre_tile<T, R, V, transposed>(table, stride, panel, depth, out);
    table += R * step;
    out += R * Wide<T>::columns;
    rows -= R;
  };
  while (rows > 4) tile(std::integral_constant<int, 6>());
  if (rows > 2) tile(std::integral_constant<int, 4>());
  if (rows > 0) tile(std::integral_constant<int, 2>());
}

// out[rows][used columns] of one parity of one order.
template <typename T, bool transposed>
void legendre_sums(const T* table, std::int64_t stride, const T* panel, std::int64_t depth, T* out,
                   std::int64_t rows, std::int64_t used, TableAhead ahead) {
  constexpr std::int64_t lanes = Wide<T>::lanes;
  std::int64_t registers = (used + lanes - 1) / lanes;
  while (registers > 0) {
    const auto now = std::min<std::int64_t>(registers, legendre_registers);
    switch (now) {
      case 1:
        legendre_rows<T, 1, transposed>(table, stride, panel, depth, out, rows, ahead);
        break;
      case 2:
        legendre_rows<T, 2, transposed>(table, stride, panel, depth, out, rows, ahead);
        break;
      case 3:
        if constexpr (legendre_registers >= 3)
          legendre_rows<T, 3, transposed>(table, stride, panel, depth, out, rows, ahead);
        break;
      default:
        if constexpr (legendre_registers >= 4)
          legendre_rows<T, 4, transposed>(table, stride, panel, depth, out, rows, ahead);
    }
    panel += now * lanes;
    out += now * lanes;
    registers -= now;
  }
}

