#include "train/checkpoint/manifest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/json_input.hpp"
#include "base/key_limits.hpp"
#include "base/printable.hpp"
#include "train/checkpoint/gpu_record.hpp"

namespace garonne::train {

namespace fs = std::filesystem;

nlohmann::ordered_json to_json(const Shard& shard) {
  return {{"tensor", shard.tensor}, {"box_offset", shard.offset}, {"box_shape", shard.shape},
          {"begin", shard.begin},   {"end", shard.end},           {"file", shard.file},
          {"entry", shard.entry}};
}

Shard shard_from_json(const nlohmann::json& item) {
  Shard shard;
  shard.tensor = item.at("tensor").get<std::string>();
  shard.offset = item.at("box_offset").get<std::vector<std::int64_t>>();
  shard.shape = item.at("box_shape").get<std::vector<std::int64_t>>();
  shard.begin = item.at("begin").get<std::int64_t>();
  shard.end = item.at("end").get<std::int64_t>();
  shard.file = item.at("file").get<std::string>();
  shard.entry = item.at("entry").get<std::string>();
  return shard;
}

namespace {

nlohmann::ordered_json manifest_to_json(const Manifest& manifest) {
  nlohmann::ordered_json json = {{"format", "garonne.checkpoint"}, {"version", 1},
                                 {"step", manifest.step},          {"threads", manifest.threads},
                                 {"config", manifest.config},      {"products", manifest.products},
                                 {"data", manifest.data}};
  if (!manifest.sums.empty()) json["sums"] = manifest.sums;
  if (manifest.gpu) json["gpu"] = to_json(*manifest.gpu);
  if (manifest.saved_at > 0) json["saved_at"] = manifest.saved_at;
  for (const KeyChange& change : manifest.changes) json["changes"].push_back(to_json(change));
  if (manifest.beginning) json["beginning"] = to_json(*manifest.beginning);
  json["files"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < manifest.files.size(); ++i) {
    json["files"].push_back({{"name", manifest.files[i].first},
                             {"bytes", manifest.file_bytes[i]},
                             {"xxh3_128", manifest.files[i].second}});
  }
  json["tensors"] = nlohmann::ordered_json::array();
  for (const auto& tensor : manifest.tensors) {
    json["tensors"].push_back(
        {{"name", tensor.name}, {"type", tensor.type}, {"shape", tensor.shape}});
  }
  json["shards"] = nlohmann::ordered_json::array();
  for (const auto& shard : manifest.shards) json["shards"].push_back(to_json(shard));
  return json;
}

// Sums over a manifest have to be numbers too.
constexpr std::int64_t most_file_bytes = std::int64_t{1} << 48;

// Times are subtracted.
constexpr std::int64_t most_seconds = std::int64_t{1} << 48;

// A manifest comes from outside: a file name in it must be a plain name in the checkpoint's own
// folder.
void check_file_name(const std::string& path, const std::string& name) {
  const bool plain = !name.empty() && name.find('/') == std::string::npos && name[0] != '.';
  if (!plain) throw IoError(path, "names a file outside the checkpoint: " + printable(name));
}

// What nobody said is an object without keys.
nlohmann::json object_or_none(const JsonPlace& place) {
  if (place.json().is_null()) return nlohmann::json::object();
  place.expect_object();
  return place.json();
}

}  // namespace

Manifest manifest_from_json(const nlohmann::json& json, const std::string& path) {
  const JsonFile of_run(json, path, FileOwner::Run);
  const JsonPlace root = of_run.root();
  root.expect_format("garonne.checkpoint", 1);
  Manifest manifest;
  manifest.step = root.key("step").integer(0);
  manifest.threads = static_cast<int>(root.key("threads").integer(0, INT32_MAX));
  manifest.config = root.key("config").text();
  manifest.products = object_or_none(root.key("products"));
  for (const auto& [shape, library] : manifest.products.items()) {
    if (!library.is_string()) of_run.refuse("products", shape, "is no name of a library");
  }
  manifest.data = object_or_none(root.key("data"));
  if (root.has("sums")) manifest.sums = root.key("sums").text();
  if (root.has("gpu")) manifest.gpu = gpu_from_json(root.key("gpu"));
  if (root.has("saved_at")) manifest.saved_at = root.key("saved_at").integer(0, most_seconds);
  if (root.has("changes")) {
    for (const JsonPlace& change : root.key("changes").elements())
      manifest.changes.push_back(change_from_json(change));
  }
  if (root.has("beginning")) manifest.beginning = beginning_from_json(root.key("beginning"));
  for (const JsonPlace& file : root.key("files").elements()) {
    manifest.files.emplace_back(file.key("name").text(), file.key("xxh3_128").text());
    manifest.file_bytes.push_back(file.key("bytes").integer(0, most_file_bytes));
    check_file_name(path, manifest.files.back().first);
  }
  for (const JsonPlace& tensor : root.key("tensors").elements()) {
    manifest.tensors.push_back({tensor.key("name").text(), tensor.key("type").text(),
                                tensor.key("shape").integers(0, INT64_MAX)});
  }
  for (const JsonPlace& shard : root.key("shards").elements()) {
    manifest.shards.push_back(
        {shard.key("tensor").text(), shard.key("box_offset").integers(0, INT64_MAX),
         shard.key("box_shape").integers(0, INT64_MAX), shard.key("begin").integer(0),
         shard.key("end").integer(0), shard.key("file").text(), shard.key("entry").text()});
    check_file_name(path, manifest.shards.back().file);
  }
  return manifest;
}

std::string checkpoint_path(const std::string& run_directory, std::int64_t step) {
  return fmt::format("{}/checkpoints/step-{}", run_directory, step);
}

std::optional<std::int64_t> checkpoint_step(const std::string& name) {
  if (name.rfind("step-", 0) != 0) return std::nullopt;
  std::int64_t step = 0;
  const auto [end, failure] = std::from_chars(name.data() + 5, name.data() + name.size(), step);
  if (failure != std::errc() || step < 0 || name != fmt::format("step-{}", step))
    return std::nullopt;
  return step;
}

std::vector<std::int64_t> list_checkpoints(const std::string& run_directory) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run_directory + "/checkpoints", error)) {
    if (const auto step = checkpoint_step(entry.path().filename().string())) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

Manifest read_manifest(const std::string& checkpoint) {
  const std::string path = checkpoint + "/manifest.json";
  const std::string text = read_text_file(path, most_run_json_bytes);
  // The manifest guards itself: its last key is the hash of everything before it.
  nlohmann::ordered_json body = parse_ordered_json(text, path, FileOwner::Run);
  const auto hash = body.find("manifest_xxh3_128");
  if (!body.is_object() || hash == body.end() || !hash->is_string())
    throw IoError(path, "is damaged: it has no hash");
  const auto expected = hash->get<std::string>();
  body.erase(hash);
  if (hash_text(body.dump()) != expected) throw IoError(path, "is damaged: its hash does not fit");
  const nlohmann::json json = std::move(body);
  Manifest manifest = manifest_from_json(json, path);
  manifest.hash = expected;
  return manifest;
}

std::int64_t vocabulary_of(const Manifest& manifest, const std::string& checkpoint) {
  const std::string path = checkpoint + "/manifest.json: data";
  const JsonFile data(manifest.data, path, FileOwner::Run);
  return data.root().has("vocabulary") ? data.root().key("vocabulary").integer(0, most_vocabulary)
                                       : 0;
}

Manifest verify_checkpoint(const std::string& checkpoint) {
  Manifest manifest = read_manifest(checkpoint);
  for (const auto& [name, hash] : manifest.files) {
    const std::string path = checkpoint + "/" + name;
    if (hash_file(path) != hash)
      throw IoError(path, "is damaged: its hash is not the one in the manifest");
  }
  return manifest;
}

Manifest verify_checkpoint_of_step(const std::string& run_directory, std::int64_t step) {
  const std::string checkpoint = checkpoint_path(run_directory, step);
  Manifest manifest = verify_checkpoint(checkpoint);
  if (manifest.step != step)
    throw IoError(checkpoint, fmt::format("is a copy of the checkpoint of step {}", manifest.step));
  return manifest;
}

std::string manifest_text(const Manifest& manifest) {
  auto json = manifest_to_json(manifest);
  json["manifest_xxh3_128"] = hash_text(json.dump());
  return json.dump();
}

}  // namespace garonne::train
