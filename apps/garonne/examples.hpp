// What help shows to copy.
#pragma once

#include <CLI/CLI.hpp>

namespace garonne::apps {

// Puts the examples of every command below `app` at the end of its help. Throws InternalError for a
// command that has none.
void add_examples(CLI::App& app);

}  // namespace garonne::apps
