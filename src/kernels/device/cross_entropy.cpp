#include "kernels/device/cross_entropy.hpp"

#include "kernels/device/exponential.hpp"
#include "kernels/device/row.hpp"
#include "kernels/device/spaces.hpp"

#include <limits>

namespace garonne::kernels::device {

namespace {

// So few rows at a time that the second look at a row finds it in the cache.
constexpr int row_groups = 32;
constexpr unsigned resident_rows = 1;
constexpr int sum_groups = 16;

// How e^(logit - shift) is computed for sums and gradients in T.
template <typename T>
class Powers {
 public:
  using G = Accumulation<T>;

  KOKKOS_FUNCTION explicit Powers(G shift) : shift_(shift) {}
  KOKKOS_FUNCTION G operator()(G logit) const { return exponential(logit - shift_); }

 private:
  G shift_;
};

template <>
class Powers<BFloat16> {
 public:
  KOKKOS_FUNCTION explicit Powers(float shift) : shift_(-shift * static_cast<float>(log2_of_e)) {}
  // Logits have eight bits: what rounding the product takes is far below.
  KOKKOS_FUNCTION float operator()(float logit) const {
    return power_of_two_roughly(Kokkos::fma(logit, static_cast<float>(log2_of_e), shift_));
  }

 private:
  float shift_;
};

// The largest of a thread's logits so far, and the sum of powers beside it. Packs are added up in
// G, and these in double.
template <typename T>
struct PowersSoFar {
  using G = Accumulation<T>;

  G most;
  double total;

  template <int count>
  KOKKOS_FUNCTION void pack(std::int64_t, const Fetched<T, count>& fetched) {
    Values<G, count> values;
    unpack<count>(fetched, values);
    G here = values[0];
    GARONNE_UNROLLED
    for (int i = 1; i < count; ++i) here = values[i] > here ? values[i] : here;
    if (here > most) {
      total *= static_cast<double>(Powers<T>(here)(most));
      most = here;
    }
    const Powers<T> power(most);
    G sum = 0;
    GARONNE_UNROLLED
    for (int i = 0; i < count; ++i) sum = sum + power(values[i]);
    total += static_cast<double>(sum);
  }
};

// destination = e^(logit - shift) · factor, + at_target at the target.
template <typename T>
struct WritePowers {
  using G = Accumulation<T>;

  T* destination;
  Powers<T> power;
  G factor;
  std::int64_t target;
  G at_target;

  template <int count>
  KOKKOS_FUNCTION void pack(std::int64_t first, const Fetched<T, count>& fetched) const {
    Values<G, count> values;
    unpack<count>(fetched, values);
    GARONNE_UNROLLED
    for (int i = 0; i < count; ++i) values[i] = power(values[i]) * factor;
    if (target >= first && target < first + count) {
      const auto place = static_cast<int>(target - first);
      GARONNE_UNROLLED
      for (int i = 0; i < count; ++i) values[i] = i == place ? values[i] + at_target : values[i];
    }
    write<count>(destination + first, values);
  }
};

// The largest of a row, and the sum of exponentials beside it; columns > 0. The row is read once.
template <typename T, typename Team>
KOKKOS_FUNCTION double sum_of_powers(const Team& team, double* sums, const T* logits,
                                     std::int64_t columns, Accumulation<T>& most) {
  using G = Accumulation<T>;
  PerThread<PowersSoFar<T>, Team::threads> own;
  most = static_cast<G>(team.template most<double>(sums, [&](int thread) {
    // A thread without columns of its own has the first one's, and no share of the sum.
    PowersSoFar<T> powers{load(logits[0]), 0.0};
    for_own_packs<T, Team>(thread, logits, columns, powers);
    own[thread] = powers;
    return static_cast<double>(own[thread].most);
  }));
  return team.template sum<double>(sums, [&](int thread) {
    const PowersSoFar<T>& of_thread = own[thread];
    // Most threads of a row that is no number have a largest all the same.
    const double share =
        of_thread.most == most ? 1.0 : static_cast<double>(Powers<T>(most)(of_thread.most));
    return of_thread.total * share;
  });
}

template <typename T>
struct CrossEntropy {
  T* logits;
  const std::int64_t* targets;
  double scale;
  bool write_gradient;
  double* row_losses;
  std::int64_t vocabulary;
  double none;  // no number

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t row) const {
    using G = Accumulation<T>;
    double* const sums = team.template shared<double>(Team::groups);
    T* const own = logits + row * vocabulary;
    const std::int64_t target = targets[row];
    const bool known = target >= 0 && target < vocabulary;
    const double target_logit = known ? static_cast<double>(load(own[target])) : none;
    G most = 0;
    const double total = sum_of_powers(team, sums, own, vocabulary, most);
    team.each(1, [&](int) {
      row_losses[row] = Kokkos::log(total) + static_cast<double>(most) - target_logit;
    });
    if (!write_gradient) return;
    team.wait();  // the target's logit is read
    const WritePowers<T> powers{own, Powers<T>(most), static_cast<G>(scale / total), target,
                                -static_cast<G>(scale)};
    team.each_thread([&](int thread) { for_own_packs<T, Team>(thread, own, vocabulary, powers); });
  }
};

// *loss = the sum of the rows' numbers, times scale.
struct SumRows {
  const double* row_losses;
  double scale;
  double* loss;
  std::int64_t rows;

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t) const {
    double* const sums = team.template shared<double>(Team::groups);
    const double total =
        team.template sum_of<double>(sums, rows, [&](std::int64_t row) { return row_losses[row]; });
    team.each(1, [&](int) { *loss = total * scale; });
  }
};

template <typename T>
struct LogitStatistics {
  const T* logits;
  const std::int64_t* targets;
  VocabularyPiece piece;
  double* log_sums;
  double* target_logits;
  double nothing;  // the logarithm of 0

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t row) const {
    double* const sums = team.template shared<double>(Team::groups);
    const T* const own = logits + row * piece.width;
    const std::int64_t target = targets[row] - piece.first;
    const bool here = target >= 0 && target < piece.columns;
    double log_sum = nothing;
    if (piece.columns > 0) {
      Accumulation<T> most = 0;
      const double total = sum_of_powers(team, sums, own, piece.columns, most);
      log_sum = Kokkos::log(total) + static_cast<double>(most);
    }
    team.each(1, [&](int) {
      target_logits[row] = here ? static_cast<double>(load(own[target])) : 0.0;
      log_sums[row] = log_sum;
    });
  }
};

template <typename T>
struct ClearPadding {
  T* gradient;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) const {
    const Values<Accumulation<T>, count> zeros{};
    write<count>(gradient + first, zeros);
  }
};

template <typename T>
struct LogitGradient {
  const T* logits;
  const std::int64_t* targets;
  VocabularyPiece piece;
  const double* log_sums;
  const double* log_sum_gradients;
  const double* target_gradients;
  T* gradient;

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t row) const {
    using G = Accumulation<T>;
    // What rounding to float takes from the shift is given to the factor.
    const G shift = static_cast<G>(log_sums[row]);
    const G factor = static_cast<G>(log_sum_gradients[row] *
                                    Kokkos::exp(static_cast<double>(shift) - log_sums[row]));
    T* const out = gradient + row * piece.width;
    const WritePowers<T> powers{out, Powers<T>(shift), factor, targets[row] - piece.first,
                                static_cast<G>(target_gradients[row])};
    team.each_thread([&](int thread) {
      for_own_packs<T, Team>(thread, logits + row * piece.width, piece.columns, powers);
    });
    for_columns<T>(team, piece.width - piece.columns, ClearPadding<T>{out + piece.columns});
  }
};

// What all pieces say about a row.
struct GatheredRow {
  const double* statistics;
  std::int64_t pieces;
  std::int64_t rows;
  std::int64_t row;

  KOKKOS_FUNCTION std::int64_t place(std::int64_t piece) const { return piece * 2 * rows + row; }

  KOKKOS_FUNCTION double target_logit() const {
    double sum = 0;
    for (std::int64_t piece = 0; piece < pieces; ++piece) sum += statistics[place(piece) + rows];
    return sum;
  }

  KOKKOS_FUNCTION double log_sum() const {
    double most = statistics[place(0)];
    for (std::int64_t piece = 1; piece < pieces; ++piece) {
      const double of_piece = statistics[place(piece)];
      most = of_piece > most ? of_piece : most;
    }
    double total = 0;
    for (std::int64_t piece = 0; piece < pieces; ++piece)
      total += Kokkos::exp(statistics[place(piece)] - most);
    return most + Kokkos::log(total);
  }
};

struct GatheredLoss {
  const double* statistics;
  double* loss;
  std::int64_t pieces;
  std::int64_t rows;

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t) const {
    double* const sums = team.template shared<double>(Team::groups);
    const double total = team.template sum_of<double>(sums, rows, [&](std::int64_t row) {
      const GatheredRow gathered{statistics, pieces, rows, row};
      return gathered.log_sum() - gathered.target_logit();
    });
    team.each(1, [&](int) { *loss = total / static_cast<double>(rows); });
  }
};

struct GatheredGradient {
  const double* statistics;
  double scale;
  double* gradient;
  std::int64_t pieces;
  std::int64_t rows;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t row) const {
    const GatheredRow gathered{statistics, pieces, rows, row};
    const double whole = gathered.log_sum();
    for (std::int64_t piece = 0; piece < pieces; ++piece) {
      const std::int64_t place = gathered.place(piece);
      gradient[place] = scale * Kokkos::exp(statistics[place] - whole);
      gradient[place + rows] = -scale;
    }
  }
};

}  // namespace

void cross_entropy(const Place& place, ElementType type, void* logits, const std::int64_t* targets,
                   double scale, bool write_gradient, double* row_losses, double* loss,
                   std::int64_t rows, std::int64_t vocabulary) {
  with_type_and_space(place, type, [&]<typename T>(T, const auto& space) {
    for_teams<row_groups, resident_rows>(
        space, rows, shared_bytes<double>(row_groups),
        CrossEntropy<T>{static_cast<T*>(logits), targets, scale, write_gradient, row_losses,
                        vocabulary, std::numeric_limits<double>::quiet_NaN()});
    for_teams<sum_groups>(space, 1, shared_bytes<double>(sum_groups),
                          SumRows{row_losses, scale, loss, rows});
  });
}

void logit_statistics(const Place& place, ElementType type, const void* logits,
                      const std::int64_t* targets, const VocabularyPiece& piece, double* log_sums,
                      double* target_logits, std::int64_t rows) {
  with_type_and_space(place, type, [&]<typename T>(T, const auto& space) {
    for_teams<row_groups, resident_rows>(
        space, rows, shared_bytes<double>(row_groups),
        LogitStatistics<T>{static_cast<const T*>(logits), targets, piece, log_sums, target_logits,
                           -std::numeric_limits<double>::infinity()});
  });
}

void logit_gradient(const Place& place, ElementType type, const void* logits,
                    const std::int64_t* targets, const VocabularyPiece& piece,
                    const double* log_sums, const double* log_sum_gradients,
                    const double* target_gradients, void* gradient, std::int64_t rows) {
  with_type_and_space(place, type, [&]<typename T>(T, const auto& space) {
    for_teams<row_groups, resident_rows>(
        space, rows, 0,
        LogitGradient<T>{static_cast<const T*>(logits), targets, piece, log_sums, log_sum_gradients,
                         target_gradients, static_cast<T*>(gradient)});
  });
}

void gathered_cross_entropy(const Place& place, const double* statistics, double* loss,
                            std::int64_t pieces, std::int64_t rows) {
  with_space(place, [&](const auto& space) {
    for_teams<sum_groups>(space, 1, shared_bytes<double>(sum_groups),
                          GatheredLoss{statistics, loss, pieces, rows});
  });
}

void gathered_cross_entropy_gradient(const Place& place, const double* statistics, double outer,
                                     double* gradient, std::int64_t pieces, std::int64_t rows) {
  with_space(place, [&](const auto& space) {
    elementwise<1>(
        space, rows,
        GatheredGradient{statistics, outer / static_cast<double>(rows), gradient, pieces, rows});
  });
}

}  // namespace garonne::kernels::device
