// Datasets that h5py compressed as lzf, against the same values in plain ones.
#include <gtest/gtest.h>

#include <random>

#include "data/fields/apart.hpp"
#include "data/fields/field_files.hpp"
#include "data/hdf5/lzf_files.hpp"
#include "data/scratch.hpp"

namespace garonne::data {
namespace {

using testing::expect_io_error;
using testing::LzfDataset;
using testing::query_of;
using testing::Scratch;
using testing::YearlyFile;

// A year of which `fields` is compressed, and its values.
std::vector<float> write_year(const std::string& path, const LzfDataset& dataset,
                              const std::function<float(const std::vector<std::int64_t>&)>& value) {
  YearlyFile year;
  year.frames = static_cast<std::int64_t>(dataset.shape[0]);
  {
    Hdf5File file = Hdf5File::create(path);
    testing::put_line(file, "timestamp",
                      testing::line(YearlyFile::begin, YearlyFile::step, year.frames));
    testing::put_line(file, "lat", testing::line(90, -45, 5));
    testing::put_line(file, "lon", testing::line(0, 45, 8));
    file.create_texts("channel", year.channels);
    file.close();
  }
  const std::vector<float> values =
      testing::filled({dataset.shape.begin(), dataset.shape.end()}, value);
  dataset.write(path, "fields", values);
  return values;
}

float smooth(const std::vector<std::int64_t>& at) {
  return static_cast<float>(at[0] * 7 + at[1] * 3 + at[2] / 2);
}

TEST(Lzf, YearsAreThoseOfPlainFiles) {
  for (const bool shuffle : {false, true}) {
    for (const bool plain_chunk : {false, true}) {
      const Scratch scratch;
      const LzfDataset dataset = {{6, 3, 5, 8}, {2, 3, 5, 4}, shuffle, plain_chunk, 0};
      const std::string path = scratch.path("1979.h5");
      const auto values = write_year(path, dataset, [](const std::vector<std::int64_t>& at) {
        return testing::value_at(at[0], at[1], at[2], at[3]);
      });
      EXPECT_EQ(Hdf5File::open(path).dataset("fields").read_all<float>(), values);
      FieldDataset opened = FieldDataset::open(query_of(path));
      EXPECT_EQ(opened.info().files[0].storage, "float32, chunks [2, 3, 5, 4], LZF");
      for (std::int64_t sample = 0; sample < 5; ++sample) {
        testing::expect_window(opened, sample, sample, query_of(path), {0, 1, 2}, {0, 1, 2});
        testing::expect_window(opened, sample, sample, query_of(path), {0, 1, 2}, {0, 1, 2},
                               {3, 2});
      }
    }
  }
}

// Long references and far ones.
TEST(Lzf, ValuesThatRepeat) {
  const Scratch scratch;
  const LzfDataset dataset = {{4, 3, 5, 8}, {4, 3, 5, 8}, false, false, 0};
  const std::vector<float> values = write_year(scratch.path("one.h5"), dataset, smooth);
  EXPECT_EQ(Hdf5File::open(scratch.path("one.h5")).dataset("fields").read_all<float>(), values);
  const LzfDataset zeros = {{40, 3, 5, 8}, {40, 3, 5, 8}, true, false, 0};
  write_year(scratch.path("two.h5"), zeros, [](const auto&) { return 0.0F; });
  EXPECT_EQ(Hdf5File::open(scratch.path("two.h5")).dataset("fields").read_all<float>(),
            std::vector<float>(40 * 3 * 5 * 8, 0));
}

TEST(Lzf, ChunksOfAnotherLengthThanSaidAreRefused) {
  const Scratch scratch;
  for (const unsigned said : {4U, 479U, 481U, 1U << 31}) {
    const std::string path = scratch.path("said.h5");
    write_year(path, {{2, 3, 5, 8}, {1, 3, 5, 8}, false, false, said}, smooth);
    expect_io_error(path, "LZF filter is of chunks of",
                    [&] { Hdf5File::open(path).dataset("fields"); });
  }
}

// Whatever is in a chunk: all of it, or an error, and never more than a chunk.
TEST(Lzf, DamagedChunksAreReadOrRefused) {
  const Scratch scratch;
  const std::string path = scratch.path("year.h5");
  write_year(path, {{1, 3, 5, 8}, {1, 3, 5, 8}, false, false, 0}, smooth);
  const std::string whole = testing::read_bytes(path);
  const std::string chunk = testing::lzf_compressed([] {
    const std::vector<float> values = testing::filled({1, 3, 5, 8}, smooth);
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4);
  }());
  const std::size_t place = whole.find(chunk);
  ASSERT_NE(place, std::string::npos);
  int refused = 0;
  for (unsigned seed = 1; seed <= 300; ++seed) {
    std::mt19937 random(seed);
    std::string bytes = whole;
    for (int count = 0; count < 3; ++count) {
      bytes[place + random() % chunk.size()] = static_cast<char>(random() & 0xFFU);
    }
    const std::string damaged = scratch.write("damaged.h5", bytes);
    try {
      EXPECT_EQ(Hdf5File::open(damaged).dataset("fields").read_all<float>().size(), 120U);
    } catch (const IoError& error) {
      ++refused;
      EXPECT_EQ(error.path(), damaged);
    }
  }
  EXPECT_GT(refused, 50);
  EXPECT_LT(refused, 300);
}

}  // namespace
}  // namespace garonne::data
