// Tokens that stand in a text as they are written, as <|endoftext|>, whatever the merges would make
// of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace garonne::data {

struct AddedToken {
  std::uint32_t id = 0;
  std::string content;
  bool takes_left = false;   // white space before it belongs to it
  bool takes_right = false;  // and white space after it
  bool normalised = false;   // looked for after the normal form is made
  bool special = false;
};

// Finds the leftmost, of those the longest. The search does not change, so several may use it.
class AddedTokenSearch {
 public:
  explicit AddedTokenSearch(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }

  struct Found {
    std::size_t begin = 0;  // with the white space that the token takes
    std::size_t end = 0;
    std::uint32_t id = 0;
  };
  // The first in the valid text [from, size) whose own characters begin before `limit`; it may end
  // behind it.
  std::optional<Found> find(std::string_view text, std::size_t from, std::size_t limit) const;

  // How much of a text that goes on may be searched so that no later text changes what is found: a
  // token that begins before lies in it as a whole, as does white space that one could take.
  std::size_t certain(std::string_view text) const;
  // `end`, or before the white space in front of it that a token there could take.
  std::size_t before_taken(std::string_view text, std::size_t end) const;

 private:
  std::vector<AddedToken> tokens_;  // longest first
  std::array<bool, 256> begins_{};  // whether one begins with this byte
  std::size_t longest_ = 0;
  bool any_takes_left_ = false;
  bool any_takes_right_ = false;
};

}  // namespace garonne::data
