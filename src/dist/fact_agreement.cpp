#include "dist/fact_agreement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/printable.hpp"

namespace garonne::dist {
namespace {

constexpr std::size_t longest_value = 80;
constexpr std::size_t most_shown_bytes = 120;  // of it, with what is escaped
constexpr std::size_t values_shown = 3;

// Texts with their lengths before them, so that any bytes may be in them.
std::string packed(const std::vector<std::string_view>& texts) {
  std::string all;
  for (const std::string_view text : texts) all += fmt::format("{}:{}", text.size(), text);
  return all;
}

std::vector<std::string> unpacked(std::string_view all) {
  std::vector<std::string> texts;
  while (!all.empty()) {
    const std::size_t colon = all.find(':');
    expect(colon != std::string_view::npos, "facts of a rank came in a form that is not known");
    const std::size_t length = std::stoull(std::string(all.substr(0, colon)));
    texts.emplace_back(all.substr(colon + 1, length));
    all.remove_prefix(std::min(all.size(), colon + 1 + length));
  }
  return texts;
}

// What is compared, in the order of the names.
std::string compared(const Facts& facts) {
  std::vector<std::pair<std::string_view, std::string_view>> sorted;
  for (const Fact& fact : facts) sorted.emplace_back(fact.name, fact.value);
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::string_view> texts;
  for (const auto& [name, value] : sorted) {
    expect(texts.empty() || texts[texts.size() - 2] != name, "a fact is in the list twice");
    texts.push_back(name);
    texts.push_back(value);
  }
  return packed(texts);
}

std::string sent(const Facts& facts) {
  std::vector<std::string_view> texts;
  for (const Fact& fact : facts) {
    texts.push_back(fact.name);
    texts.push_back(fact.value);
    texts.push_back(fact.place);
  }
  return packed(texts);
}

Facts received(const std::string& text) {
  const std::vector<std::string> texts = unpacked(text);
  Facts facts;
  for (std::size_t begin = 0; begin + 3 <= texts.size(); begin += 3)
    facts.push_back({texts[begin], texts[begin + 1], {}, texts[begin + 2]});
  return facts;
}

bool continues_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U;
}

// The part from `begin` on that a line has room for.
std::string shortened(const std::string& text, std::size_t begin) {
  while (begin > 0 && begin < text.size() && continues_character(text[begin])) --begin;
  std::size_t end = std::min(text.size(), begin + longest_value);
  while (end < text.size() && end > begin && continues_character(text[end])) --end;
  return fmt::format("{}{}{}", begin > 0 ? "…" : "",
                     printable(std::string_view(text).substr(begin, end - begin), most_shown_bytes),
                     end < text.size() ? "…" : "");
}

// "rank 1", "ranks 0 to 3", "ranks 0, 2 and 5 more".
std::string ranks_text(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return fmt::format("rank {} has", ranks[0]);
  const bool together = ranks.back() - ranks.front() == static_cast<int>(ranks.size()) - 1;
  if (together && ranks.size() > 2)
    return fmt::format("ranks {} to {} have", ranks.front(), ranks.back());
  if (ranks.size() == 2) return fmt::format("ranks {} and {} have", ranks[0], ranks[1]);
  return fmt::format("ranks {}, {} and {} more have", ranks[0], ranks[1], ranks.size() - 2);
}

// Ranks with one value.
struct Party {
  const Fact* fact = nullptr;  // of the first of them; null = they have no such fact
  std::vector<int> ranks;
};

// Where ranks have the same facts, they have them at the same `place`.
const Fact* find_fact(const Facts& facts, const std::string& name, std::size_t place) {
  if (place < facts.size() && facts[place].name == name) return &facts[place];
  const auto found =
      std::find_if(facts.begin(), facts.end(), [&](const Fact& fact) { return fact.name == name; });
  return found == facts.end() ? nullptr : &*found;
}

std::vector<Party> parties_of(const std::vector<Facts>& facts_of_ranks, const std::string& name,
                              std::size_t place) {
  std::vector<Party> parties;
  for (std::size_t rank = 0; rank < facts_of_ranks.size(); ++rank) {
    const Fact* mine = find_fact(facts_of_ranks[rank], name, place);
    auto party = std::find_if(parties.begin(), parties.end(), [&](const Party& other) {
      if (mine == nullptr || other.fact == nullptr) return mine == other.fact;
      return mine->value == other.fact->value;
    });
    if (party == parties.end()) party = parties.insert(party, Party{mine, {}});
    party->ranks.push_back(static_cast<int>(rank));
  }
  return parties;
}

// Long values are shown from a little before the place where they part.
std::size_t first_shown(const std::vector<std::string>& values) {
  const bool fit = std::all_of(values.begin(), values.end(),
                               [](const auto& value) { return value.size() <= longest_value; });
  if (fit || values.size() < 2) return 0;
  std::size_t alike = values[0].size();
  for (const std::string& value : values) {
    const auto parted =
        std::mismatch(value.begin(), value.end(), values[0].begin(), values[0].end());
    alike = std::min(alike, static_cast<std::size_t>(parted.first - value.begin()));
  }
  return alike - std::min<std::size_t>(alike, longest_value / 4);
}

std::string describe(const std::string& name, const std::vector<Party>& parties) {
  std::vector<std::string> values;
  for (const Party& party : parties) {
    if (party.fact != nullptr) values.push_back(party.fact->value);
  }
  const std::size_t begin = first_shown(values);
  std::string text = fmt::format("{}: ", shortened(name, 0));
  for (std::size_t index = 0; index < std::min(parties.size(), values_shown); ++index) {
    const Party& party = parties[index];
    text += fmt::format("{}{} ", index == 0 ? "" : ", ", ranks_text(party.ranks));
    if (party.fact == nullptr) {
      text += "none";
      continue;
    }
    text += party.fact->value.empty() ? "\"\"" : shortened(party.fact->value, begin);
    const std::string& place = party.fact->place;
    // The end of a path says more than its beginning.
    if (!place.empty()) {
      text += fmt::format(" ({})",
                          shortened(place, place.size() - std::min(place.size(), longest_value)));
    }
  }
  if (parties.size() > values_shown)
    text += fmt::format(", others {} more values", parties.size() - values_shown);
  for (const Party& party : parties) {
    if (party.fact != nullptr && party.fact->remedy)
      return text + "; " + party.fact->remedy(values);
  }
  return text + "; all ranks have to be started alike";
}

}  // namespace

Remedy advise(std::string text) {
  return [text = std::move(text)](const std::vector<std::string>&) { return text; };
}

void append(Facts more, Facts& facts) {
  std::move(more.begin(), more.end(), std::back_inserter(facts));
}

std::string describe_differences(const std::vector<Facts>& facts_of_ranks) {
  std::vector<std::string> names;
  std::set<std::string_view> known;
  for (const Facts& facts : facts_of_ranks) {
    for (const Fact& fact : facts) {
      if (known.insert(fact.name).second) names.push_back(fact.name);
    }
  }
  std::string message;
  std::size_t left_out = 0;
  for (std::size_t place = 0; place < names.size(); ++place) {
    const std::vector<Party> parties = parties_of(facts_of_ranks, names[place], place);
    if (parties.size() < 2) continue;
    const std::string line = describe(names[place], parties);
    if (message.empty()) {
      message = line;
    } else if (message.size() + line.size() + 40 < most_message_bytes) {
      message += "\n  " + line;
    } else {
      ++left_out;
    }
  }
  if (left_out > 0) message += fmt::format("\n  and {} more that differ", left_out);
  return message;
}

void agree_on(Session& session, const std::function<Facts()>& find) {
  if (session.size() == 1) return;
  Facts mine;
  session.agree([&] { mine = find(); });
  if (session.all_agree(compared(mine))) return;
  std::vector<Facts> all;
  for (const std::string& text : session.gather(sent(mine))) all.push_back(received(text));
  std::string message;
  if (session.rank() == 0) {
    // Only the values travelled: what to do about them is what this rank says.
    for (Facts& facts : all) {
      for (std::size_t place = 0; place < facts.size(); ++place) {
        const Fact* known = find_fact(mine, facts[place].name, place);
        if (known != nullptr) facts[place].remedy = known->remedy;
      }
    }
    message = describe_differences(all);
  }
  message = session.broadcast(message);
  session.agree([&] { throw ConfigError(message); });
}

}  // namespace garonne::dist
