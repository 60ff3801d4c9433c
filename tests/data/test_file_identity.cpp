#include "data/file_identity.hpp"

#include <gtest/gtest.h>
#include <hdf5.h>

#include <algorithm>
#include <random>

#include "data/fields/field_dataset.hpp"
#include "data/fields/field_files.hpp"
#include "data/tokens/token_file.hpp"
#include "scratch.hpp"

namespace garonne::data {
namespace {

using testing::make_token_file;
using testing::query_of;
using testing::random_text;
using testing::read_bytes;
using testing::Scratch;
using testing::YearlyFile;

// Values as they lie in a file.
template <typename T>
std::string stored(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string contents(const std::string& path) {
  return identify_token_file(path).contents;
}

std::string with_byte_flipped(std::string bytes, std::size_t at) {
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  return bytes;
}

TEST(FileIdentity, CopiesAreAlikeWhereverAndWheneverTheyWereMade) {
  const Scratch scratch;
  const std::string path = make_token_file(scratch, random_text(100000, 1), random_text(5000, 2));
  std::filesystem::create_directories(scratch.path("elsewhere"));
  const std::string copy = scratch.path("elsewhere/other-name.h5");
  std::filesystem::copy_file(path, copy);
  std::filesystem::last_write_time(copy, std::filesystem::file_time_type::min());
  EXPECT_EQ(contents(copy), contents(path));
  EXPECT_EQ(identify_token_file(copy).path, copy);
}

TEST(FileIdentity, EveryByteOfTheFirstAndLastChunksCounts) {
  const Scratch scratch;
  const auto chunk = static_cast<std::size_t>(token_file_chunk);
  const std::string training = random_text(5 * chunk + 100, 1);
  const std::string validation = random_text(chunk / 2, 2);
  const std::string path = make_token_file(scratch, training, validation);
  const std::string bytes = read_bytes(path);
  const std::string original = contents(path);
  const auto place_of = [&](const std::string& text) {
    std::vector<std::uint16_t> tokens;
    for (const char letter : text) tokens.push_back(static_cast<unsigned char>(letter));
    const std::size_t place = bytes.find(stored(tokens));
    EXPECT_NE(place, std::string::npos);
    return place;
  };
  struct Piece {
    std::size_t begin;
    std::size_t count;
  };
  std::mt19937 random(3);
  for (const Piece& piece :
       {Piece{place_of(training.substr(0, chunk)), 2 * chunk},
        Piece{place_of(training.substr(5 * chunk)), 200}, Piece{place_of(validation), chunk}}) {
    for (int n = 0; n < 20; ++n) {
      const std::size_t at = piece.begin + (n == 0   ? 0
                                            : n == 1 ? piece.count - 1
                                                     : random() % piece.count);
      EXPECT_NE(contents(scratch.write("flipped.h5", with_byte_flipped(bytes, at))), original)
          << at;
    }
  }
}

TEST(FileIdentity, SizeAndAttributesCount) {
  const Scratch scratch;
  const std::string path = make_token_file(scratch, random_text(1000, 1));
  const std::string original = contents(path);
  EXPECT_NE(contents(scratch.write("longer.h5", read_bytes(path) + " ")), original);
  const auto changed = [&](const char* object, hid_t type, const void* value) {
    const std::string copy = scratch.write("changed.h5", read_bytes(path));
    const hid_t file = H5Fopen(copy.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    const hid_t owner = H5Oopen(file, object, H5P_DEFAULT);
    const hid_t space = H5Screate(H5S_SCALAR);
    const hid_t attribute = H5Acreate2(owner, "added", type, space, H5P_DEFAULT, H5P_DEFAULT);
    EXPECT_GE(H5Awrite(attribute, type, value), 0);
    H5Aclose(attribute);
    H5Sclose(space);
    H5Oclose(owner);
    H5Fclose(file);
    // Only attributes are to tell them apart.
    const std::string found = contents(copy);
    return found.substr(found.find("attributes"));
  };
  const double one = 1;
  const double two = 2;
  const std::int32_t number = 7;
  const char* text = "a text of any length";
  const hid_t any_length = H5Tcopy(H5T_C_S1);
  H5Tset_size(any_length, H5T_VARIABLE);
  std::vector<std::string> seen = {original.substr(original.find("attributes"))};
  for (const char* object : {"/", "tokens"}) {
    for (const std::string& found :
         {changed(object, H5T_NATIVE_DOUBLE, &one), changed(object, H5T_NATIVE_DOUBLE, &two),
          changed(object, H5T_NATIVE_INT32, &number), changed(object, any_length, &text)}) {
      EXPECT_EQ(std::count(seen.begin(), seen.end(), found), 0) << object;
      seen.push_back(found);
    }
  }
  H5Tclose(any_length);
}

// Chunks above 1 MiB are looked at on their ends, which is where a checksum is.
TEST(FileIdentity, LargeAndOddDatasets) {
  const Scratch scratch;
  const std::string path = scratch.path("large.h5");
  std::vector<float> values(std::size_t{3} << 20);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const auto identity = [&](const std::string& file) {
    return identify_file(Hdf5File::open(file), {"contiguous", "chunked", "empty", "compact"})
        .contents;
  };
  {
    Hdf5File file = Hdf5File::create(path);
    const std::vector<std::int64_t> shape = {static_cast<std::int64_t>(values.size())};
    testing::put<float>(file, "contiguous", shape, values);
    testing::put<float>(file, "chunked", shape, values, shape);
    file.create_growing<std::uint16_t>("empty", 10);
    file.close();
  }
  {
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    const hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_layout(properties, H5D_COMPACT);
    const hsize_t count = 3;
    const hid_t space = H5Screate_simple(1, &count, nullptr);
    const hid_t dataset =
        H5Dcreate2(file, "compact", H5T_STD_I32LE, space, H5P_DEFAULT, properties, H5P_DEFAULT);
    const std::int32_t numbers[] = {1, 2, 3};
    EXPECT_GE(H5Dwrite(dataset, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, numbers), 0);
    H5Dclose(dataset);
    H5Sclose(space);
    H5Pclose(properties);
    H5Fclose(file);
  }
  const std::string original = identity(path);
  const std::string bytes = read_bytes(path);
  const std::string head = stored(std::vector<float>(values.begin() + 5, values.begin() + 50));
  const std::string tail = stored(std::vector<float>(values.end() - 50, values.end() - 5));
  for (const std::string& part : {head, tail}) {
    const std::size_t one = bytes.find(part);
    const std::size_t other = bytes.find(part, one + 1);
    ASSERT_NE(other, std::string::npos);
    for (const std::size_t at : {one, other})
      EXPECT_NE(identity(scratch.write("flipped.h5", with_byte_flipped(bytes, at))), original);
  }
}

TEST(FileIdentity, FieldsAreComparedFileByFile) {
  const Scratch scratch;
  const auto write = [&](const std::string& folder, float changed) {
    std::filesystem::create_directories(scratch.path(folder));
    YearlyFile file;
    file.write(scratch.path(folder + "/1979.h5"));
    file.first_frame = file.frames;
    file.write(scratch.path(folder + "/1980.h5"),
               [&](std::vector<float>& values) { values.back() += changed; });
    return FieldDataset::open(query_of(scratch.path(folder))).identity();
  };
  const std::vector<FileIdentity> one = write("one", 0);
  const std::vector<FileIdentity> copy = write("copy", 0);
  const std::vector<FileIdentity> other = write("other", 1);
  ASSERT_EQ(one.size(), 2U);
  ASSERT_EQ(other.size(), 2U);
  EXPECT_EQ(one[0].contents, copy[0].contents);
  EXPECT_EQ(one[1].contents, copy[1].contents);
  EXPECT_EQ(one[0].contents, other[0].contents);
  EXPECT_NE(one[1].contents, other[1].contents);
  EXPECT_NE(one[0].contents, one[1].contents);
  const dist::Facts facts = file_facts("data.path", other);
  ASSERT_EQ(facts.size(), 3U);
  EXPECT_EQ(facts[0].value, "2 files");
  EXPECT_EQ(facts[2].name, "data.path, file 2");
  EXPECT_EQ(facts[2].place, scratch.path("other/1980.h5"));
  EXPECT_EQ(
      dist::describe_differences({file_facts("data.path", one), file_facts("data.path", copy)}),
      "");
}

TEST(FileIdentity, OnlyChannelsThatAreUsedCount) {
  const Scratch scratch;
  testing::NetcdfFile().write(scratch.path("month.nc"));
  FieldQuery query = query_of(scratch.path("month.nc"));
  const std::string all = FieldDataset::open(query).identity().at(0).contents;
  query.input_channels = query.target_channels = {"t2m"};
  const std::string some = FieldDataset::open(query).identity().at(0).contents;
  EXPECT_NE(all, some);
}

}  // namespace
}  // namespace garonne::data
