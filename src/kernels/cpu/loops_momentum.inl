// Updates of optimizers with one moment (kernels/momentum_step.hpp).

template <typename T>
void momentum(const MomentumArguments& arguments, std::int64_t begin, std::int64_t end) {
  T* parameter = static_cast<T*>(arguments.parameter);
  T* moment = static_cast<T*>(arguments.moment);
  const T* gradient = static_cast<const T*>(arguments.gradient);
  BFloat16* copy = static_cast<BFloat16*>(arguments.bfloat16_copy);
  const T scale = static_cast<T>(arguments.gradient_scale);
  const MomentumStep<T> step(arguments.options, arguments.learning_rate, arguments.gradient_scale);
  const auto update = [=](std::int64_t i) GARONNE_INLINE_LAMBDA {
    T p = parameter[i];
    T m = moment[i];
    step.update(gradient[i], scale, p, m);
    moment[i] = m;
    parameter[i] = p;
    return p;
  };
  if (copy) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) store(copy[i], static_cast<float>(update(i)));
  } else {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) update(i);
  }
}
