// Rows of the weights of attention, with dropout.

// What a row of a tile is.
template <typename T>
struct AttentionRow {
  GARONNE_INLINE AttentionRow(const AttentionTileArguments& arguments, std::int64_t row) {
    const AttentionTile& tile = arguments.tile;
    const std::int64_t matrix = row / tile.rows;
    const std::int64_t query = tile.first_row + row % tile.rows;
    columns = tile.first_row + tile.rows;
    seen = query + 1;
    scores = static_cast<T*>(arguments.scores) + row * columns;
    gradient = arguments.gradient ? static_cast<T*>(arguments.gradient) + row * columns : nullptr;
    log_sum = static_cast<T*>(arguments.log_sums) + matrix * tile.sequence + query;
    sample = arguments.samples ? arguments.samples[matrix / tile.heads] : 0;
    const std::int64_t head = tile.first_head + matrix % tile.heads;
    first_element = (head * tile.sequence + query) * tile.sequence;
  }

  T* scores;
  T* gradient;
  T* log_sum;
  std::int64_t columns;
  std::int64_t seen;
  std::int64_t sample;
  std::int64_t first_element;  // of the mask
};

template <typename T>
void attention_weights(const AttentionTileArguments& arguments, std::int64_t begin,
                       std::int64_t end) {
  constexpr std::int64_t block = 1024;  // sums in T within, double over blocks
  const T scale = static_cast<T>(arguments.tile.scale);
  const Dropout dropout = arguments.dropout;
  const T kept_scale = static_cast<T>(dropout.scale);
  for (std::int64_t index = begin; index < end; ++index) {
    const AttentionRow<T> row(arguments, index);
    T* scores = row.scores;
    const std::int64_t seen = row.seen;
    T most = scores[0];
#pragma omp simd reduction(max : most)
    for (std::int64_t j = 0; j < seen; ++j) most = scores[j] > most ? scores[j] : most;
    most *= scale;
    double total = 0;
    for (std::int64_t first = 0; first < seen; first += block) {
      const std::int64_t last = std::min(seen, first + block);
      T sum = 0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t j = first; j < last; ++j) {
        const T power = exponential(scores[j] * scale - most);
        scores[j] = power;
        sum += power;
      }
      total += static_cast<double>(sum);
    }
    *row.log_sum = static_cast<T>(std::log(total) + static_cast<double>(most));
    const T factor = static_cast<T>(1 / total);
    if (dropout.threshold == 0) {
#pragma omp simd
      for (std::int64_t j = 0; j < seen; ++j) scores[j] *= factor;
    } else {
      with_random_words(dropout, row.sample, row.first_element, row.first_element + seen,
                        [=](std::int64_t j0, const std::uint32_t* words, std::int64_t count) {
                          T* own = scores + j0;
#pragma omp simd
                          for (std::int64_t j = 0; j < count; ++j) {
                            const T weight = own[j] * factor * kept_scale;
                            own[j] = words[j] >= dropout.threshold ? weight : T{0};
                          }
                        });
    }
    for (std::int64_t j = seen; j < row.columns; ++j) scores[j] = T{0};
  }
}

template <typename T>
void attention_weights_gradient(const AttentionTileArguments& arguments, std::int64_t begin,
                                std::int64_t end) {
  constexpr std::int64_t block = 4 * philox_groups;  // sums in T within, double over blocks
  const T scale = static_cast<T>(arguments.tile.scale);
  const Dropout dropout = arguments.dropout;
  const T kept_scale = dropout.threshold == 0 ? T{1} : static_cast<T>(dropout.scale);
  for (std::int64_t index = begin; index < end; ++index) {
    const AttentionRow<T> row(arguments, index);
    T* scores = row.scores;
    T* gradient = row.gradient;
    const std::int64_t seen = row.seen;
    const T log_sum = *row.log_sum;
    // Weights before dropout, those that it drops with a sign: the mask is made once only.
    double total = 0;
    if (dropout.threshold == 0) {
      for (std::int64_t first = 0; first < seen; first += block) {
        const std::int64_t last = std::min(seen, first + block);
        T sum = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t j = first; j < last; ++j) {
          const T weight = exponential(scores[j] * scale - log_sum);
          scores[j] = weight;
          sum += weight * gradient[j];
        }
        total += static_cast<double>(sum);
      }
    } else {
      with_random_words(dropout, row.sample, row.first_element, row.first_element + seen,
                        [&](std::int64_t j0, const std::uint32_t* words, std::int64_t count) {
                          T* own = scores + j0;
                          T* given = gradient + j0;
                          T sum = 0;
#pragma omp simd reduction(+ : sum)
                          for (std::int64_t j = 0; j < count; ++j) {
                            const bool kept = words[j] >= dropout.threshold;
                            const T weight = exponential(own[j] * scale - log_sum);
                            const T of_weight = kept ? given[j] * kept_scale : T{0};
                            own[j] = kept ? weight : -weight;
                            given[j] = of_weight;
                            sum += weight * of_weight;
                          }
                          total += static_cast<double>(sum);
                        });
    }
    const T mean = static_cast<T>(total);
#pragma omp simd
    for (std::int64_t j = 0; j < seen; ++j) {
      const T value = scores[j];
      const T weight = value < T{0} ? -value : value;
      gradient[j] = weight * (gradient[j] - mean) * scale;
      scores[j] = value < T{0} ? T{0} : value * kept_scale;
    }
    for (std::int64_t j = seen; j < row.columns; ++j) {
      scores[j] = T{0};
      gradient[j] = T{0};
    }
  }
}
