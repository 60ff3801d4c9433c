#include "kernels/device/attention_tile.hpp"

#include "kernels/device/exponential.hpp"
#include "kernels/device/random_words.hpp"
#include "kernels/device/row.hpp"
#include "kernels/device/spaces.hpp"

namespace garonne::kernels::device {

namespace {

constexpr int row_groups = 8;

// What a row of a tile is.
template <typename T>
struct TileRow {
  KOKKOS_FUNCTION TileRow(const AttentionTile& tile, std::int64_t row,
                          const std::int64_t* samples) {
    const std::int64_t matrix = row / tile.rows;
    const std::int64_t query = tile.first_row + row % tile.rows;
    columns = tile.first_row + tile.rows;
    seen = query + 1;
    first_score = row * columns;
    log_sum = matrix * tile.sequence + query;
    sample = samples == nullptr ? 0 : samples[matrix / tile.heads];
    const std::int64_t head = tile.first_head + matrix % tile.heads;
    first_element = (head * tile.sequence + query) * tile.sequence;
  }

  std::int64_t columns;
  std::int64_t seen;
  std::int64_t first_score;
  std::int64_t log_sum;
  std::int64_t sample;
  std::int64_t first_element;  // of the mask
};

template <typename T>
struct MostScore {
  const T* scores;
  T total;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) {
    Values<T, count> values;
    read<count>(scores + first, values);
    for (int i = 0; i < count; ++i) total = values[i] > total ? values[i] : total;
  }
};

// Packs are added up in T, and these in double.
template <typename T>
struct AddScorePowers {
  const T* scores;
  T scale;
  T most;
  double total;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) {
    Values<T, count> values;
    read<count>(scores + first, values);
    T sum = 0;
    for (int i = 0; i < count; ++i) sum = sum + exponential(values[i] * scale - most);
    total += static_cast<double>(sum);
  }
};

template <typename T>
struct WriteWeights {
  T* scores;
  T scale;
  T most;
  T factor;
  Dropout dropout;
  std::int64_t sample;
  std::int64_t first_element;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) const {
    Values<T, count> values;
    read<count>(scores + first, values);
    for (int i = 0; i < count; ++i) values[i] = exponential(values[i] * scale - most) * factor;
    drop<count>(dropout, sample, first_element + first, values);
    write<count>(scores + first, values);
  }
};

template <typename T>
struct AttentionWeights {
  AttentionTile tile;
  T* scores;
  T* log_sums;
  Dropout dropout;
  const std::int64_t* samples;

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t index) const {
    double* const sums = team.template shared<double>(Team::groups);
    const TileRow<T> row(tile, index, samples);
    T* const own = scores + row.first_score;
    const T scale = static_cast<T>(tile.scale);
    const T most = scale * static_cast<T>(team.template most<double>(sums, [&](int thread) {
                     MostScore<T> of_thread{own, own[0]};
                     for_own_columns<T, Team>(thread, row.seen, of_thread);
                     return static_cast<double>(of_thread.total);
                   }));
    const double total =
        sum_of_columns<T>(team, sums, row.seen, AddScorePowers<T>{own, scale, most, 0.0});
    team.each(1, [&](int) {
      log_sums[row.log_sum] = static_cast<T>(Kokkos::log(total) + static_cast<double>(most));
    });
    for_columns<T>(team, row.seen,
                   WriteWeights<T>{own, scale, most, static_cast<T>(1 / total), dropout, row.sample,
                                   row.first_element});
    team.each(row.columns - row.seen, [&](std::int64_t j) { own[row.seen + j] = T{0}; });
  }
};

// Weights before dropout, those that it drops with a sign, and the sum of theirs with gradients.
template <typename T>
struct WeighAgain {
  T* scores;
  T* gradient;
  T scale;
  T log_sum;
  Dropout dropout;
  std::int64_t sample;
  std::int64_t first_element;
  double total;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) {
    Values<T, count> values;
    Values<T, count> given;
    read<count>(scores + first, values);
    read<count>(gradient + first, given);
    Values<std::uint32_t, count> words;
    if (dropout.threshold > 0) {
      const std::uint64_t step = dropout.step_place == nullptr ? dropout.step : *dropout.step_place;
      random_words<count>(dropout.key, step, sample, first_element + first, words);
    }
    const T kept_scale = static_cast<T>(dropout.scale);
    T sum = 0;
    for (int i = 0; i < count; ++i) {
      const T weight = exponential(values[i] * scale - log_sum);
      values[i] = weight;
      if (dropout.threshold > 0) {
        const bool kept = words[i] >= dropout.threshold;
        values[i] = kept ? weight : -weight;
        given[i] = kept ? given[i] * kept_scale : T{0};
      }
      sum = sum + weight * given[i];
    }
    write<count>(scores + first, values);
    write<count>(gradient + first, given);
    total += static_cast<double>(sum);
  }
};

// From those to what is asked for.
template <typename T>
struct WriteGradient {
  T* scores;
  T* gradient;
  T scale;
  T mean;
  T kept_scale;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) const {
    Values<T, count> values;
    Values<T, count> given;
    read<count>(scores + first, values);
    read<count>(gradient + first, given);
    for (int i = 0; i < count; ++i) {
      const bool dropped = values[i] < T{0};
      const T weight = dropped ? -values[i] : values[i];
      given[i] = weight * (given[i] - mean) * scale;
      values[i] = dropped ? T{0} : values[i] * kept_scale;
    }
    write<count>(scores + first, values);
    write<count>(gradient + first, given);
  }
};

template <typename T>
struct AttentionWeightsGradient {
  AttentionTile tile;
  T* scores;
  T* gradient;
  const T* log_sums;
  Dropout dropout;
  const std::int64_t* samples;

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t index) const {
    double* const sums = team.template shared<double>(Team::groups);
    const TileRow<T> row(tile, index, samples);
    T* const own = scores + row.first_score;
    T* const given = gradient + row.first_score;
    const T scale = static_cast<T>(tile.scale);
    const double total =
        sum_of_columns<T>(team, sums, row.seen,
                          WeighAgain<T>{own, given, scale, log_sums[row.log_sum], dropout,
                                        row.sample, row.first_element, 0.0});
    const T kept_scale = dropout.threshold == 0 ? T{1} : static_cast<T>(dropout.scale);
    for_columns<T>(team, row.seen,
                   WriteGradient<T>{own, given, scale, static_cast<T>(total), kept_scale});
    team.each(row.columns - row.seen, [&](std::int64_t j) {
      own[row.seen + j] = T{0};
      given[row.seen + j] = T{0};
    });
  }
};

std::int64_t rows_of(const AttentionTile& tile) {
  return tile.samples * tile.heads * tile.rows;
}

constexpr const char* name = "weights of attention";

}  // namespace

void attention_weights(const Place& place, ElementType type, const AttentionTile& tile,
                       void* scores, void* log_sums, const Dropout& dropout,
                       const std::int64_t* samples) {
  with_wide_type_and_space(place, type, name, [&]<typename T>(T, const auto& space) {
    for_teams<row_groups>(space, rows_of(tile), shared_bytes<double>(row_groups),
                          AttentionWeights<T>{tile, static_cast<T*>(scores),
                                              static_cast<T*>(log_sums), dropout, samples});
  });
}

void attention_weights_gradient(const Place& place, ElementType type, const AttentionTile& tile,
                                void* scores, void* gradient, const void* log_sums,
                                const Dropout& dropout, const std::int64_t* samples) {
  with_wide_type_and_space(place, type, name, [&]<typename T>(T, const auto& space) {
    for_teams<row_groups>(
        space, rows_of(tile), shared_bytes<double>(row_groups),
        AttentionWeightsGradient<T>{tile, static_cast<T*>(scores), static_cast<T*>(gradient),
                                    static_cast<const T*>(log_sums), dropout, samples});
  });
}

}  // namespace garonne::kernels::device
