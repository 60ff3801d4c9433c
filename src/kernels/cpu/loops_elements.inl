// Elementwise loops and the sum of squares.

// With s = sqrt(2/pi) (x + 0.044715 x^3): x/2 (1 + tanh s) = x / (1 + exp(-2 s)), one exponential
// and no cancellation in the left tail.
inline constexpr double gelu_factor = -2.0 * 0.79788456080286535588;
inline constexpr double gelu_cubic = 0.044715;

template <typename T>
void gelu_forward(const GeluArguments& arguments, std::int64_t begin, std::int64_t end) {
  using G = Accumulation<T>;
  const T* x = static_cast<const T*>(arguments.x);
  T* y = static_cast<T*>(arguments.out);
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) {
    const G value = load(x[i]);
    const G inner =
        static_cast<G>(gelu_factor) * value * (G{1} + static_cast<G>(gelu_cubic) * (value * value));
    store(y[i], value / (G{1} + exponential(inner)));
  }
}

template <typename T>
void gelu_backward(const GeluArguments& arguments, std::int64_t begin, std::int64_t end) {
  using G = Accumulation<T>;
  const T* gradient_y = static_cast<const T*>(arguments.gradient_y);
  const T* x = static_cast<const T*>(arguments.x);
  T* gradient_x = static_cast<T*>(arguments.out);
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) {
    const G value = load(x[i]);
    const G square = value * value;
    const G inner =
        static_cast<G>(gelu_factor) * value * (G{1} + static_cast<G>(gelu_cubic) * square);
    const G slope =
        static_cast<G>(gelu_factor) * (G{1} + static_cast<G>(3.0 * gelu_cubic) * square);
    const G power = exponential(inner);
    const G sigmoid = G{1} / (G{1} + power);
    store(gradient_x[i],
          load(gradient_y[i]) * sigmoid * (G{1} - value * slope * (power * sigmoid)));
  }
}

template <typename T>
void adamw(const AdamWArguments& arguments, std::int64_t begin, std::int64_t end) {
  T* parameter = static_cast<T*>(arguments.parameter);
  T* first = static_cast<T*>(arguments.first_moment);
  T* second = static_cast<T*>(arguments.second_moment);
  const T* gradient = static_cast<const T*>(arguments.gradient);
  BFloat16* copy = static_cast<BFloat16*>(arguments.bfloat16_copy);
  const AdamW& options = arguments.options;
  const T scale = static_cast<T>(arguments.gradient_scale);
  const T decay = static_cast<T>(1.0 - options.learning_rate * options.weight_decay);
  const T beta1 = static_cast<T>(options.beta1);
  const T rest1 = static_cast<T>(1.0 - options.beta1);
  const T beta2 = static_cast<T>(options.beta2);
  const T rest2 = static_cast<T>(1.0 - options.beta2);
  const T step = static_cast<T>(options.learning_rate / options.bias_correction1);
  const T root = static_cast<T>(1.0 / std::sqrt(options.bias_correction2));
  const T epsilon = static_cast<T>(options.epsilon);
  const T l2 = static_cast<T>(options.l2);
  const auto slope_of = [=](std::int64_t i) GARONNE_INLINE_LAMBDA {
    return gradient[i] * scale + l2 * parameter[i];
  };
  const auto update_with = [=](std::int64_t i, T slope, T square) GARONNE_INLINE_LAMBDA {
    const T m = beta1 * first[i] + rest1 * slope;
    const T v = beta2 * second[i] + rest2 * square;
    const T p = parameter[i] * decay - step * m / (std::sqrt(v) * root + epsilon);
    first[i] = m;
    second[i] = v;
    parameter[i] = p;
    return p;
  };
  const auto update = [=](std::int64_t i) GARONNE_INLINE_LAMBDA {
    const T slope = slope_of(i);
    return update_with(i, slope, slope * slope);
  };
  if (options.pairs) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; i += 2) {
      const T real = slope_of(i);
      const T imaginary = slope_of(i + 1);
      const T square = real * real + imaginary * imaginary;
      const T real_part = update_with(i, real, square);
      const T imaginary_part = update_with(i + 1, imaginary, square);
      if (copy) {
        store(copy[i], static_cast<float>(real_part));
        store(copy[i + 1], static_cast<float>(imaginary_part));
      }
    }
  } else if (copy) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) store(copy[i], static_cast<float>(update(i)));
  } else {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) update(i);
  }
}

template <typename From, typename To>
void combine(const CombineArguments& arguments, std::int64_t begin, std::int64_t end) {
  const From* source = static_cast<const From*>(arguments.source);
  To* destination = static_cast<To*>(arguments.destination);
  if (arguments.accumulate) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      store(destination[i], load(destination[i]) + load(source[i]));
    }
  } else {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) store(destination[i], load(source[i]));
  }
}

// Sixteen lanes whatever the processor, so that ranks on unlike machines agree on float data (a
// product of two floats is exact in double).
template <typename T>
void sum_of_squares(const SumOfSquaresArguments& arguments, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t lanes = 16;
  for (std::int64_t block = begin; block < end; ++block) {
    const T* values = static_cast<const T*>(arguments.values) + block * sum_block;
    const std::int64_t count = std::min(sum_block, arguments.count - block * sum_block);
    double sums[lanes] = {};
    std::int64_t i = 0;
    for (; i + lanes <= count; i += lanes) {
#pragma omp simd
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        const double value = values[i + lane];
        sums[lane] += value * value;
      }
    }
    for (; i < count; ++i) {
      const double value = values[i];
      sums[i % lanes] += value * value;
    }
    double total = 0;
    for (const double sum : sums) total += sum;
    arguments.block_sums[block] = total;
  }
}
