// SPDX-License-Identifier: MIT
// What this build is: the commit and the options it was made with.
#pragma once

#include <string>

namespace garonne {

/// Several lines, the first `garonne <version>`, the others `<name>: <value>`; no newline at the
/// end.
std::string version_text();

/// The version alone, as the first line has it; goes into files that a run writes.
std::string version_string();

}  // namespace garonne
