// What is said about a command line that is none.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace garonne::apps {

// One line for the user: what `error`, of parsing `words`, has found, what was meant where
// something is near, and which help to read.
std::string usage_message(const CLI::App& app, const CLI::ParseError& error,
                          const std::vector<std::string>& words);

// Why `garonne help WORDS` shows nothing; empty: the words name a command, or are none.
std::string unknown_help(const CLI::App& app, const std::vector<std::string>& words);

}  // namespace garonne::apps
