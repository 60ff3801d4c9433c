#include "data/tokenizers/unicode_text.hpp"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/error.hpp"

namespace garonne::data {
namespace {

constexpr std::string_view replacement_character = "\xEF\xBF\xBD";

unsigned byte_at(std::string_view text, std::size_t place) {
  return static_cast<unsigned char>(text[place]);
}

bool continues(unsigned byte) {
  return (byte & 0xC0U) == 0x80U;
}

// What may follow the first byte of a character (the Unicode Standard, table of well-formed UTF-8
// byte sequences). 0 bytes: none can begin with it.
struct SequenceShape {
  std::size_t bytes = 0;
  unsigned second_least = 0x80;
  unsigned second_most = 0xBF;
};

SequenceShape shape_of(unsigned first) {
  if (first < 0x80) return {1};
  if (first < 0xC2) return {0};
  if (first < 0xE0) return {2};
  if (first == 0xE0) return {3, 0xA0, 0xBF};
  if (first == 0xED) return {3, 0x80, 0x9F};
  if (first < 0xF0) return {3};
  if (first == 0xF0) return {4, 0x90, 0xBF};
  if (first < 0xF4) return {4};
  if (first == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

// The bytes of ASCII that `text` begins with.
std::size_t ascii_bytes(std::string_view text) {
  std::size_t done = 0;
  for (; done + 8 <= text.size(); done += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + done, 8);
    if ((word & 0x8080808080808080U) != 0) break;
  }
  while (done < text.size() && byte_at(text, done) < 0x80) ++done;
  return done;
}

struct Range {
  char32_t first;
  char32_t last;
};

// Of the scripts that most text is in; a test holds them against the whole tables.
constexpr Range normal_ranges[] = {
    {0x0000, 0x02FF}, {0x0391, 0x03A1}, {0x03A3, 0x03CE}, {0x0400, 0x0482},  {0x048A, 0x052F},
    {0x05D0, 0x05EA}, {0x0621, 0x064A}, {0x0660, 0x0669}, {0x0E01, 0x0E37},  {0x0E40, 0x0E47},
    {0x1E00, 0x1E99}, {0x2010, 0x2027}, {0x2030, 0x205E}, {0x20A0, 0x20C0},  {0x2190, 0x21FF},
    {0x2500, 0x27BF}, {0x3001, 0x3029}, {0x3041, 0x3096}, {0x309B, 0x30FF},  {0x4E00, 0x9FFF},
    {0xAC00, 0xD7A3}, {0xFE0F, 0xFE0F}, {0xFF01, 0xFF60}, {0x1F300, 0x1FAFF}};

bool all_normal(std::string_view text) {
  std::size_t place = 0;
  while (true) {
    place += ascii_bytes(text.substr(place));
    if (place == text.size()) return true;
    const auto [character, bytes] = character_at(text, place);
    if (!always_normal(character)) return false;
    place += bytes;
  }
}

}  // namespace

std::pair<char32_t, std::size_t> character_at(std::string_view text, std::size_t place) {
  const unsigned first = byte_at(text, place);
  const std::size_t bytes = shape_of(first).bytes;
  if (bytes == 1) return {first, 1};
  char32_t character = first & (0x7FU >> bytes);
  for (std::size_t i = 1; i < bytes; ++i)
    character = (character << 6U) | (byte_at(text, place + i) & 0x3FU);
  return {character, bytes};
}

bool always_normal(char32_t character) {
  const auto* range =
      std::lower_bound(std::begin(normal_ranges), std::end(normal_ranges), character,
                       [](const Range& here, char32_t value) { return here.last < value; });
  return range != std::end(normal_ranges) && character >= range->first;
}

bool is_white_space(char32_t character) {
  return (character >= 0x09 && character <= 0x0D) || character == 0x20 || character == 0x85 ||
         character == 0xA0 || character == 0x1680 || (character >= 0x2000 && character <= 0x200A) ||
         character == 0x2028 || character == 0x2029 || character == 0x202F || character == 0x205F ||
         character == 0x3000;
}

std::size_t whole_characters(std::string_view text, std::size_t bytes) {
  if (bytes >= text.size()) return text.size();
  while (bytes > 0 && continues(byte_at(text, bytes))) --bytes;
  return bytes;
}

std::size_t leading_white_space(std::string_view text) {
  std::size_t place = 0;
  while (place < text.size()) {
    const auto [character, bytes] = character_at(text, place);
    if (!is_white_space(character)) break;
    place += bytes;
  }
  return place;
}

std::size_t trailing_white_space(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    const std::size_t start = whole_characters(text, end - 1);
    if (!is_white_space(character_at(text, start).first)) break;
    end = start;
  }
  return text.size() - end;
}

std::size_t append_valid_utf8(std::string_view text, bool follows, std::string& valid,
                              std::int64_t* replaced) {
  std::size_t place = 0;
  while (true) {
    // As much as is valid is copied at once.
    const std::size_t start = place;
    std::size_t wrong = 0;
    bool cut = false;
    while (place < text.size()) {
      if (byte_at(text, place) < 0x80) {
        place += ascii_bytes(text.substr(place));
        continue;
      }
      const SequenceShape shape = shape_of(byte_at(text, place));
      std::size_t good = shape.bytes == 0 ? 0 : 1;
      while (good > 0 && good < shape.bytes && place + good < text.size()) {
        const unsigned next = byte_at(text, place + good);
        const bool fits =
            good == 1 ? next >= shape.second_least && next <= shape.second_most : continues(next);
        if (!fits) break;
        ++good;
      }
      if (good > 0 && good == shape.bytes) {
        place += good;
        continue;
      }
      cut = good > 0 && place + good == text.size();
      wrong = std::max<std::size_t>(good, 1);
      break;
    }
    valid.append(text, start, place - start);
    if (wrong == 0 || (cut && follows)) return place;
    valid += replacement_character;
    if (replaced != nullptr) ++*replaced;
    place += wrong;
  }
}

std::size_t normal_form_cut(std::string_view text, std::size_t end) {
  if (text.empty()) return 0;
  std::size_t place = std::min(end, text.size() - 1);
  while (place > 0 && byte_at(text, place) >= 0x80) --place;
  return place;
}

void append_normal_form_c(std::string_view text, std::string& normal) {
  while (!text.empty()) {
    const std::size_t newline = text.find('\n');
    const std::string_view line =
        text.substr(0, newline == std::string_view::npos ? text.size() : newline + 1);
    text.remove_prefix(line.size());
    if (all_normal(line)) {
      normal += line;
      continue;
    }
    utf8proc_uint8_t* made = nullptr;
    const utf8proc_ssize_t bytes =
        utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(line.data()),
                     static_cast<utf8proc_ssize_t>(line.size()), &made,
                     static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(made, &std::free);
    if (bytes < 0) throw InternalError(fmt::format("normal form C: {}", utf8proc_errmsg(bytes)));
    normal.append(reinterpret_cast<const char*>(made), static_cast<std::size_t>(bytes));
  }
}

}  // namespace garonne::data
