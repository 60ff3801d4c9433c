#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "data/scratch.hpp"
#include "data/statistics/npy.hpp"

namespace garonne::data {
namespace {

using testing::expect_io_error;
using testing::read_bytes;
using testing::Scratch;

// numpy 2.4.6: io.BytesIO, numpy.save(b, numpy.array([[1.5, -2.0, 3.25]], numpy.float32)).
const std::string from_numpy = std::string("\x93NUMPY\x01\x00\x76\x00", 10) +
                               "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), }" +
                               std::string(58, ' ') + "\n" +
                               std::string("\x00\x00\xc0\x3f\x00\x00\x00\xc0\x00\x00\x50\x40", 12);

TEST(Npy, WritesWhatNumpyWrites) {
  const Scratch scratch;
  const std::vector<float> values = {1.5F, -2.0F, 3.25F};
  write_npy<float>(scratch.path("a.npy"), {1, 3}, values);
  EXPECT_EQ(read_bytes(scratch.path("a.npy")), from_numpy);
}

TEST(Npy, ReadsWhatNumpyWrites) {
  const Scratch scratch;
  const auto array = read_npy<double>(scratch.write("a.npy", from_numpy));
  EXPECT_EQ(array.shape, (std::vector<std::int64_t>{1, 3}));
  EXPECT_EQ(array.values, (std::vector<double>{1.5, -2.0, 3.25}));
}

TEST(Npy, RoundTripsEveryShapeAndType) {
  const Scratch scratch;
  const std::vector<std::vector<std::int64_t>> shapes = {{}, {5}, {0, 7}, {2, 3, 4, 5}};
  for (const auto& shape : shapes) {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    std::vector<double> values;
    for (std::int64_t index = 0; index < count; ++index) {
      values.push_back(static_cast<double>(index) / 3 - 1);
    }
    if (count > 0) values[0] = std::numeric_limits<double>::infinity();
    write_npy<double>(scratch.path("a.npy"), shape, values);
    const auto same = read_npy<double>(scratch.path("a.npy"));
    EXPECT_EQ(same.shape, shape);
    EXPECT_EQ(same.values, values);
    const auto narrow = read_npy<float>(scratch.path("a.npy"));
    EXPECT_EQ(narrow.values, std::vector<float>(values.begin(), values.end()));
  }
}

TEST(Npy, RefusesWhatItDoesNotKnow) {
  const Scratch scratch;
  const auto refuse = [&](const std::string& from, const std::string& to, const std::string& part) {
    std::string bytes = from_numpy;
    bytes.replace(bytes.find(from), from.size(), to);
    const std::string path = scratch.write("a.npy", bytes);
    expect_io_error(path, part, [&] { read_npy<float>(path); });
  };
  refuse("<f4", ">f4", "'<f4' and '<f8' are read");
  refuse("<f4", "<i4", "'<f4' and '<f8' are read");
  refuse("False", "True ", "Fortran order");
  refuse("(1, 3)", "(1, 4)", "the shape (1, 4) wants 16");
  refuse("(1, 3)", "(1, x)", "cannot be understood");
  refuse("'shape'", "'shake'", "no \"shape\"");
  refuse("NUMPY\x01", "NUMPY\x04", "version 4");
  refuse("NUMPY", "NUMPA", "no .npy file");
  // A shape whose number of elements does not fit in 64 bits.
  refuse("(1, 3), }" + std::string(40, ' '),
         "(4294967296, 4294967296, 3), }" + std::string(19, ' '), "truncated");
  const std::string cut = scratch.write("cut.npy", from_numpy.substr(0, 60));
  expect_io_error(cut, "truncated", [&] { read_npy<float>(cut); });
}

}  // namespace
}  // namespace garonne::data
