#include "train/run/run_tokenizer.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "base/error.hpp"
#include "base/file.hpp"

namespace garonne::train {

void save_tokenizer(const std::string& run_directory, const data::Tokenizer& tokenizer) {
  if (tokenizer.description().empty()) return;
  write_file_durably(run_directory + "/" + data::tokenizer_file(tokenizer.name()),
                     tokenizer.description());
}

std::unique_ptr<data::Tokenizer> tokenizer_of_run(const std::string& run_directory,
                                                  const std::string& name,
                                                  const std::string& given) {
  if (!given.empty()) return data::open_tokenizer(given);
  if (!data::is_known_tokenizer(name)) return nullptr;
  const std::string file = data::tokenizer_file(name);
  if (file.empty()) return data::make_tokenizer(name);
  const std::string path = run_directory + "/" + file;
  return data::make_tokenizer(name, read_text_file(path), path);
}

std::unique_ptr<data::Tokenizer> readable_tokenizer_of_run(const std::string& run_directory,
                                                           const std::string& name,
                                                           const std::string& given) {
  if (!given.empty()) return tokenizer_of_run(run_directory, name, given);
  try {
    return tokenizer_of_run(run_directory, name);
  } catch (const IoError&) {
    return nullptr;
  }
}

FoundTokenizer tokenizer_of_folder(const std::string& folder) {
  std::error_code error;
  const auto is_there = [&](const char* name) {
    return std::filesystem::exists(std::filesystem::path(folder) / name, error);
  };
  if (!is_there("tokenizer.json") && !is_there("vocab.json") && !is_there("tokenizer.model"))
    return {};
  try {
    return {data::open_tokenizer(folder), {}};
  } catch (const ConfigError& refused) {
    return {nullptr, refused.what()};
  } catch (const IoError& refused) {
    return {nullptr, refused.what()};
  }
}

void expect_tokenizer_fits(const data::Tokenizer& tokenizer, std::int64_t model_vocabulary,
                           const std::string& given) {
  if (tokenizer.vocabulary() <= model_vocabulary) return;
  throw ConfigError("--tokenizer", given,
                    fmt::format("has {} tokens, and the model {}; give the one that its data were "
                                "made with",
                                tokenizer.vocabulary(), model_vocabulary));
}

std::string other_tokenizer_warning(const data::Tokenizer& tokenizer,
                                    const std::string& run_directory, const std::string& trained,
                                    const std::string& given) {
  if (trained.empty() || tokenizer.name() == trained) return {};
  // Whoever gives a tokenizer may do so because the run's own was lost.
  try {
    const auto own = tokenizer_of_run(run_directory, trained);
    if (own && data::same_ids(tokenizer, *own)) return {};
  } catch (const IoError&) {
  }
  return fmt::format(
      "--tokenizer {} is {}, and the model was trained on tokens of {}, which stand for other "
      "texts",
      given, tokenizer.name(), trained);
}

}  // namespace garonne::train
