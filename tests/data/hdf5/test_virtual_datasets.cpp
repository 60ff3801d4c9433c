// Virtual datasets: read as HDF5 itself reads them where all sources are there, and refused by name
// where they are not.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>

#include "data/file_identity.hpp"
#include "data/hdf5/foreign_files.hpp"
#include "data/hdf5/virtual_files.hpp"
#include "data/scratch.hpp"

namespace garonne::data {
namespace {

namespace fs = std::filesystem;
using testing::expect_io_error;
using testing::ForeignFile;
using testing::query_of;
using testing::range;
using testing::Scratch;
using testing::VirtualDataset;
using testing::VirtualYears;
using testing::YearlyFile;

using Selection = VirtualDataset::Selection;

std::vector<float> read_all(const std::string& path, const std::string& name) {
  return Hdf5File::open(path).dataset(name, VirtualData::Allowed).read_all<float>();
}

// By HDF5's own reader of virtual datasets.
std::vector<float> read_by_hdf5(const std::string& path, const std::string& name) {
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  const hid_t dataset = H5Dopen2(file, name.c_str(), H5P_DEFAULT);
  const hid_t space = H5Dget_space(dataset);
  std::vector<float> values(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space)));
  EXPECT_GE(H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
  H5Sclose(space);
  H5Dclose(dataset);
  H5Fclose(file);
  return values;
}

// An empty file that a virtual dataset is put into.
std::string empty_file(const Scratch& scratch, const std::string& name) {
  ForeignFile file(scratch.path(name));
  return scratch.path(name);
}

// --- what can be mapped ---

// Cuts of a whole along frames and channels, each to a source that has more than is taken of it, in
// steps, with dimensions of one index more or less, by names of any kind.
class RandomGrid {
 public:
  explicit RandomGrid(unsigned seed)
      : random_(seed),
        shape_{2 + below(9), 1 + below(6), 1 + below(4), 1 + below(5)},
        virtual_dataset_(shape_, H5T_NATIVE_FLOAT),
        path_(empty_file(scratch_, "all.h5v")),
        groups_(1 + below(std::min<hsize_t>(shape_[1], 3))),
        group_of_(shape_[1]) {
    // Channels are dealt out to groups one by one, so that a group's may lie apart.
    for (hsize_t channel = 0; channel < shape_[1]; ++channel) {
      group_of_[channel] = channel < groups_ ? channel : below(groups_);
    }
    hsize_t frame = 0;
    while (frame < shape_[0]) {
      const hsize_t frames = 1 + below(shape_[0] - frame);
      for (hsize_t group = 0; group < groups_; ++group) map_source(frame, frames, group);
      frame += frames;
    }
    virtual_dataset_.write(path_, "fields");
  }

  hsize_t below(hsize_t limit) { return static_cast<hsize_t>(random_() % limit); }
  const std::string& path() const { return path_; }
  const VirtualDataset::Shape& shape() const { return shape_; }
  // Sources with several channels, and with steps between frames.
  int irregular() const { return irregular_; }
  int stepped() const { return stepped_; }

 private:
  void map_source(hsize_t frame, hsize_t frames, hsize_t group) {
    std::vector<Selection> here;
    std::vector<Selection> there;
    const hsize_t step = 1 + below(3);
    const hsize_t first_frame = below(3);
    const hsize_t first_row = below(2);
    // Channels of the source, ascending with gaps.
    hsize_t next = below(2);
    const bool flat = std::count(group_of_.begin(), group_of_.end(), group) == 1 && below(2) == 0;
    for (hsize_t channel = 0; channel < shape_[1]; ++channel) {
      if (group_of_[channel] != group) continue;
      here.push_back(
          {range(frame, frames), range(channel, 1), range(0, shape_[2]), range(0, shape_[3])});
      Selection origin = {{first_frame, step, frames, 1},
                          range(next, 1),
                          range(first_row, shape_[2]),
                          range(0, shape_[3])};
      if (flat) origin.erase(origin.begin() + 1);
      there.push_back(origin);
      next += 1 + below(2);
    }
    irregular_ += here.size() > 1 ? 1 : 0;
    stepped_ += step > 1 && frames > 1 ? 1 : 0;
    VirtualDataset::Shape source = {first_frame + step * frames + below(2), next + below(2),
                                    first_row + shape_[2] + below(2), shape_[3]};
    if (flat) source.erase(source.begin() + 1);
    const std::string name = "source" + std::to_string(frame) + "_" + std::to_string(group);
    ForeignFile file(scratch_.path(name));
    std::size_t elements = 1;
    for (const hsize_t size : source) elements *= size;
    std::vector<float> values(elements);
    std::iota(values.begin(), values.end(), static_cast<float>(1 + 10000 * group + frame));
    file.array<float>("fields", source, values, below(2) == 0 ? VirtualDataset::Shape() : source);
    virtual_dataset_.map(here, below(2) == 0 ? name : scratch_.path(name), "fields", source, there);
  }

  const Scratch scratch_;
  std::mt19937 random_;
  VirtualDataset::Shape shape_;
  VirtualDataset virtual_dataset_;
  std::string path_;
  hsize_t groups_;
  std::vector<hsize_t> group_of_;
  int irregular_ = 0;
  int stepped_ = 0;
};

// In boxes, by a file that is opened again.
void expect_boxes(RandomGrid& grid, const std::vector<float>& whole) {
  const VirtualDataset::Shape& shape = grid.shape();
  const Hdf5File file = Hdf5File::open_again(grid.path());
  const Hdf5Dataset dataset = file.dataset("fields", VirtualData::Allowed);
  for (int box = 0; box < 20; ++box) {
    std::vector<std::int64_t> first;
    std::vector<std::int64_t> count;
    std::int64_t elements = 1;
    for (const hsize_t size : shape) {
      first.push_back(static_cast<std::int64_t>(grid.below(size)));
      count.push_back(
          1 + static_cast<std::int64_t>(grid.below(size - static_cast<hsize_t>(first.back()))));
      elements *= count.back();
    }
    std::vector<float> values(static_cast<std::size_t>(elements));
    dataset.read_box<float>(first, count, values);
    const std::vector<float> wanted =
        testing::filled(count, [&](const std::vector<std::int64_t>& at) {
          std::size_t place = 0;
          for (std::size_t axis = 0; axis < shape.size(); ++axis) {
            place = place * shape[axis] + static_cast<std::size_t>(first[axis] + at[axis]);
          }
          return whole[place];
        });
    ASSERT_EQ(values, wanted) << "box " << box;
  }
}

// The reference is HDF5.
TEST(VirtualDatasets, AnyGridOfSourcesIsReadAsHdf5DoesIt) {
  int irregular = 0;
  int stepped = 0;
  for (unsigned seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomGrid grid(seed);
    irregular += grid.irregular();
    stepped += grid.stepped();
    const std::vector<float> whole = read_by_hdf5(grid.path(), "fields");
    ASSERT_EQ(read_all(grid.path(), "fields"), whole);
    expect_boxes(grid, whole);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(irregular, 20);
  EXPECT_GT(stepped, 20);
}

// Even frames of one source and odd ones of another.
TEST(VirtualDatasets, SourcesMayAlternate) {
  const Scratch scratch;
  const std::string path = empty_file(scratch, "all.h5");
  VirtualDataset both({7, 4}, H5T_NATIVE_FLOAT);
  for (hsize_t odd = 0; odd < 2; ++odd) {
    const hsize_t frames = 4 - odd;
    const std::string name = odd == 1 ? "odd.h5" : "even.h5";
    ForeignFile(scratch.path(name))
        .array<float>("a", {frames, 4}, testing::waves(frames * 4 + odd * 100));
    both.map({{{odd, 2, frames, 1}, range(0, 4)}}, name, "a", {frames, 4});
  }
  both.write(path, "fields");
  EXPECT_EQ(read_all(path, "fields"), read_by_hdf5(path, "fields"));
}

TEST(VirtualDatasets, SourcesMayLieInTheSameFile) {
  const Scratch scratch;
  const std::string path = scratch.path("own.h5");
  {
    ForeignFile file(path);
    file.array<float>("part", {3, 4}, testing::waves(12));
  }
  VirtualDataset twice({6, 4}, H5T_NATIVE_FLOAT);
  for (hsize_t copy = 0; copy < 2; ++copy) {
    twice.map({{range(3 * copy, 3), range(0, 4)}}, ".", "part", {3, 4});
  }
  twice.write(path, "fields");
  EXPECT_EQ(read_all(path, "fields"), read_by_hdf5(path, "fields"));
}

TEST(VirtualDatasets, OnlyFieldsMayBeVirtual) {
  const Scratch scratch;
  const VirtualYears years;
  years.write_sources(scratch.path("data"));
  years.write_virtual(scratch.path("data/all.h5v"));
  const std::string path = scratch.path("data/all.h5v");
  expect_io_error(path, "its elements lie in other files",
                  [&] { Hdf5File::open(path).dataset("fields"); });
}

// --- where sources are looked for ---

TEST(VirtualDatasets, SourcesAreFoundBesideTheFileOrInTheWorkingDirectory) {
  const Scratch scratch;
  const VirtualYears years;
  years.write_sources(scratch.path("data"));
  years.write_virtual(scratch.path("data/all.h5v"));
  const std::vector<float> whole = read_all(scratch.path("data/all.h5v"), "fields");
  const fs::path before = fs::current_path();

  // As makani's names are: those of the folder in which it was called.
  years.write_virtual(scratch.path("all.h5v"), "data/");
  fs::create_directories(scratch.path("elsewhere"));
  fs::rename(scratch.path("all.h5v"), scratch.path("elsewhere/all.h5v"));
  expect_io_error(scratch.path("elsewhere/all.h5v"), "is missing",
                  [&] { read_all(scratch.path("elsewhere/all.h5v"), "fields"); });
  fs::current_path(scratch.path(""));
  EXPECT_EQ(read_all(scratch.path("elsewhere/all.h5v"), "fields"), whole);
  fs::current_path(before);

  // Through a link to the file, too.
  fs::create_symlink(scratch.path("data/all.h5v"), scratch.path("elsewhere/link.h5v"));
  EXPECT_EQ(read_all(scratch.path("elsewhere/link.h5v"), "fields"), whole);
}

TEST(VirtualDatasets, WhatHasMovedIsFoundBesideTheFileUnlessNamesAreAmbiguous) {
  const Scratch scratch;
  VirtualYears years;
  years.groups = {{"u10", "t2m", "z500"}};
  years.folders = {"data"};
  years.write_sources(scratch.path(""));
  years.write_virtual(scratch.path("data/all.h5v"), "/where/it/was/made/");
  EXPECT_EQ(read_all(scratch.path("data/all.h5v"), "fields").size(), 11U * 3 * 5 * 8);

  // Two folders of the same names, of which both would be found there.
  VirtualYears groups;
  groups.write_sources(scratch.path("two"));
  groups.write_virtual(scratch.path("two/surface/all.h5v"), "/where/it/was/made/");
  expect_io_error(scratch.path("two/surface/all.h5v"), "would both be",
                  [&] { read_all(scratch.path("two/surface/all.h5v"), "fields"); });
}

// --- what HDF5 would give fill values for ---

TEST(VirtualDatasets, AMissingSourceIsNamed) {
  const Scratch scratch;
  const VirtualYears years;
  const std::string path = scratch.path("data/all.h5v");
  years.write_sources(scratch.path("data"));
  years.write_virtual(path);
  fs::remove(years.source(scratch.path("data"), 1, 0));
  // The trap itself.
  const std::vector<float> filled = read_by_hdf5(path, "fields");
  EXPECT_EQ(filled.back(), testing::value_at(10, 2, 4, 7));
  EXPECT_EQ(filled[filled.size() - 1 - 40], 0);
  const std::string message = expect_io_error(path, "its source \"surface/1980.h5\" is missing",
                                              [&] { FieldDataset::open(query_of(path)); });
  EXPECT_NE(message.find(scratch.path("data/surface/1980.h5")), std::string::npos) << message;
}

TEST(VirtualDatasets, ASourceThatGoesOrChangesLaterIsAnError) {
  const Scratch scratch;
  const VirtualYears years;
  const std::string path = scratch.path("data/all.h5v");
  years.write_sources(scratch.path("data"));
  years.write_virtual(path);
  const Hdf5File file = Hdf5File::open_again(path);
  const Hdf5Dataset dataset = file.dataset("fields", VirtualData::Allowed);
  const std::string source = years.source(scratch.path("data"), 1, 0);
  std::vector<float> values(40);
  const auto read = [&](std::int64_t frame) {
    const std::vector<std::int64_t> first = {frame, 0, 0, 0};
    const std::vector<std::int64_t> count = {1, 1, 5, 8};
    dataset.read_box<float>(first, count, values);
  };
  read(0);
  fs::rename(source, source + ".away");
  expect_io_error(source, "no such file", [&] { read(8); });
  std::ofstream(source, std::ios::binary) << testing::read_bytes(source + ".away") << "more";
  expect_io_error(source, "has changed while it was in use", [&] { read(8); });
  fs::rename(source + ".away", source);
  read(8);
  EXPECT_EQ(values[0], testing::value_at(8, 0, 0, 0));
  fs::resize_file(source, fs::file_size(source) - 100);
  expect_io_error(source, "truncated", [&] { read(9); });
}

TEST(VirtualDatasets, ASourceThatIsTooShortOrOfAnotherShapeIsNamed) {
  const Scratch scratch;
  VirtualYears years;
  const std::string path = scratch.path("data/all.h5v");
  years.write_sources(scratch.path("data"));
  years.write_virtual(path);
  const std::string source = years.source(scratch.path("data"), 1, 0);
  const auto refused = [&](const std::string& part) {
    expect_io_error(source, part, [&] { FieldDataset::open(query_of(path)); });
  };
  YearlyFile shorter;
  shorter.frames = 4;
  shorter.channels = {"u10", "t2m"};
  shorter.write(source);
  refused("has the shape [4, 2, 5, 8]");
  YearlyFile swapped = shorter;
  swapped.shape = {5, 2, 8, 5};
  swapped.write(source);
  refused("has the shape [5, 2, 8, 5]");
  ForeignFile(source).array<float>("other", {5, 2, 5, 8}, testing::waves(400));
  refused("dataset \"fields\" is missing");
  ForeignFile(source).texts("fields", {"no", "numbers"});
  refused("does not hold numbers");
  std::ofstream(source, std::ios::binary) << "text";
  refused("not an HDF5 file");
}

TEST(VirtualDatasets, GapsAndOverlapsAreRefused) {
  const Scratch scratch;
  ForeignFile(scratch.path("a.h5")).array<float>("a", {4, 6}, testing::waves(24));
  ForeignFile(scratch.path("b.h5")).array<float>("a", {4, 6}, testing::waves(24));
  const auto refused = [&](const std::string& part, hsize_t frames, const Selection& one,
                           const Selection& other) {
    const std::string path = empty_file(scratch, "all.h5v");
    VirtualDataset all({frames, 6}, H5T_NATIVE_FLOAT);
    all.map({one}, "a.h5", "a", {4, 6});
    all.map({other}, "b.h5", "a", {4, 6});
    all.write(path, "fields");
    expect_io_error(path, part, [&] { read_all(path, "fields"); });
  };
  refused("54 elements, of which its sources give 48", 9, {range(0, 4), range(0, 6)},
          {range(5, 4), range(0, 6)});
  refused("give the same elements", 8, {range(0, 4), range(0, 6)}, {range(3, 4), range(0, 6)});
  refused("give the same elements", 12, {{0, 3, 4, 1}, range(0, 6)}, {{1, 2, 4, 1}, range(0, 6)});
  refused("60 elements, of which its sources give 48", 10, {{0, 2, 4, 1}, range(0, 6)},
          {{1, 2, 4, 1}, range(0, 6)});
}

TEST(VirtualDatasets, OtherKindsAreRefused) {
  const Scratch scratch;
  ForeignFile(scratch.path("a.h5")).array<float>("a", {4, 6}, testing::waves(24));
  const auto refused = [&](const std::string& part, const std::string& file,
                           const VirtualDataset::Shape& shape, const Selection& there) {
    const std::string path = empty_file(scratch, "all.h5v");
    VirtualDataset all(shape, H5T_NATIVE_FLOAT);
    all.map({}, file, "a", {4, 6}, {there});
    all.write(path, "fields");
    expect_io_error(file == "virtual.h5" ? scratch.path(file) : path, part,
                    [&] { read_all(path, "fields"); });
  };
  refused("has another shape there than here", "a.h5", {6, 4}, {range(0, 4), range(0, 6)});
  // A virtual dataset of virtual datasets.
  VirtualDataset inner({4, 6}, H5T_NATIVE_FLOAT);
  inner.map({}, "a.h5", "a", {4, 6});
  inner.write(empty_file(scratch, "virtual.h5"), "a");
  refused("its elements lie in other files", "virtual.h5", {4, 6}, {});
}

// With its source, or by further sources.
TEST(VirtualDatasets, OnesThatGrowAreRefused) {
  const Scratch scratch;
  ForeignFile(scratch.path("a0.h5")).array<float>("a", {4, 6}, testing::waves(24));
  for (const bool by_sources : {false, true}) {
    const std::string path = empty_file(scratch, "grows.h5v");
    const hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    const hsize_t now[] = {4, 6};
    const hsize_t most[] = {H5S_UNLIMITED, 6};
    const hsize_t start[] = {0, 0};
    const hsize_t stride[] = {by_sources ? hsize_t{4} : 1, 1};
    const hsize_t count[] = {H5S_UNLIMITED, 1};
    const hsize_t block[] = {by_sources ? hsize_t{4} : 1, 6};
    const hid_t space = H5Screate_simple(2, now, most);
    H5Sselect_hyperslab(space, H5S_SELECT_SET, start, stride, count, block);
    const hid_t fixed = H5Screate_simple(2, now, nullptr);
    EXPECT_GE(H5Pset_virtual(properties, space, by_sources ? "a%b.h5" : "a0.h5", "a",
                             by_sources ? fixed : space),
              0);
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    const hid_t all = H5Screate_simple(2, now, most);
    const hid_t dataset =
        H5Dcreate2(file, "fields", H5T_NATIVE_FLOAT, all, H5P_DEFAULT, properties, H5P_DEFAULT);
    EXPECT_GE(dataset, 0);
    for (const hid_t one : {all, fixed, space}) H5Sclose(one);
    H5Dclose(dataset);
    H5Pclose(properties);
    H5Fclose(file);
    expect_io_error(path,
                    by_sources ? "numbered by the pattern \"a%b.h5\"" : "grows with the source",
                    [&] { read_all(path, "fields"); });
  }
}

// Many pieces of a small source are no field of many bytes.
TEST(VirtualDatasets, MoreThanTheSourcesHoldIsRefused) {
  const Scratch scratch;
  ForeignFile(scratch.path("a.h5")).array<float>("a", {1, 4096}, testing::waves(4096));
  const std::string path = empty_file(scratch, "all.h5v");
  VirtualDataset all({2000, 4096}, H5T_NATIVE_FLOAT);
  for (hsize_t row = 0; row < 2000; ++row) {
    all.map({{range(row, 1), range(0, 4096)}}, "a.h5", "a", {1, 4096});
  }
  all.write(path, "fields");
  expect_io_error(path, "but its sources have 4096 at most", [&] { read_all(path, "fields"); });
}

// --- as fields ---

TEST(VirtualDatasets, TheIdentityIsThatOfTheSources) {
  const Scratch scratch;
  VirtualYears years;
  years.chunk = {2, 1, 5, 4};
  years.write_sources(scratch.path("data"));
  years.write_virtual(scratch.path("data/all.h5v"));
  const auto identity = [](const std::string& path) {
    return FieldDataset::open(query_of(path)).identity().at(0).contents;
  };
  const std::string before = identity(scratch.path("data/all.h5v"));
  fs::copy(scratch.path("data"), scratch.path("copy"), fs::copy_options::recursive);
  EXPECT_EQ(identity(scratch.path("copy/all.h5v")), before);
  // The last chunk of the last source.
  const std::string source = years.source(scratch.path("copy"), 1, 1);
  YearlyFile changed;
  changed.frames = 5;
  changed.channels = {"z500"};
  changed.chunk = {2, 1, 5, 4};
  changed.write(source);
  EXPECT_NE(identity(scratch.path("copy/all.h5v")), before);
}

}  // namespace
}  // namespace garonne::data
