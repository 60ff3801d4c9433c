#include "data/tokenizers/added_tokens.hpp"

#include <algorithm>
#include <utility>

#include "data/tokenizers/unicode_text.hpp"

namespace garonne::data {

AddedTokenSearch::AddedTokenSearch(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::stable_sort(tokens_.begin(), tokens_.end(), [](const AddedToken& a, const AddedToken& b) {
    return a.content.size() > b.content.size();
  });
  for (const AddedToken& token : tokens_) {
    begins_[static_cast<unsigned char>(token.content[0])] = true;
    longest_ = std::max(longest_, token.content.size());
    any_takes_left_ = any_takes_left_ || token.takes_left;
    any_takes_right_ = any_takes_right_ || token.takes_right;
  }
}

std::optional<AddedTokenSearch::Found> AddedTokenSearch::find(std::string_view text,
                                                              std::size_t from,
                                                              std::size_t limit) const {
  if (tokens_.empty()) return std::nullopt;
  for (std::size_t place = from; place < limit; ++place) {
    if (!begins_[static_cast<unsigned char>(text[place])]) continue;
    for (const AddedToken& token : tokens_) {
      if (text.compare(place, token.content.size(), token.content) != 0) continue;
      Found found = {place, place + token.content.size(), token.id};
      if (token.takes_left) found.begin -= trailing_white_space(text.substr(from, place - from));
      if (token.takes_right) found.end += leading_white_space(text.substr(found.end));
      return found;
    }
  }
  return std::nullopt;
}

std::size_t AddedTokenSearch::certain(std::string_view text) const {
  if (tokens_.empty()) return text.size();
  if (text.size() < longest_) return 0;
  std::size_t end = text.size() - (longest_ - 1);
  if (any_takes_right_) {
    // A token from before `end` is followed by something that it does not take.
    const std::size_t taken = trailing_white_space(text) + longest_;
    end = taken < text.size() ? std::min(end, text.size() - taken) : 0;
  }
  return before_taken(text, whole_characters(text, end));
}

std::size_t AddedTokenSearch::before_taken(std::string_view text, std::size_t end) const {
  return any_takes_left_ ? end - trailing_white_space(text.substr(0, end)) : end;
}

}  // namespace garonne::data
