// Normal numbers (kernels/normal_numbers.hpp). What is compiled with contraction is not the same code:
// this and what it includes are inside the namespace `exact` of an instruction set.
#include "kernels/cpu/loops_philox.inl"

template <typename T>
void fill_normal(const FillNormalArguments& arguments, std::int64_t begin, std::int64_t end) {
  using G = Accumulation<T>;
  T* values = static_cast<T*>(arguments.values);
  const double deviation = arguments.deviation;
  const std::int64_t origin = arguments.first_element;
  // Whole groups of four elements, of which the first and the last may lie partly outside.
  for (std::int64_t element = (origin + begin) / 4 * 4; element < origin + end;
       element += 4 * philox_groups) {
    alignas(64) std::uint32_t words[4 * philox_groups];
    alignas(64) double normals[4 * philox_groups];
    philox_words(words, arguments.key, arguments.step, arguments.sample,
                 static_cast<std::uint64_t>(element / 4), philox_groups);
#pragma omp simd
    for (int pair = 0; pair < 2 * philox_groups; ++pair) {
      normal_pair(words[2 * pair], words[2 * pair + 1], deviation, normals[2 * pair],
                  normals[2 * pair + 1]);
    }
    const std::int64_t first = std::max(element, origin + begin);
    const std::int64_t last = std::min(element + 4 * philox_groups, origin + end);
    for (std::int64_t e = first; e < last; ++e) {
      store(values[e - origin], static_cast<G>(normals[e - element]));
    }
  }
}
