// Changes recipes of HDF5 files (hdf5_recipe.hpp) line by line and word by word; every second
// change is the driver's own, of bytes.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "fuzz/fuzz_target.hpp"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

namespace {

using Random = std::minstd_rand;
using Lines = std::vector<std::string>;

std::vector<std::string> split(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), std::istream_iterator<std::string>()};
}

const std::vector<std::string>& words() {
  static const std::vector<std::string> all = split(
      "0 1 2 3 -1 65535 4294967295 9223372036854775807 18446744073709551615 nan inf 1e308 f2 f4 f8 "
      "f16 i1 i2b i8 i16 u1 u2 u4 u8 e1 e4 b1 s s4 o3 c r v a scalar null 2,3 1,1,1,1 4,* "
      "1099511627776 = from times chunk deflate shuffle fletcher32 nbit lzf packed filter compact "
      "external early all 0:1:2:1 0:2:2:1 0:1:*:1 . / - %b input.h5 other.h5");
  return all;
}

// Where structures are, those with most in them more often, …
const std::vector<std::string>& structures() {
  static const std::vector<std::string> all = split(
      "HDF OHDR OHDR OHDR OCHK BTHD BTLF FRHP FHDB FAHD FADB EAHD EAIB EADB TREE SNOD HEAP GCOL");
  return all;
}

// … and what to write there.
const std::vector<std::string>& values() {
  static const std::vector<std::string> all = split(
      "00 01 02 03 04 08 10 20 40 7f 80 ff 0000 ffff 0100 00000000 ffffffff ffffff7f "
      "0000000000000000 ffffffffffffffff 0100000000000000");
  return all;
}

std::size_t below(Random& random, std::size_t count) {
  return random() % std::max<std::size_t>(count, 1);
}

template <typename List>
auto& one_of(List& list, Random& random) {
  return list[below(random, std::size(list))];
}

Lines lines_of(const std::string& text) {
  Lines lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::string damage(Random& random) {
  const std::string place = random() % 4 == 0 ? std::to_string(below(random, 8192))
                                              : one_of(structures(), random) + "." +
                                                    std::to_string(below(random, 8)) + "+" +
                                                    std::to_string(below(random, 160));
  const char* command = random() % 8 == 0 ? "spoil " : "put ";
  return command + place + " " + one_of(values(), random);
}

// A word of a line becomes another one, of the list or of another line.
void change_word(Lines& lines, Random& random) {
  std::string& line = one_of(lines, random);
  const auto word_at = [&](const std::string& text) {
    std::size_t place = below(random, text.size());
    const std::size_t blank = text.rfind(' ', place);
    const std::size_t begin = blank == std::string::npos ? 0 : blank + 1;
    return std::pair(begin, std::min(text.find(' ', begin), text.size()) - begin);
  };
  const auto [begin, count] = word_at(line);
  std::string other = one_of(words(), random);
  if (random() % 3 == 0) {
    const std::string& from = one_of(lines, random);
    const auto [first, length] = word_at(from);
    other = from.substr(first, length);
  }
  if (random() % 8 == 0) other.clear();
  line.replace(begin, count, other);
}

void change_line(Lines& lines, Random& random) {
  if (lines.empty()) lines.emplace_back("array a f4 2,3 from 0 1");
  const auto at = [&](std::size_t count) {
    return lines.begin() + static_cast<std::ptrdiff_t>(below(random, count));
  };
  switch (random() % 8) {
    case 0:
      lines.erase(at(lines.size()));
      return;
    case 1:
      lines.insert(at(lines.size() + 1), std::string(one_of(lines, random)));
      return;
    case 2:
      std::swap(one_of(lines, random), one_of(lines, random));
      return;
    case 3:
      lines.push_back(damage(random));
      return;
    default:
      change_word(lines, random);
  }
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned seed) {
  Random random(seed + 1);
  if (random() % 2 == 0) return LLVMFuzzerMutate(data, size, most);
  Lines lines = lines_of(std::string(garonne::fuzz::text_of(data, size)));
  for (std::size_t changes = 1 + random() % 3; changes > 0; --changes) change_line(lines, random);
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  text.resize(std::min(text.size(), most));
  if (text.empty()) return LLVMFuzzerMutate(data, size, most);
  std::memcpy(data, text.data(), text.size());
  return text.size();
}
