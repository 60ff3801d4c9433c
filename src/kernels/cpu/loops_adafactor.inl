// Adafactor (kernels/adafactor_step.hpp).

// Calls run(row, column, element, count) for the elements [begin, end) of a part, whose first is 0:
// those that stand side by side in a row both here and in the whole.
template <typename Use>
void adafactor_runs(const MatrixPart& part, std::int64_t begin, std::int64_t end, const Use& use) {
  for (std::int64_t at = begin; at < end;) {
    const std::int64_t row = (part.first + at) / part.width;
    const std::int64_t column = part.first + at - row * part.width;
    const std::int64_t in_run = column % part.column_cut.run;
    const std::int64_t left = std::min(part.width - column, part.column_cut.run - in_run);
    const std::int64_t count = std::min(left, end - at);
    use(whole_index(part.row_cut, row), whole_index(part.column_cut, column), at, count);
    at += count;
  }
}

template <typename T>
void adafactor(const AdafactorArguments& arguments, std::int64_t begin, std::int64_t end) {
  const MatrixPart& part = arguments.part;
  T* parameter = static_cast<T*>(arguments.parameter);
  const T* rows = static_cast<const T*>(arguments.row_moments);
  const T* columns = static_cast<const T*>(arguments.column_moments);
  const T* gradient = static_cast<const T*>(arguments.gradient);
  BFloat16* copy = static_cast<BFloat16*>(arguments.bfloat16_copy);
  const AdafactorStep<T> step(arguments.options, arguments.options.rates, part,
                              arguments.gradient_scale);
  const auto of_run = [&](std::int64_t row, std::int64_t column, std::int64_t at,
                          std::int64_t count) GARONNE_INLINE_LAMBDA {
    const T factor = step.row_factor(rows[row], step.row_sums[row]);
    const T* moments = columns + column;
    const double* sums = step.column_sums + column;
    T* p = parameter + at;
    const T* g = gradient + at;
    const AdafactorStep<T> own = step;
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) {
      const T slope = own.slope(g[i], p[i]);
      p[i] = own.moved(p[i], own.direction(slope, factor, moments[i], sums[i]));
    }
  };
  adafactor_runs(part, begin, std::min(end, part.elements), of_run);
  if (!copy) return;
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) store(copy[i], static_cast<float>(parameter[i]));
}

// Sixteen lanes, as sum_of_squares has.
template <typename T>
void adafactor_squares(const AdafactorSquaresArguments& arguments, std::int64_t begin,
                       std::int64_t end) {
  constexpr std::int64_t lanes = 16;
  const MatrixPart& part = arguments.part;
  const T* parameter = static_cast<const T*>(arguments.parameter);
  const T* rows = static_cast<const T*>(arguments.row_moments);
  const T* columns = static_cast<const T*>(arguments.column_moments);
  const T* gradient = static_cast<const T*>(arguments.gradient);
  const AdafactorStep<T> step(arguments.options, arguments.options.rates, part,
                              arguments.gradient_scale);
  for (std::int64_t block = begin; block < end; ++block) {
    double sums[lanes] = {};
    const std::int64_t first = arguments.first + block * sum_block;
    const std::int64_t last = std::min(part.elements, first + sum_block);
    adafactor_runs(part, first, last,
                   [&](std::int64_t row, std::int64_t column, std::int64_t at, std::int64_t count)
                       GARONNE_INLINE_LAMBDA {
                         const T factor = step.row_factor(rows[row], step.row_sums[row]);
                         const auto square = [&](std::int64_t i) GARONNE_INLINE_LAMBDA {
                           const T slope = step.slope(gradient[at + i], parameter[at + i]);
                           const double direction = step.direction(
                               slope, factor, columns[column + i], step.column_sums[column + i]);
                           return direction * direction;
                         };
                         std::int64_t i = 0;
                         for (; i + lanes <= count; i += lanes) {
#pragma omp simd
                           for (std::int64_t lane = 0; lane < lanes; ++lane)
                             sums[lane] += square(i + lane);
                         }
                         for (; i < count; ++i) sums[i % lanes] += square(i);
                       });
    double total = 0;
    for (const double sum : sums) total += sum;
    arguments.block_sums[block] = total;
  }
}

// Squares of slopes, of the rows [begin, end) of those here that have elements in the part.
template <typename T>
void adafactor_rows(const AdafactorSumsArguments& arguments, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t lanes = 16;
  const MatrixPart& part = arguments.part;
  const T* parameter = static_cast<const T*>(arguments.parameter);
  const T* gradient = static_cast<const T*>(arguments.gradient);
  const T scale = static_cast<T>(arguments.gradient_scale);
  const T l2 = static_cast<T>(arguments.l2);
  const std::int64_t first_row = part.first / part.width;
  for (std::int64_t k = begin; k < end; ++k) {
    const std::int64_t row = first_row + k;
    const std::int64_t first = std::max<std::int64_t>(row * part.width - part.first, 0);
    const std::int64_t last = std::min((row + 1) * part.width - part.first, part.elements);
    double sums[lanes] = {};
    const auto square = [&](std::int64_t i) GARONNE_INLINE_LAMBDA {
      const double slope = gradient[i] * scale + l2 * parameter[i];
      return slope * slope;
    };
    std::int64_t i = first;
    for (; i + lanes <= last; i += lanes) {
#pragma omp simd
      for (std::int64_t lane = 0; lane < lanes; ++lane) sums[lane] += square(i + lane);
    }
    for (; i < last; ++i) sums[(i - first) % lanes] += square(i);
    double total = 0;
    for (const double sum : sums) total += sum;
    arguments.sums[whole_index(part.row_cut, row)] += total;
  }
}

// The same of columns [begin, end), row after row.
template <typename T>
void adafactor_columns(const AdafactorSumsArguments& arguments, std::int64_t begin,
                       std::int64_t end) {
  const MatrixPart& part = arguments.part;
  const T* parameter = static_cast<const T*>(arguments.parameter);
  const T* gradient = static_cast<const T*>(arguments.gradient);
  const T scale = static_cast<T>(arguments.gradient_scale);
  const T l2 = static_cast<T>(arguments.l2);
  const std::int64_t first_row = part.first / part.width;
  const std::int64_t last_row = (part.first + part.elements - 1) / part.width;
  for (std::int64_t row = first_row; row <= last_row; ++row) {
    // Of the part's first and last row less may be here.
    const std::int64_t before = row * part.width - part.first;
    const std::int64_t first = std::max(begin, -before);
    const std::int64_t last = std::min(end, part.elements - before);
    for (std::int64_t column = first; column < last;) {
      const std::int64_t in_run = column % part.column_cut.run;
      const std::int64_t count = std::min(last - column, part.column_cut.run - in_run);
      double* sums = arguments.sums + whole_index(part.column_cut, column);
      const T* p = parameter + before + column;
      const T* g = gradient + before + column;
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i) {
        const double slope = g[i] * scale + l2 * p[i];
        sums[i] += slope * slope;
      }
      column += count;
    }
  }
}

// *total += numbers [0, n) in their order within sixteen lanes; begin and end are 0 and n.
template <typename T>
void plain_sum(const PlainSumArguments& arguments, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t lanes = 16;
  const T* values = static_cast<const T*>(arguments.values);
  double sums[lanes] = {};
  std::int64_t i = begin;
  for (; i + lanes <= end; i += lanes) {
#pragma omp simd
    for (std::int64_t lane = 0; lane < lanes; ++lane)
      sums[lane] += static_cast<double>(values[i + lane]);
  }
  for (; i < end; ++i) sums[(i - begin) % lanes] += static_cast<double>(values[i]);
  double total = 0;
  for (const double sum : sums) total += sum;
  *arguments.total += total;
}

// The moments of a side become those of the step.
template <typename T>
void adafactor_moments(const AdafactorMomentsArguments& arguments, std::int64_t begin,
                       std::int64_t end) {
  T* moments = static_cast<T*>(arguments.moments);
  const AdafactorStep<T> step(arguments.options, arguments.options.rates, arguments.part, 1.0);
  if (arguments.of_rows) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i)
      moments[i] = static_cast<T>(step.row_moment(moments[i], step.row_sums[i]));
  } else {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i)
      moments[i] = static_cast<T>(step.column_moment(moments[i], step.column_sums[i]));
  }
}
