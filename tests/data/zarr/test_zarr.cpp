// Zarr stores beside the values that they were made of, and what is refused of damaged ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <random>

#include "base/error.hpp"
#include "data/fields/field_dataset.hpp"
#include "data/fields/field_files.hpp"
#include "data/fields/field_inspect.hpp"
#include "data/file_identity.hpp"
#include "data/scratch.hpp"
#include "data/zarr/zarr_files.hpp"
#include "data/zarr/zarr_store.hpp"

namespace garonne::data {
namespace {

using testing::query_of;
using testing::Scratch;
using testing::ZarrArray;
using testing::ZarrWriter;
using Shape = std::vector<std::int64_t>;

template <typename T>
std::vector<T> counted(std::int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), T{1});
  return values;
}

TEST(Zarr, BoxesOfEveryCodec) {
  const Scratch scratch;
  std::mt19937 engine(7);
  const Shape shape = {5, 7, 6};
  const std::vector<float> values = counted<float>(5 * 7 * 6);
  int number = 0;
  for (const char* codec : {"none", "zlib", "zstd", "blosc"}) {
    for (const Shape& chunk : {Shape{2, 3, 4}, Shape{5, 7, 6}, Shape{8, 1, 2}}) {
      for (const char* separator : {".", "/"}) {
        const std::string path = scratch.path("store" + std::to_string(number++));
        ZarrWriter writer(path);
        ZarrArray array{"a", shape, chunk, {"t", "y", "x"}, codec};
        array.separator = separator;
        writer.add<float>(array, values);
        if (number % 2 == 0) writer.consolidate();
        ZarrStore store = ZarrStore::open(path);
        EXPECT_EQ(store.array("a").dimensions(), (std::vector<std::string>{"t", "y", "x"}));
        for (int draw = 0; draw < 12; ++draw) {
          Shape first;
          Shape count;
          for (const std::int64_t size : shape) {
            first.push_back(std::uniform_int_distribution<std::int64_t>(0, size - 1)(engine));
            count.push_back(
                std::uniform_int_distribution<std::int64_t>(1, size - first.back())(engine));
          }
          std::vector<double> box(static_cast<std::size_t>(count[0] * count[1] * count[2]));
          store.read_box<double>("a", first, count, box);
          std::size_t at = 0;
          for (std::int64_t i = first[0]; i < first[0] + count[0]; ++i) {
            for (std::int64_t j = first[1]; j < first[1] + count[1]; ++j) {
              for (std::int64_t k = first[2]; k < first[2] + count[2]; ++k)
                ASSERT_EQ(box[at++], static_cast<double>((i * 7 + j) * 6 + k + 1));
            }
          }
        }
      }
    }
  }
}

// What `data inspect` shows of a store: the chunks, too, and nothing that a link leads to.
TEST(Zarr, BytesAreThoseOfAllFiles) {
  const Scratch scratch;
  const auto write = [&](const std::string& name, std::size_t bytes) {
    std::filesystem::create_directories(std::filesystem::path(scratch.path(name)).parent_path());
    std::ofstream(scratch.path(name)) << std::string(bytes, 'x');
  };
  write("store/.zgroup", 20);
  write("store/a/0.0", 1000);
  write("store/a/b/0", 300);
  write("other", 70000);
  std::filesystem::create_symlink(scratch.path("other"), scratch.path("store/link"));
  FieldDatasetInfo info;
  info.files.resize(2);
  info.files[0].path = scratch.path("store");
  info.files[1].path = scratch.path("other");
  info.files[1].bytes = 7;
  count_stored_bytes(info);
  EXPECT_EQ(info.files[0].bytes, 1320);
  EXPECT_EQ(info.files[1].bytes, 7);
}

TEST(Zarr, TypesAndWhatIsNotThere) {
  const Scratch scratch;
  const std::string path = scratch.path("store");
  ZarrWriter writer(path);
  const auto add = [&](const std::string& name, const std::string& type, auto values) {
    using Value = typename decltype(values)::value_type;
    ZarrArray array{name, {4}, {3}, {"x"}, "zlib", type};
    array.fill = -5;
    writer.add<Value>(array, values);
    std::filesystem::remove(path + "/" + name + "/1");
    ZarrStore store = ZarrStore::open(path);
    const std::vector<double> read = store.read_all<double>(name);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(read[i], static_cast<double>(values[i])) << type;
    EXPECT_EQ(read[3], -5) << type;
  };
  add("short", "<i2", std::vector<std::int16_t>{-300, 7, 32767, 1});
  add("byte", "|i1", std::vector<std::int8_t>{-128, 0, 127, 1});
  add("long", "<i8", std::vector<std::int64_t>{-(1LL << 40), 2, 3, 4});
  add("double", "<f8", std::vector<double>{0.1, -1e300, 3, 4});
  // 1 and 2 as big-endian floats.
  add("turned", "<f4", std::vector<float>{1, 2, 3, 4});
  ZarrArray turned{"big", {2}, {2}, {"x"}, "none", ">f4"};
  writer.add<std::uint32_t>(turned, {0x0000803F, 0x00000040});
  EXPECT_EQ(ZarrStore::open(path).read_all<float>("big"), (std::vector<float>{1, 2}));
}

// As WeatherBench 2 has them: longitude before latitude, hours since 1959, levels, Blosc.
void write_weather(const std::string& path, bool transposed, std::int64_t frames_in_chunk) {
  ZarrWriter writer(path);
  const auto axis = [&](const std::string& name, const std::vector<double>& values,
                        const std::string& units) {
    ZarrArray array{name,
                    {static_cast<std::int64_t>(values.size())},
                    {static_cast<std::int64_t>(values.size())},
                    {name},
                    "blosc",
                    "<f8"};
    if (!units.empty()) array.attributes["units"] = units;
    writer.add<double>(array, values);
  };
  axis("longitude", {0, 60, 120, 180, 240, 300}, "degrees_east");
  axis("latitude", {-67.5, -22.5, 22.5, 67.5}, "degrees_north");
  ZarrArray level{"level", {2}, {2}, {"level"}, "none", "<i8"};
  writer.add<std::int64_t>(level, {500, 850});
  ZarrArray time{"time", {5}, {5}, {"time"}, "zlib", "<i8"};
  time.attributes = {{"units", "hours since 1959-01-01"}, {"calendar", "proleptic_gregorian"}};
  writer.add<std::int64_t>(time, {6, 12, 18, 24, 30});
  const auto value = [](std::int64_t frame, std::int64_t channel, std::int64_t row,
                        std::int64_t column) {
    return testing::value_at(frame, channel, row, column);
  };
  std::vector<std::string> space = {"latitude", "longitude"};
  if (transposed) std::swap(space[0], space[1]);
  const std::int64_t outer = transposed ? 6 : 4;
  const std::int64_t inner = transposed ? 4 : 6;
  std::vector<float> levels;
  std::vector<float> surface;
  for (std::int64_t frame = 0; frame < 5; ++frame) {
    for (std::int64_t channel = 0; channel < 3; ++channel) {
      for (std::int64_t i = 0; i < outer; ++i) {
        for (std::int64_t j = 0; j < inner; ++j) {
          const float one = value(frame, channel, transposed ? j : i, transposed ? i : j);
          (channel < 2 ? levels : surface).push_back(one);
        }
      }
    }
  }
  ZarrArray geopotential{"geopotential",
                         {5, 2, outer, inner},
                         {frames_in_chunk, 1, outer, 3},
                         {"time", "level", space[0], space[1]},
                         "blosc"};
  geopotential.fill = "NaN";
  geopotential.attributes["units"] = "m**2 s**-2";
  writer.add<float>(geopotential, levels);
  ZarrArray temperature{"2m_temperature",
                        {5, outer, inner},
                        {frames_in_chunk, outer, inner},
                        {"time", space[0], space[1]},
                        "zstd"};
  temperature.fill = "NaN";
  temperature.attributes["units"] = "K";
  writer.add<float>(temperature, surface);
  writer.consolidate();
}

TEST(ZarrFields, BytesThatStandForUnsignedOnes) {
  const Scratch scratch;
  const std::string path = scratch.path("packed.zarr");
  ZarrWriter writer(path);
  const auto axis = [&](const char* name, const std::vector<double>& values, const char* units) {
    const auto count = static_cast<std::int64_t>(values.size());
    ZarrArray array{name, {count}, {count}, {name}, "none", "<f8"};
    array.attributes["units"] = units;
    writer.add<double>(array, values);
  };
  axis("time", {0, 1}, "days since 2000-01-01");
  axis("lat", {10, 0}, "degrees_north");
  axis("lon", {0, 10}, "degrees_east");
  ZarrArray packed{"t", {2, 2, 2}, {2, 2, 2}, {"time", "lat", "lon"}, "none", "|i1"};
  packed.fill = -1;
  packed.attributes = {{"_Unsigned", "true"}, {"scale_factor", 0.25}, {"add_offset", 260.0}};
  writer.add<std::int8_t>(packed, {-1, -2, 100, -128, 127, 0, 1, 2});
  writer.consolidate();
  FieldQuery query = query_of(path);
  query.missing = "mask";
  std::vector<float> values(4);
  FieldDataset::open(query).read_frame(0, {}, values.data(), nullptr);
  EXPECT_TRUE(std::isnan(values[0]));
  EXPECT_EQ(values[1], 323.5F);  // 254 · 0.25 + 260
  EXPECT_EQ(values[2], 285);
  EXPECT_EQ(values[3], 292);
}

TEST(ZarrFields, WeatherBenchStores) {
  for (const bool transposed : {false, true}) {
    for (const std::int64_t frames_in_chunk : {1, 3, 5}) {
      const Scratch scratch;
      const std::string path = scratch.path("era5.zarr");
      write_weather(path, transposed, frames_in_chunk);
      FieldDataset dataset = FieldDataset::open(query_of(path));
      const FieldDatasetInfo& info = dataset.info();
      EXPECT_EQ(info.layout, "zarr");
      EXPECT_EQ(info.grid, "equiangular-midpoints");
      EXPECT_EQ(info.points, (Shape{4, 6}));
      EXPECT_EQ(info.axes, (std::vector<std::string>{"latitude", "longitude"}));
      EXPECT_EQ(info.coordinates[0], (std::vector<double>{-67.5, -22.5, 22.5, 67.5}));
      EXPECT_EQ(info.channels, (std::vector<std::string>{"2m_temperature", "geopotential_500",
                                                         "geopotential_850"}));
      EXPECT_EQ(info.target_units, (std::vector<std::string>{"K", "m**2 s**-2", "m**2 s**-2"}));
      EXPECT_EQ(info.frames, 5);
      EXPECT_EQ(info.frame_seconds, 21600);
      EXPECT_EQ(format_time(info.first_time, info.calendar), "1959-01-01 06:00");
      EXPECT_EQ(info.samples, 4);
      // Rows 1 and 2 of the third window, and all of its target.
      std::vector<float> input(3 * 2 * 6);
      dataset.read(2, {1, 2}, input.data(), nullptr);
      std::vector<float> target(3 * 4 * 6);
      dataset.read(2, {}, nullptr, target.data());
      for (std::int64_t channel = 0; channel < 3; ++channel) {
        const std::int64_t stored = channel == 0 ? 2 : channel - 1;
        for (std::int64_t row = 0; row < 4; ++row) {
          for (std::int64_t column = 0; column < 6; ++column) {
            EXPECT_EQ(target[static_cast<std::size_t>((channel * 4 + row) * 6 + column)],
                      testing::value_at(3, stored, row, column));
            if (row < 1 || row > 2) continue;
            EXPECT_EQ(input[static_cast<std::size_t>((channel * 2 + row - 1) * 6 + column)],
                      testing::value_at(2, stored, row, column));
          }
        }
      }
    }
  }
}

TEST(ZarrFields, ChunksThatAreNotThereAreMissing) {
  const Scratch scratch;
  const std::string path = scratch.path("era5.zarr");
  write_weather(path, false, 1);
  std::filesystem::remove(path + "/2m_temperature/3.0.0");
  FieldDataset refusing = FieldDataset::open(query_of(path));
  std::vector<float> target(3 * 4 * 6);
  EXPECT_THROW(refusing.read(2, {}, nullptr, target.data()), IoError);
  FieldQuery masking = query_of(path);
  masking.missing = "mask";
  FieldDataset dataset = FieldDataset::open(masking);
  dataset.read(2, {}, nullptr, target.data());
  EXPECT_TRUE(std::isnan(target[0]));
  EXPECT_EQ(target[24], testing::value_at(3, 0, 0, 0));
}

TEST(ZarrFields, CopiesAreKnownByWhatTheyHold) {
  const Scratch scratch;
  for (const char* name : {"one.zarr", "two.zarr", "other.zarr"})
    write_weather(scratch.path(name), false, 1);
  const auto contents = [&](const char* name) {
    return FieldDataset::open(query_of(scratch.path(name))).identity()[0].contents;
  };
  EXPECT_EQ(contents("one.zarr"), contents("two.zarr"));
  std::filesystem::copy_file(scratch.path("other.zarr/2m_temperature/1.0.0"),
                             scratch.path("other.zarr/2m_temperature/0.0.0"),
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_NE(contents("one.zarr"), contents("other.zarr"));
}

// --- damage ---

struct Damage {
  const char* what;
  std::function<void(const std::string&)> action;  // on the path of a store
  const char* words;
};

void replace_in(const std::string& path, const std::string& from, const std::string& to) {
  std::ifstream stream(path);
  std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  const std::size_t place = text.find(from);
  ASSERT_NE(place, std::string::npos) << from;
  text.replace(place, from.size(), to);
  testing::write_text(path, text);
}

TEST(ZarrFields, DamagedStoresAreRefusedByName) {
  const auto in_array = [](const char* from, const char* to) {
    return [=](const std::string& path) {
      std::filesystem::remove(path + "/.zmetadata");
      replace_in(path + "/geopotential/.zarray", from, to);
    };
  };
  const auto cut = [](const char* name) {
    return [=](const std::string& path) {
      const std::string file = path + "/" + name;
      std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
    };
  };
  for (const Damage& damage : {
           Damage{"metadata", cut(".zmetadata"), ".zmetadata"},
           Damage{"version", in_array("\"zarr_format\": 2", "\"zarr_format\": 4"), "is not read"},
           Damage{"codec", in_array("\"blosc\"", "\"lzma\""),
                  "the compressor \"lzma\" is not read"},
           Damage{"order", in_array("\"C\"", "\"F\""), "is not read; known is C"},
           Damage{"filters", in_array("\"filters\": null", "\"filters\": [{\"id\": \"delta\"}]"),
                  "the filter \"delta\" is not read"},
           Damage{"huge chunks",
                  in_array("\"chunks\": [\n    1", "\"chunks\": [\n    999999999999"),
                  "larger than 256 MiB"},
           Damage{"huge shapes",
                  in_array("\"shape\": [\n    5", "\"shape\": [\n    9223372036854775807"),
                  "shape"},
           Damage{"negative", in_array("\"chunks\": [\n    1", "\"chunks\": [\n    -1"), "chunks"},
           Damage{"chunks of Blosc", cut("geopotential/0.0.0.0"), "geopotential/0.0.0.0"},
           Damage{"chunks of zstd", cut("2m_temperature/0.0.0"), "2m_temperature/0.0.0"},
           Damage{"chunks of zlib", cut("time/0"), "time/0"},
           Damage{"chunks without compression", cut("level/0"), "level/0"},
           Damage{"a link",
                  [](const std::string& path) {
                    const std::string file = path + "/geopotential/0.0.0.0";
                    std::filesystem::rename(file, path + "/elsewhere");
                    std::filesystem::create_symlink(path + "/elsewhere", file);
                  },
                  "geopotential/0.0.0.0"},
           Damage{"version 3",
                  [](const std::string& path) {
                    std::filesystem::remove_all(path);
                    testing::write_text(path + "/zarr.json", "{}");
                  },
                  "Zarr version 3"},
       }) {
    const Scratch scratch;
    const std::string path = scratch.path("era5.zarr");
    write_weather(path, false, 1);
    damage.action(path);
    try {
      FieldDataset dataset = FieldDataset::open(query_of(path));
      std::vector<float> input(3 * 4 * 6);
      dataset.read(0, {}, input.data(), nullptr);
      FAIL() << damage.what << " was not refused";
    } catch (const IoError& error) {
      EXPECT_NE(std::string(error.what()).find(damage.words), std::string::npos)
          << damage.what << ": " << error.what();
    }
  }
}

// Whatever bytes there are: refused, or read without harm.
TEST(ZarrFields, RandomDamageIsSurvived) {
  const Scratch scratch;
  const std::string whole = scratch.path("whole.zarr");
  write_weather(whole, true, 3);
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(whole)) {
    if (entry.is_regular_file())
      files.push_back(std::filesystem::relative(entry.path(), whole).string());
  }
  std::sort(files.begin(), files.end());
  std::mt19937 engine(11);
  int refused = 0;
  for (int draw = 0; draw < 120; ++draw) {
    const std::string path = scratch.path("damaged.zarr");
    std::filesystem::remove_all(path);
    std::filesystem::copy(whole, path, std::filesystem::copy_options::recursive);
    const std::string file = path + "/" + files[engine() % files.size()];
    std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
    const auto size = static_cast<std::int64_t>(std::filesystem::file_size(file));
    for (int flip = 0; flip < 3; ++flip) {
      stream.seekp(static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(size)));
      stream.put(static_cast<char>(engine()));
    }
    stream.close();
    try {
      FieldQuery query = query_of(path);
      query.missing = "mask";
      FieldDataset dataset = FieldDataset::open(query);
      std::vector<float> input(
          static_cast<std::size_t>(dataset.info().input_values(dataset.info().points[0])));
      dataset.read(0, {}, input.data(), nullptr);
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 20);
}

}  // namespace
}  // namespace garonne::data
