// Changes of the bytes of HDF5 files, as lines of recipes say them (hdf5_recipe.hpp).
#pragma once

#include <string>
#include <vector>

namespace garonne::fuzz {

struct Damage {
  std::string kind;  // put, spoil or cut
  std::string place;
  std::string bytes;
};

void do_damage(const std::string& path, const std::vector<Damage>& damages);

void write_file(const std::string& path, const std::string& bytes);

}  // namespace garonne::fuzz
