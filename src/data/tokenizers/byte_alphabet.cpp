#include "data/tokenizers/byte_alphabet.hpp"

#include <array>

namespace garonne::data {
namespace {

// All letters are below U+0144: of one or two bytes.
constexpr unsigned letters_end = 0x144;

bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<unsigned, 256> letter_of{};
  std::array<int, letters_end> byte_of{};

  Alphabet() {
    byte_of.fill(-1);
    unsigned next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      letter_of[byte] = stands_for_itself(byte) ? byte : next++;
      byte_of[letter_of[byte]] = static_cast<int>(byte);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet made;
  return made;
}

}  // namespace

std::string to_byte_letters(std::string_view bytes) {
  std::string letters;
  for (const char byte : bytes) {
    const unsigned letter = alphabet().letter_of[static_cast<unsigned char>(byte)];
    if (letter < 0x80) {
      letters += static_cast<char>(letter);
    } else {
      letters += static_cast<char>(0xC0U | (letter >> 6U));
      letters += static_cast<char>(0x80U | (letter & 0x3FU));
    }
  }
  return letters;
}

std::optional<std::string> from_byte_letters(std::string_view letters) {
  std::string bytes;
  for (std::size_t place = 0; place < letters.size(); ++place) {
    unsigned letter = static_cast<unsigned char>(letters[place]);
    if (letter >= 0x80) {
      if ((letter & 0xE0U) != 0xC0U || place + 1 == letters.size()) return std::nullopt;
      letter = ((letter & 0x1FU) << 6U) | (static_cast<unsigned char>(letters[++place]) & 0x3FU);
    }
    if (letter >= letters_end || alphabet().byte_of[letter] < 0) return std::nullopt;
    bytes += static_cast<char>(alphabet().byte_of[letter]);
  }
  return bytes;
}

}  // namespace garonne::data
