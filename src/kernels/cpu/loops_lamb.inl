// LAMB (kernels/lamb_step.hpp).

template <typename T>
void lamb(const LambArguments& arguments, std::int64_t begin, std::int64_t end) {
  T* parameter = static_cast<T*>(arguments.parameter);
  T* first = static_cast<T*>(arguments.first_moment);
  T* second = static_cast<T*>(arguments.second_moment);
  const T* gradient = static_cast<const T*>(arguments.gradient);
  BFloat16* copy = static_cast<BFloat16*>(arguments.bfloat16_copy);
  const T scale = static_cast<T>(arguments.gradient_scale);
  const LambStep<T> step(arguments.options, arguments.options.rates, trust_of(arguments.options));
  const auto update = [=](std::int64_t i) GARONNE_INLINE_LAMBDA {
    T m = first[i];
    T v = second[i];
    const T p = parameter[i];
    const T moved = p - step.rate * step.direction(gradient[i], scale, p, m, v);
    first[i] = m;
    second[i] = v;
    parameter[i] = moved;
    return moved;
  };
  if (copy) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) store(copy[i], static_cast<float>(update(i)));
  } else {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) update(i);
  }
}

// Sixteen lanes, as sum_of_squares has.
template <typename T>
void lamb_squares(const LambSquaresArguments& arguments, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t lanes = 16;
  const T scale = static_cast<T>(arguments.gradient_scale);
  const LambStep<T> step(arguments.options, arguments.options.rates, 1.0);
  const auto square = [&](std::int64_t i) GARONNE_INLINE_LAMBDA {
    T m = static_cast<const T*>(arguments.first_moment)[i];
    T v = static_cast<const T*>(arguments.second_moment)[i];
    const double direction =
        step.direction(static_cast<const T*>(arguments.gradient)[i], scale,
                       static_cast<const T*>(arguments.parameter)[i], m, v);
    return direction * direction;
  };
  for (std::int64_t block = begin; block < end; ++block) {
    const std::int64_t from = block * sum_block;
    const std::int64_t count = std::min(sum_block, arguments.count - from);
    double sums[lanes] = {};
    std::int64_t i = 0;
    for (; i + lanes <= count; i += lanes) {
#pragma omp simd
      for (std::int64_t lane = 0; lane < lanes; ++lane) sums[lane] += square(from + i + lane);
    }
    for (; i < count; ++i) sums[i % lanes] += square(from + i);
    double total = 0;
    for (const double sum : sums) total += sum;
    arguments.block_sums[block] = total;
  }
}
