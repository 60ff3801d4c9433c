// How help looks: as wide as the terminal, at most 100 characters, and ranges in words.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

namespace garonne::apps {

// The one command whose help lists the keys of run files; the others point to it.
inline constexpr const char* command_that_lists_keys = "train";
// The group of options that has these keys elsewhere. Help says in a line where they are listed.
inline constexpr const char* keys_listed_elsewhere = "Keys of run files";

// What an option takes, as "at least 1", "2 to 1000" or "one, or other"; empty: anything.
std::string range_in_words(const CLI::Option& option);

// Commands that are added later take it over.
std::shared_ptr<CLI::FormatterBase> help_formatter();

}  // namespace garonne::apps
