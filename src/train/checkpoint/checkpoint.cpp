#include "train/checkpoint/checkpoint.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/json_input.hpp"
#include "base/key_limits.hpp"
#include "base/printable.hpp"
#include "dist/session.hpp"
#include "exec/stored_part.hpp"
#include "nn/element_type.hpp"
#include "train/checkpoint/finite.hpp"
#include "train/checkpoint/safetensors.hpp"

namespace garonne::train {
namespace {

namespace fs = std::filesystem;

std::string type_name(at::ScalarType type) {
  return type == at::kDouble ? "F64" : type == at::kByte ? "U8" : "F32";
}

// Every stored tensor of a model, with what is here of its box: everything, or under ZeRO a flat
// range.
struct Stored {
  GlobalTensor global;
  nn::Box box;
  bool replicated = false;
  std::optional<exec::StoredPart> here;  // of a shard, which has none of some, maybe nothing
  std::int64_t first = 0;                // element of the box; what is beyond the box is padding
  std::int64_t elements = 0;
  bool in_shards = false;
};

// Of a state that is not elementwise: the numbers of its blocks, in a row. It is of whole
// parameters.
nn::Box box_of_blocks(const StateBlocks& blocks, const nn::Box& box) {
  expect(box.shape == box.global, "blocks of a state are of a parameter that is cut");
  return nn::whole_box({blocks.count(box.elements())});
}

std::vector<Stored> stored_tensors(const nn::Model& model, const std::vector<StateSpec>& states,
                                   const exec::ModelState& state) {
  const std::size_t kinds = 1 + states.size();
  const auto blocks_of = [&](std::size_t kind) {
    return kind == 0 ? StateBlocks() : states[kind - 1].blocks;
  };
  const auto type_of = [&](std::size_t kind) {
    return type_name(kind == 0 ? nn::state_scalar_type(state.precision)
                               : exec::scalar_type_of(states[kind - 1], state.precision));
  };
  std::vector<Stored> stored;
  for (std::size_t p = 0; p < model.graph.parameters.size(); ++p) {
    const plan::ParameterSpec& spec = model.graph.parameters[p];
    for (std::size_t k = 0; k < kinds; ++k) {
      const std::string name = k == 0 ? spec.name : spec.name + "." + states[k - 1].name;
      const nn::Box box =
          blocks_of(k).elementwise() ? model.boxes[p] : box_of_blocks(blocks_of(k), model.boxes[p]);
      Stored& entry = stored.emplace_back();
      entry.global = {name, type_of(k), box.global};
      entry.box = box;
      entry.replicated = spec.replicated;
      entry.in_shards = state.in_shards;
    }
  }
  for (const exec::TrainedPiece& piece : state.pieces) {
    const auto p = static_cast<std::size_t>(piece.index);
    for (std::size_t k = 0; k < kinds; ++k) {
      Stored& entry = stored[kinds * p + k];
      entry.here.emplace(state, k == 0 ? piece.trained() : piece.states[k - 1]);
      entry.first = blocks_of(k).count(piece.first);
      const std::int64_t in_box = std::max<std::int64_t>(0, entry.box.elements() - entry.first);
      entry.elements = std::min(entry.here->elements(), in_box);
    }
  }
  return stored;
}

// Elements [first, last) of its box that are here.
std::pair<std::int64_t, std::int64_t> range_of(const Stored& tensor) {
  if (!tensor.in_shards) return {0, tensor.box.elements()};
  return {tensor.first, tensor.first + tensor.elements};
}

// Of a tied parameter, which the stage that counts it writes.
bool is_copy(const nn::Model& model, const std::string& tensor,
             const std::vector<StateSpec>& states) {
  return std::any_of(model.graph.parameters.begin(), model.graph.parameters.end(),
                     [&](const plan::ParameterSpec& spec) {
                       if (spec.counted) return false;
                       if (tensor == spec.name) return true;
                       return std::any_of(states.begin(), states.end(),
                                          [&](const StateSpec& state) {
                                            return tensor == spec.name + "." + state.name;
                                          });
                     });
}

std::string rank_file(int rank) {
  return fmt::format("rank_{}.safetensors", rank);
}

std::pair<std::int64_t, std::int64_t> share_of(std::int64_t elements, int rank, int ranks) {
  return {elements * rank / ranks, elements * (rank + 1) / ranks};
}

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

nlohmann::ordered_json manifest_to_json(const Manifest& manifest) {
  nlohmann::ordered_json json = {{"format", "garonne.checkpoint"}, {"version", 1},
                                 {"step", manifest.step},          {"threads", manifest.threads},
                                 {"config", manifest.config},      {"products", manifest.products},
                                 {"data", manifest.data}};
  if (!manifest.sums.empty()) json["sums"] = manifest.sums;
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

}  // namespace

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
  return manifest_from_json(json, path);
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

namespace {

// Empty.
void make_folder(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  fs::create_directories(path, error);
  if (error) throw IoError(path, "cannot be made: " + error.message());
}

// Elements [begin, end) of the box of a tensor, which are here. The tensor outlives it.
TensorSource source_of(const Stored& tensor, std::int64_t begin, std::int64_t end) {
  const exec::StoredPart& here = tensor.here.value();
  const std::int64_t first = begin - tensor.first;
  TensorSource source{tensor.global.name, tensor.global.type, {end - begin}, {}};
  if (const std::byte* const data = here.data()) {
    source.bytes = {data + first * here.element_bytes(),
                    static_cast<std::size_t>((end - begin) * here.element_bytes())};
  } else {
    source.bring = [&here, first, elements = end - begin](const TensorSource::Show& show) {
      here.read(first, elements, show);
    };
  }
  return source;
}

// The file of a rank.
struct RankFile {
  nlohmann::ordered_json listing = {{"tensors", nlohmann::ordered_json::array()},
                                    {"shards", nlohmann::ordered_json::array()}};  // and "hash"
  std::string not_finite;  // the first tensor with such a value; empty where there is none
};

// Writes what of the state is this rank's to write into a file of the folder `partial`.
RankFile write_rank_file(const std::string& partial, const nn::Model& model,
                         const std::vector<StateSpec>& states, const exec::ModelState& state,
                         const Together& together) {
  const int replicas = together.replicas == 0 ? together.ranks : together.replicas;
  const int replica = together.replicas == 0 ? together.rank : together.replica;
  const std::string file = rank_file(together.rank);
  RankFile written;
  std::vector<TensorSource> sources;
  const std::vector<Stored> stored = stored_tensors(model, states, state);
  for (const Stored& tensor : stored) {
    if (tensor.replicated && !together.writes_replicated) continue;
    if (is_copy(model, tensor.global.name, states)) continue;
    const std::string& name = tensor.global.name;
    const auto [begin, end] =
        tensor.in_shards ? range_of(tensor) : share_of(tensor.box.elements(), replica, replicas);
    written.listing["tensors"].push_back(
        {{"name", name}, {"type", tensor.global.type}, {"shape", tensor.global.shape}});
    if (tensor.in_shards && begin == end) continue;
    sources.push_back(source_of(tensor, begin, end));
    written.listing["shards"].push_back(
        to_json(Shard{name, tensor.box.offset, tensor.box.shape, begin, end, file, name}));
  }
  written.listing["hash"] =
      write_safetensors(partial + "/" + file, sources, {{"format", "pt"}},
                        [&](const TensorSource& tensor, std::span<const std::byte> bytes) {
                          if (written.not_finite.empty() && !all_finite(tensor.type, bytes))
                            written.not_finite = tensor.name;
                        });
  return written;
}

// `tensor`: of the first rank that has such a value; empty where none has.
void refuse_not_finite(std::int64_t step, const std::string& tensor) {
  if (tensor.empty()) return;
  throw dist::AgreedError(
      ExitCode::Refused,
      fmt::format("step {}: {} holds values that are not finite, so no checkpoint is written; "
                  "older ones stay as they are. Train anew in another run.directory with a "
                  "lower optimizer.learning_rate, a longer optimizer.warmup_steps or with "
                  "optimizer.clip_norm",
                  step, tensor));
}

// Into the manifest, from the listings of all ranks. What several ranks hold boxes of is one
// tensor.
void add_rank_files(const std::string& partial, const std::vector<std::string>& listings,
                    Manifest& manifest) {
  std::map<std::string, std::size_t> named;
  for (std::size_t rank = 0; rank < listings.size(); ++rank) {
    const auto listing = nlohmann::json::parse(listings[rank]);
    const std::string file = rank_file(static_cast<int>(rank));
    manifest.files.emplace_back(file, listing.at("hash").get<std::string>());
    manifest.file_bytes.push_back(FileReader(partial + "/" + file).size());
    for (const auto& tensor : listing.at("tensors")) {
      const auto name = tensor.at("name").get<std::string>();
      if (!named.emplace(name, named.size()).second) continue;
      manifest.tensors.push_back({name, tensor.at("type").get<std::string>(),
                                  tensor.at("shape").get<std::vector<std::int64_t>>()});
    }
    for (const auto& shard : listing.at("shards"))
      manifest.shards.push_back(shard_from_json(shard));
  }
  std::stable_sort(
      manifest.shards.begin(), manifest.shards.end(),
      [&](const Shard& a, const Shard& b) { return named.at(a.tensor) < named.at(b.tensor); });
}

// With the hash by which it guards itself.
void write_manifest(const std::string& partial, const Manifest& manifest) {
  auto json = manifest_to_json(manifest);
  json["manifest_xxh3_128"] = hash_text(json.dump());
  write_file_durably(partial + "/manifest.json", json.dump());
  sync_directory(partial);
}

void put_in_place(const std::string& run_directory, std::int64_t step, const std::string& partial) {
  const std::string final_path = checkpoint_path(run_directory, step);
  std::error_code error;
  // A damaged checkpoint of this step may be in the way; it goes only when the new one is in
  // place.
  const std::string replaced = fmt::format("{}/checkpoints/.replaced-step-{}", run_directory, step);
  fs::remove_all(replaced, error);
  if (fs::exists(final_path, error)) fs::rename(final_path, replaced, error);
  fs::rename(partial, final_path, error);
  if (error) throw IoError(final_path, "cannot be renamed into place: " + error.message());
  fs::remove_all(replaced, error);
  sync_directory(run_directory + "/checkpoints");
}

}  // namespace

void save_checkpoint(const std::string& run_directory, const nn::Model& model,
                     const std::vector<StateSpec>& states, const exec::ModelState& state,
                     Manifest manifest, const Together& together) {
  const std::string partial = fmt::format("{}/checkpoints/.partial-step-{}{}", run_directory,
                                          manifest.step, together.suffix);
  try {
    together.phase([&] {
      if (together.rank == 0) make_folder(partial);
    });
    RankFile written;
    together.phase([&] { written = write_rank_file(partial, model, states, state, together); });
    refuse_not_finite(manifest.step, together.first_text(written.not_finite));
    const std::vector<std::string> listings = together.gather(written.listing.dump());
    together.phase([&] {
      if (together.rank != 0) return;
      add_rank_files(partial, listings, manifest);
      write_manifest(partial, manifest);
      together.commit([&] { put_in_place(run_directory, manifest.step, partial); });
    });
  } catch (const Error&) {
    if (together.rank == 0) {
      std::error_code error;
      fs::remove_all(partial, error);
    }
    throw;
  }
}

namespace {

void check_shard(const std::string& checkpoint, const Shard& shard,
                 const std::vector<std::int64_t>& global) {
  bool fits = shard.offset.size() == global.size() && shard.shape.size() == global.size();
  std::int64_t elements = 1;
  for (std::size_t axis = 0; fits && axis < global.size(); ++axis) {
    fits = shard.offset[axis] >= 0 && shard.shape[axis] >= 0 &&
           shard.shape[axis] <= global[axis] - shard.offset[axis];
    fits = fits && !__builtin_mul_overflow(elements, shard.shape[axis], &elements);
  }
  if (!fits || shard.begin < 0 || shard.end < shard.begin || shard.end > elements)
    throw IoError(checkpoint, shard.tensor + " has a shard that lies outside of it");
}

// Reads what the shards and the box here have in common; together they must cover it once.
void fill_box(const std::string& checkpoint, const Stored& tensor,
              const std::vector<const Shard*>& shards,
              const std::map<std::string, SafetensorsFile>& files) {
  const auto [low, high] = range_of(tensor);
  const std::vector<nn::Run> wanted = nn::runs_of(tensor.box, low, high);
  std::vector<std::pair<std::int64_t, std::int64_t>> filled;  // elements of the box here
  for (const Shard* shard : shards) {
    check_shard(checkpoint, *shard, tensor.global.shape);
    const auto found = files.find(shard->file);
    if (found == files.end())
      throw IoError(checkpoint, "has a shard in a file without a hash: " + shard->file);
    const SafetensorsFile& file = found->second;
    const TensorEntry& entry = file.find(shard->entry);
    const nn::Box box{tensor.global.shape, shard->offset, shard->shape};
    auto here = wanted.begin();
    for (const nn::Run& there : nn::runs_of(box, shard->begin, shard->end)) {
      while (here != wanted.end() && here->in_global + here->elements <= there.in_global) ++here;
      for (auto run = here;
           run != wanted.end() && run->in_global < there.in_global + there.elements; ++run) {
        const std::int64_t begin = std::max(run->in_global, there.in_global);
        const std::int64_t end =
            std::min(run->in_global + run->elements, there.in_global + there.elements);
        const std::int64_t to = run->in_box + begin - run->in_global;
        const std::int64_t from = there.in_box - shard->begin + begin - there.in_global;
        const std::int64_t element = tensor.here->element_bytes();
        tensor.here->fill(to - tensor.first, end - begin,
                          [&](std::int64_t at, std::span<std::byte> piece) {
                            file.read(entry, from * element + at, piece);
                          });
        filled.emplace_back(to, to + end - begin);
      }
    }
  }
  std::sort(filled.begin(), filled.end());
  std::int64_t next = low;
  for (const auto& [begin, end] : filled) {
    if (begin != next) {
      throw IoError(checkpoint, tensor.global.name + " has shards that overlap or leave a hole");
    }
    next = end;
  }
  if (next != high) throw IoError(checkpoint, tensor.global.name + " is not whole");
}

}  // namespace

void load_checkpoint(const std::string& checkpoint, const Manifest& manifest,
                     const nn::Model& model, const std::vector<StateSpec>& states,
                     exec::ModelState& state, std::size_t tensors_of_model) {
  std::map<std::string, const GlobalTensor*> globals;
  for (const auto& tensor : manifest.tensors) globals[tensor.name] = &tensor;
  std::map<std::string, std::vector<const Shard*>> shards;
  for (const auto& shard : manifest.shards) shards[shard.tensor].push_back(&shard);
  std::map<std::string, SafetensorsFile> files;
  for (const auto& [name, hash] : manifest.files)
    files.emplace(name, SafetensorsFile(checkpoint + "/" + name));

  const auto stored = stored_tensors(model, states, state);
  const std::size_t wanted = tensors_of_model > 0 ? tensors_of_model : stored.size();
  if (wanted != manifest.tensors.size()) {
    throw IoError(checkpoint,
                  fmt::format("is of another model: it holds {} tensors where this one has {}",
                              manifest.tensors.size(), wanted));
  }
  for (const auto& tensor : stored) {
    const auto found = globals.find(tensor.global.name);
    if (found == globals.end())
      throw IoError(checkpoint, "is of another model: it lacks " + tensor.global.name);
    const GlobalTensor& saved = *found->second;
    if (saved.shape != tensor.global.shape || saved.type != tensor.global.type) {
      throw IoError(checkpoint,
                    fmt::format("is of another model: {} is {} [{}] there and {} [{}] here",
                                tensor.global.name, saved.type, fmt::join(saved.shape, ", "),
                                tensor.global.type, fmt::join(tensor.global.shape, ", ")));
    }
    fill_box(checkpoint, tensor, shards[tensor.global.name], files);
  }
  exec::refresh_compute_copies(state);
}

}  // namespace garonne::train
