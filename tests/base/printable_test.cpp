// Text of others in messages.
#include "base/printable.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "base/error.hpp"

namespace garonne {
namespace {

// Whether a text is UTF-8, by the table of RFC 3629, byte by byte.
bool is_utf8(const std::string& text) {
  const auto in = [&](std::size_t i, int low, int high) {
    return i < text.size() && static_cast<unsigned char>(text[i]) >= low &&
           static_cast<unsigned char>(text[i]) <= high;
  };
  for (std::size_t i = 0; i < text.size();) {
    if (in(i, 0x00, 0x7F)) {
      i += 1;
    } else if (in(i, 0xC2, 0xDF) && in(i + 1, 0x80, 0xBF)) {
      i += 2;
    } else if ((in(i, 0xE0, 0xE0) && in(i + 1, 0xA0, 0xBF) && in(i + 2, 0x80, 0xBF)) ||
               (in(i, 0xE1, 0xEC) && in(i + 1, 0x80, 0xBF) && in(i + 2, 0x80, 0xBF)) ||
               (in(i, 0xED, 0xED) && in(i + 1, 0x80, 0x9F) && in(i + 2, 0x80, 0xBF)) ||
               (in(i, 0xEE, 0xEF) && in(i + 1, 0x80, 0xBF) && in(i + 2, 0x80, 0xBF))) {
      i += 3;
    } else if ((in(i, 0xF0, 0xF0) && in(i + 1, 0x90, 0xBF) && in(i + 2, 0x80, 0xBF) &&
                in(i + 3, 0x80, 0xBF)) ||
               (in(i, 0xF1, 0xF3) && in(i + 1, 0x80, 0xBF) && in(i + 2, 0x80, 0xBF) &&
                in(i + 3, 0x80, 0xBF)) ||
               (in(i, 0xF4, 0xF4) && in(i + 1, 0x80, 0x8F) && in(i + 2, 0x80, 0xBF) &&
                in(i + 3, 0x80, 0xBF))) {
      i += 4;
    } else {
      return false;
    }
  }
  return true;
}

bool has_control(const std::string& text, bool lines) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (lines && (byte == '\n' || byte == '\t')) continue;
    if (byte < 0x20 || byte == 0x7F) return true;
    if (byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0)
      return true;
  }
  return false;
}

TEST(Printable, PlainTextOfAnyWritingStays) {
  for (const std::string text : {"", "plain text", "größer", "北京", "€ 1 𝄞", "a\\b \"c\""})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, ControlsAreEscaped) {
  EXPECT_EQ(printable("a\x1b[31mb"), "a\\x1b[31mb");
  EXPECT_EQ(printable("a\nb\tc\rd"), "a\\nb\\tc\\rd");
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\u{9b}31m");  // the same of terminals, in one character
  EXPECT_EQ(printable("a\xe2\x80\xae"
                      "b"),
            "a\\u{202e}b");  // turns what follows around
  EXPECT_EQ(printable_message("two\nlines\x07"), "two\nlines\\x07");
}

TEST(Printable, WhatIsNoUtf8IsEscapedByteByByte) {
  EXPECT_EQ(printable("u\xff"), "u\\xff");
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf");                    // overlong
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // a surrogate
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // beyond the last
  EXPECT_EQ(printable("\xe2\x82"), "\\xe2\\x82");                    // cut short
}

TEST(Printable, LongTextLosesItsMiddle) {
  const std::string shown = printable("begin" + std::string(100'000'000, 'x') + "end", 60);
  EXPECT_EQ(shown.size(), 60U);
  EXPECT_EQ(shown.substr(0, 5), "begin");
  EXPECT_NE(shown.find("…"), std::string::npos);
  EXPECT_EQ(shown.substr(shown.size() - 3), "end");
  EXPECT_EQ(printable(std::string(60, 'x'), 60), std::string(60, 'x'));
}

TEST(Printable, AnyBytesGiveBoundedUtf8WithoutControls) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 3000; ++trial) {
    std::string text(random() % 400, '\0');
    const bool latin = trial % 2 == 0;
    for (char& c : text) c = static_cast<char>(latin ? random() % 256 : 0x70 + random() % 0x80);
    const std::size_t most = 3 + random() % 300;
    const bool lines = trial % 3 == 0;
    const std::string shown = lines ? printable_message(text, most) : printable(text, most);
    EXPECT_LE(shown.size(), most) << trial;
    EXPECT_TRUE(is_utf8(shown)) << trial;
    EXPECT_FALSE(has_control(shown, lines)) << trial;
  }
}

TEST(Printable, MessagesOfErrorsAreBoundedAndClean) {
  const std::string value = "\x1b[2J" + std::string(1'000'000, 'v');
  const std::string key(1'000'000, 'k');
  for (const std::string& message :
       {std::string(ConfigError(key, value, "must be short").what()),
        std::string(ConfigError(value).what()), std::string(IoError(key, value).what()),
        std::string(RefusedError(value).what()),
        std::string(CommunicationError(key, value).what())}) {
    EXPECT_LE(message.size(), most_message_bytes);
    EXPECT_FALSE(has_control(message, true));
  }
  const ConfigError error("model.hidden", value, "must be an integer");
  EXPECT_EQ(error.value(), value);  // as it was given
  const std::string message = error.what();
  EXPECT_EQ(message.substr(0, 15), "model.hidden = ");
  EXPECT_EQ(message.substr(message.size() - 20), ": must be an integer");
}

}  // namespace
}  // namespace garonne
