// Checkpoints that are cut anew.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.hpp"
#include "train/checkpoint/checkpoint_list.hpp"
#include "train/checkpoint/reshard.hpp"
#include "train/models.hpp"
#include "train/scratch.hpp"

namespace garonne::train::test {
namespace {

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Reshard, ThereAndBackAreTheSameFiles) {
  const Scratch scratch;
  const std::string one = scratch.path() + "/one";
  SmallModel model;
  model.fill(11);
  model.save(one, 4, "[model]\nkind = \"gpt\"\n");
  const std::string source = checkpoint_path(one, 4);
  for (const int ranks : {1, 2, 3, 7, 300}) {  // more than some tensors have elements
    const std::string there = scratch.path() + "/there-" + std::to_string(ranks);
    std::int64_t last = 0;
    const std::string cut =
        reshard_checkpoint(source, verify_checkpoint(source), there, ranks, [&](std::int64_t done) {
          EXPECT_GT(done, last);
          last = done;
        });
    const Manifest manifest = verify_checkpoint(cut);
    EXPECT_EQ(manifest.files.size(), static_cast<std::size_t>(ranks));
    EXPECT_EQ(manifest.config, "[model]\nkind = \"gpt\"\n");
    EXPECT_EQ(manifest.threads, 2);
    EXPECT_EQ(bytes_of(there + "/config.toml"), manifest.config);
    SmallModel loaded;
    load_checkpoint(cut, manifest, loaded.model, moments, loaded.state);
    EXPECT_TRUE(same_state(loaded.state, model.state)) << ranks;
    const std::string back = there + "-back";
    const std::string again = reshard_checkpoint(cut, manifest, back, 1);
    for (const char* file : {"/rank_0.safetensors", "/manifest.json"})
      EXPECT_EQ(bytes_of(again + file), bytes_of(source + file)) << ranks;
  }
}

TEST(Reshard, ANewRunDirectoryHasWhatTextsAndPathsAreUnderstoodBy) {
  const Scratch scratch;
  const std::string one = scratch.path() + "/one";
  SmallModel model;
  model.save(one, 4);
  std::ofstream(one + "/started_in") << "/some/where\n";
  std::ofstream(one + "/tokenizer.json") << "{}";
  std::ofstream(one + "/tokenizer.model") << "another's";
  const std::string source = checkpoint_path(one, 4);
  Manifest manifest = verify_checkpoint(source);
  manifest.data = {{"tokenizer", "bpe:0123456789abcdef"}};
  const std::string there = scratch.path() + "/there";
  reshard_checkpoint(source + "/", manifest, there, 2);
  EXPECT_EQ(bytes_of(there + "/started_in"), "/some/where\n");
  EXPECT_EQ(bytes_of(there + "/tokenizer.json"), "{}");
  EXPECT_FALSE(std::filesystem::exists(there + "/tokenizer.model"));
  // Of a run directory that is there already everything else is its own.
  const std::string own = scratch.path() + "/own";
  std::filesystem::create_directories(own);
  std::ofstream(own + "/config.toml") << "";
  reshard_checkpoint(source, manifest, own, 2);
  EXPECT_FALSE(std::filesystem::exists(own + "/started_in"));
}

TEST(Reshard, WhatIsThereIsNotReplacedAndFailuresLeaveNothing) {
  const Scratch scratch;
  SmallModel model;
  model.save(scratch.path(), 4);
  const std::string source = checkpoint_path(scratch.path(), 4);
  const Manifest manifest = verify_checkpoint(source);
  EXPECT_THROW(reshard_checkpoint(source, manifest, scratch.path(), 2), IoError);
  const std::string target = scratch.path() + "/target";
  Manifest holed = manifest;
  holed.shards.front().end -= 1;
  EXPECT_THROW(reshard_checkpoint(source, holed, target, 2), IoError);
  EXPECT_TRUE(list_checkpoints(target).empty());
  EXPECT_TRUE(std::filesystem::is_empty(target + "/checkpoints"));
}

TEST(CheckpointList, NamesWhatIsThereAndWhatIsWrong) {
  const Scratch scratch;
  EXPECT_THROW(summarise_checkpoints(scratch.path()), IoError);
  SmallModel model;
  for (const std::int64_t step : {10, 2}) model.save(scratch.path(), step);
  std::filesystem::copy(checkpoint_path(scratch.path(), 2), checkpoint_path(scratch.path(), 3),
                        std::filesystem::copy_options::recursive);
  std::ofstream(checkpoint_path(scratch.path(), 10) + "/manifest.json") << "{";
  const auto summaries = summarise_checkpoints(scratch.path());
  ASSERT_EQ(summaries.size(), 3U);
  EXPECT_EQ(summaries[0].step, 2);
  EXPECT_EQ(summaries[0].wrong, "");
  EXPECT_EQ(summaries[0].files, 1U);
  EXPECT_EQ(summaries[0].bytes, static_cast<std::int64_t>(std::filesystem::file_size(
                                    checkpoint_path(scratch.path(), 2) + "/rank_0.safetensors")));
  EXPECT_NE(summaries[1].wrong.find("copy of the checkpoint of step 2"), std::string::npos);
  EXPECT_NE(summaries[2].wrong, "");
}

}  // namespace
}  // namespace garonne::train::test
