#include "train/checkpoint/beginning.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/file.hpp"

namespace garonne::train {
namespace {

namespace fs = std::filesystem;

std::string file_of(const std::string& run_directory) {
  return run_directory + "/beginning.json";
}

}  // namespace

nlohmann::ordered_json to_json(const Beginning& beginning) {
  nlohmann::ordered_json json = {{"given", beginning.given},
                                 {"checkpoint", beginning.checkpoint},
                                 {"step", beginning.step},
                                 {"manifest_xxh3_128", beginning.manifest}};
  if (!beginning.missing.empty()) json["allow_missing"] = beginning.missing;
  if (!beginning.unused.empty()) json["allow_unused"] = beginning.unused;
  if (!beginning.changes.empty()) json["changes"] = beginning.changes;
  return json;
}

Beginning beginning_from_json(const JsonPlace& place) {
  place.expect_object();
  const auto list = [&](const char* key) {
    return place.has(key) ? place.key(key).texts() : std::vector<std::string>();
  };
  return {.given = place.key("given").text(),
          .checkpoint = place.key("checkpoint").text(),
          .step = place.key("step").integer(0),
          .manifest = place.key("manifest_xxh3_128").text(),
          .missing = list("allow_missing"),
          .unused = list("allow_unused"),
          .changes = list("changes")};
}

std::string to_text(const Beginning& beginning) {
  return fmt::format("the parameters of {} (step {}, manifest {})", beginning.checkpoint,
                     beginning.step, beginning.manifest.substr(0, 16));
}

void save_beginning(const std::string& run_directory, const Beginning& beginning) {
  std::error_code error;
  fs::create_directories(run_directory, error);
  if (error) throw IoError(run_directory, "cannot be made: " + error.message());
  nlohmann::ordered_json json = {{"format", "garonne.beginning"}, {"version", 1}};
  json.update(to_json(beginning));
  write_file_durably(file_of(run_directory), json.dump(1) + "\n");
}

std::optional<Beginning> read_beginning(const std::string& run_directory) {
  const std::string path = file_of(run_directory);
  std::error_code error;
  if (!fs::exists(path, error)) return std::nullopt;
  const nlohmann::json json =
      parse_json(read_text_file(path, most_run_json_bytes), path, FileOwner::Run);
  const JsonFile file(json, path, FileOwner::Run);
  file.root().expect_format("garonne.beginning", 1);
  return beginning_from_json(file.root());
}

}  // namespace garonne::train
