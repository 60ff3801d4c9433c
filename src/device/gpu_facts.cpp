#include "device/gpu_facts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <sstream>

#include "base/bytes.hpp"
#include "base/error.hpp"

namespace garonne::device {
namespace {

void check(CudaRuntime& runtime, CudaStatus status, const char* call) {
  if (status == CudaStatus::Success) return;
  throw ConfigError("run.device", "cuda",
                    fmt::format("{}: {}. Set run.device to \"cpu\" to do without", call,
                                runtime.error_text(status)));
}

// 13020 is 13.2.
std::string version_text(int number) {
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

// The first word of the file that is numbers with points.
std::string version_in(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    const bool numbers = std::ranges::all_of(word, [](char letter) {
      return letter == '.' || std::isdigit(static_cast<unsigned char>(letter)) != 0;
    });
    if (numbers && word.find('.') != std::string::npos) return word;
  }
  return "";
}

}  // namespace

GpuFacts gpu_facts(CudaRuntime& runtime, int ordinal, const std::string& driver_file) {
  CudaProperties properties;
  check(runtime, runtime.properties(ordinal, properties), "cudaGetDeviceProperties");
  int driver = 0;
  check(runtime, runtime.driver_version(driver), "cudaDriverGetVersion");
  int library = 0;
  check(runtime, runtime.runtime_version(library), "cudaRuntimeGetVersion");
  return {.name = properties.name,
          .architecture = 10 * properties.major + properties.minor,
          .memory_bytes = properties.total_bytes,
          .driver = version_in(driver_file),
          .driver_cuda = version_text(driver),
          .runtime_cuda = version_text(library)};
}

std::string to_text(const GpuFacts& facts) {
  return fmt::format("{}, architecture {}, {}, driver {}(CUDA {}), run time {}", facts.name,
                     facts.architecture, format_bytes(facts.memory_bytes),
                     facts.driver.empty() ? "" : facts.driver + " ", facts.driver_cuda,
                     facts.runtime_cuda);
}

}  // namespace garonne::device
