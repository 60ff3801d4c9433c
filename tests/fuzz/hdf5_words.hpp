// Words and numbers of the lines of recipes (hdf5_recipe.hpp). What cannot be read is 0.
#pragma once

#include <hdf5.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace garonne::fuzz {

// That are written, and of a text.
inline constexpr std::size_t most_attribute_elements = 200000;
inline constexpr std::size_t most_rank = 33;  // one more than HDF5 has
inline constexpr std::size_t most_text = 4096;

using Words = std::vector<std::string>;
using Extent = std::vector<hsize_t>;

Words words_of(std::string_view line);
// What comes after so many words and a space.
std::string rest_of(std::string_view line, int words);
std::uint64_t number_of(std::string_view word, std::uint64_t otherwise = 0);
double real_of(const std::string& word);
std::string bytes_of(std::string_view hex);
std::vector<std::string> split(const std::string& text, char mark);
// Sizes with commas; `growing` gets the greatest ones.
Extent extent_of(const std::string& word, Extent* growing = nullptr);
// At most most_attribute_elements + 1.
std::size_t elements_of(const Extent& extent);

}  // namespace garonne::fuzz
