#include "fuzz/hdf5_checksums.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace garonne::fuzz {
namespace {

// Structures longer than this have no checksum that is looked for: a search takes the square.
constexpr std::size_t most_bytes = 640;

constexpr std::array signatures = {"OHDR", "OCHK", "BTHD", "BTIN", "BTLF", "FRHP", "FHDB",
                                   "FHIB", "FSHD", "FSSE", "FAHD", "FADB", "EAHD", "EAIB",
                                   "EASB", "EADB", "TREE", "SNOD", "HEAP", "GCOL"};
constexpr std::string_view first_letters = "OBFETSHG";

std::uint32_t rotated(std::uint32_t value, int bits) {
  return value << bits | value >> (32 - bits);
}

std::uint32_t word_at(const char* bytes, std::size_t count) {
  std::uint32_t word = 0;
  for (std::size_t index = 0; index < std::min<std::size_t>(count, 4); ++index) {
    word |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[index])) << 8 * index;
  }
  return word;
}

// The hash that HDF5's file format names for checksums of metadata: lookup3 of Bob Jenkins, little
// end first, with the initial value 0.
std::uint32_t checksum(const char* bytes, std::size_t count) {
  std::uint32_t a = 0xdeadbeef + static_cast<std::uint32_t>(count);
  std::uint32_t b = a;
  std::uint32_t c = a;
  if (count == 0) return c;
  const auto take = [&](std::size_t length) {
    a += word_at(bytes, length);
    if (length > 4) b += word_at(bytes + 4, length - 4);
    if (length > 8) c += word_at(bytes + 8, length - 8);
  };
  for (; count > 12; count -= 12, bytes += 12) {
    take(12);
    a = (a - c) ^ rotated(c, 4), c += b;
    b = (b - a) ^ rotated(a, 6), a += c;
    c = (c - b) ^ rotated(b, 8), b += a;
    a = (a - c) ^ rotated(c, 16), c += b;
    b = (b - a) ^ rotated(a, 19), a += c;
    c = (c - b) ^ rotated(b, 4), b += a;
  }
  take(count);
  c = (c ^ b) - rotated(b, 14);
  a = (a ^ c) - rotated(c, 11);
  b = (b ^ a) - rotated(a, 25);
  c = (c ^ b) - rotated(b, 16);
  a = (a ^ c) - rotated(c, 4);
  b = (b ^ a) - rotated(a, 14);
  return (c ^ b) - rotated(b, 24);
}

// The length that an object header says for itself; 0 = nothing that can be.
std::size_t said_bytes(const std::string& file, std::size_t begin) {
  if (begin + 32 > file.size() || file.compare(begin, 4, "OHDR") != 0) return 0;
  const auto flags = static_cast<unsigned char>(file[begin + 5]);
  const std::size_t size = std::size_t{1} << (flags & 3U);
  const std::size_t before =
      6U + ((flags & 0x20U) != 0 ? 16U : 0U) + ((flags & 0x10U) != 0 ? 4U : 0U);
  return before + size + word_at(file.data() + begin + before, size);
}

// The length after which the checksum of all bytes before it stands; 0 = none.
std::size_t checked_bytes(const std::string& file, std::size_t begin) {
  const std::size_t most = std::min(most_bytes, file.size() - begin);
  const auto fits = [&](std::size_t bytes) {
    return word_at(file.data() + begin + bytes, 4) == checksum(file.data() + begin, bytes);
  };
  const std::size_t said = said_bytes(file, begin);
  if (said >= 8 && said + 4 <= file.size() - begin && fits(said)) return said;
  for (std::size_t bytes = 8; bytes + 4 <= most; ++bytes) {
    if (fits(bytes)) return bytes;
  }
  return 0;
}

}  // namespace

std::vector<Hdf5Structure> find_structures(const std::string& file) {
  std::vector<Hdf5Structure> found = {{"HDF", 0, checked_bytes(file, 0)}};
  for (std::size_t place = 8; place + 8 <= file.size();) {
    if (first_letters.find(file[place]) == std::string_view::npos) {
      ++place;
      continue;
    }
    const char* const* name =
        std::find_if(signatures.begin(), signatures.end(), [&](const char* signature) {
          return word_at(file.data() + place, 4) == word_at(signature, 4);
        });
    if (name == signatures.end()) {
      ++place;
      continue;
    }
    // Old ones, of which the last four are, have none.
    const bool old = name >= signatures.end() - 4;
    found.push_back({*name, place, old ? 0 : checked_bytes(file, place)});
    place += 4 + found.back().bytes;
  }
  return found;
}

void mend_checksums(std::string& file, const std::vector<Hdf5Structure>& structures) {
  for (const Hdf5Structure& structure : structures) {
    if (structure.bytes == 0 || structure.begin + structure.bytes + 4 > file.size()) continue;
    const std::uint32_t sum = checksum(file.data() + structure.begin, structure.bytes);
    for (std::size_t byte = 0; byte < 4; ++byte) {
      file[structure.begin + structure.bytes + byte] = static_cast<char>(sum >> 8 * byte & 0xFF);
    }
  }
}

}  // namespace garonne::fuzz
