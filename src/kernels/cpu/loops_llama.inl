// Gated units and rotary positions.

template <typename T>
void swiglu_forward(const SwigluArguments& arguments, std::int64_t begin, std::int64_t end) {
  using G = Accumulation<T>;
  const std::int64_t inner = arguments.inner;
  for (std::int64_t row = begin; row < end; ++row) {
    const T* gates = static_cast<const T*>(arguments.x) + row * 2 * inner;
    const T* ups = gates + inner;
    T* y = static_cast<T*>(arguments.out) + row * inner;
#pragma omp simd
    for (std::int64_t j = 0; j < inner; ++j) {
      const G gate = load(gates[j]);
      store(y[j], gate / (G{1} + exponential(-gate)) * load(ups[j]));
    }
  }
}

template <typename T>
void swiglu_backward(const SwigluArguments& arguments, std::int64_t begin, std::int64_t end) {
  using G = Accumulation<T>;
  const std::int64_t inner = arguments.inner;
  for (std::int64_t row = begin; row < end; ++row) {
    const T* gradient_y = static_cast<const T*>(arguments.gradient_y) + row * inner;
    const T* gates = static_cast<const T*>(arguments.x) + row * 2 * inner;
    const T* ups = gates + inner;
    T* of_gates = static_cast<T*>(arguments.out) + row * 2 * inner;
    T* of_ups = of_gates + inner;
#pragma omp simd
    for (std::int64_t j = 0; j < inner; ++j) {
      const G gate = load(gates[j]);
      const G up = load(ups[j]);
      const G gradient = load(gradient_y[j]);
      const G sigmoid = G{1} / (G{1} + exponential(-gate));
      store(of_gates[j], gradient * up * (sigmoid * (G{1} + gate * (G{1} - sigmoid))));
      store(of_ups[j], gradient * (gate * sigmoid));
    }
  }
}

template <typename T>
void rotate_heads(const RotaryArguments& arguments, std::int64_t begin, std::int64_t end) {
  using G = Accumulation<T>;
  const RotaryHeads& heads = arguments.heads;
  const std::int64_t half = heads.head_size / 2;
  const std::int64_t group = heads.rotated + heads.copied;
  const G sign = arguments.back ? G{-1} : G{1};
  for (std::int64_t row = begin; row < end; ++row) {
    const float* cosines = arguments.table + (row % arguments.sequence) * heads.head_size;
    const float* sines = cosines + half;
    for (std::int64_t head = 0; head < heads.groups * group; ++head) {
      const std::int64_t first = (row * heads.groups * group + head) * heads.head_size;
      const T* x = static_cast<const T*>(arguments.x) + first;
      T* y = static_cast<T*>(arguments.y) + first;
      if (head % group >= heads.rotated) {
        if (x != y) std::copy(x, x + heads.head_size, y);
        continue;
      }
#pragma omp simd
      for (std::int64_t i = 0; i < half; ++i) {
        const G cosine = static_cast<G>(cosines[i]);
        const G sine = sign * static_cast<G>(sines[i]);
        const G a = load(x[i]);
        const G b = load(x[i + half]);
        store(y[i], a * cosine - b * sine);
        store(y[i + half], b * cosine + a * sine);
      }
    }
  }
}
