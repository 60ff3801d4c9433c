// Text of users and files as messages show it: no control characters, valid UTF-8, of bounded
// length.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace garonne {

// The most bytes of a message for the user, whatever is quoted in it.
inline constexpr std::size_t most_message_bytes = 2000;

bool is_utf8(std::string_view text);

// `text` with control characters (of terminals and of writing directions) and bytes that are no
// UTF-8 escaped as \n, \x1b or \u{202e}. Where that has more than `most` bytes, the middle is left
// out for an ellipsis.
std::string printable(std::string_view text, std::size_t most = 200);

// The same for a whole message: new lines and tabs stay.
std::string printable_message(std::string_view text, std::size_t most = most_message_bytes);

}  // namespace garonne
