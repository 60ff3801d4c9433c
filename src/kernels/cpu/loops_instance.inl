// Instance norm. Sums run along the points, so they are kept for some channels at a time.
inline constexpr std::int64_t instance_width = 128;

// The first point of a sample stands in for its mean while squares are added up.
template <typename T>
void instance_shift(const InstanceSumArguments& arguments, std::int64_t begin, std::int64_t end) {
  const T* x = static_cast<const T*>(arguments.x);
  for (std::int64_t c = begin; c < end; ++c)
    arguments.shift[c] = static_cast<double>(load(x[c]));
}

// Calls add(row, first channel, channels, two sums) for the points of blocks [begin, end).
template <typename Add>
void instance_sums(const InstanceSumArguments& arguments, std::int64_t begin, std::int64_t end,
                   const Add& add) {
  for (std::int64_t block = begin; block < end; ++block) {
    const std::int64_t first = arguments.points * block / arguments.blocks;
    const std::int64_t last = arguments.points * (block + 1) / arguments.blocks;
    double* out = arguments.sums + block * 2 * arguments.channels;
    for (std::int64_t c = 0; c < arguments.channels; c += instance_width) {
      const std::int64_t count = std::min(instance_width, arguments.channels - c);
      alignas(64) double sums[2][instance_width] = {};
      for (std::int64_t row = first; row < last; ++row)
        add(row * arguments.channels + c, c, count, sums[0], sums[1]);
      std::copy_n(sums[0], count, out + c);
      std::copy_n(sums[1], count, out + arguments.channels + c);
    }
  }
}

template <typename T>
void instance_statistics(const InstanceSumArguments& arguments, std::int64_t begin,
                         std::int64_t end) {
  const T* all = static_cast<const T*>(arguments.x);
  instance_sums(arguments, begin, end,
                [&](std::int64_t at, std::int64_t c, std::int64_t count, double* first,
                    double* second) GARONNE_INLINE_LAMBDA {
                  const T* x = all + at;
                  const double* shift = arguments.shift + c;
#pragma omp simd
                  for (std::int64_t j = 0; j < count; ++j) {
                    const double value = static_cast<double>(load(x[j])) - shift[j];
                    first[j] += value;
                    second[j] += value * value;
                  }
                });
}

template <typename T>
void instance_products(const InstanceSumArguments& arguments, std::int64_t begin,
                       std::int64_t end) {
  using G = Accumulation<T>;
  const T* all = static_cast<const T*>(arguments.x);
  const T* gradients = static_cast<const T*>(arguments.gradient_y);
  const G* means = static_cast<const G*>(arguments.mean);
  const G* inverses = static_cast<const G*>(arguments.inverse_deviation);
  instance_sums(arguments, begin, end,
                [&](std::int64_t at, std::int64_t c, std::int64_t count, double* first,
                    double* second) GARONNE_INLINE_LAMBDA {
                  const T* x = all + at;
                  const T* gradient = gradients + at;
#pragma omp simd
                  for (std::int64_t j = 0; j < count; ++j) {
                    const G normal = (load(x[j]) - means[c + j]) * inverses[c + j];
                    const G value = load(gradient[j]);
                    first[j] += static_cast<double>(value);
                    second[j] += static_cast<double>(value * normal);
                  }
                });
}

template <typename T>
void instance_forward(const InstanceApplyArguments& arguments, std::int64_t begin,
                      std::int64_t end) {
  using G = Accumulation<T>;
  const G* mean = static_cast<const G*>(arguments.mean);
  const G* inverse = static_cast<const G*>(arguments.inverse_deviation);
  const T* gain = static_cast<const T*>(arguments.gain);
  const T* bias = static_cast<const T*>(arguments.bias);
  for (std::int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(arguments.x) + row * arguments.channels;
    T* y = static_cast<T*>(arguments.out) + row * arguments.channels;
#pragma omp simd
    for (std::int64_t j = 0; j < arguments.channels; ++j)
      store(y[j], (load(x[j]) - mean[j]) * inverse[j] * load(gain[j]) + load(bias[j]));
  }
}

template <typename T>
void instance_backward(const InstanceApplyArguments& arguments, std::int64_t begin,
                       std::int64_t end) {
  using G = Accumulation<T>;
  const G* mean = static_cast<const G*>(arguments.mean);
  const G* inverse = static_cast<const G*>(arguments.inverse_deviation);
  const T* gain = static_cast<const T*>(arguments.gain);
  const double share = 1.0 / static_cast<double>(arguments.points);
  for (std::int64_t c = 0; c < arguments.channels; c += instance_width) {
    const std::int64_t count = std::min(instance_width, arguments.channels - c);
    alignas(64) G factors[instance_width];
    alignas(64) G means[instance_width];     // of the gradient
    alignas(64) G products[instance_width];  // of gradient and normalised value
    for (std::int64_t j = 0; j < count; ++j) {
      factors[j] = inverse[c + j] * load(gain[c + j]);
      means[j] = static_cast<G>(arguments.sums[c + j] * share);
      products[j] = static_cast<G>(arguments.sums[arguments.channels + c + j] * share);
    }
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t at = row * arguments.channels + c;
      const T* x = static_cast<const T*>(arguments.x) + at;
      const T* gradient_y = static_cast<const T*>(arguments.gradient_y) + at;
      T* gradient_x = static_cast<T*>(arguments.out) + at;
#pragma omp simd
      for (std::int64_t j = 0; j < count; ++j) {
        const G normal = (load(x[j]) - mean[c + j]) * inverse[c + j];
        store(gradient_x[j],
              factors[j] * (load(gradient_y[j]) - means[j] - normal * products[j]));
      }
    }
  }
}
