#include "data/tokenizers/sentencepiece_encoder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <mutex>
#include <queue>
#include <thread>
#include <utility>

#include "base/error.hpp"

namespace garonne::data {
namespace {

using Kind = SentencePiece::Kind;

// Texts up to here are encoded as a whole; sums of a unigram model, which are float32, still have
// digits for that much.
constexpr std::size_t section_bytes = std::size_t{64} << 10;
// A text that cannot be cut for longer is none.
constexpr std::size_t most_section_bytes = std::size_t{64} << 20;
constexpr std::size_t most_merged = std::size_t{1} << 16;
constexpr std::size_t longest_merged = 64;

// Sums begin anew below it.
constexpr float least_sum = -1e5F;

// Below the least score of a piece.
constexpr float unknown_penalty = 10;
// Of a user's symbol, for each byte behind the first: more than any piece has.
constexpr float symbol_score = 0.1F;

bool is_word(Kind kind) {
  return kind == Kind::Normal || kind == Kind::UserDefined || kind == Kind::Unused;
}

}  // namespace

SentencePieceRules::SentencePieceRules(SentencePieceModel given)
    : model(std::move(given)), normaliser(model) {
  float least = std::numeric_limits<float>::max();
  for (std::uint32_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePiece& piece = model.pieces[id];
    if (piece.kind == Kind::Normal) least = std::min(least, piece.score);
    if (const auto byte = byte_of_piece(piece.text); byte && piece.kind == Kind::Byte)
      of_bytes[*byte] = id;
    if (!is_word(piece.kind)) {
      reserved.emplace(piece.text, id);
    } else if (model.algorithm == SentencePieceModel::Algorithm::Bpe) {
      words.emplace(piece.text, id);
    } else {
      trie.insert(piece.text, id);
    }
  }
  unknown_score = least - unknown_penalty;
}

void SectionEncoder::put(std::string_view text, std::uint32_t id,
                         std::vector<std::uint32_t>& tokens) const {
  const SentencePieceModel& model = rules_->model;
  if (id != model.unknown) {
    tokens.push_back(id);
  } else if (model.byte_fallback) {
    for (const char letter : text)
      tokens.push_back(rules_->of_bytes[static_cast<unsigned char>(letter)]);
  } else if (tokens.empty() || tokens.back() != id) {
    // Several in a row are one.
    tokens.push_back(id);
  }
}

void SectionEncoder::encode(std::string_view section, SentencePieceNormaliser::Ends ends,
                            std::vector<std::uint32_t>& tokens) {
  normal_.clear();
  rules_->normaliser.append(section, ends, normal_);
  if (rules_->model.algorithm == SentencePieceModel::Algorithm::Bpe) {
    bpe(normal_, tokens);
  } else {
    unigram(normal_, tokens);
  }
}

// The best way to each place, from left to right (Viterbi). Scores are added in float32, and sums
// begin anew, as in SentencePiece 0.2.3, so that of ways with nearly equal scores the same is
// taken.
void SectionEncoder::unigram(std::string_view normal, std::vector<std::uint32_t>& tokens) {
  const auto& pieces = rules_->model.pieces;
  best_.assign(normal.size() + 1, Best());
  std::size_t reached = 0;
  for (std::size_t begin = 0; begin < normal.size();) {
    if (best_[begin].score < least_sum) {
      const float so_far = best_[begin].score;
      for (std::size_t end = begin; end < std::min(reached + 1, best_.size()); ++end)
        best_[end].score -= so_far;
    }
    const float until = best_[begin].score;
    const std::size_t character =
        std::min(first_character(normal.substr(begin)).bytes, normal.size() - begin);
    bool single = false;
    const auto offer = [&](std::size_t end, std::uint32_t id, float score) {
      Best& best = best_[end];
      if (best.begin >= 0 && score <= best.score) return;
      reached = std::max(reached, end);
      best = {score, static_cast<std::int32_t>(begin), id};
    };
    ByteTrie::Node node = ByteTrie::root;
    for (std::size_t end = begin; end < normal.size();) {
      node = rules_->trie.step(node, static_cast<unsigned char>(normal[end]));
      if (node == ByteTrie::none) break;
      ++end;
      const std::uint32_t id = rules_->trie.value(node);
      if (id == ByteTrie::none || pieces[id].kind == Kind::Unused) continue;
      const std::size_t bytes = end - begin;
      if (pieces[id].kind == Kind::UserDefined) {
        offer(end, id, symbol_score * static_cast<float>(bytes) - symbol_score + until);
      } else {
        offer(end, id, pieces[id].score + until);
      }
      single = single || bytes == character;
    }
    if (!single) offer(begin + character, rules_->model.unknown, rules_->unknown_score + until);
    begin += character;
  }
  std::vector<std::pair<std::size_t, std::size_t>> way;
  for (std::size_t end = normal.size(); end > 0;) {
    const auto begin = static_cast<std::size_t>(best_[end].begin);
    way.emplace_back(begin, end);
    end = begin;
  }
  for (auto part = way.rbegin(); part != way.rend(); ++part)
    put(normal.substr(part->first, part->second - part->first), best_[part->second].id, tokens);
}

// Merges stay within what pieces join, so that each such word is merged by itself, and once.
void SectionEncoder::bpe(std::string_view normal, std::vector<std::uint32_t>& tokens) {
  std::size_t begin = 0;
  const auto word = [&](std::size_t end) {
    const std::string_view text = normal.substr(begin, end - begin);
    begin = end;
    if (text.size() > longest_merged) return merge(text, tokens);
    std::string key(text);
    auto found = merged_.find(key);
    if (found == merged_.end()) {
      if (merged_.size() >= most_merged) merged_.clear();
      std::vector<std::uint32_t> made;
      merge(text, made);
      found = merged_.emplace(std::move(key), std::move(made)).first;
    }
    for (const std::uint32_t id : found->second) {
      // Bytes that no piece has are tokens of their own already.
      if (id == rules_->model.unknown && !tokens.empty() && tokens.back() == id) continue;
      tokens.push_back(id);
    }
  };
  char32_t before = 0;
  for (std::size_t at = 0; at < normal.size();) {
    const FirstCharacter here = first_character(normal.substr(at));
    if (at > 0 && !rules_->normaliser.joined(before, here.value == ' ' ? 0x2581 : here.value))
      word(at);
    before = here.value == ' ' ? 0x2581 : here.value;
    at += here.bytes;
  }
  if (!normal.empty()) word(normal.size());
}

void SectionEncoder::merge(std::string_view word, std::vector<std::uint32_t>& tokens) {
  struct Part {
    std::int32_t before = -1;
    std::int32_t after = -1;
    bool whole = false;  // a user's symbol
    std::string_view text;
  };
  struct Pair {
    float score = 0;
    std::int32_t left = 0;
    std::int32_t right = 0;
    std::size_t bytes = 0;
    // The highest score first, of equals the leftmost.
    bool operator<(const Pair& other) const {
      return score != other.score ? score < other.score : left > other.left;
    }
  };
  const auto& pieces = rules_->model.pieces;
  std::vector<Part> parts;
  for (std::size_t at = 0; at < word.size();) {
    Part part;
    const std::size_t bytes =
        std::min(rules_->normaliser.first_symbol(word.substr(at), part.whole), word.size() - at);
    part.text = word.substr(at, bytes);
    part.before = static_cast<std::int32_t>(parts.size()) - 1;
    at += bytes;
    part.after = at < word.size() ? static_cast<std::int32_t>(parts.size()) + 1 : -1;
    parts.push_back(part);
  }
  std::priority_queue<Pair> pairs;
  // Pieces that are not used are taken apart again in the end.
  std::unordered_map<std::string_view, std::pair<std::string_view, std::string_view>> halves;
  const auto part_at = [&](std::int32_t i) -> Part& { return parts[static_cast<std::size_t>(i)]; };
  const auto offer = [&](std::int32_t left, std::int32_t right) {
    if (left < 0 || right < 0 || part_at(left).whole || part_at(right).whole) return;
    const std::string_view text(part_at(left).text.data(),
                                part_at(left).text.size() + part_at(right).text.size());
    const auto found = rules_->words.find(text);
    if (found == rules_->words.end()) return;
    pairs.push({pieces[found->second].score, left, right, text.size()});
    if (pieces[found->second].kind == Kind::Unused)
      halves[text] = {part_at(left).text, part_at(right).text};
  };
  for (std::int32_t i = 1; i < static_cast<std::int32_t>(parts.size()); ++i) offer(i - 1, i);
  while (!pairs.empty()) {
    const Pair pair = pairs.top();
    pairs.pop();
    Part& left = part_at(pair.left);
    Part& right = part_at(pair.right);
    if (left.text.empty() || right.text.empty() ||
        left.text.size() + right.text.size() != pair.bytes)
      continue;
    left.text = std::string_view(left.text.data(), pair.bytes);
    left.after = right.after;
    if (right.after >= 0) part_at(right.after).before = pair.left;
    right.text = {};
    offer(left.before, pair.left);
    offer(pair.left, left.after);
  }
  std::vector<std::string_view> rest;
  for (std::int32_t i = 0; i >= 0; i = part_at(i).after) {
    rest.push_back(part_at(i).text);
    while (!rest.empty()) {
      const std::string_view text = rest.back();
      rest.pop_back();
      const auto special = rules_->reserved.find(text);
      const auto found = rules_->words.find(text);
      const auto half = halves.find(text);
      if (special == rules_->reserved.end() && found != rules_->words.end() &&
          pieces[found->second].kind == Kind::Unused && half != halves.end()) {
        rest.push_back(half->second.second);
        rest.push_back(half->second.first);
      } else if (special != rules_->reserved.end()) {
        put(text, special->second, tokens);
      } else {
        put(text, found == rules_->words.end() ? rules_->model.unknown : found->second, tokens);
      }
    }
  }
}

SentencePieceEncoder::SentencePieceEncoder(const SentencePieceRules& rules, std::string name,
                                           int threads)
    : rules_(rules), name_(std::move(name)) {
  for (int i = 0; i < std::max(threads, 1); ++i) workers_.emplace_back(rules);
}

void SentencePieceEncoder::add(std::span<const std::byte> block,
                               std::vector<std::uint32_t>& tokens) {
  text_.append(reinterpret_cast<const char*>(block.data()), block.size());
  encode(/*text_ends=*/false, tokens);
}

void SentencePieceEncoder::finish(std::vector<std::uint32_t>& tokens) {
  encode(/*text_ends=*/true, tokens);
  begun_ = false;
}

void SentencePieceEncoder::encode(bool text_ends, std::vector<std::uint32_t>& tokens) {
  struct Job {
    std::string_view section;
    SentencePieceNormaliser::Ends ends;
    std::vector<std::uint32_t> tokens;
  };
  std::vector<Job> jobs;
  const std::string_view text = text_;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t from = std::max(begin + section_bytes, searched_);
    const auto cut = rules_.normaliser.find_cut(text, from, text_ends);
    if (!cut && !text_ends) {
      if (text.size() - begin > most_section_bytes)
        throw ConfigError("tokenizer", name_,
                          fmt::format("finds no place to cut a text at in {} bytes: it has no "
                                      "words",
                                      text.size() - begin));
      break;
    }
    const std::size_t end = cut.value_or(text.size());
    jobs.push_back({text.substr(begin, end - begin),
                    {.begins = !begun_ && begin == 0, .ends = !cut && text_ends},
                    {}});
    begin = end;
    searched_ = 0;
  }
  std::atomic<std::size_t> next{0};
  std::exception_ptr failure;
  std::mutex mutex;
  const auto take_jobs = [&](SectionEncoder& worker) {
    try {
      for (std::size_t job = next++; job < jobs.size(); job = next++)
        worker.encode(jobs[job].section, jobs[job].ends, jobs[job].tokens);
    } catch (...) {
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < std::min(workers_.size(), jobs.size()); ++i)
    threads.emplace_back(take_jobs, std::ref(workers_[i]));
  take_jobs(workers_[0]);
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
  for (const Job& job : jobs) tokens.insert(tokens.end(), job.tokens.begin(), job.tokens.end());
  begun_ = begun_ || begin > 0;
  text_.erase(0, begin);
  if (!text_ends && text_.size() > section_bytes + 4096) searched_ = text_.size() - 4096;
}

}  // namespace garonne::data
