// Checkpoints: whole or absent, bit for bit, and damage is found wherever it is.
#include "train/checkpoint/checkpoint.hpp"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstring>
#include <exception>
#include <functional>
#include <limits>
#include <random>
#include <span>
#include <thread>

#include "base/file.hpp"
#include "base/hash.hpp"
#include "nn/compute_session.hpp"
#include "train/checkpoint/background_writer.hpp"
#include "train/checkpoint/checkpoint_files.hpp"
#include "train/checkpoint/finite.hpp"
#include "train/models.hpp"
#include "train/scratch.hpp"

namespace garonne::train::test {
namespace {

namespace fs = std::filesystem;

constexpr Precision precisions[] = {Precision::Float32, Precision::Float64, Precision::BFloat16};

std::vector<std::string> files_of(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& item : fs::directory_iterator(folder))
    names.push_back(item.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// Saves as `ranks` ranks would, each a thread. Every rank must throw when one does.
void save_as_ranks(const std::string& run_directory, const SmallModel& small, std::int64_t step,
                   int ranks, int failing_rank = -1) {
  std::barrier<> meeting(ranks);
  std::atomic<int> failures = 0;
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  std::atomic<int> thrown = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      CollectivePhases together;
      together.rank = rank;
      together.ranks = ranks;
      int phase = 0;
      together.phase = [&, rank](const std::function<void()>& work) {
        try {
          if (++phase == 2 && rank == failing_rank) throw IoError("rank_file", "disk full");
          work();
        } catch (const Error&) {
          ++failures;
        }
        meeting.arrive_and_wait();
        const bool failed = failures > 0;
        meeting.arrive_and_wait();
        if (failed) throw IoError("somewhere", "a rank failed");
      };
      together.gather = [&, rank](const std::string& text) {
        texts[static_cast<std::size_t>(rank)] = text;
        meeting.arrive_and_wait();
        return rank == 0 ? texts : std::vector<std::string>();
      };
      try {
        save_checkpoint(run_directory, small.model, moments, small.state, small.manifest(step),
                        together);
      } catch (const IoError&) {
        ++thrown;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(thrown, failing_rank < 0 ? 0 : ranks);
}

TEST(Checkpoint, ComesBackBitForBit) {
  for (const Precision precision : precisions) {
    const Scratch scratch;
    SmallModel saved(precision);
    saved.fill(1);
    saved.save(scratch.path(), 7, "[model]\nlayers = 2\n");
    EXPECT_EQ(list_checkpoints(scratch.path()), std::vector<std::int64_t>{7});
    const std::string checkpoint = checkpoint_path(scratch.path(), 7);
    EXPECT_EQ(files_of(checkpoint),
              (std::vector<std::string>{"manifest.json", "rank_0.safetensors"}));
    EXPECT_EQ(files_of(scratch.path("checkpoints")), std::vector<std::string>{"step-7"})
        << "nothing half-written";
    const Manifest manifest = verify_checkpoint(checkpoint);
    EXPECT_EQ(manifest.step, 7);
    EXPECT_EQ(manifest.config, "[model]\nlayers = 2\n");
    EXPECT_EQ(manifest.threads, 2);
    EXPECT_EQ(manifest.data["vocabulary"], 17);
    EXPECT_EQ(manifest.products["forward float32 12x12x12"], "MKL");
    SmallModel loaded(precision);
    ASSERT_FALSE(same_state(saved.state, loaded.state));
    load_checkpoint(checkpoint, manifest, loaded.model, moments, loaded.state);
    EXPECT_TRUE(same_state(saved.state, loaded.state));
  }
}

TEST(Checkpoint, SaysHowWasSummedWhereNotInRankOrder) {
  const Scratch scratch;
  SmallModel small;
  for (const std::string sums : {"", "within each of 2 nodes, then over the nodes"}) {
    Manifest manifest = small.manifest(7);
    manifest.sums = sums;
    save_checkpoint(scratch.path(), small.model, moments, small.state, manifest,
                    CollectivePhases());
    const std::string checkpoint = checkpoint_path(scratch.path(), 7);
    EXPECT_EQ(verify_checkpoint(checkpoint).sums, sums);
    std::filesystem::remove_all(checkpoint);
  }
}

TEST(Checkpoint, OneRankReadsWhatAnyNumberWrote) {
  SmallModel saved;
  saved.fill(2);
  // Seventeen is more than some tensors have elements.
  for (const int ranks : {1, 2, 3, 17}) {
    SCOPED_TRACE(ranks);
    const Scratch scratch;
    save_as_ranks(scratch.path(), saved, 3, ranks);
    const std::string checkpoint = checkpoint_path(scratch.path(), 3);
    EXPECT_EQ(files_of(checkpoint).size(), static_cast<std::size_t>(ranks) + 1);
    SmallModel loaded;
    try {
      load_checkpoint(checkpoint, verify_checkpoint(checkpoint), loaded.model, moments,
                      loaded.state);
    } catch (const IoError& error) {
      ADD_FAILURE() << error.what();
      continue;
    }
    EXPECT_TRUE(same_state(saved.state, loaded.state));
  }
}

TEST(Checkpoint, ARankThatFailsLeavesTheOldOnesAndNothingElse) {
  const Scratch scratch;
  SmallModel saved;
  saved.fill(3);
  save_as_ranks(scratch.path(), saved, 5, 2);
  for (const int failing : {0, 1}) {
    save_as_ranks(scratch.path(), saved, 6, 2, failing);
    EXPECT_EQ(files_of(scratch.path("checkpoints")), std::vector<std::string>{"step-5"});
    EXPECT_NO_THROW(verify_checkpoint(checkpoint_path(scratch.path(), 5)));
  }
}

TEST(Checkpoint, ReplacesOneOfTheSameStep) {
  const Scratch scratch;
  SmallModel saved;
  saved.fill(3);
  saved.save(scratch.path(), 5);
  saved.fill(4);
  saved.save(scratch.path(), 5);
  SmallModel loaded;
  const std::string checkpoint = checkpoint_path(scratch.path(), 5);
  load_checkpoint(checkpoint, verify_checkpoint(checkpoint), loaded.model, moments, loaded.state);
  EXPECT_TRUE(same_state(saved.state, loaded.state));
}

TEST(Checkpoint, AFlippedBitAnywhereIsFound) {
  const Scratch scratch;
  SmallModel saved(Precision::Float32, 1);
  saved.fill(4);
  save_as_ranks(scratch.path(), saved, 9, 2);
  const std::string checkpoint = checkpoint_path(scratch.path(), 9);
  for (const auto& name : files_of(checkpoint)) {
    const std::string path = checkpoint + "/" + name;
    const std::string whole = read_bytes(path);
    // Both ends, and fifty places between.
    for (std::size_t k = 0; k <= 51; ++k) {
      const std::size_t at = k * (whole.size() - 1) / 51;
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << (k % 8)));
      write_bytes(path, damaged);
      SCOPED_TRACE(name + " byte " + std::to_string(at) + " of " + std::to_string(whole.size()));
      expect_io_error(path, name, [&] { verify_checkpoint(checkpoint); });
    }
    write_bytes(path, whole);
    EXPECT_NO_THROW(verify_checkpoint(checkpoint));
  }
}

TEST(Checkpoint, FilesCutShortLengthenedOrMissing) {
  const Scratch scratch;
  SmallModel saved(Precision::Float32, 1);
  saved.save(scratch.path(), 9);
  const std::string checkpoint = checkpoint_path(scratch.path(), 9);
  for (const auto& name : files_of(checkpoint)) {
    const std::string path = checkpoint + "/" + name;
    const std::string whole = read_bytes(path);
    for (const std::string& damaged :
         {std::string(), whole.substr(0, whole.size() / 2), whole.substr(0, whole.size() - 1),
          whole + "x", std::string(whole.size(), '\0')}) {
      write_bytes(path, damaged);
      expect_io_error(path, name, [&] { verify_checkpoint(checkpoint); });
    }
    fs::remove(path);
    expect_io_error(path, name, [&] { verify_checkpoint(checkpoint); });
    write_bytes(path, whole);
  }
  EXPECT_NO_THROW(verify_checkpoint(checkpoint));
}

TEST(Checkpoint, AnotherModelIsRefused) {
  const Scratch scratch;
  SmallModel saved;
  saved.save(scratch.path(), 1);
  const std::string checkpoint = checkpoint_path(scratch.path(), 1);
  const Manifest manifest = verify_checkpoint(checkpoint);
  const auto refused = [&](SmallModel other, const std::vector<StateSpec>& states) {
    expect_io_error(checkpoint, "another model", [&] {
      load_checkpoint(checkpoint, manifest, other.model, states, other.state);
    });
  };
  refused(SmallModel(Precision::Float32, 3), moments);
  refused(SmallModel(Precision::Float32, 1), moments);
  refused(SmallModel(Precision::Float32, 2, 15), moments);
  refused(SmallModel(Precision::Float64), moments);
  refused(SmallModel(), {{.name = "first_moment"}, {.name = "third_moment"}});
  refused(SmallModel(), {{.name = "first_moment"}});
}

// bfloat16 trains float32 masters, so it goes on from float32's checkpoint and back.
TEST(Checkpoint, MastersAreWhatIsStored) {
  const Scratch scratch;
  SmallModel saved(Precision::Float32);
  saved.fill(6);
  saved.save(scratch.path(), 1);
  const std::string checkpoint = checkpoint_path(scratch.path(), 1);
  SmallModel low(Precision::BFloat16);
  load_checkpoint(checkpoint, verify_checkpoint(checkpoint), low.model, moments, low.state);
  for (std::size_t p = 0; p < low.state.pieces.size(); ++p) {
    const exec::ParameterState parameter = low.state.parameter(p);
    EXPECT_TRUE(at::equal(parameter.master, saved.state.parameter(p).parameter));
    EXPECT_TRUE(at::equal(parameter.parameter, parameter.master.to(at::kBFloat16)));
  }
}

// Shards that overlap and leave a hole have the right number of elements all the same.
TEST(Checkpoint, ShardsMustCoverTheirTensor) {
  const Scratch scratch;
  SmallModel saved;
  save_as_ranks(scratch.path(), saved, 1, 2);
  const std::string checkpoint = checkpoint_path(scratch.path(), 1);
  const Manifest manifest = verify_checkpoint(checkpoint);
  const auto refused = [&](Manifest broken) {
    SmallModel other;
    expect_io_error(checkpoint, "", [&] {
      load_checkpoint(checkpoint, broken, other.model, moments, other.state);
    });
  };
  const std::int64_t half = manifest.shards[1].begin;
  ASSERT_EQ(manifest.shards[0].end, half);
  ASSERT_EQ(manifest.shards[1].end, 2 * half) << "the first tensor has an even number of elements";
  Manifest overlapping = manifest;
  overlapping.shards[1].begin = 0;
  overlapping.shards[1].end = half;
  refused(overlapping);
  Manifest outside = manifest;
  outside.shards[1].begin += 1;
  outside.shards[1].end += 1;
  refused(outside);
  Manifest lost = manifest;
  lost.shards.erase(lost.shards.begin());
  refused(lost);
  Manifest foreign = manifest;
  foreign.shards[0].file = "rank_7.safetensors";
  refused(foreign);
}

// The hash of a manifest finds damage, not malice: what fits it is still read key by key.
TEST(Checkpoint, ManifestsThatFitTheirHashAreReadByKey) {
  const Scratch scratch;
  SmallModel saved;
  saved.save(scratch.path(), 4);
  const std::string checkpoint = checkpoint_path(scratch.path(), 4);
  const std::string path = checkpoint + "/manifest.json";
  const auto good = nlohmann::ordered_json::parse(read_text_file(path));
  const auto refused = [&](const std::string& part,
                           const std::function<void(nlohmann::ordered_json&)>& change) {
    nlohmann::ordered_json json = good;
    json.erase("manifest_xxh3_128");
    change(json);
    json["manifest_xxh3_128"] = hash_text(json.dump());
    write_bytes(path, json.dump());
    expect_io_error(path, part, [&] { read_manifest(checkpoint); });
  };
  refused("step = -5: is negative", [](auto& json) { json["step"] = -5; });
  refused("step = 1.5: is no integer", [](auto& json) { json["step"] = 1.5; });
  refused("threads = many", [](auto& json) { json["threads"] = "many"; });
  refused("config", [](auto& json) { json["config"] = nullptr; });
  refused("data = 5: is no object", [](auto& json) { json["data"] = 5; });
  refused("products", [](auto& json) { json["products"] = {{"forward", 1}}; });
  refused("shards[0].begin", [](auto& json) { json["shards"][0]["begin"] = -1; });
  refused("tensors[0].shape[0]", [](auto& json) { json["tensors"][0]["shape"][0] = -1; });
  refused("tensors[0].name: is missing", [](auto& json) { json["tensors"][0].erase("name"); });
  refused("files[0].bytes", [](auto& json) { json["files"][0]["bytes"] = nullptr; });
  refused("outside", [](auto& json) { json["files"][0]["name"] = "../rank_0.safetensors"; });
  refused("outside", [](auto& json) { json["shards"][0]["file"] = "/etc/passwd"; });
  refused("version", [](auto& json) { json["version"] = 2; });
  refused("format", [](auto& json) { json["format"] = nullptr; });
  nlohmann::ordered_json json = good;
  json.erase("manifest_xxh3_128");
  json["data"] = nullptr;
  json["manifest_xxh3_128"] = hash_text(json.dump());
  write_bytes(path, json.dump());
  EXPECT_EQ(vocabulary_of(read_manifest(checkpoint), checkpoint), 0);
}

TEST(Checkpoint, OnlyWholeOnesAreListed) {
  const Scratch scratch;
  EXPECT_TRUE(list_checkpoints(scratch.path()).empty());
  SmallModel saved;
  for (const std::int64_t step : {100, 20, 3}) saved.save(scratch.path(), step);
  for (const char* name : {".partial-step-200", "step-", "step-4x", "step", "other",
                           "step-5.partial", "step--5", "step-007", "step-+8"}) {
    fs::create_directories(scratch.path("checkpoints/" + std::string(name)));
  }
  EXPECT_EQ(list_checkpoints(scratch.path()), (std::vector<std::int64_t>{3, 20, 100}));
  // A new attempt at the same step clears what the broken one left.
  write_bytes(scratch.path("checkpoints/.partial-step-200/rank_9.safetensors"), "left");
  saved.save(scratch.path(), 200);
  EXPECT_EQ(files_of(checkpoint_path(scratch.path(), 200)),
            (std::vector<std::string>{"manifest.json", "rank_0.safetensors"}));
}

// Room for the copy of a small model.
std::vector<std::byte> room_for_copy() {
  return std::vector<std::byte>(std::size_t{1} << 20);
}

// A checkpoint that is written from a copy while the state changes.
TEST(Checkpoint, IsThatOfTheCopyWhateverBecomesOfTheState) {
  for (const Precision precision : precisions) {
    const Scratch scratch;
    SmallModel saved(precision);
    saved.fill(11);
    saved.save(scratch.path("waited"), 7);
    std::vector<std::byte> room = room_for_copy();
    PartialCheckpoint partial(scratch.path("beside"), saved.manifest(7), CollectivePhases());
    BackgroundWriter writer;
    EXPECT_EQ(writer.state(), BackgroundWriter::State::Idle);
    writer.begin(partial.folder(), 0,
                 copy_of_state(saved.model, moments, saved.state, CollectivePhases(), room));
    saved.fill(12);
    writer.wait();
    EXPECT_EQ(writer.state(), BackgroundWriter::State::Written);
    EXPECT_TRUE(list_checkpoints(scratch.path("beside")).empty()) << "it is not yet published";
    partial.publish([&] { return writer.take(); });
    EXPECT_EQ(writer.state(), BackgroundWriter::State::Idle);
    EXPECT_EQ(files_of(scratch.path("beside/checkpoints")), std::vector<std::string>{"step-7"});
    for (const char* file : {"rank_0.safetensors", "manifest.json"}) {
      EXPECT_EQ(read_bytes(scratch.path("beside/checkpoints/step-7/" + std::string(file))),
                read_bytes(scratch.path("waited/checkpoints/step-7/" + std::string(file))));
    }
  }
}

TEST(Checkpoint, ACopyThatDoesNotFitIsRefused) {
  SmallModel small;
  std::vector<std::byte> room = room_for_copy();
  std::int64_t bytes = 0;
  for (const RankTensor& tensor :
       copy_of_state(small.model, moments, small.state, CollectivePhases(), room))
    bytes += bytes_in_copy(static_cast<std::int64_t>(tensor.source.value().bytes.size()));
  const auto exact = std::span(room).first(static_cast<std::size_t>(bytes));
  EXPECT_NO_THROW(copy_of_state(small.model, moments, small.state, CollectivePhases(), exact));
  EXPECT_THROW(copy_of_state(small.model, moments, small.state, CollectivePhases(),
                             exact.first(exact.size() - 1)),
               InternalError);
}

TEST(Checkpoint, WhatIsAbandonedLeavesNothing) {
  const Scratch scratch;
  SmallModel small;
  small.save(scratch.path(), 1);
  std::vector<std::byte> room = room_for_copy();
  PartialCheckpoint partial(scratch.path(), small.manifest(2), CollectivePhases());
  BackgroundWriter writer;
  writer.abandon();
  writer.begin(partial.folder(), 0,
               copy_of_state(small.model, moments, small.state, CollectivePhases(), room));
  writer.wait();
  EXPECT_EQ(writer.state(), BackgroundWriter::State::Failed);
  EXPECT_THROW(partial.publish([&] { return writer.take(); }), IoError);
  EXPECT_EQ(files_of(scratch.path("checkpoints")), std::vector<std::string>{"step-1"});
}

TEST(Checkpoint, ACopyThatIsNotFiniteIsNotSaved) {
  const Scratch scratch;
  SmallModel small;
  small.save(scratch.path(), 1);
  small.state.parameter(1).states[0].view({-1})[2].fill_(std::numeric_limits<double>::quiet_NaN());
  std::vector<std::byte> room = room_for_copy();
  PartialCheckpoint partial(scratch.path(), small.manifest(2), CollectivePhases());
  BackgroundWriter writer;
  writer.begin(partial.folder(), 0,
               copy_of_state(small.model, moments, small.state, CollectivePhases(), room));
  try {
    partial.publish([&] { return writer.take(); });
    ADD_FAILURE() << "it was saved";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::Refused);
    EXPECT_NE(std::string(error.what()).find("step 2: "), std::string::npos) << error.what();
  }
  EXPECT_EQ(files_of(scratch.path("checkpoints")), std::vector<std::string>{"step-1"});
}

TEST(Checkpoint, SaysWhenItWasSavedWhereSomebodyKnows) {
  const Scratch scratch;
  SmallModel small;
  for (const std::int64_t time : {std::int64_t{0}, std::int64_t{1'790'000'000}}) {
    Manifest manifest = small.manifest(time);
    manifest.saved_at = time;
    save_checkpoint(scratch.path(), small.model, moments, small.state, manifest,
                    CollectivePhases());
    EXPECT_EQ(verify_checkpoint(checkpoint_path(scratch.path(), time)).saved_at, time);
    const std::string text = read_bytes(checkpoint_path(scratch.path(), time) + "/manifest.json");
    EXPECT_EQ(text.find("saved_at") != std::string::npos, time > 0);
  }
}

// Whatever is not finite and wherever: nothing of it stays on the disk.
TEST(Checkpoint, WhatIsNotFiniteIsNotSaved) {
  const double values[] = {std::numeric_limits<double>::infinity(),
                           -std::numeric_limits<double>::infinity(),
                           std::numeric_limits<double>::quiet_NaN()};
  std::mt19937 random(3);
  for (int round = 0; round < 30; ++round) {
    const Scratch scratch;
    SmallModel model(precisions[round % 3]);
    model.fill(8);
    model.save(scratch.path(), 1);
    const std::size_t p = random() % model.state.pieces.size();
    const std::size_t k = random() % 3;
    const exec::ParameterState parameter = model.state.parameter(p);
    const at::Tensor tensor = k == 0 ? parameter.trained() : parameter.states[k - 1];
    const auto element = static_cast<std::int64_t>(random()) % tensor.numel();
    tensor.view({-1})[element].fill_(values[random() % 3]);
    std::string name = model.model.graph.parameters[p].name;
    if (k > 0) name += "." + moments[k - 1].name;
    try {
      model.save(scratch.path(), 2);
      ADD_FAILURE() << name << " was saved";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::Refused);
      EXPECT_NE(std::string(error.what()).find("step 2: " + name + " "), std::string::npos)
          << error.what();
    }
    EXPECT_EQ(files_of(scratch.path("checkpoints")), std::vector<std::string>{"step-1"});
    EXPECT_NO_THROW(verify_checkpoint(checkpoint_path(scratch.path(), 1)));
  }
}

// Any bits, against the library's own function.
TEST(Checkpoint, FiniteIsWhatTheLibraryCallsFinite) {
  std::mt19937_64 random(5);
  const auto check = [&](const std::string& type, auto value) {
    using Value = decltype(value);
    for (int round = 0; round < 4000; ++round) {
      std::vector<Value> values(1 + random() % 9);
      for (auto& one : values) {
        std::uint64_t bits = random();
        // Most exponents are neither the largest nor the smallest.
        if (round % 2 == 0) bits |= sizeof(Value) == 4 ? 0x7f800000U : 0x7ff0000000000000U;
        if (round % 8 == 0) bits ^= 1ULL << (random() % (8 * sizeof(Value)));
        std::memcpy(&one, &bits, sizeof one);
      }
      const bool finite =
          std::all_of(values.begin(), values.end(), [](Value one) { return std::isfinite(one); });
      EXPECT_EQ(all_finite(type, std::as_bytes(std::span(values))), finite);
    }
  };
  check("F32", float{});
  check("F64", double{});
  EXPECT_TRUE(all_finite("F32", {}));
  EXPECT_THROW(all_finite("I64", {}), InternalError);
}

TEST(Checkpoint, AFolderThatCannotBeMadeIsNamed) {
  const Scratch scratch;
  write_bytes(scratch.path("checkpoints"), "a file in the place of the folder");
  SmallModel saved(Precision::Float32, 1);
  EXPECT_THROW(saved.save(scratch.path(), 1), IoError);
  EXPECT_EQ(files_of(scratch.path()), std::vector<std::string>{"checkpoints"});
}

}  // namespace
}  // namespace garonne::train::test
