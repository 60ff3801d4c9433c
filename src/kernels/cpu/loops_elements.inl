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
