// Updates of optimizers (kernels/adamw_step.hpp).

template <typename T>
void adamw(const AdamWArguments& arguments, std::int64_t begin, std::int64_t end) {
  T* parameter = static_cast<T*>(arguments.parameter);
  T* first = static_cast<T*>(arguments.first_moment);
  T* second = static_cast<T*>(arguments.second_moment);
  const T* gradient = static_cast<const T*>(arguments.gradient);
  BFloat16* copy = static_cast<BFloat16*>(arguments.bfloat16_copy);
  const T scale = static_cast<T>(arguments.gradient_scale);
  const AdamWStep<T> step(arguments.options, arguments.rates);
  const auto update_with = [=](std::int64_t i, T slope, T square) GARONNE_INLINE_LAMBDA {
    T p = parameter[i];
    T m = first[i];
    T v = second[i];
    step.update(slope, square, p, m, v);
    first[i] = m;
    second[i] = v;
    parameter[i] = p;
    return p;
  };
  const auto update = [=](std::int64_t i) GARONNE_INLINE_LAMBDA {
    const T slope = step.slope(gradient[i], scale, parameter[i]);
    return update_with(i, slope, slope * slope);
  };
  if (arguments.options.pairs) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; i += 2) {
      const T real = step.slope(gradient[i], scale, parameter[i]);
      const T imaginary = step.slope(gradient[i + 1], scale, parameter[i + 1]);
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
