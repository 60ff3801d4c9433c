// How far a word is from another one.
#pragma once

#include <cstddef>
#include <string>

namespace garonne {

// Levenshtein's distance: the fewest bytes to insert, leave out or replace. Takes time in
// proportion to the product of the lengths.
std::size_t edit_distance(const std::string& a, const std::string& b);

}  // namespace garonne
