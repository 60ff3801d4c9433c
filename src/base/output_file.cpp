#include "base/output_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/lower_case.hpp"

namespace garonne {
namespace {

struct Promise {
  std::string_view suffix;
  std::string_view format;
};
constexpr std::array promises = {
    Promise{".nc", "netCDF"},  Promise{".nc4", "netCDF"},     Promise{".cdf", "netCDF"},
    Promise{".h5", "HDF5"},    Promise{".hdf5", "HDF5"},      Promise{".hdf", "HDF5"},
    Promise{".he5", "HDF5"},   Promise{".zarr", "Zarr"},      Promise{".grib", "GRIB"},
    Promise{".grib2", "GRIB"}, Promise{".grb", "GRIB"},       Promise{".grb2", "GRIB"},
    Promise{".npy", "NumPy"},  Promise{".npz", "NumPy"},      Promise{".json", "JSON"},
    Promise{".jsonl", "JSON"}, Promise{".yaml", "YAML"},      Promise{".yml", "YAML"},
    Promise{".toml", "TOML"},  Promise{".csv", "CSV"},        Promise{".txt", "text"},
    Promise{".html", "HTML"},  Promise{".tif", "TIFF"},       Promise{".tiff", "TIFF"},
    Promise{".png", "PNG"},    Promise{".parquet", "Parquet"}};

// The first bytes of a file; empty where it cannot be read.
std::string beginning_of(const std::string& path) {
  constexpr std::int64_t most = 1024;
  try {
    const FileReader file(path);
    std::string text(static_cast<std::size_t>(std::min(file.size(), most)), '\0');
    file.read(0, text.data(), text.size());
    return text;
  } catch (const IoError&) {
    return {};
  }
}

// Files are written beside their place and renamed into it, so that the folder has to take them.
void expect_folder_for(const std::string& option, const std::string& path) {
  std::string folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty()) folder = ".";
  struct stat there {};
  if (::stat(folder.c_str(), &there) != 0) {
    throw ConfigError(
        option, path,
        errno == ENOENT
            ? fmt::format("is in {}, which does not exist; make it first, or give another name",
                          folder)
            : fmt::format("is in a folder that cannot be looked into ({}); give another name",
                          std::strerror(errno)));
  }
  if (!S_ISDIR(there.st_mode))
    throw ConfigError(option, path, fmt::format("is in {}, which is no folder", folder));
  if (::access(folder.c_str(), W_OK | X_OK) == 0) return;
  throw ConfigError(option, path,
                    fmt::format("cannot be written: its folder takes no files ({}); give another "
                                "name",
                                std::strerror(errno)));
}

}  // namespace

OutputKind text_output(std::string name, std::string mark) {
  return {std::move(name), [mark = std::move(mark)](const std::string& path) {
            return beginning_of(path).find(mark) != std::string::npos;
          }};
}

OutputKind json_output(std::string name, std::vector<std::string> formats) {
  return {std::move(name), [formats = std::move(formats)](const std::string& path) {
            std::string text = beginning_of(path);
            std::erase_if(text, [](unsigned char letter) { return std::isspace(letter) != 0; });
            return std::any_of(formats.begin(), formats.end(), [&](const std::string& format) {
              return text.starts_with(fmt::format("{{\"format\":\"{}\"", format));
            });
          }};
}

void expect_suffix(const std::string& option, const std::string& path, const std::string& written,
                   const std::vector<std::string>& formats) {
  const std::string suffix = lower_case(std::filesystem::path(path).extension().string());
  const auto* const promise =
      std::find_if(promises.begin(), promises.end(),
                   [&](const Promise& candidate) { return candidate.suffix == suffix; });
  if (promise == promises.end() ||
      std::find(formats.begin(), formats.end(), promise->format) != formats.end()) {
    return;
  }
  throw ConfigError(option, path,
                    fmt::format("ends as files of {} do, and what is written is {}; give another "
                                "name",
                                promise->format, written));
}

void expect_output(const std::string& option, const std::string& path, const OutputKind& kind,
                   const std::vector<std::string>& inputs) {
  if (!kind.formats.empty()) {
    expect_suffix(option, path, fmt::format("{} ({})", kind.name, fmt::join(kind.formats, " or ")),
                  kind.formats);
  }
  struct stat there {};
  if (::stat(path.c_str(), &there) != 0) return expect_folder_for(option, path);
  for (const std::string& input : inputs) {
    struct stat read {};
    if (::stat(input.c_str(), &read) != 0) continue;
    if (read.st_dev != there.st_dev || read.st_ino != there.st_ino) continue;
    throw ConfigError(option, path,
                      "is what this command reads, and would be lost; give another name");
  }
  if (!S_ISREG(there.st_mode)) {
    throw ConfigError(
        option, path,
        fmt::format("is {}; give the name of a file for {}",
                    S_ISDIR(there.st_mode) ? "a folder" : "no regular file", kind.name));
  }
  // An empty file has nothing to lose; scripts make such names.
  if (there.st_size == 0 || kind.is_one(path)) return expect_folder_for(option, path);
  throw ConfigError(option, path,
                    fmt::format("is there already and is not {}, which alone would be replaced; "
                                "give another name, or remove it",
                                kind.name));
}

}  // namespace garonne
