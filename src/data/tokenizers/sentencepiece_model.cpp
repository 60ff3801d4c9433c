#include "data/tokenizers/sentencepiece_model.hpp"

#include <fmt/format.h>

#include <bit>
#include <bitset>
#include <charconv>
#include <cmath>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/printable.hpp"

namespace garonne::data {
namespace {

using Kind = SentencePiece::Kind;

constexpr std::size_t most_pieces = std::size_t{1} << 24;
// Those of SentencePiece's own rules have a tenth of it.
constexpr std::size_t longest_rule = 256;
constexpr std::size_t longest_piece = 4096;

constexpr const char* no_model =
    "is no message of SentencePiece: the file is damaged, or none of its models";

// Where the file is at fault, for messages.
struct Place {
  const std::string& file;
  FileOwner owner;
  [[noreturn]] void refuse(const std::string& key, const std::string& why) const {
    refuse_value(owner, file, key, "", why);
  }
};

// A message of protocol buffers, field by field.
class Message {
 public:
  Message(std::string_view bytes, const Place& place, std::string name)
      : left_(bytes), place_(place), name_(std::move(name)) {}

  // False at the end.
  bool next() {
    if (left_.empty()) return false;
    const std::uint64_t key = varint();
    field_ = key >> 3;
    wire_ = static_cast<int>(key & 7);
    if (field_ == 0) damaged();
    switch (wire_) {
      case 0:
        number_ = varint();
        break;
      case 1:
        number_ = fixed(8);
        break;
      case 2:
        content_ = take(varint());
        break;
      case 5:
        number_ = fixed(4);
        break;
      default:
        damaged();
    }
    return true;
  }

  std::uint64_t field() const { return field_; }
  std::string_view content() const { return wire_ == 2 ? content_ : damaged(); }
  std::int64_t integer() const {
    return wire_ == 0 ? std::bit_cast<std::int64_t>(number_) : (damaged(), 0);
  }
  bool truth() const { return integer() != 0; }
  float number() const {
    return wire_ == 5 ? std::bit_cast<float>(static_cast<std::uint32_t>(number_)) : (damaged(), 0);
  }

  // What the parser of every program refuses.
  [[noreturn]] std::string_view damaged() const { place_.refuse(name_, no_model); }

 private:
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (left_.empty()) damaged();
      const auto byte = static_cast<unsigned char>(left_[0]);
      left_.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    damaged();
  }

  std::string_view take(std::uint64_t bytes) {
    if (bytes > left_.size()) damaged();
    const std::string_view taken = left_.substr(0, static_cast<std::size_t>(bytes));
    left_.remove_prefix(taken.size());
    return taken;
  }

  std::uint64_t fixed(std::size_t bytes) {
    const std::string_view taken = take(bytes);
    std::uint64_t value = 0;
    for (std::size_t i = bytes; i-- > 0;)
      value = (value << 8) | static_cast<unsigned char>(taken[i]);
    return value;
  }

  std::string_view left_;
  const Place& place_;
  std::string name_;
  std::uint64_t field_ = 0;
  int wire_ = 0;
  std::uint64_t number_ = 0;
  std::string_view content_;
};

SentencePiece read_piece(std::string_view bytes, const Place& place, std::size_t number) {
  const std::string name = fmt::format("pieces[{}]", number);
  SentencePiece piece;
  Message message(bytes, place, name);
  while (message.next()) {
    switch (message.field()) {
      case 1:
        piece.text = message.content();
        break;
      case 2:
        piece.score = message.number();
        break;
      case 3: {
        const std::int64_t kind = message.integer();
        if (kind < 1 || kind > 6) place.refuse(name + ".type", "is none of the types 1 to 6");
        piece.kind = static_cast<Kind>(kind);
        break;
      }
      default:
        break;
    }
  }
  if (piece.text.empty()) place.refuse(name + ".piece", "must not be empty");
  if (piece.text.size() > longest_piece)
    place.refuse(name + ".piece", fmt::format("has more than {} bytes", longest_piece));
  if (!std::isfinite(piece.score)) place.refuse(name + ".score", "must be finite");
  return piece;
}

// The double array of Darts-clone: a unit for each node, found by the exclusive or of an offset and
// the next byte.
struct Unit {
  std::uint32_t bits;
  bool has_leaf() const { return ((bits >> 8) & 1U) != 0; }
  std::uint32_t value() const { return bits & 0x7FFFFFFFU; }
  std::uint32_t label() const { return bits & (0x80000000U | 0xFFU); }
  std::uint32_t offset() const { return (bits >> 10) << ((bits & 0x200U) >> 6); }
};

// The rules of a precompiled map: a double array with its bytes in front, then the replacements.
void read_rules(std::string_view map, const Place& place, SentencePieceModel& model) {
  const std::string name = "normalizer_spec.precompiled_charsmap";
  const auto damaged = [&]() { place.refuse(name, "is damaged"); };
  model.rules.clear();
  model.replacements.clear();
  if (map.empty()) return;
  const auto word = [&](std::size_t at) {
    std::uint32_t value = 0;
    for (std::size_t i = 4; i-- > 0;)
      value = (value << 8) | static_cast<unsigned char>(map[at + i]);
    return value;
  };
  if (map.size() < 4) damaged();
  const std::size_t bytes = word(0);
  if (bytes % 4 != 0 || bytes == 0 || bytes > map.size() - 4) damaged();
  const std::size_t count = bytes / 4;
  const auto unit = [&](std::size_t node) {
    if (node >= count) damaged();
    return Unit{word(4 + 4 * node)};
  };
  model.replacements = map.substr(4 + bytes);
  struct Visit {
    std::uint32_t base;  // exclusive or of a node and its offset
    std::string from;
  };
  std::vector<Visit> visits{{unit(0).offset(), ""}};
  std::size_t visited = 0;
  while (!visits.empty()) {
    const Visit visit = std::move(visits.back());
    visits.pop_back();
    // Words share their ends in the array, so that there are more than it has units: six times as
    // many in SentencePiece's own rules.
    if (++visited > 64 * count || visit.from.size() >= longest_rule) damaged();
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t node = visit.base ^ byte;
      if (node >= count) continue;
      const Unit next = unit(node);
      if (next.label() != byte) continue;
      Visit deeper{node ^ next.offset(), visit.from + static_cast<char>(byte)};
      if (next.has_leaf()) {
        const std::uint32_t to = unit(deeper.base).value();
        if (to >= model.replacements.size() ||
            model.replacements.find('\0', to) == std::string::npos)
          damaged();
        model.rules.push_back({deeper.from, to});
      }
      visits.push_back(std::move(deeper));
    }
  }
}

void read_trainer(std::string_view bytes, const Place& place, SentencePieceModel& model) {
  Message message(bytes, place, "trainer_spec");
  while (message.next()) {
    switch (message.field()) {
      case 3: {
        const std::int64_t type = message.integer();
        if (type != 1 && type != 2)
          place.refuse("trainer_spec.model_type",
                       fmt::format("is {}; known are 1, unigram, and 2, BPE", type));
        model.algorithm = static_cast<SentencePieceModel::Algorithm>(type);
        break;
      }
      case 24:
        model.space_behind = message.truth();
        break;
      case 35:
        model.byte_fallback = message.truth();
        break;
      case 44:
        model.unknown_text = message.content();
        break;
      case 46:
        model.begin_piece = message.content();
        break;
      case 47:
        model.end_piece = message.content();
        break;
      default:
        break;
    }
  }
}

void read_normaliser(std::string_view bytes, const Place& place, SentencePieceModel& model) {
  Message message(bytes, place, "normalizer_spec");
  while (message.next()) {
    switch (message.field()) {
      case 2:
        read_rules(message.content(), place, model);
        break;
      case 3:
        model.dummy_prefix = message.truth();
        break;
      case 4:
        model.single_spaces = message.truth();
        break;
      case 5:
        model.visible_spaces = message.truth();
        break;
      default:
        break;
    }
  }
}

void check_pieces(const Place& place, SentencePieceModel& model) {
  std::unordered_set<std::string_view> words;
  std::unordered_set<std::string_view> reserved;
  std::optional<std::uint32_t> unknown;
  std::bitset<256> bytes;
  for (std::size_t i = 0; i < model.pieces.size(); ++i) {
    const SentencePiece& piece = model.pieces[i];
    const bool is_word =
        piece.kind == Kind::Normal || piece.kind == Kind::UserDefined || piece.kind == Kind::Unused;
    if (!(is_word ? words : reserved).insert(piece.text).second)
      place.refuse(fmt::format("pieces[{}].piece", i),
                   fmt::format("\"{}\" is there already", printable(piece.text.substr(0, 64))));
    if (piece.kind == Kind::Unknown) {
      if (unknown) place.refuse(fmt::format("pieces[{}].type", i), "is a second unknown piece");
      unknown = static_cast<std::uint32_t>(i);
    }
    if (piece.kind == Kind::Byte) {
      const auto byte = byte_of_piece(piece.text);
      if (!byte || !model.byte_fallback)
        place.refuse(fmt::format("pieces[{}].type", i),
                     "is a byte, and its text or "
                     "trainer_spec.byte_fallback says none");
      bytes.set(*byte);
    }
  }
  if (model.pieces.empty()) place.refuse("the file", no_model);
  if (!unknown) place.refuse("pieces", "has no unknown piece");
  model.unknown = *unknown;
  if (model.byte_fallback && !bytes.all())
    place.refuse("pieces", "lacks some of the 256 bytes that trainer_spec.byte_fallback wants");
}

}  // namespace

std::optional<unsigned char> byte_of_piece(std::string_view text) {
  unsigned value = 0;
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return std::nullopt;
  const auto [end, error] = std::from_chars(text.data() + 3, text.data() + 5, value, 16);
  if (error != std::errc() || end != text.data() + 5) return std::nullopt;
  return static_cast<unsigned char>(value);
}

SentencePieceModel read_sentencepiece(std::string_view bytes, const std::string& file,
                                      FileOwner owner) {
  const Place place{file, owner};
  SentencePieceModel model;
  Message message(bytes, place, "the file");
  while (message.next()) {
    switch (message.field()) {
      case 1:
        if (model.pieces.size() == most_pieces) place.refuse("pieces", "are more than 2^24");
        model.pieces.push_back(read_piece(message.content(), place, model.pieces.size()));
        break;
      case 2:
        read_trainer(message.content(), place, model);
        break;
      case 3:
        read_normaliser(message.content(), place, model);
        break;
      case 5: {
        Message denormaliser(message.content(), place, "denormalizer_spec");
        while (denormaliser.next()) {
          if (denormaliser.field() == 2 && !denormaliser.content().empty())
            place.refuse("denormalizer_spec.precompiled_charsmap",
                         "must be empty: tokens are shown as they are here");
        }
        break;
      }
      default:
        break;
    }
  }
  check_pieces(place, model);
  return model;
}

}  // namespace garonne::data
