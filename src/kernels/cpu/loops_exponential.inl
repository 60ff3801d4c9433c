// Branch-free exponentials, so that loops around them vectorise.

// Within 1 ulp for -87.3 <= x <= 88, constant outside; NaN stays NaN. Polynomial of Cephes' expf.
GARONNE_INLINE float exponential(float x) {
  constexpr float log2_of_e = 1.44269504088896341F;
  constexpr float ln2_high = 0.693359375F;  // few bits, so that n * ln2_high is exact
  constexpr float ln2_low = -2.12194440e-4F;
  constexpr float round_to_integer =
      12582912.0F;  // 1.5 * 2^23: adding it leaves the integer in the low bits
  x = x > 88.0F ? 88.0F : x;
  x = x < -87.3F ? -87.3F : x;
  const float shifted = x * log2_of_e + round_to_integer;
  const float n = shifted - round_to_integer;
  const float r = (x - n * ln2_high) - n * ln2_low;
  float polynomial = 1.9875691500E-4F;
  polynomial = polynomial * r + 1.3981999507E-3F;
  polynomial = polynomial * r + 8.3334519073E-3F;
  polynomial = polynomial * r + 4.1665795894E-2F;
  polynomial = polynomial * r + 1.6666665459E-1F;
  polynomial = polynomial * r + 5.0000001201E-1F;
  polynomial = polynomial * (r * r) + r + 1.0F;
  const std::uint32_t scale = (std::bit_cast<std::uint32_t>(shifted) << 23) + 0x3F800000U;
  return polynomial * std::bit_cast<float>(scale);
}

GARONNE_INLINE double exponential(double x) {
  x = x > 709.0 ? 709.0 : x;
  return std::exp(x);
}
