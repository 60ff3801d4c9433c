// How help looks: lines of at most 100 characters, and short examples.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

namespace garonne::apps {

// `text` with its spaces made line breaks so that no line has more than `width` characters, where
// no word is longer.
std::string wrapped(const std::string& text, std::size_t width);

// Commands that are added later take it over.
std::shared_ptr<CLI::Formatter> help_formatter();

}  // namespace garonne::apps
