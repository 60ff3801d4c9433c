// Files of tokens that other programs write: llm.c's and nanoGPT's .bin, and Megatron's .idx with
// its .bin. What their headers say is checked against what lies in the files before a token is
// read.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "data/tokens/token_input.hpp"

namespace garonne::data {

inline constexpr const char* nanogpt_format = "nanogpt";

struct ForeignTokens {
  std::string format;  // "llm.c", "megatron" or nanogpt_format
  std::string path;    // of the tokens themselves
  std::string index;   // Megatron's .idx; else empty
  std::int64_t file_bytes = 0;
  std::int64_t offset = 0;  // bytes before the first token
  std::int64_t tokens = 0;
  int bytes_per_token = 0;
  bool is_signed = false;
  std::int64_t vocabulary = 0;  // 0: the file does not say it
  std::int64_t documents = -1;  // -1: nor that
};

// Nothing where `path` names no such file: one ends in .bin, or in .idx, or has both beside it as
// Megatron's prefixes. IoError naming the file, with what its header says and what it should: a
// damaged one, one of a version or of numbers that are not known, one that is too short or too
// long.
std::optional<ForeignTokens> find_foreign_tokens(const std::string& path);

// Why a file of this format cannot hold tokens of so large a vocabulary; empty where it can.
std::string why_not_of_vocabulary(const std::string& format, std::int64_t vocabulary);

// As open_token_input.
std::unique_ptr<TokenInput> open_foreign_tokens(const ForeignTokens& file, std::int64_t vocabulary,
                                                std::int64_t kept_bytes);

// What copies of the files have in common, as far as it is looked at: sizes, header, the first and
// the last 64 KiB.
std::string identity_of(const ForeignTokens& file);

}  // namespace garonne::data
