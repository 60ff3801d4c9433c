#include "data/tokenizers/bpe_description.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <unordered_map>
#include <unordered_set>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/json_output.hpp"
#include "data/tokenizers/byte_alphabet.hpp"
#include "data/tokenizers/pattern.hpp"
#include "data/tokenizers/unicode_text.hpp"

namespace garonne::data {
namespace {

constexpr std::int64_t most_tokens = std::int64_t{1} << 31;

constexpr const char* of_sentencepiece =
    "this one was made of a model of SentencePiece: give that, a .model file, in its place";

constexpr const char* gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

bool is_null(const JsonPlace& place, std::string_view key) {
  return !place.has(key) || place.key(key).json().is_null();
}

bool truth_of(const JsonPlace& place, std::string_view key, bool otherwise) {
  return is_null(place, key) ? otherwise : place.key(key).truth();
}

std::string type_of(const JsonPlace& place) {
  place.expect_object();
  return place.key("type").text();
}

// A list of the parts where `place` is a Sequence, else the one.
std::vector<JsonPlace> parts_of(const JsonPlace& place, std::string_view list) {
  if (type_of(place) != "Sequence") return {place};
  return place.key(list).elements();
}

void read_model(const JsonPlace& model, BpeDescription& read) {
  model.expect_object();
  if (!is_null(model, "type") && model.key("type").text() == "Unigram")
    model.key("type").refuse(fmt::format("known is BPE of bytes; {}", of_sentencepiece));
  if (!is_null(model, "type") && model.key("type").text() != "BPE")
    model.key("type").refuse("known is BPE of bytes");
  if (!is_null(model, "dropout") && model.key("dropout").number() != 0)
    model.key("dropout").refuse("must be null: equal texts are to be equal tokens");
  for (const char* mark : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!is_null(model, mark) && !model.key(mark).text().empty())
      model.key(mark).refuse("must be empty: tokens of bytes have no marks");
  }
  if (truth_of(model, "byte_fallback", false))
    model.key("byte_fallback")
        .refuse(fmt::format("must be false, every byte is a token; {}", of_sentencepiece));
  read.whole_words = truth_of(model, "ignore_merges", false);
  for (const auto& [word, id] : model.key("vocab").members())
    read.words.emplace_back(word, static_cast<std::uint32_t>(id.integer(0, most_tokens)));
  for (const JsonPlace& merge : model.key("merges").elements()) {
    if (merge.json().is_string()) {
      const std::string both = merge.text();
      const std::size_t space = both.find(' ');
      if (space == std::string::npos || both.find(' ', space + 1) != std::string::npos)
        merge.refuse("must be two tokens with one space between them");
      read.merges.emplace_back(both.substr(0, space), both.substr(space + 1));
    } else {
      const std::vector<std::string> both = merge.texts();
      if (both.size() != 2) merge.refuse("must be two tokens");
      read.merges.emplace_back(both[0], both[1]);
    }
  }
}

void read_normaliser(const JsonPlace& normaliser, BpeDescription& read) {
  for (const JsonPlace& part : parts_of(normaliser, "normalizers")) {
    if (type_of(part) != "NFC") part.key("type").refuse("known is NFC");
    read.normal_form_c = true;
  }
}

SplitRule read_split(const JsonPlace& split) {
  SplitRule rule;
  const JsonPlace pattern = split.key("pattern");
  pattern.expect_object();
  rule.pattern = pattern.has("Regex") ? pattern.key("Regex").text()
                                      : Pattern::literal(pattern.key("String").text());
  const std::string behaviour = split.key("behavior").text();
  const bool invert = truth_of(split, "invert", false);
  if (behaviour == "Removed" && invert) {
    rule.keeps_rest = false;
  } else if (behaviour != "Isolated") {
    split.key("behavior").refuse("known are Isolated, and Removed with invert");
  }
  return rule;
}

void read_pre_tokenizer(const JsonPlace& pre_tokenizer, BpeDescription& read) {
  bool of_bytes = false;
  for (const JsonPlace& part : parts_of(pre_tokenizer, "pretokenizers")) {
    const std::string type = type_of(part);
    if (of_bytes) part.refuse("stands behind ByteLevel, which has to come last");
    if (type == "Split") {
      read.splits.push_back(read_split(part));
    } else if (type == "Digits") {
      const bool each = truth_of(part, "individual_digits", false);
      read.splits.push_back({each ? "\\p{N}" : "\\p{N}+", true});
    } else if (type == "ByteLevel") {
      of_bytes = true;
      read.leading_space = truth_of(part, "add_prefix_space", true);
      if (read.leading_space && !read.splits.empty())
        part.key("add_prefix_space").refuse("must be false behind what splits");
      if (truth_of(part, "use_regex", true)) read.splits.push_back({gpt2_pattern, true});
    } else {
      part.key("type").refuse(fmt::format("known are Split, Digits and ByteLevel{}{}",
                                          type == "Metaspace" ? "; " : "",
                                          type == "Metaspace" ? of_sentencepiece : ""));
    }
  }
  if (!of_bytes) pre_tokenizer.refuse("has no ByteLevel: known are tokenizers of bytes");
}

// Hugging Face gives added tokens ids itself, whatever their file says: one that is in the
// vocabulary has its id there, any other the next behind the vocabulary and those before it.
class AddedIds {
 public:
  explicit AddedIds(const BpeDescription& read) : next_(read.words.size()) {
    for (const auto& [word, id] : read.words) {
      of_words_.emplace(word, id);
      used_.insert(id);
    }
  }

  void expect(const JsonPlace& entry, const AddedToken& token) {
    const auto known = of_words_.find(token.content);
    const std::uint64_t id = known == of_words_.end() ? next_ : known->second;
    if (token.id != id) {
      entry.key("id").refuse(fmt::format(
          "is {} to Hugging Face, {}", id,
          known == of_words_.end() ? "which takes the next id behind the vocabulary and the added "
                                     "tokens before this one: write that"
                                   : "which takes that of the vocabulary: write that"));
    }
    if (known == of_words_.end() && !used_.insert(token.id).second)
      entry.key("id").refuse("is that of another token: give the vocabulary ids without gaps");
    next_ = std::max<std::uint64_t>(next_, id + 1);
  }

 private:
  std::unordered_map<std::string, std::uint32_t> of_words_;
  std::unordered_set<std::uint32_t> used_;
  std::uint64_t next_;
};

// What Hugging Face would read otherwise. To it white space that one token takes is still found as
// the beginning of another.
void expect_added_as_there(const JsonPlace& list, const BpeDescription& read) {
  AddedIds ids(read);
  std::unordered_set<std::string> contents;
  std::unordered_set<std::string> normal_forms;
  for (std::size_t i = 0; i < read.added.size(); ++i) {
    const AddedToken& token = read.added[i];
    const JsonPlace entry = list.element(i);
    if (!contents.insert(token.content).second)
      entry.key("content").refuse("is that of a token before it: leave one of them out");
    if (token.normalised && !normal_forms.insert(searched_content(token, read)).second)
      entry.key("content").refuse(
          "has the normal form of a token before it: leave one of them out");
    ids.expect(entry, token);
    const auto takes_from = [&](const AddedToken& other) {
      return other.takes_right && other.normalised == token.normalised;
    };
    if (leading_white_space(token.content) > 0 &&
        std::any_of(read.added.begin(), read.added.end(), takes_from)) {
      entry.key("content").refuse(
          "must not begin with white space where an added token has rstrip, which takes it");
    }
  }
}

void read_added(const JsonPlace& list, BpeDescription& read) {
  for (const JsonPlace& entry : list.elements()) {
    AddedToken token;
    token.id = static_cast<std::uint32_t>(entry.key("id").integer(0, most_tokens));
    token.content = entry.key("content").text();
    if (token.content.empty()) entry.key("content").refuse("must not be empty");
    token.takes_left = truth_of(entry, "lstrip", false);
    token.takes_right = truth_of(entry, "rstrip", false);
    token.special = truth_of(entry, "special", false);
    token.normalised = truth_of(entry, "normalized", !token.special);
    if (truth_of(entry, "single_word", false))
      entry.key("single_word").refuse("must be false: what words are is not known here");
    read.added.push_back(std::move(token));
  }
}

std::string tokenizer_json(const nlohmann::ordered_json& added, const nlohmann::ordered_json& vocab,
                           const nlohmann::ordered_json& merges, bool splits) {
  const auto of_bytes = [&](bool prefix) {
    return nlohmann::ordered_json{{"type", "ByteLevel"},
                                  {"add_prefix_space", prefix},
                                  {"trim_offsets", true},
                                  {"use_regex", splits}};
  };
  const nlohmann::ordered_json whole = {{"version", "1.0"},
                                        {"truncation", nullptr},
                                        {"padding", nullptr},
                                        {"added_tokens", added},
                                        {"normalizer", nullptr},
                                        {"pre_tokenizer", of_bytes(false)},
                                        {"post_processor", nullptr},
                                        {"decoder", of_bytes(true)},
                                        {"model",
                                         {{"type", "BPE"},
                                          {"dropout", nullptr},
                                          {"unk_token", nullptr},
                                          {"continuing_subword_prefix", nullptr},
                                          {"end_of_word_suffix", nullptr},
                                          {"fuse_unk", false},
                                          {"byte_fallback", false},
                                          {"ignore_merges", false},
                                          {"vocab", vocab},
                                          {"merges", merges}}}};
  // Bytes that are no UTF-8 are letters nobody has; read_bpe finds them unknown.
  return json_text(whole, 1) + "\n";
}

}  // namespace

BpeDescription read_bpe(const std::string& json, const std::string& file, FileOwner owner) {
  const nlohmann::json parsed = parse_json(json, file, owner);
  const JsonFile opened(parsed, file, owner);
  const JsonPlace root = opened.root();
  root.expect_object();
  BpeDescription read;
  read_model(root.key("model"), read);
  if (!is_null(root, "normalizer")) read_normaliser(root.key("normalizer"), read);
  if (is_null(root, "pre_tokenizer"))
    opened.refuse("pre_tokenizer", "null", "must have a ByteLevel: known are tokenizers of bytes");
  read_pre_tokenizer(root.key("pre_tokenizer"), read);
  if (!is_null(root, "added_tokens")) {
    read_added(root.key("added_tokens"), read);
    // Tokens that were made by a description have its ids, whoever else reads it otherwise.
    if (owner == FileOwner::User) expect_added_as_there(root.key("added_tokens"), read);
  }
  return read;
}

std::string searched_content(const AddedToken& token, const BpeDescription& description) {
  if (!token.normalised || !description.normal_form_c) return token.content;
  std::string normal;
  append_normal_form_c(token.content, normal);
  return normal;
}

std::string hash_of_rules(const BpeDescription& description) {
  std::vector<std::pair<std::string, std::uint32_t>> words = description.words;
  std::sort(words.begin(), words.end());
  std::vector<AddedToken> added = description.added;
  std::sort(added.begin(), added.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.content < b.content; });
  std::string whole;
  // Each with its length, so that no two lists of texts look alike.
  const auto text = [&](const std::string& one) { whole += fmt::format("{}:{}", one.size(), one); };
  whole += fmt::format("{} {} {};", description.whole_words, description.leading_space,
                       description.normal_form_c);
  for (const auto& [word, id] : words) {
    text(word);
    whole += fmt::format("{};", id);
  }
  whole += "merges";
  for (const auto& [left, right] : description.merges) {
    text(left);
    text(right);
  }
  whole += "splits";
  for (const SplitRule& split : description.splits) {
    text(split.pattern);
    whole += split.keeps_rest ? "+" : "-";
  }
  whole += "added";
  // Without a normal form it matters only which are looked for before the others.
  const bool any_normalised =
      std::any_of(added.begin(), added.end(), [](const auto& token) { return token.normalised; });
  const bool all_normalised =
      std::all_of(added.begin(), added.end(), [](const auto& token) { return token.normalised; });
  const bool one_search = !description.normal_form_c && any_normalised == all_normalised;
  for (const AddedToken& token : added) {
    text(token.content);
    whole += fmt::format("{} {} {} {};", token.id, token.takes_left, token.takes_right,
                         token.normalised && !one_search);
  }
  return hash_text(whole);
}

std::string leave_out_template(std::string& json) {
  nlohmann::ordered_json whole = parse_ordered_json(json, "tokenizer.json", FileOwner::Run);
  const auto processor = whole.find("post_processor");
  if (processor == whole.end() || processor->is_null()) return {};
  const auto type = [](const nlohmann::ordered_json& part) {
    const auto found = part.is_object() ? part.find("type") : part.end();
    return found != part.end() && found->is_string() ? found->get<std::string>() : "unknown";
  };
  const bool several = type(*processor) == "Sequence" && processor->contains("processors");
  nlohmann::ordered_json parts =
      several ? (*processor)["processors"] : nlohmann::ordered_json::array({*processor});
  if (!parts.is_array()) parts = nlohmann::ordered_json::array({parts});
  std::string taken;
  nlohmann::ordered_json kept;
  for (const nlohmann::ordered_json& part : parts) {
    if (type(part) == "ByteLevel") {
      kept = part;
    } else {
      taken += (taken.empty() ? "" : ", ") + type(part);
    }
  }
  if (taken.empty()) return {};
  *processor = std::move(kept);
  json = whole.dump(2) + "\n";
  return taken;
}

std::string tokenizer_json_of(const std::string& vocab_file, const std::string& merges_file) {
  const std::string advice = "give a tokenizer.json, or GPT-2's vocab.json and merges.txt";
  const std::string vocab_text = read_file_of_key("tokenizer", vocab_file, advice);
  const nlohmann::json vocab = parse_json(vocab_text, vocab_file);
  JsonFile(vocab, vocab_file).root().expect_object();
  nlohmann::ordered_json merges = nlohmann::ordered_json::array();
  std::istringstream lines(read_file_of_key("tokenizer", merges_file, advice));
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    // The first line may say a version. No merge begins with a bare sign of a comment and a word.
    if (line.empty() || line.rfind("#version", 0) == 0) continue;
    merges.push_back(line);
  }
  nlohmann::ordered_json added = nlohmann::ordered_json::array();
  const auto end = vocab.find("<|endoftext|>");
  if (end != vocab.end()) {
    added.push_back({{"id", *end},
                     {"content", "<|endoftext|>"},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  return tokenizer_json(added, vocab, merges, /*splits=*/true);
}

bool is_of_bytes(const BpeDescription& description) {
  if (!description.merges.empty() || !description.added.empty() || description.leading_space ||
      description.normal_form_c || description.words.size() != 256)
    return false;
  for (const SplitRule& split : description.splits) {
    if (!split.keeps_rest) return false;
  }
  for (const auto& [word, id] : description.words) {
    if (id > 255) return false;
    const char text = static_cast<char>(id);
    if (word != to_byte_letters({&text, 1})) return false;
  }
  return true;
}

std::string tokenizer_json_of_bytes() {
  nlohmann::ordered_json vocab = nlohmann::ordered_json::object();
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    vocab[to_byte_letters({&text, 1})] = byte;
  }
  return tokenizer_json(nlohmann::ordered_json::array(), vocab, nlohmann::ordered_json::array(),
                        /*splits=*/false);
}

}  // namespace garonne::data
