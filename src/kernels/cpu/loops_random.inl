// The loops that use random words.

// Calls apply(i, words, count) for pieces of elements [begin, end) of one sample: `words` are those
// of elements begin + i ….
template <typename Apply>
GARONNE_INLINE void with_random_words(const Dropout& dropout, std::int64_t sample,
                                      std::int64_t begin, std::int64_t end, const Apply& apply) {
  alignas(64) std::uint32_t words[4 * philox_groups];
  for (std::int64_t element = begin; element < end;) {
    const std::int64_t offset = element % 4;
    const std::int64_t count = std::min<std::int64_t>(4 * philox_groups - offset, end - element);
    philox_words(words, dropout.key, dropout.step, static_cast<std::uint64_t>(sample),
                 static_cast<std::uint64_t>(element / 4),
                 static_cast<int>((offset + count + 3) / 4));
    apply(element - begin, words + offset, count);
    element += count;
  }
}

template <typename T>
void dropout_add(const DropoutArguments& arguments, std::int64_t begin, std::int64_t end) {
  using G = Accumulation<T>;
  const Dropout dropout = arguments.dropout;
  const G scale = static_cast<G>(dropout.scale);
  for (std::int64_t first = begin; first < end;) {
    const std::int64_t place = dropout.first_element + first;
    const std::int64_t sample = place / arguments.elements_per_sample;
    const std::int64_t last =
        std::min(end, first + (sample + 1) * arguments.elements_per_sample - place);
    const T* x = static_cast<const T*>(arguments.x) + first;
    const T* residual =
        arguments.residual ? static_cast<const T*>(arguments.residual) + first : nullptr;
    T* out = static_cast<T*>(arguments.out) + first;
    const std::int64_t in_sample = place - sample * arguments.elements_per_sample;
    if (dropout.threshold == 0) {
      if (residual) {
#pragma omp simd
        for (std::int64_t i = 0; i < last - first; ++i)
          store(out[i], load(residual[i]) + load(x[i]));
      } else {
        std::memcpy(out, x, static_cast<std::size_t>(last - first) * sizeof(T));
      }
    } else {
      with_random_words(dropout, arguments.samples[sample], in_sample, in_sample + last - first,
                        [=](std::int64_t i0, const std::uint32_t* words, std::int64_t count) {
                          const T* from = x + i0;
                          T* to = out + i0;
                          if (residual) {
                            const T* base = residual + i0;
#pragma omp simd
                            for (std::int64_t i = 0; i < count; ++i) {
                              const G value = load(from[i]) * scale;
                              store(to[i],
                                    load(base[i]) + (words[i] >= dropout.threshold ? value : G{0}));
                            }
                          } else {
#pragma omp simd
                            for (std::int64_t i = 0; i < count; ++i) {
                              const G value = load(from[i]) * scale;
                              store(to[i], words[i] >= dropout.threshold ? value : G{0});
                            }
                          }
                        });
    }
    first = last;
  }
}

template <typename T>
void embedding_forward(const EmbeddingForwardArguments& arguments, std::int64_t begin,
                       std::int64_t end) {
  using G = Accumulation<T>;
  const std::int64_t hidden = arguments.hidden;
  const Dropout dropout = arguments.dropout;
  const G scale = static_cast<G>(dropout.scale);
  const std::int64_t first_row = dropout.first_element / hidden;
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t global_row = first_row + row;
    const std::int64_t position = global_row % arguments.sequence;
    const std::int64_t token_row = arguments.tokens == nullptr ? row : arguments.tokens[row];
    const T* token = static_cast<const T*>(arguments.token_table) + token_row * hidden;
    const T* place = static_cast<const T*>(arguments.position_table) + position * hidden;
    T* out = static_cast<T*>(arguments.out) + row * hidden;
    if (dropout.threshold == 0) {
#pragma omp simd
      for (std::int64_t j = 0; j < hidden; ++j) store(out[j], load(token[j]) + load(place[j]));
    } else {
      with_random_words(dropout, arguments.samples[global_row / arguments.sequence], position * hidden,
                        (position + 1) * hidden,
                        [=](std::int64_t j0, const std::uint32_t* words, std::int64_t count) {
                          const T* from = token + j0;
                          const T* other = place + j0;
                          T* to = out + j0;
#pragma omp simd
                          for (std::int64_t j = 0; j < count; ++j) {
                            const G value = (load(from[j]) + load(other[j])) * scale;
                            store(to[j], words[j] >= dropout.threshold ? value : G{0});
                          }
                        });
    }
  }
}

template <typename T>
void embedding_backward(const EmbeddingBackwardArguments& arguments, std::int64_t begin,
                        std::int64_t end) {
  using G = Accumulation<T>;
  const std::int64_t hidden = arguments.hidden;
  const Dropout dropout = arguments.dropout;
  const G scale = static_cast<G>(dropout.scale);
  const std::int64_t first_row = dropout.first_element / hidden;
  const bool to_positions = arguments.gradient_position_table != nullptr;
  alignas(64) G piece[4 * philox_groups];
  for (std::int64_t row = 0; row < arguments.rows; ++row) {
    const std::int64_t global_row = first_row + row;
    const std::int64_t position = global_row % arguments.sequence;
    const std::int64_t token_row =
        arguments.gradient_token_table ? arguments.tokens[row] - arguments.first_token : -1;
    const bool to_tokens = token_row >= 0 && token_row < arguments.token_rows;
    if (!to_tokens && !to_positions) continue;
    const T* gradient = static_cast<const T*>(arguments.gradient_out) + row * hidden + begin;
    G* token = static_cast<G*>(arguments.gradient_token_table) +
               (to_tokens ? token_row * hidden + begin : 0);
    G* place = static_cast<G*>(arguments.gradient_position_table) +
               (to_positions ? position * hidden + begin : 0);
    const auto add_piece = [&](std::int64_t j0, std::int64_t count) {
      if (to_tokens) {
        G* sums = token + j0;
#pragma omp simd
        for (std::int64_t j = 0; j < count; ++j) sums[j] += piece[j];
      }
      if (to_positions) {
        G* sums = place + j0;
#pragma omp simd
        for (std::int64_t j = 0; j < count; ++j) sums[j] += piece[j];
      }
    };
    if (dropout.threshold == 0) {
      for (std::int64_t j0 = 0; j0 < end - begin; j0 += 4 * philox_groups) {
        const std::int64_t count = std::min<std::int64_t>(4 * philox_groups, end - begin - j0);
        for (std::int64_t j = 0; j < count; ++j) piece[j] = load(gradient[j0 + j]);
        add_piece(j0, count);
      }
    } else {
      with_random_words(dropout, arguments.samples[global_row / arguments.sequence],
                        position * hidden + begin, position * hidden + end,
                        [&](std::int64_t j0, const std::uint32_t* words, std::int64_t count) {
#pragma omp simd
                          for (std::int64_t j = 0; j < count; ++j) {
                            const G value = load(gradient[j0 + j]) * scale;
                            piece[j] = words[j] >= dropout.threshold ? value : G{0};
                          }
                          add_piece(j0, count);
                        });
    }
  }
}
