// Random damage to files of every kind that is read: whatever it does, an end without a crash, an
// endless loop or memory without bound, and either success or one message with a documented code.
//
// GARONNE_DAMAGED_FILES = FIRST:COUNT says which seeds; a failure names its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <utility>

#include "data/fields/apart.hpp"
#include "data/hdf5/foreign_files.hpp"
#include "data/hdf5/lzf_files.hpp"
#include "data/hdf5/virtual_files.hpp"
#include "data/hdf5/whole_file.hpp"
#include "data/scratch.hpp"
#include "data/statistics/npy.hpp"

namespace garonne::data {
namespace {

using testing::Outcome;
using testing::Scratch;

using Random = std::mt19937;

std::size_t below(Random& random, std::size_t limit) {
  return limit == 0 ? 0 : random() % limit;
}

// Half of all places in the first 4 KiB, where a file says what it is.
std::size_t somewhere(Random& random, const std::string& bytes) {
  const std::size_t head = std::min<std::size_t>(bytes.size(), 4096);
  return below(random, random() % 2 == 0 ? head : bytes.size());
}

std::string damaged(std::string bytes, Random& random) {
  const std::size_t place = somewhere(random, bytes);
  const std::size_t length = 1 + below(random, std::size_t{1} << below(random, 11));
  switch (random() % 7) {
    case 0:  // bits
      for (std::size_t count = 1 + below(random, 3); count > 0; --count) {
        char& byte = bytes[somewhere(random, bytes)];
        byte = static_cast<char>(byte ^ (1 << below(random, 8)));
      }
      return bytes;
    case 1:  // bytes
      for (std::size_t count = 1 + below(random, 8); count > 0; --count) {
        bytes[somewhere(random, bytes)] = static_cast<char>(random() & 0xFFU);
      }
      return bytes;
    case 2:
      std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(place),
                  std::min(length, bytes.size() - place), '\0');
      return bytes;
    case 3:
      std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(place),
                  std::min(length, bytes.size() - place), '\xFF');
      return bytes;
    case 4:
      return bytes.substr(0, below(random, bytes.size()));
    case 5:  // a block twice
      return bytes.substr(0, place) + bytes.substr(place, length) + bytes.substr(place);
    default:  // a block over another one
      const std::string block = bytes.substr(place, length);
      const std::size_t target = somewhere(random, bytes);
      return bytes.replace(target, std::min(block.size(), bytes.size() - target), block);
  }
}

// Name of the file and its bytes, of each kind.
std::map<std::string, std::string> whole_files(const Scratch& scratch) {
  std::map<std::string, std::string> files;
  const auto keep = [&](const std::string& name, const std::string& path) {
    EXPECT_NO_THROW(testing::read_whole_file(path)) << name;
    files[name] = testing::read_bytes(path);
  };
  const auto make = [&](const std::string& name, auto write) {
    write(scratch.path(name));
    keep(name, scratch.path(name));
  };
  keep("tokens.h5", testing::make_token_file(scratch, testing::random_text(30000, 1), "or not"));
  make("foreign_tokens.h5", testing::write_foreign_tokens);
  make("own_year.h5", [](const std::string& path) { testing::YearlyFile().write(path); });
  make("foreign_year.h5", testing::write_foreign_yearly);
  make("darcy.h5", testing::write_foreign_darcy);
  make("groups.h5", testing::write_foreign_groups);
  make("well.h5", testing::write_foreign_well);
  make("own_climate.nc", [](const std::string& path) { testing::NetcdfFile().write(path); });
  make("climate.nc", testing::write_foreign_netcdf);
  // Its sources stay whole.
  const testing::VirtualYears years;
  years.write_sources(scratch.path(""));
  make("virtual_year.h5", [&](const std::string& path) { years.write_virtual(path); });
  make("lzf_year.h5", [](const std::string& path) {
    testing::YearlyFile().write(path);
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    H5Ldelete(file, "fields", H5P_DEFAULT);
    H5Fclose(file);
    testing::LzfDataset{{6, 3, 5, 8}, {1, 3, 5, 8}, true, false, 0}.write(
        path, "fields", testing::waves(6 * 3 * 5 * 8));
  });
  make("statistics.h5", [](const std::string& path) {
    FieldSummaries summaries;
    summaries.inputs.channels = {"u10", "t2m"};
    for (auto* numbers : {&summaries.inputs.mean, &summaries.inputs.deviation,
                          &summaries.inputs.least, &summaries.inputs.greatest}) {
      *numbers = {1, 2};
    }
    save_field_summaries(path, summaries);
  });
  make("means.npy", [](const std::string& path) {
    const std::vector<float> values(60, 1.5F);
    write_npy<float>(path, {1, 3, 4, 5}, values);
  });
  return files;
}

std::pair<int, int> wanted_seeds() {
  int first = 1;
  int count = 156;
  const char* given = std::getenv("GARONNE_DAMAGED_FILES");
  if (given != nullptr) {
    EXPECT_EQ(std::sscanf(given, "%d:%d", &first, &count), 2) << given;
  }
  return {first, count};
}

TEST(DamagedFiles, AreReadOrRefused) {
  const Scratch scratch;
  const std::map<std::string, std::string> files = whole_files(scratch);
  const auto [first, count] = wanted_seeds();
  std::map<std::string, std::map<int, int>> codes;
  for (int seed = first; seed < first + count; ++seed) {
    auto chosen = files.begin();
    std::advance(chosen, seed % static_cast<int>(files.size()));
    const auto& [name, whole] = *chosen;
    Random random(static_cast<unsigned>(seed));
    const std::string path = scratch.write(name, damaged(whole, random));
    const Outcome outcome = testing::run_apart([&] { testing::read_whole_file(path); });
    // What these files can declare, and get, is below 64 MiB.
    EXPECT_TRUE(testing::ended_well(outcome, 4 * (std::int64_t{64} << 20)))
        << "seed " << seed << ", " << name;
    EXPECT_EQ(outcome.message.find("json.exception"), std::string::npos) << outcome.message;
    ++codes[name][outcome.code];
  }
  for (const auto& [name, ends] : codes) {
    for (const auto& [code, times] : ends)
      std::printf("%s: code %d %d times\n", name.c_str(), code, times);
  }
}

}  // namespace
}  // namespace garonne::data
