// The safetensors format: what is written is read again, and every kind of damage is found.
#include "train/checkpoint/safetensors.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/hash.hpp"
#include "train/scratch.hpp"

namespace garonne::train::test {
namespace {

std::vector<std::byte> some_bytes(std::size_t count, unsigned seed) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i)
    bytes[i] = static_cast<std::byte>((i * 37 + seed * 101 + i / 256) & 255);
  return bytes;
}

// A file by hand: header text as given, then so many bytes of data.
std::string file_of(const std::string& header, std::size_t data) {
  const std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  bytes.append(header);
  bytes.append(data, 'x');
  return bytes;
}

std::string entry(const std::string& name, const std::string& type, const std::string& shape,
                  std::int64_t begin, std::int64_t end) {
  return "\"" + name + "\":{\"dtype\":\"" + type + "\",\"shape\":" + shape + ",\"data_offsets\":[" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

TEST(Safetensors, WrittenAndReadAgain) {
  const Scratch scratch;
  const auto a = some_bytes(2 * 3 * 4, 1);
  const auto b = some_bytes(5 * 8, 2);
  const auto c = some_bytes(7 * 2, 3);
  const auto d = some_bytes(8, 4);
  const std::string path = scratch.path("a.safetensors");
  const std::string hash = write_safetensors(path,
                                             {{"z.weight", "F32", {2, 3}, a},
                                              {"a \"quoted\" näme", "F64", {5}, b},
                                              {"half", "BF16", {1, 7, 1}, c},
                                              {"scalar", "I64", {}, d}},
                                             {{"format", "pt"}});
  EXPECT_EQ(hash, hash_file(path));
  const SafetensorsFile file(path);
  ASSERT_EQ(file.tensors().size(), 4U);
  const auto check = [&](const std::string& name, const std::string& type,
                         const std::vector<std::int64_t>& shape,
                         const std::vector<std::byte>& wanted) {
    const TensorEntry& tensor = file.find(name);
    EXPECT_EQ(tensor.type, type);
    EXPECT_EQ(tensor.shape, shape);
    std::vector<std::byte> bytes(wanted.size());
    file.read(tensor, 0, bytes);
    EXPECT_EQ(bytes, wanted);
    std::vector<std::byte> middle(wanted.size() - 3);
    file.read(tensor, 2, middle);
    EXPECT_EQ(middle, std::vector<std::byte>(wanted.begin() + 2, wanted.end() - 1));
    expect_io_error(path, name, [&] { file.read(tensor, 1, bytes); });
    expect_io_error(path, name, [&] { file.read(tensor, -1, middle); });
  };
  check("z.weight", "F32", {2, 3}, a);
  check("a \"quoted\" näme", "F64", {5}, b);
  check("half", "BF16", {1, 7, 1}, c);
  check("scalar", "I64", {}, d);
  expect_io_error(path, "nobody", [&] { file.find("nobody"); });
  // The tensors' bytes start at a multiple of eight, so that they can be mapped.
  std::uint64_t length = 0;
  std::memcpy(&length, read_bytes(path).data(), 8);
  EXPECT_EQ(length % 8, 0U);
}

// As from a device, whose bytes the host cannot read: here they are nowhere.
TEST(Safetensors, WhatIsBroughtIsWrittenAsWhatIsThere) {
  const Scratch scratch;
  const auto values = some_bytes(700'000, 1);
  const auto written = [&](const std::string& name, const TensorSource& tensor) {
    std::size_t watched = 0;
    const std::string hash = write_safetensors(
        scratch.path(name), {tensor}, {},
        [&](const TensorSource&, std::span<const std::byte> part) { watched += part.size(); });
    EXPECT_EQ(watched, values.size());
    return hash;
  };
  const std::string wanted = written("there", {"x", "U8", {700'000}, values});
  for (const std::size_t piece : {std::size_t{512}, std::size_t{300'000}, values.size()}) {
    const std::vector<std::byte> absent;
    TensorSource tensor{"x", "U8", {700'000}, {absent.data(), values.size()}};
    tensor.bring = [&](const TensorSource::Show& show) {
      for (std::size_t begin = 0; begin < values.size(); begin += piece)
        show(std::span(values).subspan(begin, std::min(piece, values.size() - begin)));
    };
    EXPECT_EQ(written("brought", tensor), wanted);
  }
}

TEST(Safetensors, NothingAtAll) {
  const Scratch scratch;
  write_safetensors(scratch.path("a"), {}, {});
  EXPECT_TRUE(SafetensorsFile(scratch.path("a")).tensors().empty());
}

// A rank's share of a small tensor may be empty; it then starts where the next one starts, whatever
// the names.
TEST(Safetensors, EmptyTensorsBetweenOthers) {
  const Scratch scratch;
  const auto bytes = some_bytes(8, 1);
  for (const char* empty : {"a", "m", "z"}) {
    std::vector<TensorSource> sources;
    sources.push_back({"k", "F32", {2}, bytes});
    sources.push_back({empty, "F32", {0}, {}});
    sources.push_back({"n", "F32", {2}, bytes});
    sources.push_back({std::string(empty) + "2", "F32", {3, 0}, {}});
    write_safetensors(scratch.path("a"), sources, {});
    try {
      EXPECT_EQ(SafetensorsFile(scratch.path("a")).tensors().size(), 4U);
    } catch (const IoError& error) {
      ADD_FAILURE() << error.what();
    }
  }
  // Many of them, as a large grid would leave.
  std::vector<TensorSource> sources;
  for (int i = 0; i < 100; ++i) {
    std::string name = "t";
    name += std::to_string(i * 7919 % 100);
    const bool full = i % 3 == 0;
    sources.push_back({name,
                       "F32",
                       {full ? 2 : 0},
                       full ? std::span<const std::byte>(bytes) : std::span<const std::byte>()});
  }
  write_safetensors(scratch.path("a"), sources, {});
  EXPECT_NO_THROW(SafetensorsFile(scratch.path("a")));
}

TEST(Safetensors, DamageOfEveryKind) {
  const Scratch scratch;
  const std::string path = scratch.path("damaged");
  const auto damaged = [&](const std::string& part, const std::string& bytes) {
    SCOPED_TRACE(part);
    write_bytes(path, bytes);
    expect_io_error(path, part, [&] { SafetensorsFile file(path); });
  };
  const std::string one = entry("a", "F32", "[2]", 0, 8);
  write_bytes(path, file_of("{" + one + "}", 8));
  ASSERT_NO_THROW(SafetensorsFile file(path)) << "the file that the others damage";

  damaged("too short", "");
  damaged("too short", "1234567");
  damaged("header", std::string(8, '\xff'));
  damaged("header", std::string("\x01\x00\x00\x00\x00\x00\x00\x80", 8) + "{}");
  damaged("header", std::string("\x03\x00\x00\x00\x00\x00\x00\x00", 8) + "{}");
  {
    std::string huge = file_of("{}", 0);
    const std::uint64_t length = 100'000'001;
    std::memcpy(huge.data(), &length, 8);
    damaged("header", huge);
  }
  damaged("JSON", file_of("", 0));
  damaged("JSON", file_of("{" + one, 8));
  damaged("JSON", file_of("[1]", 0));
  damaged("JSON", file_of("{\"\xff\":1}", 0));
  damaged("overlap", file_of("{" + one + "," + entry("b", "F32", "[2]", 4, 12) + "}", 12));
  damaged("overlap", file_of("{" + one + "," + entry("b", "F32", "[2]", 0, 8) + "}", 8));
  damaged("hole", file_of("{" + one + "," + entry("b", "F32", "[2]", 12, 20) + "}", 20));
  damaged("hole", file_of("{" + entry("a", "F32", "[2]", 8, 16) + "}", 16));
  damaged("appended", file_of("{" + one + "}", 9));
  damaged("truncated", file_of("{" + one + "}", 7));
  damaged("unknown type F31", file_of("{" + entry("a", "F31", "[2]", 0, 8) + "}", 8));
  damaged("impossible shape", file_of("{" + entry("a", "F32", "[-2]", 0, 8) + "}", 8));
  damaged("impossible shape", file_of("{" + entry("a", "F32", "[-1,-2]", 0, 8) + "}", 8));
  damaged("impossible shape",
          file_of("{" + entry("a", "F32", "[4294967296,4294967296]", 0, 0) + "}", 0));
  damaged("do not agree", file_of("{" + entry("a", "F32", "[3]", 0, 8) + "}", 8));
  damaged("do not agree", file_of("{" + entry("a", "F32", "[2]", 8, 0) + "}", 8));
  damaged("overlap", file_of("{" + entry("a", "F32", "[2]", -8, 0) + "}", 0));
  damaged("not understood", file_of("{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8));
  damaged("not understood", file_of("{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8));
  damaged("not understood", file_of("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8));
  damaged("not understood",
          file_of("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", 8));
  damaged("not understood",
          file_of("{\"a\":{\"dtype\":4,\"shape\":[2],\"data_offsets\":[0,8]}}", 8));
  damaged("not understood",
          file_of("{\"a\":{\"dtype\":\"F32\",\"shape\":\"2\",\"data_offsets\":[0,8]}}", 8));
  damaged("not understood", file_of("{\"a\":7}", 0));
  // Numbers that other numbers would be taken for.
  damaged("do not agree", file_of("{" + entry("a", "F32", "[2]", INT64_MIN, INT64_MAX) + "}", 8));
  damaged("truncated",
          file_of("{" + entry("a", "U8", "[9223372036854775807]", 0, INT64_MAX) + "}", 8));
  for (const char* number : {"1e300", "2.0", "18446744073709551615", "true"}) {
    damaged("no integer", file_of("{\"a\":{\"dtype\":\"F32\",\"shape\":[" + std::string(number) +
                                      "],\"data_offsets\":[0,8]}}",
                                  8));
    damaged("no integer", file_of("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0," +
                                      std::string(number) + "]}}",
                                  8));
  }
  damaged("given twice", file_of("{" + one + "," + one + "}", 8));
  expect_io_error(scratch.path("none"), "", [&] { SafetensorsFile file(scratch.path("none")); });
}

TEST(Safetensors, EveryLengthButTheRightOneIsFound) {
  const Scratch scratch;
  const auto bytes = some_bytes(40, 1);
  write_safetensors(scratch.path("a"), {{"w", "F32", {10}, bytes}}, {{"format", "pt"}});
  const std::string whole = read_bytes(scratch.path("a"));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    write_bytes(scratch.path("b"), whole.substr(0, length));
    expect_io_error(scratch.path("b"), "", [&] { SafetensorsFile file(scratch.path("b")); });
  }
}

}  // namespace
}  // namespace garonne::train::test
