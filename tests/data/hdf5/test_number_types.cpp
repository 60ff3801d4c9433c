// Numbers whose type says that bits of them lie elsewhere, which HDF5 1.10 takes as it finds them
// and reads outside its buffers: refused by name. And unusual types that are sound: read.
#include <gtest/gtest.h>
#include <hdf5.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "data/hdf5/foreign_files.hpp"
#include "data/hdf5/hdf5.hpp"
#include "data/scratch.hpp"

namespace garonne::data {
namespace {

using testing::expect_io_error;
using testing::ForeignFile;
using testing::Scratch;

// Messages of types as files have them: class and version, flags, bytes, then what the class has.
const std::string two_bytes{"\x10\x08\x00\x00\x02\x00\x00\x00\x00\x00\x10\x00", 12};
const std::string four_bytes{
    "\x11\x20\x1f\x00\x04\x00\x00\x00\x00\x00\x20\x00\x17\x08\x00\x17\x7f\x00\x00\x00", 20};

struct Damage {
  const char* what;
  std::size_t place;  // in the message
  char byte;
};
const std::vector<Damage> damages_of_integers = {
    {"no bits", 10, 0},
    {"more bits than bytes", 10, 17},
    {"bits after its bytes", 8, 1},
    {"bits far away", 9, '\x7f'},
};
const std::vector<Damage> damages_of_floats = {
    {"no bits", 10, 0},
    {"bits after its bytes", 8, 1},
    {"a sign elsewhere", 2, 32},
    {"an exponent elsewhere", 12, 25},
    {"no exponent", 13, 0},
    {"a wide exponent", 13, '\xff'},
    {"a mantissa elsewhere", 14, 10},
    {"no mantissa", 15, 0},
    {"a wide mantissa", 15, '\xc8'},
};

// The file with a byte changed in each of the messages, of which it has some.
std::string damaged(std::string bytes, const std::string& message, const Damage& damage) {
  int changed = 0;
  for (std::size_t place = bytes.find(message); place != std::string::npos;
       place = bytes.find(message, place + 1)) {
    bytes[place + damage.place] = damage.byte;
    ++changed;
  }
  EXPECT_GE(changed, 2) << "of a dataset and of an attribute";
  return bytes;
}

void expect_refused(const Scratch& scratch, const std::string& whole, const std::string& message,
                    const std::vector<Damage>& damages) {
  for (const Damage& damage : damages) {
    SCOPED_TRACE(damage.what);
    const std::string path = scratch.write("damaged.h5", damaged(whole, message, damage));
    std::vector<double> values(3);
    expect_io_error(path, "dataset \"a\": does not hold numbers",
                    [&] { Hdf5File::open(path).dataset("a").read<double>(0, values); });
    expect_io_error(path, "is not a number",
                    [&] { Hdf5File::open(path).attributes("a").numbers("n"); });
  }
}

std::string file_of(const Scratch& scratch, hid_t type, const void* values, const void* number,
                    hid_t properties = H5P_DEFAULT) {
  const std::string path = scratch.path("whole.h5");
  const ForeignFile file(path);
  const hsize_t count = 3;
  const hid_t space = H5Screate_simple(1, &count, nullptr);
  const hid_t one = H5Screate(H5S_SCALAR);
  const hid_t dataset =
      H5Dcreate2(file.get(), "a", type, space, H5P_DEFAULT, properties, H5P_DEFAULT);
  const hid_t attribute = H5Acreate2(dataset, "n", type, one, H5P_DEFAULT, H5P_DEFAULT);
  EXPECT_GE(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values), 0);
  EXPECT_GE(H5Awrite(attribute, type, number), 0);
  H5Aclose(attribute);
  H5Dclose(dataset);
  H5Sclose(one);
  H5Sclose(space);
  return path;
}

void expect_read(const std::string& path) {
  const Hdf5File file = Hdf5File::open(path);
  std::vector<double> values(3);
  file.dataset("a").read<double>(0, values);
  EXPECT_EQ(values, (std::vector<double>{1, -2, 3}));
  EXPECT_EQ(file.attributes("a").number("n"), -2);
}

TEST(NumberTypes, ThatSayTheirBitsLieElsewhereAreRefused) {
  const Scratch scratch;
  const std::int16_t integers[] = {1, -2, 3};
  std::string path = file_of(scratch, H5T_STD_I16LE, integers, &integers[1]);
  expect_read(path);
  expect_refused(scratch, testing::read_bytes(path), two_bytes, damages_of_integers);
  const float floats[] = {1, -2, 3};
  path = file_of(scratch, H5T_IEEE_F32LE, floats, &floats[1]);
  expect_read(path);
  expect_refused(scratch, testing::read_bytes(path), four_bytes, damages_of_floats);
}

// With elements in the header of their dataset.
std::string compact_file_of(const Scratch& scratch) {
  const hid_t compact = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_layout(compact, H5D_COMPACT);
  const std::int16_t values[] = {1, -2, 3};
  std::string path = file_of(scratch, H5T_STD_I16LE, values, &values[1], compact);
  H5Pclose(compact);
  expect_read(path);
  return path;
}

// HDF5 1.10 copies as many bytes as elements have.
TEST(NumberTypes, AreAllInTheHeaderThatIsToHaveThem) {
  const Scratch scratch;
  const std::string whole = testing::read_bytes(compact_file_of(scratch));
  const std::string layout{"\x03\x00\x06\x00\x01\x00\xfe\xff\x03\x00", 10};
  const std::size_t place = whole.find(layout);
  ASSERT_NE(place, std::string::npos);
  for (const char size : {0, 2, 5}) {
    std::string bytes = whole;
    bytes[place + 2] = size;
    const std::string path = scratch.write("few.h5", bytes);
    expect_io_error(path,
                    "dataset \"a\": has " + std::to_string(size) +
                        " bytes in its header, and its elements have 6; the file is damaged",
                    [&] { Hdf5File::open(path).dataset("a").read_all<double>(3); });
  }
}

// What HDF5 copies of one that lies in the header of its dataset.
TEST(NumberTypes, AreNotGiantInASmallDataset) {
  const Scratch scratch;
  const std::string path = compact_file_of(scratch);
  std::string bytes = testing::read_bytes(path);
  const std::size_t place = bytes.find(two_bytes);
  ASSERT_NE(place, std::string::npos);
  const std::pair<std::string, std::string> sizes[] = {{"\xff\xff", "4294901762"},
                                                       {{"\x00\x10", 2}, "268435458"}};
  for (const auto& [high, size] : sizes) {
    bytes.replace(place + 6, 2, high);
    const std::string giant = scratch.write("giant.h5", bytes);
    expect_io_error(giant, "has elements of " + size + " bytes; the file is damaged",
                    [&] { Hdf5File::open(giant).dataset("a").hash_of_chunk(false); });
  }
}

TEST(NumberTypes, ThatAreUnusualAreRead) {
  const Scratch scratch;
  const std::uint8_t big[] = {0, 1, 0xFF, 0xFE, 0, 3};
  expect_read(file_of(scratch, H5T_STD_I16BE, big, &big[2]));
  // As h5py writes half precision.
  const hid_t half = H5Tcopy(H5T_IEEE_F32LE);
  H5Tset_fields(half, 15, 10, 5, 0, 10);
  H5Tset_size(half, 2);
  H5Tset_ebias(half, 15);
  const std::uint16_t halves[] = {0x3C00, 0xC000, 0x4200};
  expect_read(file_of(scratch, half, halves, &halves[1]));
  H5Tclose(half);
  // Twelve bits in the midst of two bytes.
  const hid_t twelve = H5Tcopy(H5T_STD_I16LE);
  H5Tset_precision(twelve, 12);
  H5Tset_offset(twelve, 2);
  const std::uint16_t parts[] = {1 << 2, 0xFFE << 2 & 0x3FFC, 3 << 2};
  expect_read(file_of(scratch, twelve, parts, &parts[1]));
  H5Tclose(twelve);
}

}  // namespace
}  // namespace garonne::data
