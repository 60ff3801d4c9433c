// Layer norm, and sums over rows.

template <typename T>
void layer_norm_forward(const LayerNormForwardArguments& arguments, std::int64_t begin,
                        std::int64_t end) {
  using G = Accumulation<T>;
  const std::int64_t hidden = arguments.hidden;
  const T* gain = static_cast<const T*>(arguments.gain);
  const T* bias = static_cast<const T*>(arguments.bias);
  const G share = G{1} / static_cast<G>(hidden);
  for (std::int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(arguments.x) + row * hidden;
    T* y = static_cast<T*>(arguments.y) + row * hidden;
    G sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t j = 0; j < hidden; ++j) sum += load(x[j]);
    const G mean = sum * share;
    G squares = 0;
#pragma omp simd reduction(+ : squares)
    for (std::int64_t j = 0; j < hidden; ++j) {
      const G deviation = load(x[j]) - mean;
      squares += deviation * deviation;
    }
    const G inverse = G{1} / std::sqrt(squares * share + static_cast<G>(arguments.epsilon));
#pragma omp simd
    for (std::int64_t j = 0; j < hidden; ++j) {
      store(y[j], (load(x[j]) - mean) * inverse * load(gain[j]) + load(bias[j]));
    }
    if (arguments.mean) static_cast<G*>(arguments.mean)[row] = mean;
    if (arguments.inverse_deviation) static_cast<G*>(arguments.inverse_deviation)[row] = inverse;
  }
}

template <typename T, bool with_x, bool accumulate_x, bool with_parameters>
void layer_norm_backward_rows(const LayerNormBackwardArguments& arguments, std::int64_t begin,
                              std::int64_t end, Accumulation<T>* sums) {
  using G = Accumulation<T>;
  const std::int64_t hidden = arguments.hidden;
  const T* gain = static_cast<const T*>(arguments.gain);
  const G share = G{1} / static_cast<G>(hidden);
  G* gain_sums = sums;
  G* bias_sums = sums + hidden;
  for (std::int64_t row = begin; row < end; ++row) {
    const T* gradient_y = static_cast<const T*>(arguments.gradient_y) + row * hidden;
    const T* x = static_cast<const T*>(arguments.x) + row * hidden;
    T* gradient_x = static_cast<T*>(arguments.gradient_x) + (with_x ? row * hidden : 0);
    const G mean = static_cast<const G*>(arguments.mean)[row];
    const G inverse = static_cast<const G*>(arguments.inverse_deviation)[row];
    G sum = 0;
    G product = 0;
    if constexpr (with_x) {
#pragma omp simd reduction(+ : sum, product)
      for (std::int64_t j = 0; j < hidden; ++j) {
        const G weighted = load(gradient_y[j]) * load(gain[j]);
        sum += weighted;
        product += weighted * (load(x[j]) - mean);
      }
      sum *= share;
      product *= share * inverse;
    }
#pragma omp simd
    for (std::int64_t j = 0; j < hidden; ++j) {
      const G gradient = load(gradient_y[j]);
      const G normal = (load(x[j]) - mean) * inverse;
      if constexpr (with_parameters) {
        gain_sums[j] += gradient * normal;
        bias_sums[j] += gradient;
      }
      if constexpr (with_x) {
        const G value = inverse * (gradient * load(gain[j]) - sum - normal * product);
        if constexpr (accumulate_x) {
          store(gradient_x[j], load(gradient_x[j]) + value);
        } else {
          store(gradient_x[j], value);
        }
      }
    }
  }
}

template <typename T>
void layer_norm_backward(const LayerNormBackwardArguments& arguments, std::int64_t begin,
                         std::int64_t end) {
  using G = Accumulation<T>;
  for (std::int64_t partition = begin; partition < end; ++partition) {
    const std::int64_t first = arguments.rows * partition / arguments.partitions;
    const std::int64_t last = arguments.rows * (partition + 1) / arguments.partitions;
    if (arguments.partial == nullptr) {
      if (arguments.accumulate_x) {
        layer_norm_backward_rows<T, true, true, false>(arguments, first, last, nullptr);
      } else {
        layer_norm_backward_rows<T, true, false, false>(arguments, first, last, nullptr);
      }
      continue;
    }
    G* sums = static_cast<G*>(arguments.partial) + partition * 2 * arguments.hidden;
    std::fill(sums, sums + 2 * arguments.hidden, G{0});
    if (arguments.gradient_x == nullptr) {
      layer_norm_backward_rows<T, false, false, true>(arguments, first, last, sums);
    } else if (arguments.accumulate_x) {
      layer_norm_backward_rows<T, true, true, true>(arguments, first, last, sums);
    } else {
      layer_norm_backward_rows<T, true, false, true>(arguments, first, last, sums);
    }
  }
}

// Rows are added in blocks of 64 and the blocks in order: rounding grows with 64 + rows / 64 terms.
template <typename T>
void column_sum(const ColumnSumArguments& arguments, std::int64_t begin, std::int64_t end) {
  using G = Accumulation<T>;
  constexpr std::int64_t width = 512;
  constexpr std::int64_t block_rows = 64;
  G* destination = static_cast<G*>(arguments.destination);
  for (std::int64_t column = begin; column < end; column += width) {
    const std::int64_t count = std::min(width, end - column);
    alignas(64) G totals[width] = {};
    for (std::int64_t block = 0; block < arguments.rows; block += block_rows) {
      alignas(64) G sums[width] = {};
      const std::int64_t block_end = std::min(arguments.rows, block + block_rows);
      std::int64_t row = block;
      const T* source =
          static_cast<const T*>(arguments.source) + row * arguments.row_stride + column;
      for (; row + 4 <= block_end; row += 4, source += 4 * arguments.row_stride) {
        const T* row1 = source + arguments.row_stride;
        const T* row2 = row1 + arguments.row_stride;
        const T* row3 = row2 + arguments.row_stride;
#pragma omp simd
        for (std::int64_t j = 0; j < count; ++j) {
          sums[j] = sums[j] + ((load(source[j]) + load(row1[j])) + (load(row2[j]) + load(row3[j])));
        }
      }
      for (; row < block_end; ++row, source += arguments.row_stride) {
#pragma omp simd
        for (std::int64_t j = 0; j < count; ++j) sums[j] += load(source[j]);
      }
#pragma omp simd
      for (std::int64_t j = 0; j < count; ++j) totals[j] += sums[j];
    }
    if (arguments.accumulate) {
#pragma omp simd
      for (std::int64_t j = 0; j < count; ++j) destination[column + j] += totals[j];
    } else {
      std::copy(totals, totals + count, destination + column);
    }
  }
}

template <typename T>
void add_bias(const AddBiasArguments& arguments, std::int64_t begin, std::int64_t end) {
  const T* bias = static_cast<const T*>(arguments.bias);
  for (std::int64_t row = begin; row < end; ++row) {
    T* y = static_cast<T*>(arguments.y) + row * arguments.columns;
#pragma omp simd
    for (std::int64_t j = 0; j < arguments.columns; ++j) store(y[j], load(y[j]) + load(bias[j]));
  }
}
