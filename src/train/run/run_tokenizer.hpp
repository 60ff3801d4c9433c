// The tokenizer of a run: in its directory from the start, so that the run can be used without its
// data.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/tokenizers/tokenizer.hpp"

namespace garonne::train {

// Writes its description under the name of its kind; nothing where the name says enough. IoError.
void save_tokenizer(const std::string& run_directory, const data::Tokenizer& tokenizer);

// By the name that a checkpoint or the data say; null where they say none, or one that is not known
// here, as files of tokens of other programs. `given`: what the user names instead, as
// data::open_tokenizer; may be empty. IoError where the directory lacks the description or has
// another's.
std::unique_ptr<data::Tokenizer> tokenizer_of_run(const std::string& run_directory,
                                                  const std::string& name,
                                                  const std::string& given = {});

// As tokenizer_of_run, for those who can do without: null also where the run's own is gone or
// damaged.
std::unique_ptr<data::Tokenizer> readable_tokenizer_of_run(const std::string& run_directory,
                                                           const std::string& name,
                                                           const std::string& given);

struct FoundTokenizer {
  std::unique_ptr<data::Tokenizer> tokenizer;
  std::string refused;  // why there is none though the folder has files of one; else empty
};

// Of a folder of Hugging Face's with a model, whose weights need no tokenizer.
FoundTokenizer tokenizer_of_folder(const std::string& folder);

// Throws ConfigError where the tokenizer that the user gave by --tokenizer has more tokens than a
// model of so many: their vectors are nowhere.
void expect_tokenizer_fits(const data::Tokenizer& tokenizer, std::int64_t model_vocabulary,
                           const std::string& given);

// What to warn of where the tokenizer that the user gave makes other ids than the one of the run,
// named `trained`, whose tokens the model has learned; empty where it does not, or nobody knows.
std::string other_tokenizer_warning(const data::Tokenizer& tokenizer,
                                    const std::string& run_directory, const std::string& trained,
                                    const std::string& given);

}  // namespace garonne::train
