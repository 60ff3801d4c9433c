// RMS norm.

template <typename T>
void rms_norm_forward(const RmsNormForwardArguments& arguments, std::int64_t begin,
                      std::int64_t end) {
  using G = Accumulation<T>;
  const std::int64_t hidden = arguments.hidden;
  const T* gain = static_cast<const T*>(arguments.gain);
  const G share = G{1} / static_cast<G>(hidden);
  for (std::int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(arguments.x) + row * hidden;
    T* y = static_cast<T*>(arguments.y) + row * hidden;
    G squares = 0;
#pragma omp simd reduction(+ : squares)
    for (std::int64_t j = 0; j < hidden; ++j) {
      const G value = load(x[j]);
      squares += value * value;
    }
    const G inverse = G{1} / std::sqrt(squares * share + static_cast<G>(arguments.epsilon));
#pragma omp simd
    for (std::int64_t j = 0; j < hidden; ++j) store(y[j], load(x[j]) * inverse * load(gain[j]));
    if (arguments.inverse) static_cast<G*>(arguments.inverse)[row] = inverse;
  }
}

template <typename T, bool with_x, bool accumulate_x, bool with_gain>
void rms_norm_backward_rows(const RmsNormBackwardArguments& arguments, std::int64_t begin,
                            std::int64_t end, Accumulation<T>* sums) {
  using G = Accumulation<T>;
  const std::int64_t hidden = arguments.hidden;
  const T* gain = static_cast<const T*>(arguments.gain);
  const G share = G{1} / static_cast<G>(hidden);
  for (std::int64_t row = begin; row < end; ++row) {
    const T* gradient_y = static_cast<const T*>(arguments.gradient_y) + row * hidden;
    const T* x = static_cast<const T*>(arguments.x) + row * hidden;
    T* gradient_x = static_cast<T*>(arguments.gradient_x) + (with_x ? row * hidden : 0);
    const G inverse = static_cast<const G*>(arguments.inverse)[row];
    G product = 0;
    if constexpr (with_x) {
#pragma omp simd reduction(+ : product)
      for (std::int64_t j = 0; j < hidden; ++j)
        product += load(gradient_y[j]) * load(gain[j]) * load(x[j]);
      product *= share * inverse;
    }
#pragma omp simd
    for (std::int64_t j = 0; j < hidden; ++j) {
      const G gradient = load(gradient_y[j]);
      const G normal = load(x[j]) * inverse;
      if constexpr (with_gain) sums[j] += gradient * normal;
      if constexpr (with_x) {
        const G value = inverse * (gradient * load(gain[j]) - normal * product);
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
void rms_norm_backward(const RmsNormBackwardArguments& arguments, std::int64_t begin,
                       std::int64_t end) {
  using G = Accumulation<T>;
  for (std::int64_t partition = begin; partition < end; ++partition) {
    const std::int64_t first = arguments.rows * partition / arguments.partitions;
    const std::int64_t last = arguments.rows * (partition + 1) / arguments.partitions;
    if (arguments.partial == nullptr) {
      if (arguments.accumulate_x) {
        rms_norm_backward_rows<T, true, true, false>(arguments, first, last, nullptr);
      } else {
        rms_norm_backward_rows<T, true, false, false>(arguments, first, last, nullptr);
      }
      continue;
    }
    G* sums = static_cast<G*>(arguments.partial) + partition * arguments.hidden;
    std::fill(sums, sums + arguments.hidden, G{0});
    if (arguments.gradient_x == nullptr) {
      rms_norm_backward_rows<T, false, false, true>(arguments, first, last, sums);
    } else if (arguments.accumulate_x) {
      rms_norm_backward_rows<T, true, true, true>(arguments, first, last, sums);
    } else {
      rms_norm_backward_rows<T, true, false, true>(arguments, first, last, sums);
    }
  }
}
