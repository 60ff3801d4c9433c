#include "base/printable.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace garonne {
namespace {

constexpr std::string_view ellipsis = "…";

// The character that `text` begins with: its bytes in UTF-8, 0 where they are none, and its code.
struct Character {
  std::size_t bytes = 0;
  std::uint32_t code = 0;
};

Character first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {1, lead};
  const std::size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC2 ? 2 : 0;
  if (bytes == 0 || lead > 0xF4 || text.size() < bytes) return {};
  std::uint32_t code = lead & (0xFFU >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return {};
    code = code << 6U | (byte(i) & 0x3FU);
  }
  const bool overlong = (bytes == 3 && code < 0x800) || (bytes == 4 && code < 0x10000);
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (overlong || surrogate || code > 0x10FFFF) return {};
  return {bytes, code};
}

bool is_control(std::uint32_t code) {
  if (code < 0x20 || (code >= 0x7F && code < 0xA0)) return true;
  // Ends of lines, and what turns the direction of writing: with it a text reads as another.
  return code == 0x2028 || code == 0x2029 || code == 0x200E || code == 0x200F || code == 0x061C ||
         (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069) || code == 0xFEFF;
}

// The characters of `text` as they are shown, one by one.
std::vector<std::string> shown_characters(std::string_view text, bool keeps_lines) {
  std::vector<std::string> shown;
  while (!text.empty()) {
    const Character character = first_character(text);
    const std::size_t bytes = std::max<std::size_t>(character.bytes, 1);
    const char first = text.front();
    if (character.bytes == 0) {
      shown.push_back(fmt::format("\\x{:02x}", static_cast<unsigned char>(first)));
    } else if (!is_control(character.code) || (keeps_lines && (first == '\n' || first == '\t'))) {
      shown.emplace_back(text.substr(0, bytes));
    } else if (first == '\n' || first == '\r' || first == '\t') {
      shown.emplace_back(first == '\n' ? "\\n" : first == '\r' ? "\\r" : "\\t");
    } else if (character.code < 0x80) {
      shown.push_back(fmt::format("\\x{:02x}", character.code));
    } else {
      shown.push_back(fmt::format("\\u{{{:x}}}", character.code));
    }
    text.remove_prefix(bytes);
  }
  return shown;
}

// Nearly all texts: nothing to change in them.
bool is_plain(std::string_view text, bool keeps_lines) {
  return std::all_of(text.begin(), text.end(), [&](char byte) {
    return (byte >= ' ' && byte <= '~') || (keeps_lines && (byte == '\n' || byte == '\t'));
  });
}

std::string shown_text(std::string_view text, std::size_t most, bool keeps_lines) {
  if (text.size() <= most && is_plain(text, keeps_lines)) return std::string(text);
  // Of a long text only the ends are looked at, for it may have any length.
  std::string_view end;
  if (text.size() > 2 * most) {
    end = text.substr(text.size() - most);
    text = text.substr(0, most);
    while (!end.empty() && (static_cast<unsigned char>(end.front()) & 0xC0U) == 0x80U)
      end.remove_prefix(1);
  }
  const std::vector<std::string> head = shown_characters(text, keeps_lines);
  if (end.empty()) {
    std::string whole;
    for (const std::string& character : head) whole += character;
    if (whole.size() <= most) return whole;
  }
  const std::vector<std::string> tail = end.empty() ? head : shown_characters(end, keeps_lines);
  const std::size_t room = most - std::min(most, ellipsis.size());
  std::string first;
  for (const std::string& character : head) {
    if (first.size() + character.size() > room - room / 3) break;
    first += character;
  }
  std::size_t last = tail.size();
  std::size_t bytes = 0;
  while (last > 0 && bytes + tail[last - 1].size() <= room / 3) bytes += tail[--last].size();
  first += ellipsis;
  for (; last < tail.size(); ++last) first += tail[last];
  return first;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const Character character = first_character(text);
    if (character.bytes == 0) return false;
    text.remove_prefix(character.bytes);
  }
  return true;
}

std::string printable(std::string_view text, std::size_t most) {
  return shown_text(text, most, false);
}

std::string printable_message(std::string_view text, std::size_t most) {
  return shown_text(text, most, true);
}

}  // namespace garonne
