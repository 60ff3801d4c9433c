// Programs in a folder, checked without the model that they are of.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "plan/program/program.hpp"

namespace garonne::train {

// Values that the JSON of a Program may have: of the most nodes that are planned (size_check.hpp)
// about 25 million.
inline constexpr std::size_t most_program_values = std::size_t{1} << 25;

struct SavedPrograms {
  std::vector<std::string> paths;
  std::vector<plan::Program> programs;  // ascending by rank
};

// Where the Program of a rank, or of it and others that run the same one, is in a folder.
std::string program_file(const std::string& folder, int rank);

// Into the file of the first of `ranks`, whose Program it is; makes the folder where it is missing.
// `measurements`: by instruction, or none. Throws IoError.
void save_program(const std::string& folder, const plan::Program& program,
                  const std::vector<int>& ranks,
                  const std::vector<plan::Measurement>& measurements);

// Throws IoError for a file that cannot be read, and ConfigError for what is no Program.
plan::Program read_program(const std::string& path);

// Throws ConfigError (`option`) where a rank_<n>.json of the folder is no Program, or the folder is
// a file; a folder that is not there, or no folder (empty), is well. Looks at beginnings only.
void expect_program_folder(const std::string& option, const std::string& folder);

// Every rank_<n>.json of `folder`. Throws IoError where there is none, and as read_program() does.
SavedPrograms read_saved_programs(const std::string& folder);

// Replays each one, checks the order of its lanes and follows what its buffers hold, by the model
// that it implies; then replays together those that make a whole
// grid, or the stages of one pipeline. Returns what was proved, a line a Program. Throws
// ConfigError with file, instruction, buffer and rule for the first that is illegal.
std::string check_saved_programs(const SavedPrograms& saved);

}  // namespace garonne::train
