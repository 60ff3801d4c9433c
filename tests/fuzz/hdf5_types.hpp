// HDF5's types, extents and selections from the words of recipes (hdf5_recipe.hpp).
#pragma once

#include <hdf5.h>

#include <string>

#include "fuzz/hdf5_words.hpp"

namespace garonne::fuzz {

// Closes what it holds.
class Owned {
 public:
  Owned(hid_t identifier, herr_t (*close)(hid_t)) : identifier_(identifier), close_(close) {}
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (identifier_ >= 0) close_(identifier_);
  }
  operator hid_t() const { return identifier_; }  // NOLINT: as the library's functions take it

 private:
  hid_t identifier_;
  herr_t (*close_)(hid_t);
};

// To be closed by who asks; negative where HDF5 refuses it or the word says nothing.
hid_t type_of(const std::string& word);
hid_t text_type(std::size_t bytes);  // 0 = of any length
hid_t space_of(const std::string& word);
// start:stride:count:block of each dimension; several with +.
hid_t selection_of(const std::string& word, const Extent& extent);

bool holds_numbers(hid_t type);
bool has_heap(hid_t type);

}  // namespace garonne::fuzz
