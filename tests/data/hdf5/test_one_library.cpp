// A second HDF5 in the process is noticed, whatever its name.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <hdf5.h>

#include <filesystem>

#include "data/fields/apart.hpp"
#include "data/hdf5/hdf5_internal.hpp"
#include "data/scratch.hpp"

namespace garonne::data {
namespace {

std::string library_of_this_process() {
  Dl_info info = {};
  EXPECT_NE(dladdr(reinterpret_cast<const void*>(&H5open), &info), 0);
  return std::filesystem::canonical(info.dli_fname).string();
}

TEST(OneLibrary, ASecondOneIsRefused) {
  const testing::Scratch scratch;
  EXPECT_NO_THROW(check_one_library());
  const std::string copy = scratch.path("libhdf5_serial.so.103");
  std::filesystem::copy_file(library_of_this_process(), copy);
  const testing::Outcome outcome = testing::run_apart([&] {
    if (dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) throw InternalError(dlerror());
    check_one_library();
  });
  EXPECT_EQ(outcome.code, 1) << outcome.message;
  EXPECT_NE(outcome.message.find("two HDF5 libraries"), std::string::npos) << outcome.message;
  EXPECT_NE(outcome.message.find(copy), std::string::npos) << outcome.message;
}

}  // namespace
}  // namespace garonne::data
