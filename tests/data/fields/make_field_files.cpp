// Not a test: writes what the end-to-end tests of bad files need into a folder, a folder or a file
// a kind.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>

#include "data/hdf5/foreign_files.hpp"
#include "data/hdf5/lzf_files.hpp"
#include "data/hdf5/virtual_files.hpp"

namespace garonne::data {
namespace {

namespace fs = std::filesystem;
using testing::ForeignFile;
using testing::YearlyFile;

YearlyFile year_of(std::int64_t number) {
  YearlyFile year;
  year.frames = 8;
  year.first_frame = 8 * number;
  year.rows = 9;
  year.columns = 16;
  return year;
}

// Two years, of which `change` spoils the second.
template <typename Change>
void make_years(const fs::path& folder, Change change,
                const std::function<void(std::vector<float>&)>& values = {}) {
  fs::create_directories(folder);
  year_of(0).write((folder / "1979.h5").string());
  YearlyFile second = year_of(1);
  change(second);
  second.write((folder / "1980.h5").string(), values);
}

// The same values in a plain file, in a virtual one of years and groups of channels, in such a one
// of which a source is missing, and in chunks that h5py would have compressed as lzf.
void make_same_years(const fs::path& folder) {
  testing::VirtualYears years;
  years.all.rows = 9;
  years.all.columns = 16;
  years.all.frames = 16;
  years.lengths = {9, 7};
  for (const char* kind : {"plain", "lzf"}) fs::create_directories(folder / kind);
  years.all.write((folder / "plain/all.h5").string());
  for (const char* kind : {"virtual", "virtual_gap"}) {
    years.write_sources((folder / kind).string());
    years.write_virtual((folder / kind / "all.h5v").string());
  }
  fs::remove(years.source((folder / "virtual_gap").string(), 1, 0));
  const std::string packed = (folder / "lzf/all.h5").string();
  std::vector<float> values;
  years.all.write(packed, [&](std::vector<float>& all) { values = all; });
  const hid_t file = H5Fopen(packed.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  H5Ldelete(file, "fields", H5P_DEFAULT);
  H5Fclose(file);
  testing::LzfDataset{{16, 3, 9, 16}, {2, 3, 9, 16}, true, false, 0}.write(packed, "fields",
                                                                           values);
}

void make_all(const fs::path& folder) {
  const auto as_it_is = [](YearlyFile&) {};
  make_years(folder / "good", as_it_is);
  make_years(folder / "wrong_rank", [](YearlyFile& year) { year.shape = {8, 3, 144}; });
  make_years(folder / "swapped_axes", [](YearlyFile& year) { year.shape = {8, 3, 16, 9}; });
  make_years(folder / "missing_channel", [](YearlyFile& year) { year.channels = {"u10", "z500"}; });
  make_years(folder / "other_size", [](YearlyFile& year) {
    year.rows = 17;
    year.columns = 32;
  });
  make_years(folder / "nan_slab", as_it_is, [](std::vector<float>& values) {
    const auto row = values.begin() + ((2 * 3 + 1) * 9 + 3) * 16;  // frame 2, t2m, row 3
    std::fill_n(row, 16, std::numeric_limits<float>::quiet_NaN());
  });
  make_years(folder / "control_names", [](YearlyFile& year) {
    year.channels = {"u10", "t2m\x1b[31m\n", "z500"};
  });
  {
    testing::write_foreign_well((folder / "well.h5").string());
    ForeignFile file((folder / "links.h5").string());
    for (const char* group : {"dimensions", "t0_fields"}) {
      const std::string target = std::string("/") + group;
      H5Lcreate_external("well.h5", target.c_str(), file.get(), group, H5P_DEFAULT, H5P_DEFAULT);
    }
  }
  {
    ForeignFile file((folder / "giant.h5").string());
    file.declare_only("tensor", H5T_NATIVE_FLOAT, {hsize_t{1} << 40, 10, 8, 8}, {1, 10, 8, 8});
  }
  {
    const std::string path = (folder / "giant_tokens.h5").string();
    testing::write_foreign_tokens(path);
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    H5Ldelete(file, "tokens", H5P_DEFAULT);
    H5Fclose(file);
    const hsize_t tokens = hsize_t{1} << 40;
    const hsize_t chunk = 32768;
    const hid_t again = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    const hid_t space = H5Screate_simple(1, &tokens, nullptr);
    const hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(properties, 1, &chunk);
    H5Dclose(H5Dcreate2(again, "tokens", H5T_NATIVE_UINT16, space, H5P_DEFAULT, properties,
                        H5P_DEFAULT));
    H5Pclose(properties);
    H5Sclose(space);
    H5Fclose(again);
  }
  make_same_years(folder);
  testing::write_foreign_netcdf((folder / "climate.nc").string());
  {
    std::ifstream whole(folder / "climate.nc", std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(whole), std::istreambuf_iterator<char>()};
    for (std::size_t heap = bytes.find("GCOL"); heap != std::string::npos;
         heap = bytes.find("GCOL", heap + 4)) {
      std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(heap) + 16,
                  std::min<std::size_t>(4080, bytes.size() - heap - 16), '\0');
    }
    std::ofstream(folder / "damaged_texts.nc", std::ios::binary) << bytes;
  }
}

}  // namespace
}  // namespace garonne::data

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_field_files FOLDER\n");
    return 2;
  }
  garonne::data::make_all(argv[1]);
  return 0;
}
