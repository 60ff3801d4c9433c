#include "train/checkpoint/export_folder.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "base/error.hpp"
#include "base/output_file.hpp"
#include "base/partial_file.hpp"

namespace garonne::train {

namespace fs = std::filesystem;

std::string exported_weights_path(const std::string& directory) {
  return (fs::path(directory) / "model.safetensors").string();
}

bool expect_export_folder(const std::string& directory, const std::vector<std::string>& files) {
  std::error_code error;
  if (!fs::exists(directory, error)) return false;
  if (!fs::is_directory(directory, error))
    throw ConfigError("--to", directory, "is a file; give a folder");
  const std::string weights = exported_weights_path(directory);
  if (fs::exists(weights, error)) {
    expect_output("--to", weights,
                  text_output("an export of Garonne", "\"written_by\":\"garonne\""));
    return true;
  }
  for (const std::string& file : files) {
    const fs::path there = fs::path(directory) / file;
    if (!fs::exists(there, error)) continue;
    throw ConfigError("--to", directory,
                      fmt::format("holds a {} that no export of Garonne wrote and that would be "
                                  "replaced; give another folder, or remove it",
                                  file));
  }
  return false;
}

void write_exported(const std::string& directory, const std::vector<TensorSource>& tensors) {
  PartialFile partial(exported_weights_path(directory));
  write_safetensors(partial.path(), tensors, {{"format", "pt"}, {"written_by", "garonne"}});
  partial.publish();
}

}  // namespace garonne::train
