// Discrete Fourier transforms of complex sequences whose elements are lines of channels:
// [length][real, imaginary][line]. Stockham's autosort form (see Van Loan, Computational Frameworks
// for the Fast Fourier Transform, section 1.7), decimation in frequency.

template <typename T>
struct Complex {
  typename Wide<T>::Line re;
  typename Wide<T>::Line im;
};

template <typename T>
inline void load_complex(const T* place, Complex<T>& value) {
  std::memcpy(&value.re, place, 64);
  std::memcpy(&value.im, place + Wide<T>::line, 64);
}

// Stores value · (re + i im).
template <typename T>
inline void store_product(T* place, const Complex<T>& value, T re, T im) {
  const typename Wide<T>::Line real = value.re * re - value.im * im;
  const typename Wide<T>::Line imaginary = value.re * im + value.im * re;
  std::memcpy(place, &real, 64);
  std::memcpy(place + Wide<T>::line, &imaginary, 64);
}

template <typename T>
inline void store_complex(T* place, const Complex<T>& value) {
  std::memcpy(place, &value.re, 64);
  std::memcpy(place + Wide<T>::line, &value.im, 64);
}

// out = sum, other = difference with sign · i times the second.
template <typename T, int sign>
inline void plus_minus_i(const Complex<T>& a, const Complex<T>& b, Complex<T>& plus,
                         Complex<T>& minus) {
  if constexpr (sign > 0) {
    plus = {a.re - b.im, a.im + b.re};
    minus = {a.re + b.im, a.im - b.re};
  } else {
    plus = {a.re + b.im, a.im - b.re};
    minus = {a.re - b.im, a.im + b.re};
  }
}

// b_j = Σ_i a_i exp(sign 2πi ij / radix), in place.
template <typename T, int sign, int radix>
inline void butterfly(Complex<T>* a) {
  static_assert(radix >= 2 && radix <= 5);
  if constexpr (radix == 2) {
    const Complex<T> first = a[0];
    a[0] = {first.re + a[1].re, first.im + a[1].im};
    a[1] = {first.re - a[1].re, first.im - a[1].im};
  } else if constexpr (radix == 3) {
    const T half = T(0.5);
    const T sine = T(0.86602540378443864676);
    const Complex<T> sum = {a[1].re + a[2].re, a[1].im + a[2].im};
    const Complex<T> turned = {(a[1].re - a[2].re) * sine, (a[1].im - a[2].im) * sine};
    const Complex<T> rest = {a[0].re - sum.re * half, a[0].im - sum.im * half};
    a[0] = {a[0].re + sum.re, a[0].im + sum.im};
    plus_minus_i<T, sign>(rest, turned, a[1], a[2]);
  } else if constexpr (radix == 4) {
    const Complex<T> even = {a[0].re + a[2].re, a[0].im + a[2].im};
    const Complex<T> even_difference = {a[0].re - a[2].re, a[0].im - a[2].im};
    const Complex<T> odd = {a[1].re + a[3].re, a[1].im + a[3].im};
    const Complex<T> odd_difference = {a[1].re - a[3].re, a[1].im - a[3].im};
    a[0] = {even.re + odd.re, even.im + odd.im};
    a[2] = {even.re - odd.re, even.im - odd.im};
    plus_minus_i<T, sign>(even_difference, odd_difference, a[1], a[3]);
  } else {
    const T c1 = T(0.30901699437494742410);
    const T c2 = T(-0.80901699437494742410);
    const T s1 = T(0.95105651629515357212);
    const T s2 = T(0.58778525229247312917);
    const Complex<T> outer = {a[1].re + a[4].re, a[1].im + a[4].im};
    const Complex<T> inner = {a[2].re + a[3].re, a[2].im + a[3].im};
    const Complex<T> outer_difference = {a[1].re - a[4].re, a[1].im - a[4].im};
    const Complex<T> inner_difference = {a[2].re - a[3].re, a[2].im - a[3].im};
    const Complex<T> rest1 = {a[0].re + outer.re * c1 + inner.re * c2,
                              a[0].im + outer.im * c1 + inner.im * c2};
    const Complex<T> rest2 = {a[0].re + outer.re * c2 + inner.re * c1,
                              a[0].im + outer.im * c2 + inner.im * c1};
    const Complex<T> turned1 = {outer_difference.re * s1 + inner_difference.re * s2,
                                outer_difference.im * s1 + inner_difference.im * s2};
    const Complex<T> turned2 = {outer_difference.re * s2 - inner_difference.re * s1,
                                outer_difference.im * s2 - inner_difference.im * s1};
    a[0] = {a[0].re + outer.re + inner.re, a[0].im + outer.im + inner.im};
    plus_minus_i<T, sign>(rest1, turned1, a[1], a[4]);
    plus_minus_i<T, sign>(rest2, turned2, a[2], a[3]);
  }
}

// One pass: sequences of `length` = radix · parts, `stride` of them interleaved. `roots` are those
// of the whole, `step` = whole / length.
template <typename T, int sign, int radix>
void fourier_pass(const T* in, T* out, std::int64_t length, std::int64_t stride, const T* roots,
                  std::int64_t step) {
  constexpr std::int64_t element = 2 * Wide<T>::line;
  constexpr std::size_t count = radix;
  const std::int64_t parts = length / radix;
  for (std::int64_t p = 0; p < parts; ++p) {
    T re[count];
    T im[count];
    for (int j = 1; j < radix; ++j) {
      re[j] = roots[2 * step * p * j];
      im[j] = sign * roots[2 * step * p * j + 1];
    }
    for (std::int64_t q = 0; q < stride; ++q) {
      Complex<T> values[count];
#pragma GCC unroll 8
      for (int j = 0; j < radix; ++j)
        load_complex(in + (q + stride * (p + parts * j)) * element, values[j]);
      butterfly<T, sign, radix>(values);
      T* place = out + (q + stride * radix * p) * element;
      store_complex(place, values[0]);
#pragma GCC unroll 8
      for (int j = 1; j < radix; ++j)
        store_product(place + stride * j * element, values[j], re[j], im[j]);
    }
  }
}

// The same for any radix, by its sums.
template <typename T, int sign>
void fourier_pass_any(std::int64_t radix, const T* in, T* out, std::int64_t length,
                      std::int64_t stride, const T* roots, std::int64_t step) {
  constexpr std::int64_t element = 2 * Wide<T>::line;
  const std::int64_t parts = length / radix;
  for (std::int64_t p = 0; p < parts; ++p) {
    for (std::int64_t q = 0; q < stride; ++q) {
      for (std::int64_t j = 0; j < radix; ++j) {
        Complex<T> sum = {};
        for (std::int64_t i = 0; i < radix; ++i) {
          Complex<T> value;
          load_complex(in + (q + stride * (p + parts * i)) * element, value);
          const std::int64_t root = step * parts * (i * j % radix);
          const T re = roots[2 * root];
          const T im = sign * roots[2 * root + 1];
          sum.re += value.re * re - value.im * im;
          sum.im += value.re * im + value.im * re;
        }
        store_product(out + (q + stride * (radix * p + j)) * element, sum, roots[2 * step * p * j],
                      sign * roots[2 * step * p * j + 1]);
      }
    }
  }
}

// Σ_j exp(sign 2πi mj / length) of `values`, which is scratch afterwards as is `other`; returns
// which of the two has the result.
template <typename T, int sign>
T* fourier_transform(T* values, T* other, std::int64_t whole, const T* roots) {
  std::int64_t length = whole;
  std::int64_t stride = 1;
  while (length > 1) {
    const std::int64_t step = whole / length;
    std::int64_t radix = 4;
    if (length % 4 == 0) {
      fourier_pass<T, sign, 4>(values, other, length, stride, roots, step);
    } else if (length % 2 == 0) {
      radix = 2;
      fourier_pass<T, sign, 2>(values, other, length, stride, roots, step);
    } else if (length % 5 == 0) {
      radix = 5;
      fourier_pass<T, sign, 5>(values, other, length, stride, roots, step);
    } else if (length % 3 == 0) {
      radix = 3;
      fourier_pass<T, sign, 3>(values, other, length, stride, roots, step);
    } else {
      radix = 7;
      while (length % radix != 0) radix += 2;
      fourier_pass_any<T, sign>(radix, values, other, length, stride, roots, step);
    }
    std::swap(values, other);
    length /= radix;
    stride *= radix;
  }
  return values;
}
