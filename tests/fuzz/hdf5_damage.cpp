#include "fuzz/hdf5_damage.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "fuzz/hdf5_checksums.hpp"
#include "fuzz/hdf5_words.hpp"

namespace garonne::fuzz {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::size_t place_of(const std::string& word, const std::vector<Hdf5Structure>& structures,
                     std::size_t size) {
  const std::size_t dot = word.find('.');
  if (dot == std::string::npos) return number_of(word) % size;
  const std::size_t plus = std::min(word.find('+', dot), word.size());
  std::vector<const Hdf5Structure*> like;
  for (const Hdf5Structure& structure : structures) {
    if (structure.signature == word.substr(0, dot)) like.push_back(&structure);
  }
  if (like.empty()) return number_of(word.substr(dot + 1)) % size;
  const std::size_t number = number_of(word.substr(dot + 1, plus - dot - 1)) % like.size();
  const std::size_t offset = plus < word.size() ? number_of(word.substr(plus + 1)) : 0;
  return (like[number]->begin + offset) % size;
}

}  // namespace

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

void do_damage(const std::string& path, const std::vector<Damage>& damages) {
  if (damages.empty()) return;
  std::string file = read_file(path);
  if (file.empty()) return;
  const std::vector<Hdf5Structure> structures = find_structures(file);
  const auto change = [&](const Damage& damage) {
    const std::size_t place = place_of(damage.place, structures, file.size());
    file.replace(place, std::min(damage.bytes.size(), file.size() - place), damage.bytes, 0,
                 file.size() - place);
  };
  bool mended = false;
  for (const Damage& damage : damages) {
    if (damage.kind != "put") continue;
    change(damage);
    mended = true;
  }
  if (mended) mend_checksums(file, structures);
  for (const Damage& damage : damages) {
    if (damage.kind == "spoil") change(damage);
    if (damage.kind == "cut") file.resize(std::min(file.size(), number_of(damage.place)));
    if (file.empty()) break;
  }
  write_file(path, file);
}

}  // namespace garonne::fuzz
