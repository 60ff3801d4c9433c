#include "kernels/device/embedding.hpp"

#include "kernels/device/random_words.hpp"
#include "kernels/device/row.hpp"
#include "kernels/device/spaces.hpp"

namespace garonne::kernels::device {

namespace {

// A row a team: the sum of two rows of tables, or one; zeros where there is none.
template <typename T>
struct EmbeddingForward {
  static constexpr int groups = 4;

  const std::int64_t* tokens;  // or null
  const T* token_table;
  const T* position_table;  // or null
  T* out;
  Dropout dropout;
  const std::int64_t* samples;
  std::int64_t sequence;
  std::int64_t hidden;
  std::int64_t first_token;
  std::int64_t table_rows;

  struct Row {
    const T* token;  // null: zeros
    const T* position;
    T* out;
    Dropout dropout;
    std::int64_t sample;
    std::int64_t in_sample;

    template <int count>
    KOKKOS_FUNCTION void at(std::int64_t column) const {
      Values<Accumulation<T>, count> values{};
      if (token != nullptr) read<count>(token + column, values);
      if (position != nullptr) {
        Values<Accumulation<T>, count> added;
        read<count>(position + column, added);
        for (int i = 0; i < count; ++i) values[i] = values[i] + added[i];
      }
      drop<count>(dropout, sample, in_sample + column, values);
      write<count>(out + column, values);
    }
  };

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t row) const {
    const std::int64_t token = (tokens == nullptr ? row : tokens[row]) - first_token;
    const std::int64_t global_row = dropout.first_element / hidden + row;
    const std::int64_t position = global_row % sequence;
    const bool there = token >= 0 && token < table_rows;
    const Row columns{there ? token_table + token * hidden : nullptr,
                      position_table == nullptr ? nullptr : position_table + position * hidden,
                      out + row * hidden,
                      dropout,
                      dropout.threshold == 0 ? 0 : samples[global_row / sequence],
                      position * hidden};
    for_columns<T>(team, hidden, columns);
  }
};

template <typename G>
struct Fill {
  G* values;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) const {
    const Values<G, count> zeros{};
    write<count>(values + first, zeros);
  }
};

// What both tables' gradients are made of.
template <typename T>
struct Contributions {
  const T* gradient_out;
  Dropout dropout;
  const std::int64_t* samples;
  std::int64_t sequence;
  std::int64_t hidden;

  // sums += columns [column, column + count) of a row.
  template <int count>
  KOKKOS_FUNCTION void add(std::int64_t row, std::int64_t column,
                           Values<Accumulation<T>, count>& sums) const {
    Values<Accumulation<T>, count> values;
    read<count>(gradient_out + row * hidden + column, values);
    if (dropout.threshold != 0) {
      const std::int64_t global_row = dropout.first_element / hidden + row;
      drop<count>(dropout, samples[global_row / sequence], global_row % sequence * hidden + column,
                  values);
    }
    for (int i = 0; i < count; ++i) sums[i] = sums[i] + values[i];
  }
};

// A thread has four columns.
constexpr int columns_of_thread = 4;
constexpr int table_groups = 8;
constexpr std::int64_t columns_of_team = table_groups * lanes_of_group * columns_of_thread;

// The team of the row where a token is met first adds up all rows of the token, in their order.
template <typename T>
struct TokenGradient {
  static constexpr int masks_at_once = 32;
  static constexpr std::int64_t rows_at_once = masks_at_once * lanes_of_group;

  Contributions<T> contributions;
  const std::int64_t* tokens;
  Accumulation<T>* table;
  std::int64_t rows;
  std::int64_t first_token;
  std::int64_t table_rows;
  std::int64_t tiles;  // of a row

  // Which of rows [first, end) have the token; for all threads to see.
  template <typename Team>
  KOKKOS_FUNCTION void look(const Team& team, std::int64_t token, std::int64_t first,
                            std::int64_t end, std::uint32_t* masks) const {
    team.wait();  // until nobody reads the last ones
    team.ballots(masks, masks_at_once,
                 [&](int i) { return first + i < end && tokens[first + i] == token; });
    team.wait();
  }

  template <typename Team>
  KOKKOS_FUNCTION bool met_before(const Team& team, std::int64_t row, std::uint32_t* masks) const {
    for (std::int64_t end = row; end > 0; end -= rows_at_once) {
      const std::int64_t first = Kokkos::max<std::int64_t>(end - rows_at_once, 0);
      look(team, tokens[row], first, end, masks);
      for (int mask = 0; mask < masks_at_once; ++mask) {
        if (masks[mask] != 0) return true;
      }
    }
    return false;
  }

  template <int count>
  KOKKOS_FUNCTION void add_rows(std::int64_t first, const std::uint32_t* masks, std::int64_t column,
                                Accumulation<T>* place) const {
    Values<Accumulation<T>, count> sums;
    read<count>(place, sums);
    for (int mask = 0; mask < masks_at_once; ++mask) {
      std::uint32_t bits = masks[mask];
      for (std::int64_t row = first + mask * lanes_of_group; bits != 0; ++row, bits >>= 1U) {
        if ((bits & 1U) != 0) contributions.template add<count>(row, column, sums);
      }
    }
    write<count>(place, sums);
  }

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t index) const {
    const std::int64_t row = index / tiles;
    const std::int64_t token = tokens[row] - first_token;
    if (token < 0 || token >= table_rows) return;
    std::uint32_t* const masks = team.template shared<std::uint32_t>(masks_at_once);
    if (met_before(team, row, masks)) return;
    const std::int64_t hidden = contributions.hidden;
    const std::int64_t begin = index % tiles * columns_of_team;
    for (std::int64_t first = row; first < rows; first += rows_at_once) {
      look(team, tokens[row], first, rows, masks);
      team.each(Team::threads, [&](int thread) {
        const std::int64_t column = begin + thread * columns_of_thread;
        Accumulation<T>* const place = table + token * hidden + column;
        if (column + columns_of_thread <= hidden) {
          add_rows<columns_of_thread>(first, masks, column, place);
        } else {
          for (std::int64_t j = column; j < hidden; ++j)
            add_rows<1>(first, masks, j, place + (j - column));
        }
      });
    }
  }
};

// A team has a position (or a part of its columns) and adds up the samples in their order.
template <typename T>
struct PositionGradient {
  Contributions<T> contributions;
  Accumulation<T>* table;
  std::int64_t rows;
  std::int64_t tiles;  // of a row

  template <int count>
  KOKKOS_FUNCTION void add_rows(std::int64_t position, std::int64_t column) const {
    const std::int64_t sequence = contributions.sequence;
    const std::int64_t first_row = contributions.dropout.first_element / contributions.hidden;
    Accumulation<T>* const place = table + position * contributions.hidden + column;
    Values<Accumulation<T>, count> sums;
    read<count>(place, sums);
    const std::int64_t first = (position - first_row % sequence + sequence) % sequence;
    for (std::int64_t row = first; row < rows; row += sequence)
      contributions.template add<count>(row, column, sums);
    write<count>(place, sums);
  }

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t index) const {
    const std::int64_t position = index / tiles;
    const std::int64_t begin = index % tiles * columns_of_team;
    team.each(Team::threads, [&](int thread) {
      const std::int64_t column = begin + thread * columns_of_thread;
      if (column + columns_of_thread <= contributions.hidden) {
        add_rows<columns_of_thread>(position, column);
      } else {
        for (std::int64_t j = column; j < contributions.hidden; ++j) add_rows<1>(position, j);
      }
    });
  }
};

template <typename G, typename Space>
void clear(const Space& space, void* values, std::int64_t n) {
  elementwise<pack<G>>(space, n, Fill<G>{static_cast<G*>(values)});
}

template <typename T, typename Space>
void add_token_rows(const Space& space, const Contributions<T>& contributions,
                    const std::int64_t* tokens, void* table, std::int64_t rows,
                    std::int64_t first_token, std::int64_t table_rows) {
  const std::int64_t tiles = (contributions.hidden + columns_of_team - 1) / columns_of_team;
  for_teams<table_groups>(
      space, rows * tiles, shared_bytes<std::uint32_t>(TokenGradient<T>::masks_at_once),
      TokenGradient<T>{contributions, tokens, static_cast<Accumulation<T>*>(table), rows,
                       first_token, table_rows, tiles});
}

}  // namespace

void embedding_forward(const Place& place, ElementType type, const std::int64_t* tokens,
                       const void* token_table, const void* position_table, void* out,
                       const Dropout& dropout, const std::int64_t* samples, std::int64_t rows,
                       std::int64_t sequence, std::int64_t hidden) {
  with_type_and_space(place, type, [&]<typename T>(T, const auto& space) {
    constexpr std::int64_t all = std::int64_t{1} << 62;  // tokens are not checked
    for_teams<EmbeddingForward<T>::groups>(
        space, rows, 0,
        EmbeddingForward<T>{tokens, static_cast<const T*>(token_table),
                            static_cast<const T*>(position_table), static_cast<T*>(out), dropout,
                            samples, sequence, hidden, 0, all});
  });
}

void embedding_backward(const Place& place, ElementType type, const void* gradient_out,
                        const std::int64_t* tokens, void* gradient_token_table,
                        bool accumulate_token_table, void* gradient_position_table,
                        bool accumulate_position_table, const Dropout& dropout,
                        const std::int64_t* samples, std::int64_t rows, std::int64_t sequence,
                        std::int64_t hidden, std::int64_t vocabulary, std::int64_t positions) {
  with_type_and_space(place, type, [&]<typename T>(T, const auto& space) {
    using G = Accumulation<T>;
    const Contributions<T> contributions{static_cast<const T*>(gradient_out), dropout, samples,
                                         sequence, hidden};
    if (gradient_token_table != nullptr) {
      if (!accumulate_token_table) clear<G>(space, gradient_token_table, vocabulary * hidden);
      add_token_rows(space, contributions, tokens, gradient_token_table, rows, 0, vocabulary);
    }
    if (gradient_position_table != nullptr) {
      if (!accumulate_position_table) clear<G>(space, gradient_position_table, positions * hidden);
      const std::int64_t tiles = (hidden + columns_of_team - 1) / columns_of_team;
      for_teams<table_groups>(
          space, sequence * tiles, 0,
          PositionGradient<T>{contributions, static_cast<G*>(gradient_position_table), rows,
                              tiles});
    }
  });
}

void embedding_rows(const Place& place, ElementType type, const std::int64_t* tokens,
                    const void* table, std::int64_t first_token, std::int64_t table_rows, void* out,
                    std::int64_t rows, std::int64_t hidden) {
  with_type_and_space(place, type, [&]<typename T>(T, const auto& space) {
    for_teams<EmbeddingForward<T>::groups>(
        space, rows, 0,
        EmbeddingForward<T>{tokens, static_cast<const T*>(table), nullptr, static_cast<T*>(out),
                            Dropout(), nullptr, rows, hidden, first_token, table_rows});
  });
}

void embedding_rows_backward(const Place& place, ElementType type, const void* gradient_out,
                             const std::int64_t* tokens, std::int64_t first_token,
                             std::int64_t table_rows, void* gradient_table, bool accumulate,
                             std::int64_t rows, std::int64_t hidden) {
  with_type_and_space(place, type, [&]<typename T>(T, const auto& space) {
    if (!accumulate) clear<Accumulation<T>>(space, gradient_table, table_rows * hidden);
    add_token_rows(
        space,
        Contributions<T>{static_cast<const T*>(gradient_out), Dropout(), nullptr, rows, hidden},
        tokens, gradient_table, rows, first_token, table_rows);
  });
}

}  // namespace garonne::kernels::device
