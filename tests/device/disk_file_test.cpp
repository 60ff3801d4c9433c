// The file that is a tier of memory: its contents, its place, what it refuses, and calls of the
// system that move less than they were asked for.
#include "device/disk_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "device/cpu_device.hpp"
#include "device/disk_transfer.hpp"
#include "device/tier_memory.hpp"

namespace garonne::device {
namespace {

namespace fs = std::filesystem;

// Where the tests are built: on a disk, which the folder for temporary files may not be.
class DiskFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::current_path() / "disk-file-test-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string folder_;
  TierMemory memory_{{.tier = Tier::Host, .limit_bytes = std::int64_t{64} << 20}};
};

void fill(Span block, std::mt19937_64& random) {
  for (std::int64_t i = 0; i < block.bytes; ++i) {
    block.data[i] = static_cast<std::byte>(random() & 0xFFU);
  }
}

std::string message_of_io_error(const std::function<void()>& action) {
  try {
    action();
  } catch (const IoError& error) {
    EXPECT_EQ(error.code(), ExitCode::Data);
    return error.what();
  }
  return "no error of files";
}

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << text;
}

// Extents of all sizes, several megabytes included, against the same bytes in a vector.
TEST_F(DiskFiles, HoldsWhatWasWrittenLast) {
  constexpr std::int64_t bytes = std::int64_t{8} << 20;
  const DiskFile file(folder_, bytes);
  const std::int64_t unit = file.granularity();
  const Span all = memory_.allocate(bytes, "all");
  std::mt19937_64 random(3);
  fill(all, random);
  file.write(0, all);
  std::vector<std::byte> model(all.data, all.data + bytes);
  for (int turn = 0; turn < 60; ++turn) {
    const std::int64_t units =
        1 + static_cast<std::int64_t>(random() % (turn % 10 == 0 ? 700 : 20));
    const std::int64_t at = unit * static_cast<std::int64_t>(
                                       random() % static_cast<unsigned>(bytes / unit - units + 1));
    const Span block = memory_.allocate(units * unit, "block");
    if (turn % 2 == 0) {
      fill(block, random);
      std::copy(block.data, block.data + block.bytes, model.begin() + at);
      file.write(at, block);
    } else {
      file.read(at, block);
      ASSERT_TRUE(std::equal(block.data, block.data + block.bytes, model.begin() + at)) << turn;
    }
    memory_.release(block);
  }
  std::fill(all.data, all.data + bytes, std::byte{0});
  file.read(0, all);
  EXPECT_TRUE(std::equal(all.data, all.data + bytes, model.begin()));
}

TEST_F(DiskFiles, CarryTheWorkOfTheDiskLanes) {
  const DiskFile file(folder_, 1 << 20);
  const Span out = memory_.allocate(1 << 20, "out");
  const Span in = memory_.allocate(1 << 20, "in");
  std::mt19937_64 random(4);
  fill(out, random);
  CpuDevice device;
  const std::array written = {device.run(
      Lane::DiskWrite, [&] { file.write(0, out); }, "value 3 to the disk")};
  const Mark read = device.run(
      Lane::DiskRead, [&] { file.read(0, in); }, "value 3 from the disk", written);
  device.wait(read);
  EXPECT_TRUE(std::equal(out.data, out.data + out.bytes, in.data));
}

// Its descriptor among those of the process, found by the folder it was made in.
int descriptor_in(const std::string& folder) {
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = fs::read_symlink(entry.path(), gone).string();
    if (target.rfind(folder, 0) == 0) return std::stoi(entry.path().filename().string());
  }
  return -1;
}

TEST_F(DiskFiles, HasRoomButNoName) {
  {
    const DiskFile file(folder_, 1'000'000);
    const std::int64_t unit = file.granularity();
    EXPECT_EQ(file.bytes(), (1'000'000 + unit - 1) / unit * unit);
    EXPECT_TRUE(fs::is_empty(folder_));
    const int descriptor = descriptor_in(folder_);
    ASSERT_GE(descriptor, 0);
    struct stat facts {};
    ASSERT_EQ(fstat(descriptor, &facts), 0);
    EXPECT_EQ(facts.st_size, file.bytes());
    EXPECT_GE(facts.st_blocks * 512, file.bytes()) << "a disk that fills up later does not matter";
    EXPECT_EQ(file.direct(), (fcntl(descriptor, F_GETFL) & O_DIRECT) != 0);
  }
  EXPECT_LT(descriptor_in(folder_), 0) << "closed with it";
}

// Asked of the file system in another way than the file does.
TEST_F(DiskFiles, PassThePageCacheByWhereThatIsPossible) {
  const std::string probe = folder_ + "/probe";
  std::ofstream(probe) << "probe";
  const int descriptor = open(probe.c_str(), O_RDONLY | O_DIRECT);
  const bool possible = descriptor >= 0;
  if (possible) close(descriptor);
  EXPECT_EQ(DiskFile(folder_, 4096).direct(), possible);
}

TEST_F(DiskFiles, LeaveThePageCacheWhereTheyCannotPassItBy) {
  constexpr std::int64_t bytes = std::int64_t{8} << 20;
  const DiskFile file(folder_, 2 * bytes, DiskFile::Way::Cached);
  EXPECT_FALSE(file.direct());
  void* const map = mmap(nullptr, 2 * bytes, PROT_READ, MAP_SHARED, descriptor_in(folder_), 0);
  ASSERT_NE(map, MAP_FAILED);
  const auto cached_pages = [&] {
    std::vector<unsigned char> is_cached(2 * bytes / 4096);
    EXPECT_EQ(mincore(map, 2 * bytes, is_cached.data()), 0);
    return std::count_if(is_cached.begin(), is_cached.end(),
                         [](unsigned char page) { return (page & 1U) != 0; });
  };
  std::mt19937_64 random(7);
  const Span written = memory_.allocate(bytes, "written");
  const Span read = memory_.allocate(bytes, "read");
  fill(written, random);
  file.write(bytes, written);
  EXPECT_EQ(cached_pages(), 0);
  file.read(bytes, read);
  EXPECT_EQ(std::memcmp(written.data, read.data, bytes), 0);
  EXPECT_EQ(cached_pages(), 0);
  // That it can be seen.
  std::byte one{};
  ASSERT_EQ(pread(descriptor_in(folder_), &one, 1, bytes), 1);
  EXPECT_GT(cached_pages(), 0);
  munmap(map, 2 * bytes);
}

TEST_F(DiskFiles, RefuseFoldersInMemory) {
  const std::string text = message_of_io_error([] { DiskFile("/dev/shm", 4096); });
  expect_parts(text, {"/dev/shm", "in memory", "a folder on a disk"});
}

TEST_F(DiskFiles, RefuseWhatCannotBeMade) {
  expect_parts(message_of_io_error([&] { DiskFile(folder_ + "/nowhere", 4096); }),
               {folder_ + "/nowhere", "No such file"});
  const auto free = static_cast<std::int64_t>(fs::space(folder_).available);
  const std::int64_t too_much = free / 4096 * 4096 + (std::int64_t{1} << 30);
  expect_parts(message_of_io_error([&] { DiskFile(folder_, too_much); }),
               {folder_, std::to_string(too_much), "are needed", "are free"});
  EXPECT_TRUE(fs::is_empty(folder_));
  EXPECT_LT(descriptor_in(folder_), 0) << "what could not be made is closed";
  EXPECT_THROW(DiskFile(folder_, 0), InternalError);
}

TEST_F(DiskFiles, RefuseWhatIsNotInUnitsOrOutside) {
  const DiskFile file(folder_, 3 * 4096);
  const Span block = memory_.allocate(4 * 4096, "block");
  const auto part = [&](std::int64_t begin, std::int64_t bytes) {
    return Span{Tier::Host, block.data + begin, bytes};
  };
  EXPECT_THROW(file.write(0, part(64, 4096)), InternalError) << "address";
  EXPECT_THROW(file.write(64, part(0, 4096)), InternalError) << "offset";
  EXPECT_THROW(file.write(0, part(0, 4000)), InternalError) << "size";
  EXPECT_THROW(file.write(0, block), InternalError) << "larger than the file";
  EXPECT_THROW(file.read(2 * 4096, part(0, 2 * 4096)), InternalError) << "over its end";
  EXPECT_THROW(file.read(-4096, part(0, 4096)), InternalError);
  EXPECT_NO_THROW(file.write(2 * 4096, part(4096, 4096)));
  EXPECT_NO_THROW(file.read(3 * 4096, part(0, 0)));
}

// Calls that move what they like: nothing and an interrupt, some bytes, some units, all.
TEST(DiskTransfer, GoesOnUntilAllIsMoved) {
  constexpr std::int64_t unit = 512;
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<std::byte> memory(unit * (1 + random() % 5000));
    for (std::byte& byte : memory) byte = static_cast<std::byte>(random() & 0xFFU);
    const Span all{Tier::Host, memory.data(), static_cast<std::int64_t>(memory.size())};
    const std::int64_t begin = unit * static_cast<std::int64_t>(random() % 100);
    std::vector<std::byte> file(memory.size());
    bool last_was_less = false;
    transfer_all("/disk", "write", begin, all, unit,
                 [&](std::byte* data, std::size_t bytes, off_t offset) -> ssize_t {
                   EXPECT_EQ((data - memory.data()) % unit, 0);
                   EXPECT_EQ(offset - begin, data - memory.data());
                   EXPECT_EQ(bytes % unit, 0U);
                   const unsigned kind = random() % 4;
                   if (kind == 0) {
                     errno = EINTR;
                     return -1;
                   }
                   std::size_t moved = bytes;
                   if (kind == 1 && !last_was_less) moved = 1 + random() % bytes;
                   if (kind == 2) moved = unit * (1 + random() % (bytes / unit));
                   last_was_less = moved < unit;
                   std::copy_n(data, moved, file.begin() + (offset - begin));
                   return static_cast<ssize_t>(moved);
                 });
    ASSERT_EQ(file, memory) << seed;
  }
}

TEST(DiskTransfer, SaysWhatFailedAndWhere) {
  std::vector<std::byte> memory(4096);
  const Span all{Tier::Host, memory.data(), 4096};
  int calls = 0;
  const auto full = [&](std::byte*, std::size_t, off_t) -> ssize_t {
    if (++calls == 1) return 1500;  // the last that found room
    errno = ENOSPC;
    return -1;
  };
  expect_parts(message_of_io_error([&] { transfer_all("/disk", "write", 8192, all, 512, full); }),
               {"/disk", "a write of 3072 bytes at byte 9216", "No space left on device"});
  EXPECT_EQ(calls, 2);
  const auto ends = [](std::byte*, std::size_t, off_t) -> ssize_t { return 0; };
  expect_parts(message_of_io_error([&] { transfer_all("/disk", "read", 8192, all, 512, ends); }),
               {"/disk", "a read of 4096 bytes at byte 8192", "ends there"});
  const auto crumbs = [](std::byte*, std::size_t, off_t) -> ssize_t { return 100; };
  expect_parts(message_of_io_error([&] { transfer_all("/disk", "read", 0, all, 512, crumbs); }),
               {"/disk", "moved 100 bytes, again and again"});
}

}  // namespace
}  // namespace garonne::device
