#include "kernels/device/embedding.hpp"

#include "kernels/device/near_samples.hpp"
#include "kernels/device/random_words.hpp"
#include "kernels/device/row.hpp"
#include "kernels/device/spaces.hpp"

#include <algorithm>
#include <type_traits>

namespace garonne::kernels::device {

namespace {

// A row a team: the sum of two rows of tables, or one; zeros where there is none.
template <typename T, bool dropping>
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
      if constexpr (dropping) drop<count>(dropout, sample, in_sample + column, values);
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
template <typename T, bool dropping>
struct Contributions {
  const T* gradient_out;
  Dropout dropout;
  const std::int64_t* samples;
  std::int64_t sequence;
  std::int64_t hidden;

  // sums += columns [column, column + count) of `n` rows, row_of(0), row_of(1), … in this order;
  // some are read at once.
  template <int count, typename RowOf>
  KOKKOS_FUNCTION void add(std::int64_t n, const RowOf& row_of, std::int64_t column,
                           Values<Accumulation<T>, count>& sums) const {
    constexpr int at_once = 4;
    for (std::int64_t first = 0; first < n; first += at_once) {
      std::int64_t rows[at_once] = {};
      Fetched<T, count> fetched[at_once] = {};
      GARONNE_UNROLLED
      for (int i = 0; i < at_once; ++i) {
        if (first + i >= n) continue;
        rows[i] = row_of(first + i);
        fetched[i] = fetch_row<count>(rows[i], column);
      }
      GARONNE_UNROLLED
      for (int i = 0; i < at_once; ++i) {
        if (first + i < n) add_row<count>(rows[i], column, fetched[i], sums);
      }
    }
  }

  // Four elements of bfloat16 are half a pack.
  template <int count>
  KOKKOS_FUNCTION Fetched<T, count> fetch_row(std::int64_t row, std::int64_t column) const {
    const T* const place = gradient_out + row * hidden + column;
#ifdef __CUDA_ARCH__
    if constexpr (count * sizeof(T) == sizeof(uint2)) {
      if (reinterpret_cast<std::uintptr_t>(place) % sizeof(uint2) == 0) {
        Fetched<T, count> fetched;
        const uint2 bytes = *reinterpret_cast<const uint2*>(place);
        memcpy(fetched.elements, &bytes, sizeof(bytes));
        return fetched;
      }
    }
#endif
    return fetch<count>(place);
  }

  template <int count>
  KOKKOS_FUNCTION void add_row(std::int64_t row, std::int64_t column,
                               const Fetched<T, count>& fetched,
                               Values<Accumulation<T>, count>& sums) const {
    Values<Accumulation<T>, count> values;
    unpack<count>(fetched, values);
    if constexpr (dropping) {
      const std::int64_t global_row = dropout.first_element / hidden + row;
      drop<count>(dropout, samples[global_row / sequence], global_row % sequence * hidden + column,
                  values);
    }
    GARONNE_UNROLLED
    for (int i = 0; i < count; ++i) sums[i] = sums[i] + values[i];
  }
};

// A thread has four columns.
constexpr int columns_of_thread = 4;
constexpr int table_groups = 8;
constexpr std::int64_t columns_of_team = table_groups * lanes_of_group * columns_of_thread;

// A team has some rows of the table, looks through all tokens for theirs, and adds up what belongs
// to each in the order of the rows.
template <typename T, bool dropping>
struct TokenGradient {
  static constexpr int masks_at_once = 128;
  static constexpr std::int64_t rows_at_once = masks_at_once * lanes_of_group;
  static constexpr int most_rows_of_team = 64;

  // What the threads of a team share.
  struct Found {
    std::uint32_t masks[masks_at_once];
    std::uint16_t rows[rows_at_once];  // where there is a token of the team, after the first of all
    std::uint16_t next[rows_at_once];  // the place of the next row of the same token
    std::uint8_t tokens[rows_at_once];
    std::uint16_t first[most_rows_of_team];
    std::uint16_t last[most_rows_of_team];
    int counts[most_rows_of_team];
    std::uint8_t present[most_rows_of_team];
    int present_count;
  };
  static constexpr int scratch_bytes = shared_bytes<Found>(1);
  // Tokens whose first rows are read at once: most have no other.
  static constexpr int tokens_at_once = 4;

  Contributions<T, dropping> contributions;
  const std::int64_t* tokens;
  Accumulation<T>* table;
  std::int64_t rows;
  std::int64_t first_token;
  std::int64_t table_rows;
  std::int64_t tiles;  // of a row
  int rows_of_team;

  // By one thread: the rows of each token as a chain.
  KOKKOS_FUNCTION void chain(Found& found) const {
    for (int token = 0; token < rows_of_team; ++token) found.counts[token] = 0;
    int place = 0;
    int present = 0;
    for (int mask = 0; mask < masks_at_once; ++mask) {
      std::uint32_t bits = found.masks[mask];
      for (int row = mask * lanes_of_group; bits != 0; ++row, bits >>= 1U) {
        if ((bits & 1U) == 0) continue;
        const int token = found.tokens[row];
        found.rows[place] = static_cast<std::uint16_t>(row);
        if (found.counts[token]++ == 0) {
          found.first[token] = static_cast<std::uint16_t>(place);
          found.present[present++] = static_cast<std::uint8_t>(token);
        } else {
          found.next[found.last[token]] = static_cast<std::uint16_t>(place);
        }
        found.last[token] = static_cast<std::uint16_t>(place++);
      }
    }
    found.present_count = present;
  }

  // Columns [column, column + count) of the tokens present[first], … .
  template <int count>
  KOKKOS_FUNCTION void add_tokens(const Found& found, int first, std::int64_t first_row,
                                  Accumulation<T>* column_of_table, std::int64_t column) const {
    using G = Accumulation<T>;
    using Sums = Values<G, count>;
    Sums sums[tokens_at_once] = {};
    Fetched<T, count> fetched[tokens_at_once] = {};
    const int left = found.present_count - first;
    const int there = left < tokens_at_once ? left : tokens_at_once;
    const auto place = [&](int i) {
      return column_of_table + found.present[first + i] * contributions.hidden;
    };
    const auto row_of = [&](int entry) { return first_row + found.rows[entry]; };
    GARONNE_UNROLLED
    for (int i = 0; i < tokens_at_once; ++i) {
      if (i >= there) continue;
      read<count>(place(i), sums[i]);
      fetched[i] = contributions.template fetch_row<count>(
          row_of(found.first[found.present[first + i]]), column);
    }
    GARONNE_UNROLLED
    for (int i = 0; i < tokens_at_once; ++i) {
      if (i >= there) continue;
      const int token = found.present[first + i];
      int entry = found.first[token];
      contributions.template add_row<count>(row_of(entry), column, fetched[i], sums[i]);
      contributions.template add<count>(
          found.counts[token] - 1,
          [&](std::int64_t) {
            entry = found.next[entry];
            return row_of(entry);
          },
          column, sums[i]);
      write<count>(place(i), sums[i]);
    }
  }

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t index) const {
    Found& found = *team.template shared<Found>(1);
    const std::int64_t hidden = contributions.hidden;
    const std::int64_t begin = index / tiles * rows_of_team;  // of the table
    const std::int64_t end = Kokkos::min(table_rows, begin + rows_of_team);
    const std::int64_t first_column = index % tiles * columns_of_team;
    for (std::int64_t first = 0; first < rows; first += rows_at_once) {
      team.wait();  // until nobody reads the last ones
      team.ballots(found.masks, masks_at_once, [&](int i) {
        if (first + i >= rows) return false;
        const std::int64_t token = tokens[first + i] - first_token;
        if (token < begin || token >= end) return false;
        found.tokens[i] = static_cast<std::uint8_t>(token - begin);
        return true;
      });
      team.wait();
      team.each(1, [&](int) { chain(found); });
      team.wait();
      team.each(Team::threads, [&](int thread) {
        const std::int64_t column = first_column + thread * columns_of_thread;
        Accumulation<T>* const place = table + begin * hidden + column;
        for (int token = 0; token < found.present_count; token += tokens_at_once) {
          if (column + columns_of_thread <= hidden) {
            add_tokens<columns_of_thread>(found, token, first, place, column);
          } else {
            for (std::int64_t j = column; j < hidden; ++j)
              add_tokens<1>(found, token, first, place + (j - column), j);
          }
        }
      });
    }
  }
};

// A team has a position (or a part of its columns) and adds up the samples in their order.
template <typename T, bool dropping>
struct PositionGradient {
  Contributions<T, dropping> contributions;
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
    const std::int64_t n = first < rows ? (rows - first + sequence - 1) / sequence : 0;
    contributions.template add<count>(
        n, [&](std::int64_t i) { return first + i * sequence; }, column, sums);
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

// How many samples rows are of, those before them counted in.
std::int64_t samples_of(const Dropout& dropout, std::int64_t rows, std::int64_t sequence,
                        std::int64_t hidden) {
  return rows == 0 ? 0 : (dropout.first_element / hidden + rows - 1) / sequence + 1;
}

// use(dropping) with whether something is dropped known when it is compiled: random words take
// registers.
template <typename Use>
void with_dropping(const Dropout& dropout, const Use& use) {
  if (dropout.threshold == 0) return use(std::false_type());
  use(std::true_type());
}

template <typename T, bool dropping, typename Space>
void add_token_rows(const Space& space, const Contributions<T, dropping>& contributions,
                    const std::int64_t* tokens, void* table, std::int64_t rows,
                    std::int64_t first_token, std::int64_t table_rows) {
  using Kernel = TokenGradient<T, dropping>;
  const std::int64_t tiles = (contributions.hidden + columns_of_team - 1) / columns_of_team;
  // As many teams as a GPU carries out at once: each looks through all tokens.
  constexpr std::int64_t teams_at_once = 1024;
  const auto rows_of_team = static_cast<int>(std::clamp<std::int64_t>(
      (table_rows + teams_at_once - 1) / teams_at_once, 1, Kernel::most_rows_of_team));
  const std::int64_t teams = (table_rows + rows_of_team - 1) / rows_of_team * tiles;
  constexpr unsigned resident = dropping ? 1 : 3;
  for_teams<table_groups, resident>(
      space, teams, Kernel::scratch_bytes,
      Kernel{contributions, tokens, static_cast<Accumulation<T>*>(table), rows, first_token,
             table_rows, tiles, rows_of_team});
}

}  // namespace

void embedding_forward(const Place& place, ElementType type, const std::int64_t* tokens,
                       const void* token_table, const void* position_table, void* out,
                       const Dropout& dropout, const std::int64_t* samples, std::int64_t rows,
                       std::int64_t sequence, std::int64_t hidden) {
  with_type_and_space(place, type, [&]<typename T>(T, const auto& space) {
    with_dropping(dropout, [&]<bool dropping>(std::bool_constant<dropping>) {
      using Kernel = EmbeddingForward<T, dropping>;
      const std::int64_t* const numbers =
          dropping
              ? near_samples(space, place, samples, samples_of(dropout, rows, sequence, hidden))
              : nullptr;
      constexpr std::int64_t all = std::int64_t{1} << 62;  // tokens are not checked
      for_teams<Kernel::groups>(
          space, rows, 0,
          Kernel{tokens, static_cast<const T*>(token_table), static_cast<const T*>(position_table),
                 static_cast<T*>(out), dropout, numbers, sequence, hidden, 0, all});
    });
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
    with_dropping(dropout, [&]<bool dropping>(std::bool_constant<dropping>) {
      const std::int64_t* const numbers =
          dropping
              ? near_samples(space, place, samples, samples_of(dropout, rows, sequence, hidden))
              : nullptr;
      const Contributions<T, dropping> contributions{static_cast<const T*>(gradient_out), dropout,
                                                     numbers, sequence, hidden};
      if (gradient_token_table != nullptr) {
        if (!accumulate_token_table) clear<G>(space, gradient_token_table, vocabulary * hidden);
        add_token_rows(space, contributions, tokens, gradient_token_table, rows, 0, vocabulary);
      }
      if (gradient_position_table != nullptr) {
        if (!accumulate_position_table)
          clear<G>(space, gradient_position_table, positions * hidden);
        const std::int64_t tiles = (hidden + columns_of_team - 1) / columns_of_team;
        for_teams<table_groups>(
            space, sequence * tiles, 0,
            PositionGradient<T, dropping>{contributions, static_cast<G*>(gradient_position_table),
                                          rows, tiles});
      }
    });
  });
}

void embedding_rows(const Place& place, ElementType type, const std::int64_t* tokens,
                    const void* table, std::int64_t first_token, std::int64_t table_rows, void* out,
                    std::int64_t rows, std::int64_t hidden) {
  with_type_and_space(place, type, [&]<typename T>(T, const auto& space) {
    using Kernel = EmbeddingForward<T, false>;
    for_teams<Kernel::groups>(
        space, rows, 0,
        Kernel{tokens, static_cast<const T*>(table), nullptr, static_cast<T*>(out), Dropout(),
               nullptr, rows, hidden, first_token, table_rows});
  });
}

void embedding_rows_backward(const Place& place, ElementType type, const void* gradient_out,
                             const std::int64_t* tokens, std::int64_t first_token,
                             std::int64_t table_rows, void* gradient_table, bool accumulate,
                             std::int64_t rows, std::int64_t hidden) {
  with_type_and_space(place, type, [&]<typename T>(T, const auto& space) {
    if (!accumulate) clear<Accumulation<T>>(space, gradient_table, table_rows * hidden);
    add_token_rows(space,
                   Contributions<T, false>{static_cast<const T*>(gradient_out), Dropout(), nullptr,
                                           rows, hidden},
                   tokens, gradient_table, rows, first_token, table_rows);
  });
}

}  // namespace garonne::kernels::device
