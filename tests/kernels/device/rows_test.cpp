// Device kernels of rows: embeddings, layer norm, cross entropy, against the CPU's.
#include "kernels/device/places.hpp"

#include "kernels/cross_entropy.hpp"
#include "kernels/device/cross_entropy.hpp"
#include "kernels/device/embedding.hpp"
#include "kernels/device/layer_norm.hpp"
#include "kernels/embedding.hpp"
#include "kernels/layer_norm.hpp"

#include <cmath>
#include <limits>

namespace garonne::kernels::test {

namespace {

// Some tokens come often, some once, some are outside of pieces.
std::vector<std::int64_t> tokens_of(std::int64_t rows, std::int64_t vocabulary) {
  std::vector<std::int64_t> tokens;
  for (std::int64_t row = 0; row < rows; ++row)
    tokens.push_back(row % 3 == 0 ? 2 % vocabulary : (row * row + 5 * row) % vocabulary);
  return tokens;
}

struct EmbeddingCase {
  std::int64_t batch;
  std::int64_t sequence;
  std::int64_t hidden;
  std::int64_t vocabulary;
  double dropout;
  std::int64_t first_row;  // of the piece of the samples
};

const EmbeddingCase embedding_cases[] = {
    {1, 1, 1, 1, 0.0, 0},
    {2, 31, 33, 40, 0.1, 0},
    {3, 32, 32, 9, 0.1, 0},
    {2, 33, 31, 5, 0.0, 0},
    {3, 350, 8, 300, 0.2, 0},
    {2, 550, 5, 3, 0.0, 0},
    {1, 3, 1001, 7, 0.1, 0},
    {1, 2, 2051, 7, 0.0, 0},
    {2, 32, 12, 11, 0.1, 7},
    // A team has several rows of so large a table.
    {3, 300, 9, 3001, 0.0, 0},
};

TEST(DeviceEmbedding, HasTheBitsOfCpus) {
  const std::vector<std::int64_t> samples = {3, 11, 4};
  for (const device::Place& place : places()) {
    for (const ElementType type : all_types) {
      for (const EmbeddingCase& c : embedding_cases) {
        const std::int64_t rows = c.batch * c.sequence - 2 * c.first_row;
        const Dropout dropout{
            {1, 2}, dropout_threshold(c.dropout), 1 / (1 - c.dropout), 5, c.first_row * c.hidden};
        const auto tokens = tokens_of(rows, c.vocabulary);
        const Array table = random_array(type, c.vocabulary * c.hidden, 1);
        const Array positions = random_array(type, (c.sequence + 2) * c.hidden, 2);
        Array wanted(type, rows * c.hidden);
        Array got = wanted;
        embedding_forward(host, type, tokens.data(), table.data(), positions.data(), wanted.data(),
                          dropout, samples.data(), rows, c.sequence, c.hidden);
        {
          OnPlace out(place, got);
          device::embedding_forward(place, type, OnPlace(place, tokens).as<std::int64_t>(),
                                    OnPlace(place, table).data(), OnPlace(place, positions).data(),
                                    out.data(), dropout, OnPlace(place, samples).as<std::int64_t>(),
                                    rows, c.sequence, c.hidden);
        }
        ASSERT_TRUE(got.same_bits(wanted))
            << name_of(place) << ", " << c.sequence << " x " << c.hidden;
      }
      // Rows in their order, without tokens.
      const Array rows_table = random_array(type, 40 * 33, 1);
      const Array positions = random_array(type, 20 * 33, 2);
      std::vector<std::int64_t> numbers;
      for (std::int64_t row = 0; row < 40; ++row) numbers.push_back(row);
      Array wanted[2] = {Array(type, 40 * 33), Array(type, 40 * 33)};
      Array got = wanted[0];
      for (const bool named : {false, true}) {
        embedding_forward(host, type, named ? numbers.data() : nullptr, rows_table.data(),
                          positions.data(), wanted[named ? 1 : 0].data(), {}, nullptr, 40, 20, 33);
      }
      {
        OnPlace out(place, got);
        device::embedding_forward(place, type, nullptr, OnPlace(place, rows_table).data(),
                                  OnPlace(place, positions).data(), out.data(), {}, nullptr, 40, 20,
                                  33);
      }
      EXPECT_TRUE(got.same_bits(wanted[0]) && got.same_bits(wanted[1])) << name_of(place);
    }
  }
}

void expect_embedding_gradients(const device::Place& place, ElementType type,
                                const EmbeddingCase& c, const Array& given, bool accumulate) {
  const std::vector<std::int64_t> samples = {3, 11, 4};
  const std::int64_t rows = given.count() / c.hidden;
  const Dropout dropout{
      {1, 2}, dropout_threshold(c.dropout), 1 / (1 - c.dropout), 5, c.first_row * c.hidden};
  const auto tokens = tokens_of(rows, c.vocabulary);
  const ElementType sums = accumulation_type(type);
  Array wanted_table = random_array(sums, c.vocabulary * c.hidden, 3);
  Array wanted_positions = random_array(sums, (c.sequence + 2) * c.hidden, 4);
  Array table = wanted_table;
  Array positions = wanted_positions;
  embedding_backward(host, type, given.data(), tokens.data(), wanted_table.data(), accumulate,
                     wanted_positions.data(), accumulate, dropout, samples.data(), rows, c.sequence,
                     c.hidden, c.vocabulary, c.sequence + 2);
  {
    OnPlace tables(place, table);
    OnPlace places_table(place, positions);
    device::embedding_backward(place, type, OnPlace(place, given).data(),
                               OnPlace(place, tokens).as<std::int64_t>(), tables.data(), accumulate,
                               places_table.data(), accumulate, dropout,
                               OnPlace(place, samples).as<std::int64_t>(), rows, c.sequence,
                               c.hidden, c.vocabulary, c.sequence + 2);
  }
  ASSERT_TRUE(table.same_bits(wanted_table)) << name_of(place) << ", " << rows << " x " << c.hidden;
  ASSERT_TRUE(positions.same_bits(wanted_positions))
      << name_of(place) << ", " << rows << " x " << c.hidden;
}

TEST(DeviceEmbedding, GradientsAreAddedInTheOrderOfCpus) {
  for (const device::Place& place : places()) {
    for (const ElementType type : types_at(place)) {
      for (const EmbeddingCase& c : embedding_cases) {
        const std::int64_t rows = c.batch * c.sequence - 2 * c.first_row;
        for (const bool accumulate : {false, true}) {
          expect_embedding_gradients(place, type, c, random_array(type, rows * c.hidden, 5),
                                     accumulate);
        }
      }
      // More rows than are looked through at once, of numbers whose order is seen.
      const EmbeddingCase many{1, 9000, 3, 4, 0.0, 0};
      const double cycle[] = {1e8, 1, -1e8, 1};
      Array given(type, 9000 * 3);
      for (std::int64_t i = 0; i < given.count(); ++i) given.set(i, cycle[i * 7 / 3 % 4]);
      expect_embedding_gradients(place, type, many, given, false);
    }
  }
}

TEST(DeviceEmbedding, PiecesOfTablesHaveTheBitsOfCpus) {
  const std::int64_t rows = 1100;
  for (const device::Place& place : places()) {
    for (const ElementType type : types_at(place)) {
      for (const std::int64_t hidden : {1, 31, 33, 128}) {
        const auto tokens = tokens_of(rows, 50);
        const Array table = random_array(type, 20 * hidden, 6);
        const Array given = random_array(type, rows * hidden, 7);
        Array wanted(type, rows * hidden, 5.0);
        Array got = wanted;
        Array wanted_gradient = random_array(accumulation_type(type), 20 * hidden, 8);
        Array gradient = wanted_gradient;
        embedding_rows(host, type, tokens.data(), table.data(), 15, 20, wanted.data(), rows,
                       hidden);
        embedding_rows_backward(host, type, given.data(), tokens.data(), 15, 20,
                                wanted_gradient.data(), hidden > 31, rows, hidden);
        {
          OnPlace out(place, got);
          OnPlace sums(place, gradient);
          OnPlace ids(place, tokens);
          device::embedding_rows(place, type, ids.as<std::int64_t>(), OnPlace(place, table).data(),
                                 15, 20, out.data(), rows, hidden);
          device::embedding_rows_backward(place, type, OnPlace(place, given).data(),
                                          ids.as<std::int64_t>(), 15, 20, sums.data(), hidden > 31,
                                          rows, hidden);
        }
        ASSERT_TRUE(got.same_bits(wanted)) << name_of(place) << ", " << hidden;
        ASSERT_TRUE(gradient.same_bits(wanted_gradient)) << name_of(place) << ", " << hidden;
      }
    }
  }
}

struct Norm {
  Array y;
  Array mean;
  Array inverse;
  Array gradient_x;
  Array gradient_gain;
  Array gradient_bias;
};

constexpr double epsilon = 1e-5;

// What `forward` and `backward` make of the same numbers.
template <typename Compute>
Norm norm_of(ElementType type, std::int64_t rows, std::int64_t hidden, const Compute& compute) {
  const ElementType sums = accumulation_type(type);
  Norm norm{Array(type, rows * hidden),
            Array(sums, rows),
            Array(sums, rows),
            random_array(type, rows * hidden, 5),
            random_array(sums, hidden, 6),
            random_array(sums, hidden, 7)};
  compute(norm);
  return norm;
}

void expect_layer_norm(const device::Place& place, ElementType type, std::int64_t rows,
                       std::int64_t hidden, bool accumulate, bool in_place) {
  const Array x = random_array(type, rows * hidden, 1);
  const Array gain = random_array(type, hidden, 2);
  const Array bias = random_array(type, hidden, 3);
  const Array given = random_array(type, rows * hidden, 4);
  const std::int64_t bytes = layer_norm_workspace_bytes(type, rows, hidden);
  Array workspace(ElementType::Float64, bytes / 8 + 1);
  const Norm wanted = norm_of(type, rows, hidden, [&](Norm& n) {
    layer_norm_forward(host, type, x.data(), gain.data(), bias.data(), epsilon, n.y.data(),
                       n.mean.data(), n.inverse.data(), rows, hidden);
    layer_norm_backward(host, type, given.data(), x.data(), gain.data(), n.mean.data(),
                        n.inverse.data(), n.gradient_x.data(), accumulate, n.gradient_gain.data(),
                        n.gradient_bias.data(), accumulate, workspace.data(), rows, hidden);
  });
  const Norm got = norm_of(type, rows, hidden, [&](Norm& n) {
    if (in_place) n.gradient_x = given;
    OnPlace from(place, x);
    OnPlace gains(place, gain);
    OnPlace y(place, n.y);
    OnPlace mean(place, n.mean);
    OnPlace inverse(place, n.inverse);
    OnPlace gradient_x(place, n.gradient_x);
    OnPlace gradient_gain(place, n.gradient_gain);
    OnPlace gradient_bias(place, n.gradient_bias);
    OnPlace space(place, workspace);
    OnPlace separate(place, given);
    const void* const gradient_y = in_place ? gradient_x.data() : separate.data();
    device::layer_norm_forward(place, type, from.data(), gains.data(), OnPlace(place, bias).data(),
                               epsilon, y.data(), mean.data(), inverse.data(), rows, hidden);
    device::layer_norm_backward(place, type, gradient_y, from.data(), gains.data(), mean.data(),
                                inverse.data(), gradient_x.data(), accumulate && !in_place,
                                gradient_gain.data(), gradient_bias.data(), accumulate,
                                space.data(), rows, hidden);
  });
  const double sum = rounding(accumulation_type(type));
  // Of a row: sums of `hidden` terms, and the inverse deviation of rows that vary little.
  const double along = 64 * sum * std::sqrt(static_cast<double>(hidden)) + 2 * rounding(type);
  const double down = 64 * sum * std::sqrt(static_cast<double>(rows));
  const std::string what = name_of(place) + ", " + std::to_string(rows) + " x " +
                           std::to_string(hidden) + (in_place ? ", in place" : "");
  expect_near(got.y, values_of(wanted.y), along, along, "y " + what);
  expect_near(got.mean, values_of(wanted.mean), along, along, "mean " + what);
  expect_near(got.inverse, values_of(wanted.inverse), along, 0, "inverse " + what);
  expect_near(got.gradient_gain, values_of(wanted.gradient_gain), down,
              down * static_cast<double>(rows), "gain " + what);
  expect_near(got.gradient_bias, values_of(wanted.gradient_bias), down,
              down * std::sqrt(static_cast<double>(rows)), "bias " + what);
  if (in_place && accumulate) return;
  expect_near(got.gradient_x, values_of(wanted.gradient_x), along, 4 * along, "x " + what);
}

TEST(DeviceLayerNorm, IsTheCpusButForTheOrderOfSums) {
  for (const device::Place& place : places()) {
    for (const ElementType type : types_at(place)) {
      for (const std::int64_t hidden : {31, 32, 33, 999, 1000, 1001, 2300}) {
        for (const std::int64_t rows : {1, 33, 600}) {
          if (rows == 600 && hidden != 33) continue;
          for (const bool accumulate : {false, true})
            expect_layer_norm(place, type, rows, hidden, accumulate, false);
        }
        expect_layer_norm(place, type, 33, hidden, false, true);
      }
      // Rows for the registers of a team, of a large one, and of none.
      for (const std::int64_t hidden : {2304, 5120, 16392}) {
        for (const bool accumulate : {false, true})
          expect_layer_norm(place, type, 3, hidden, accumulate, false);
        expect_layer_norm(place, type, 2, hidden, false, true);
      }
    }
  }
}

TEST(DeviceLayerNorm, SumsOfARowAreInTheDocumentedOrder) {
  // Numbers whose order is seen; packs of 16 bytes go to threads in turn: rows of whole packs to
  // those of a group as long as it has the room, others to 128.
  const double cycle[] = {1e8, 1, -1e8, 1};
  const std::pair<std::int64_t, int> cases[] = {{1001, 128}, {1000, 32}, {1024, 32}, {1028, 128}};
  for (const device::Place& place : places()) {
    for (const ElementType type : wide_types) {
      for (const auto& [hidden, count] : cases) {
        Array x(type, hidden);
        for (std::int64_t i = 0; i < hidden; ++i) x.set(i, cycle[i * 7 / 3 % 4]);
        const std::int64_t width = type == ElementType::Float32 ? 4 : 2;
        const auto mean_in = [&, hidden = hidden, count = count]<typename G>(G) {
          std::vector<G> threads(static_cast<std::size_t>(count), G{0});
          for (std::int64_t i = 0; i < hidden; ++i)
            threads[static_cast<std::size_t>(i / width % count)] += static_cast<G>(x[i]);
          return static_cast<double>(sum_of_threads(threads, count) *
                                     (G{1} / static_cast<G>(hidden)));
        };
        const Array gain(type, hidden, 1.0);
        Array y(type, hidden);
        Array mean(type, 1);
        {
          OnPlace out(place, y);
          OnPlace means(place, mean);
          device::layer_norm_forward(place, type, OnPlace(place, x).data(),
                                     OnPlace(place, gain).data(), OnPlace(place, gain).data(),
                                     epsilon, out.data(), means.data(), nullptr, 1, hidden);
        }
        EXPECT_EQ(mean[0], type == ElementType::Float32 ? mean_in(0.0F) : mean_in(0.0))
            << name_of(place) << ", " << hidden;
      }
    }
  }
}

struct Losses {
  Array logits;
  std::vector<double> rows;
  std::vector<double> loss;
};

TEST(DeviceCrossEntropy, IsTheCpusButForTheLastBits) {
  const double scale = 1.0 / 64;
  for (const device::Place& place : places()) {
    for (const ElementType type : types_at(place)) {
      for (const std::int64_t vocabulary : {1, 31, 33, 999, 1001, 5003}) {
        for (const bool gradient : {false, true}) {
          const std::int64_t rows = vocabulary == 33 ? 600 : 7;
          const Array logits = random_array(type, rows * vocabulary, 1, 8.0);
          const auto targets = tokens_of(rows, vocabulary);
          Losses wanted{logits, std::vector<double>(static_cast<std::size_t>(rows)), {0}};
          Losses got = wanted;
          cross_entropy(host, type, wanted.logits.data(), targets.data(), scale, gradient,
                        wanted.rows.data(), wanted.loss.data(), rows, vocabulary);
          {
            OnPlace in(place, got.logits);
            OnPlace of_rows(place, got.rows);
            OnPlace loss(place, got.loss);
            device::cross_entropy(place, type, in.data(),
                                  OnPlace(place, targets).as<std::int64_t>(), scale, gradient,
                                  of_rows.as<double>(), loss.as<double>(), rows, vocabulary);
          }
          const double last_bits = 64 * rounding(accumulation_type(type));
          for (std::size_t row = 0; row < got.rows.size(); ++row)
            EXPECT_NEAR(got.rows[row], wanted.rows[row], last_bits * (1 + wanted.rows[row]));
          EXPECT_NEAR(got.loss[0], wanted.loss[0], last_bits * (1 + wanted.loss[0]));
          // The documented order of the sum over rows.
          EXPECT_EQ(got.loss[0], sum_of_threads(got.rows, 512) * scale);
          if (!gradient) {
            EXPECT_TRUE(got.logits.same_bits(logits));
          } else {
            expect_near(got.logits, values_of(wanted.logits), last_bits + 2 * rounding(type),
                        last_bits * scale, name_of(place));
          }
        }
      }
    }
  }
}

TEST(DeviceCrossEntropy, ATargetOutsideMakesTheLossNoNumber) {
  for (const device::Place& place : places()) {
    for (const std::int64_t target : {-1, 33}) {
      Array logits = random_array(ElementType::Float32, 3 * 33, 1);
      const std::vector<std::int64_t> targets = {1, target, 2};
      std::vector<double> rows(3);
      std::vector<double> loss(1);
      {
        OnPlace in(place, logits);
        OnPlace of_rows(place, rows);
        OnPlace all(place, loss);
        device::cross_entropy(place, ElementType::Float32, in.data(),
                              OnPlace(place, targets).as<std::int64_t>(), 1.0, true,
                              of_rows.as<double>(), all.as<double>(), 3, 33);
      }
      EXPECT_TRUE(std::isnan(loss[0]) && std::isnan(rows[1]));
      EXPECT_FALSE(std::isnan(rows[0]) || std::isnan(rows[2]));
    }
  }
}

TEST(DeviceCrossEntropy, PiecesOfTheVocabularyAreTheCpus) {
  for (const device::Place& place : places()) {
    for (const ElementType type : all_types) {
      for (const VocabularyPiece piece :
           {VocabularyPiece{10, 33, 40}, VocabularyPiece{0, 1000, 1001},
            VocabularyPiece{50, 0, 7}}) {
        const std::int64_t rows = 65;
        const auto targets = tokens_of(rows, 50);
        const Array logits = random_array(type, rows * piece.width, 1, 8.0);
        const auto count = static_cast<std::size_t>(rows);
        const std::vector<double> by_sum = values_of(random_array(ElementType::Float64, rows, 2));
        const std::vector<double> by_target =
            values_of(random_array(ElementType::Float64, rows, 3));
        std::vector<double> sums(count);
        std::vector<double> at_targets(count);
        Array wanted(type, rows * piece.width, 3.0);
        Array got = wanted;
        logit_statistics(host, type, logits.data(), targets.data(), piece, sums.data(),
                         at_targets.data(), rows);
        const std::vector<double> shifts =
            piece.columns == 0 ? std::vector<double>(count, 0.0) : sums;
        logit_gradient(host, type, logits.data(), targets.data(), piece, shifts.data(),
                       by_sum.data(), by_target.data(), wanted.data(), rows);
        std::vector<double> got_sums(count);
        std::vector<double> got_targets(count);
        {
          OnPlace in(place, logits);
          OnPlace ids(place, targets);
          OnPlace out(place, got);
          OnPlace out_sums(place, got_sums);
          OnPlace out_targets(place, got_targets);
          device::logit_statistics(place, type, in.data(), ids.as<std::int64_t>(), piece,
                                   out_sums.as<double>(), out_targets.as<double>(), rows);
          device::logit_gradient(place, type, in.data(), ids.as<std::int64_t>(), piece,
                                 OnPlace(place, shifts).as<double>(),
                                 OnPlace(place, by_sum).as<double>(),
                                 OnPlace(place, by_target).as<double>(), out.data(), rows);
        }
        const double last_bits = 64 * rounding(accumulation_type(type));
        EXPECT_EQ(got_targets, at_targets);
        for (std::size_t row = 0; row < count; ++row) {
          if (piece.columns == 0) {
            EXPECT_EQ(got_sums[row], -std::numeric_limits<double>::infinity());
          } else {
            EXPECT_NEAR(got_sums[row], sums[row], last_bits * (1 + std::abs(sums[row])));
          }
        }
        expect_near(got, values_of(wanted), last_bits + 2 * rounding(type), last_bits,
                    name_of(place));
      }
    }
  }
}

TEST(DeviceCrossEntropy, GatheredStatisticsAreTheCpus) {
  for (const device::Place& place : places()) {
    for (const std::int64_t pieces : {1, 3}) {
      for (const std::int64_t rows : odd_sizes) {
        const std::vector<double> statistics =
            values_of(random_array(ElementType::Float64, pieces * 2 * rows, 4, 5.0));
        std::vector<double> wanted = {0};
        std::vector<double> got = {0};
        std::vector<double> wanted_gradient(statistics.size());
        std::vector<double> gradient(statistics.size());
        gathered_cross_entropy(host, statistics.data(), wanted.data(), pieces, rows);
        gathered_cross_entropy_gradient(host, statistics.data(), 0.25, wanted_gradient.data(),
                                        pieces, rows);
        {
          OnPlace in(place, statistics);
          OnPlace loss(place, got);
          OnPlace out(place, gradient);
          device::gathered_cross_entropy(place, in.as<double>(), loss.as<double>(), pieces, rows);
          device::gathered_cross_entropy_gradient(place, in.as<double>(), 0.25, out.as<double>(),
                                                  pieces, rows);
        }
        EXPECT_NEAR(got[0], wanted[0], 1e-13 * (10 + std::abs(wanted[0])));
        for (std::size_t i = 0; i < gradient.size(); ++i)
          ASSERT_NEAR(gradient[i], wanted_gradient[i], 1e-14) << i;
      }
    }
  }
}

}  // namespace

}  // namespace garonne::kernels::test
