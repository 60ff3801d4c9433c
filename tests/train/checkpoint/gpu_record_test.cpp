// The GPU of a run in its files.
#include "train/checkpoint/gpu_record.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/error.hpp"
#include "device/message_of.hpp"
#include "train/checkpoint/manifest.hpp"

namespace garonne::train {
namespace {

Manifest read(const nlohmann::json& json) {
  return manifest_from_json(json, "manifest.json");
}

TEST(GpuRecord, AManifestHasItWhereTheRunWasOnOne) {
  Manifest manifest;
  manifest.products = manifest.data = nlohmann::json::object();
  const auto without = nlohmann::json::parse(manifest_text(manifest));
  EXPECT_FALSE(without.contains("gpu"));
  EXPECT_EQ(read(without).gpu, std::nullopt);
  manifest.gpu = {"a GPU", 90, std::int64_t{80} << 30, "580.95.05", "13.2", "13.0"};
  const auto with = nlohmann::json::parse(manifest_text(manifest));
  EXPECT_EQ(read(with).gpu, manifest.gpu);
  nlohmann::json damaged = with;
  damaged["gpu"]["architecture"] = "Hopper";
  EXPECT_NE(device::message_of([&] { read(damaged); }).find("gpu.architecture"), std::string::npos);
  damaged["gpu"].erase("architecture");
  EXPECT_THROW(read(damaged), IoError);
}

}  // namespace
}  // namespace garonne::train
