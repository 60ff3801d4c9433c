// Files that no program should write: each is refused by name with little memory, or read.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "data/fields/apart.hpp"
#include "data/hdf5/foreign_files.hpp"
#include "data/hdf5/whole_file.hpp"
#include "data/scratch.hpp"
#include "data/statistics/npy.hpp"
#include "data/tokens/token_stream.hpp"

namespace garonne::data {
namespace {

using testing::ForeignFile;
using testing::line;
using testing::Outcome;
using testing::run_apart;
using testing::Scratch;
using testing::YearlyFile;

constexpr std::int64_t mebibyte = 1 << 20;
constexpr std::int64_t least_bytes = 64 * mebibyte;

// Reads all of `path` apart; expects a refusal that has all `words`, within `most_bytes`.
void expect_refused(const std::string& path, const std::vector<std::string>& words,
                    std::int64_t most_bytes = least_bytes) {
  const Outcome outcome = run_apart([&] { testing::read_whole_file(path); });
  EXPECT_TRUE(testing::ended_well(outcome, most_bytes)) << path;
  EXPECT_EQ(outcome.code, 5) << outcome.message;
  for (const std::string& word : words) {
    EXPECT_NE(outcome.message.find(word), std::string::npos) << outcome.message;
  }
}

void expect_read(const std::string& path, std::int64_t most_bytes = least_bytes) {
  const Outcome outcome = run_apart([&] { testing::read_whole_file(path); });
  EXPECT_TRUE(testing::ended_well(outcome, most_bytes)) << path;
  EXPECT_EQ(outcome.code, 0) << outcome.message;
}

// A tokens file whose datasets `write` makes.
template <typename Write>
std::string token_file(const Scratch& scratch, Write write) {
  const std::string path = scratch.path("tokens.h5");
  testing::write_foreign_tokens(path);
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  EXPECT_GE(H5Ldelete(file, "tokens", H5P_DEFAULT), 0);
  write(file);
  EXPECT_GE(H5Fclose(file), 0);
  return path;
}

// One dataset "tokens", of zeros where `stored`.
std::string tokens_of(const Scratch& scratch, hsize_t tokens, hsize_t chunk, bool stored) {
  return token_file(scratch, [&](hid_t file) {
    const hsize_t unlimited = H5S_UNLIMITED;
    const hid_t space = H5Screate_simple(1, &tokens, &unlimited);
    const hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    if (chunk > 0) {
      H5Pset_chunk(properties, 1, &chunk);
      H5Pset_deflate(properties, 1);
    }
    const hid_t dataset =
        H5Dcreate2(file, "tokens", H5T_NATIVE_UINT16, space, H5P_DEFAULT, properties, H5P_DEFAULT);
    const hsize_t piece = std::min<hsize_t>(chunk, tokens);
    for (hsize_t first = 0; stored && first < tokens; first += piece) {
      const hsize_t count = std::min(piece, tokens - first);
      const std::vector<std::uint16_t> zeros(count);
      const hid_t memory = H5Screate_simple(1, &count, nullptr);
      H5Sselect_hyperslab(space, H5S_SELECT_SET, &first, nullptr, &count, nullptr);
      EXPECT_GE(H5Dwrite(dataset, H5T_NATIVE_UINT16, memory, space, H5P_DEFAULT, zeros.data()), 0);
      H5Sclose(memory);
    }
    H5Dclose(dataset);
    H5Pclose(properties);
    H5Sclose(space);
  });
}

// --- what other programs write is read ---

TEST(ForeignFiles, AreRead) {
  const Scratch scratch;
  const std::vector<std::pair<std::string, void (*)(const std::string&)>> kinds = {
      {"tokens.h5", testing::write_foreign_tokens}, {"year.h5", testing::write_foreign_yearly},
      {"darcy.h5", testing::write_foreign_darcy},   {"groups.h5", testing::write_foreign_groups},
      {"well.h5", testing::write_foreign_well},     {"climate.nc", testing::write_foreign_netcdf}};
  for (const auto& [name, write] : kinds) {
    write(scratch.path(name));
    expect_read(scratch.path(name));
  }
  FieldQuery query;
  query.path = scratch.path("climate.nc");
  const FieldDataset climate = FieldDataset::open(query);
  EXPECT_EQ(climate.info().channels, (std::vector<std::string>{"psl", "tas"}));
  EXPECT_EQ(climate.info().layout, "netcdf");
  query.path = scratch.path("year.h5");
  const FieldDataset year = FieldDataset::open(query);
  EXPECT_EQ(year.info().channels, (std::vector<std::string>{"u10", "t2m", "z500"}));
}

// --- links ---

TEST(ForeignFiles, LinksAreRefusedByName) {
  const Scratch scratch;
  testing::write_foreign_well(scratch.path("secret.h5"));
  testing::write_foreign_yearly(scratch.path("year.h5"));
  const auto write = [&](const std::string& name, auto make) {
    const std::string path = scratch.path(name);
    ForeignFile file(path);
    make(file.get());
    return path;
  };
  const auto external = [&](hid_t file, const char* from, const char* target, const char* name) {
    EXPECT_GE(H5Lcreate_external(scratch.path(from).c_str(), target, file, name, H5P_DEFAULT,
                                 H5P_DEFAULT),
              0);
  };
  expect_refused(write("well.h5",
                       [&](hid_t file) {
                         external(file, "secret.h5", "/dimensions", "dimensions");
                         external(file, "secret.h5", "/t0_fields", "t0_fields");
                       }),
                 {"\"dimensions\"", "link to another file", "refused"});
  expect_refused(
      write("fields.h5", [&](hid_t file) { external(file, "year.h5", "/fields", "fields"); }),
      {"\"fields\"", "link to another file"});
  expect_refused(write("soft.h5",
                       [&](hid_t file) {
                         H5Lcreate_soft("/elsewhere", file, "fields", H5P_DEFAULT, H5P_DEFAULT);
                       }),
                 {"\"fields\"", "soft link"});
  // A group on the way.
  const std::string path =
      write("group.h5", [&](hid_t file) { external(file, "secret.h5", "/t0_fields", "group"); });
  const Hdf5File file = Hdf5File::open(path);
  EXPECT_THROW(file.has_dataset("group/density"), IoError);
  EXPECT_THROW(file.has_group("group"), IoError);
  EXPECT_THROW(file.dataset("group/density"), IoError);
  EXPECT_THROW(file.attributes("group/density"), IoError);
  EXPECT_THROW(file.attributes("group"), IoError);
  EXPECT_THROW(file.datasets("group"), IoError);
  EXPECT_THROW(file.groups("group"), IoError);
  EXPECT_THROW(file.dimension_scales("group/density"), IoError);
  EXPECT_TRUE(file.groups().empty());
}

// --- declared sizes ---

TEST(ForeignFiles, DeclaredSizesAreNotBelieved) {
  const Scratch scratch;
  const hsize_t giant = hsize_t{1} << 40;
  {
    ForeignFile file(scratch.path("tensor.h5"));
    file.declare_only("tensor", H5T_NATIVE_FLOAT, {giant, 10, 8, 8}, {1, 10, 8, 8});
    file.line("x-coordinate", line(0, 1, 8));
    file.line("y-coordinate", line(0, 1, 8));
  }
  expect_refused(scratch.path("tensor.h5"), {"\"tensor\"", "declares", "1099511627776"});
  {
    ForeignFile file(scratch.path("channels.h5"));
    file.declare_only("fields", H5T_NATIVE_FLOAT, {4, giant, 8, 16}, {1, 1, 8, 16});
  }
  expect_refused(scratch.path("channels.h5"), {"\"fields\"", "declares"});
  {
    ForeignFile file(scratch.path("frames.h5"));
    file.declare_only("fields", H5T_NATIVE_FLOAT, {giant, 2, 8, 16});
  }
  expect_refused(scratch.path("frames.h5"), {"\"fields\"", "declares"});
  {
    // The number of elements does not fit 64 bits.
    ForeignFile file(scratch.path("overflow.h5"));
    file.declare_only("fields", H5T_NATIVE_FLOAT, {giant, 2, giant, 16}, {1, 1, 8, 16});
  }
  expect_refused(scratch.path("overflow.h5"), {"\"fields\"", "more than can be counted"});
}

TEST(ForeignFiles, NamesAndTimesWithoutData) {
  const Scratch scratch;
  const auto write = [&](const std::string& name, auto make) {
    ForeignFile file(scratch.path(name));
    file.array<float>("fields", {2, 3, 4, 8}, testing::waves(2 * 3 * 4 * 8));
    make(file);
    return scratch.path(name);
  };
  const hid_t eight = H5Tcopy(H5T_C_S1);
  H5Tset_size(eight, 8);
  expect_refused(write("names.h5",
                       [&](ForeignFile& file) {
                         file.declare_only("channel", eight, {hsize_t{1} << 25}, {1024});
                       }),
                 {"\"channel\"", "declares"});
  // Stored, but too many to be names.
  expect_refused(write("more_names.h5",
                       [&](ForeignFile& file) {
                         const hsize_t many = hsize_t{1} << 21;
                         const hid_t names = file.declare("channel", eight, {many}, {many / 8});
                         const std::string zeros(8 * many, '\0');
                         H5Dwrite(names, eight, H5S_ALL, H5S_ALL, H5P_DEFAULT, zeros.data());
                         H5Dclose(names);
                       }),
                 {"\"channel\"", "2097152 texts"});
  H5Tclose(eight);
  expect_refused(write("times.h5",
                       [&](ForeignFile& file) {
                         file.declare_only("timestamp", H5T_NATIVE_DOUBLE, {hsize_t{1} << 27},
                                           {1024});
                       }),
                 {"\"timestamp\"", "declares"});
  expect_refused(write("more_times.h5",
                       [&](ForeignFile& file) {
                         const hsize_t many = hsize_t{1} << 24;
                         file.array<std::int8_t>("timestamp", {many},
                                                 std::vector<std::int8_t>(many), {many / 8});
                       }),
                 {"\"timestamp\"", "16777216 elements"});
  // So many channels of one value each that describing them would take gigabytes.
  {
    ForeignFile file(scratch.path("many.h5"));
    const hsize_t many = hsize_t{1} << 22;
    file.array<float>("fields", {1, many, 1, 1}, std::vector<float>(many), {1, many, 1, 1});
  }
  expect_refused(scratch.path("many.h5"), {"\"fields\"", "4194304 channels"});
  {
    ForeignFile file(scratch.path("small.h5"));
    const hsize_t many = hsize_t{1} << 22;
    file.array<float>("tensor", {many, 2, 2}, std::vector<float>(many * 4), {many / 4, 2, 2});
  }
  expect_refused(scratch.path("small.h5"), {"\"tensor\"", "262144 runs"});
  {
    ForeignFile file(scratch.path("runs.h5"));
    const hsize_t many = hsize_t{1} << 22;
    file.array<float>("fields", {many, 1, 1, 1}, std::vector<float>(many), {many / 4, 1, 1, 1});
    file.attribute("/", "trajectory_length", 1.0);
  }
  expect_refused(scratch.path("runs.h5"), {"\"fields\"", "262144 runs"});
}

TEST(ForeignFiles, TokensWithoutDataAreNoTokens) {
  const Scratch scratch;
  for (const int power : {20, 40, 62}) {
    const std::string path = tokens_of(scratch, hsize_t{1} << power, 32768, false);
    expect_refused(path, {"\"tokens\"", "declares"});
  }
  const std::string path = tokens_of(scratch, 100000, 4096, false);
  expect_refused(path, {"\"tokens\"", "declares 100000 tokens", "holds 0"});
  const std::vector<std::int64_t> samples = {0};
  testing::expect_io_error(path, "declares 100000 tokens",
                           [&] { read_micro_batch(path, "tokens", 8, samples); });
  // All chunks but the last.
  const std::string part = tokens_of(scratch, 100000, 4096, true);
  expect_read(part);
  {
    const hid_t file = H5Fopen(part.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    const hid_t dataset = H5Dopen2(file, "tokens", H5P_DEFAULT);
    const hsize_t grown = 25 * 4096 + 1;
    EXPECT_GE(H5Dset_extent(dataset, &grown), 0);
    EXPECT_GE(H5Dclose(dataset), 0);
    EXPECT_GE(H5Fclose(file), 0);
  }
  expect_refused(part, {"\"tokens\"", "declares 102401 tokens", "holds 102400"});
}

TEST(ForeignFiles, GreatChunksAreReadOnce) {
  const Scratch scratch;
  // 128 MiB of zeros in one chunk, which a file of half a megabyte holds: 2,048 pages of it.
  const hsize_t tokens = hsize_t{64} << 20;
  const std::string path = tokens_of(scratch, tokens, tokens, true);
  // Read again for each page it would take minutes.
  expect_read(path, least_bytes + 3 * static_cast<std::int64_t>(2 * tokens));
  const std::string beyond = tokens_of(scratch, 1000, (hsize_t{128} << 20) + 1, false);
  expect_refused(beyond, {"\"tokens\"", "larger than 256 MiB"});
}

TEST(ForeignFiles, AttributesAreBounded) {
  const Scratch scratch;
  const std::string path = scratch.path("tokens.h5");
  testing::write_foreign_tokens(path);
  {
    // Of more than 64 KiB an attribute wants the newer structures.
    Hdf5File file = Hdf5File::create(scratch.path("long.h5"));
    file.write_attribute("format", std::string(std::size_t{2} << 20, 'x'));
    file.close();
  }
  expect_refused(scratch.path("long.h5"), {"attribute \"format\"", "longer than 1 MiB"});
  {
    ForeignFile file(scratch.path("variable.h5"));
    file.attribute("/", "format",
                   std::vector<std::string>{std::string(std::size_t{20} << 20, 'x')});
  }
  expect_refused(scratch.path("variable.h5"), {"attribute \"format\"", "longer than 8 MiB"});
}

// --- texts of variable length ---

// Sets the bytes of the file's heaps of texts to `value`, all but their signature.
void spoil_heaps(const std::string& path, const std::string& copy, char value) {
  std::string bytes = testing::read_bytes(path);
  int heaps = 0;
  for (std::size_t place = bytes.find("GCOL"); place != std::string::npos;
       place = bytes.find("GCOL", place + 4)) {
    ++heaps;
    const std::size_t begin = place + 16;
    std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(begin),
                std::min<std::size_t>(4096 - 16, bytes.size() - begin), value);
  }
  EXPECT_GT(heaps, 0);
  std::ofstream(copy, std::ios::binary) << bytes;
}

TEST(ForeignFiles, DamagedTextsDoNotTakeTheProgramWithThem) {
  const Scratch scratch;
  testing::write_foreign_netcdf(scratch.path("whole.nc"));
  testing::write_foreign_well(scratch.path("whole.h5"));
  for (const char value : {'\0', '\x01', '\x41', '\xFF'}) {
    spoil_heaps(scratch.path("whole.nc"), scratch.path("climate.nc"), value);
    expect_refused(scratch.path("climate.nc"), {"cannot be read", "damaged"});
    // In some heaps HDF5 only finds no text.
    spoil_heaps(scratch.path("whole.h5"), scratch.path("well.h5"), value);
    expect_refused(scratch.path("well.h5"), {"\"spatial_dims\""});
  }
}

// --- what is missing ---

TEST(ForeignFiles, EmptyCoordinatesAndMissingStatistics) {
  const Scratch scratch;
  testing::write_foreign_well(scratch.path("well.h5"));
  {
    const hid_t file = H5Fopen(scratch.path("well.h5").c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    EXPECT_GE(H5Adelete_by_name(file, "dimensions", "spatial_dims", H5P_DEFAULT), 0);
    const hid_t type = H5Tcopy(H5T_C_S1);
    const hid_t space = H5Screate(H5S_NULL);
    const hid_t group = H5Gopen2(file, "dimensions", H5P_DEFAULT);
    H5Aclose(H5Acreate2(group, "spatial_dims", type, space, H5P_DEFAULT, H5P_DEFAULT));
    H5Gclose(group);
    H5Sclose(space);
    H5Tclose(type);
    H5Fclose(file);
  }
  expect_refused(scratch.path("well.h5"), {"\"spatial_dims\"", "lacks a name"});
  {
    ForeignFile file(scratch.path("year.h5"));
    file.array<float>("fields", {2, 3, 4, 8}, testing::waves(2 * 3 * 4 * 8));
    file.declare_only("lat", H5T_NATIVE_DOUBLE, {0});
  }
  expect_refused(scratch.path("year.h5"), {"\"lat\"", "is empty"});
  const std::string path = scratch.path("statistics.h5");
  FieldSummaries summaries;
  summaries.inputs.channels = {"u10", "t2m"};
  summaries.inputs.mean = summaries.inputs.deviation = {1, 2};
  save_field_summaries(path, summaries);
  expect_read(path);
  for (const char* name : {"inputs/deviation", "inputs/mean"}) {
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    EXPECT_GE(H5Ldelete(file, name, H5P_DEFAULT), 0);
    H5Fclose(file);
    expect_refused(path, {"means and 0 deviations for 2 channels"});
  }
}

// --- names ---

TEST(ForeignFiles, NamesAreShownWithoutControlCharacters) {
  const Scratch scratch;
  YearlyFile year;
  year.channels = {"u10\x1b[31m", "t2m\n\xff", "z500"};
  year.write(scratch.path("1979.h5"));
  FieldQuery query;
  query.path = scratch.path("1979.h5");
  const FieldDatasetInfo info = FieldDataset::open(query).info();
  EXPECT_EQ(info.channels, (std::vector<std::string>{"u10\\x1b[31m", "t2m\\n\\xff", "z500"}));
  EXPECT_EQ(describe(info).find('\x1b'), std::string::npos);
  EXPECT_NO_THROW(field_dataset_json(info).dump());

  const std::string path = scratch.path("tokens.h5");
  {
    Hdf5File file = Hdf5File::create(path);
    file.write_attribute("format", token_file_format);
    file.write_attribute("format_version", std::int64_t{1});
    file.write_attribute("tokenizer", "by\x1b[2Jte");
    file.write_attribute("vocabulary", std::int64_t{256});
    file.write_attribute("sources",
                         R"([{"name": "a\u001b[31mb", "dataset": "tokens", "tokens": 4}])");
    const std::vector<std::uint16_t> tokens(5000, 65);
    Hdf5Dataset dataset = file.create_growing<std::uint16_t>("tokens", 4096);
    dataset.append(std::span<const std::uint16_t>(tokens));
  }
  const std::string text = describe(inspect_token_file(path));
  EXPECT_EQ(text.find('\x1b'), std::string::npos) << text;
  EXPECT_NE(text.find("a\\x1b[31mb"), std::string::npos) << text;
}

// --- what is no file of data ---

TEST(ForeignFiles, PipesAreNotOpened) {
  const Scratch scratch;
  const std::string path = scratch.path("pipe.h5");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  expect_refused(path, {"regular file"});
  const std::string npy = scratch.path("pipe.npy");
  ASSERT_EQ(mkfifo(npy.c_str(), 0600), 0);
  expect_refused(npy, {"pipe"});
}

TEST(ForeignFiles, NpyHeaders) {
  const Scratch scratch;
  const auto npy = [&](const std::string& header) {
    std::string bytes("\x93NUMPY\x02\x00", 8);
    const auto length = static_cast<std::uint32_t>(header.size());
    bytes.append(reinterpret_cast<const char*>(&length), 4);
    return scratch.write("x.npy", bytes + header + std::string(16, '\0'));
  };
  expect_refused(
      npy("{'descr': '" + std::string(60000, '\x1b') + "', 'fortran_order': False, 'shape': (4,)}"),
      {"elements are"});
  std::string dimensions;
  for (int count = 0; count < 10000; ++count) dimensions += "1, ";
  expect_refused(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (" + dimensions + ")}"),
                 {"shape"});
  expect_refused(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}"),
                 {"truncated"});
}

}  // namespace
}  // namespace garonne::data
