// Cross entropy.

template <typename T>
void cross_entropy(const CrossEntropyArguments& arguments, std::int64_t begin, std::int64_t end) {
  using G = Accumulation<T>;
  constexpr std::int64_t block = 1024;  // float sums within, double over blocks
  const std::int64_t vocabulary = arguments.vocabulary;
  for (std::int64_t row = begin; row < end; ++row) {
    T* logits = static_cast<T*>(arguments.logits) + row * vocabulary;
    const std::int64_t target = arguments.targets[row];
    const double target_logit = static_cast<double>(load(logits[target]));
    G most = load(logits[0]);
#pragma omp simd reduction(max : most)
    for (std::int64_t j = 0; j < vocabulary; ++j) {
      const G value = load(logits[j]);
      most = value > most ? value : most;
    }
    double total = 0;
    for (std::int64_t first = 0; first < vocabulary; first += block) {
      const std::int64_t last = std::min(vocabulary, first + block);
      G sum = 0;
      if (std::is_same_v<T, G> && arguments.write_gradient) {
        // The exponentials take the place of the logits; bfloat16 has no room for them.
#pragma omp simd reduction(+ : sum)
        for (std::int64_t j = first; j < last; ++j) {
          const G power = exponential(load(logits[j]) - most);
          store(logits[j], power);
          sum += power;
        }
      } else {
#pragma omp simd reduction(+ : sum)
        for (std::int64_t j = first; j < last; ++j) sum += exponential(load(logits[j]) - most);
      }
      total += static_cast<double>(sum);
    }
    arguments.row_losses[row] = std::log(total) + static_cast<double>(most) - target_logit;
    if (!arguments.write_gradient) continue;
    const G factor = static_cast<G>(arguments.gradient_scale / total);
    // The target's element is computed apart: in bfloat16 its rounded value is no longer exact.
    const G power =
        std::is_same_v<T, G> ? load(logits[target]) : exponential(load(logits[target]) - most);
    if constexpr (std::is_same_v<T, G>) {
#pragma omp simd
      for (std::int64_t j = 0; j < vocabulary; ++j) logits[j] *= factor;
    } else {
#pragma omp simd
      for (std::int64_t j = 0; j < vocabulary; ++j) {
        store(logits[j], exponential(load(logits[j]) - most) * factor);
      }
    }
    store(logits[target], power * factor - static_cast<G>(arguments.gradient_scale));
  }
}

// The part of a cross entropy that a piece of the vocabulary knows by itself.
template <typename T>
void logit_statistics(const LogitStatisticsArguments& arguments, std::int64_t begin,
                      std::int64_t end) {
  using G = Accumulation<T>;
  constexpr std::int64_t block = 1024;  // float sums within, double over blocks
  for (std::int64_t row = begin; row < end; ++row) {
    const T* logits = static_cast<const T*>(arguments.logits) + row * arguments.width;
    const std::int64_t target = arguments.targets[row] - arguments.first;
    const bool here = target >= 0 && target < arguments.columns;
    arguments.target_logits[row] = here ? static_cast<double>(load(logits[target])) : 0.0;
    if (arguments.columns == 0) {
      arguments.log_sums[row] = -std::numeric_limits<double>::infinity();
      continue;
    }
    G most = load(logits[0]);
#pragma omp simd reduction(max : most)
    for (std::int64_t j = 0; j < arguments.columns; ++j) {
      const G value = load(logits[j]);
      most = value > most ? value : most;
    }
    double total = 0;
    for (std::int64_t first = 0; first < arguments.columns; first += block) {
      const std::int64_t last = std::min(arguments.columns, first + block);
      G sum = 0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t j = first; j < last; ++j) sum += exponential(load(logits[j]) - most);
      total += static_cast<double>(sum);
    }
    arguments.log_sums[row] = std::log(total) + static_cast<double>(most);
  }
}

template <typename T>
void logit_gradient(const LogitGradientArguments& arguments, std::int64_t begin,
                    std::int64_t end) {
  using G = Accumulation<T>;
  for (std::int64_t row = begin; row < end; ++row) {
    const T* logits = static_cast<const T*>(arguments.logits) + row * arguments.width;
    T* gradient = static_cast<T*>(arguments.gradient) + row * arguments.width;
    // What rounding to float takes from the shift is given to the factor.
    const G shift = static_cast<G>(arguments.log_sums[row]);
    const G factor = static_cast<G>(
        arguments.log_sum_gradients[row] *
        std::exp(static_cast<double>(shift) - arguments.log_sums[row]));
#pragma omp simd
    for (std::int64_t j = 0; j < arguments.columns; ++j) {
      store(gradient[j], exponential(load(logits[j]) - shift) * factor);
    }
    for (std::int64_t j = arguments.columns; j < arguments.width; ++j) store(gradient[j], G{0});
    const std::int64_t target = arguments.targets[row] - arguments.first;
    if (target < 0 || target >= arguments.columns) continue;
    store(gradient[target], exponential(load(logits[target]) - shift) * factor +
                                static_cast<G>(arguments.target_gradients[row]));
  }
}
