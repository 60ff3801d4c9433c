#include "data/tokenizers/bpe_encoder.hpp"

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>

#include "data/tokenizers/unicode_text.hpp"

namespace garonne::data {
namespace {

// What a thread takes at a time: long beside what it takes to join two parts.
constexpr std::size_t job_bytes = std::size_t{128} << 10;
// Two ways through a text meet after a few words; where they do not within so many pieces, the rest
// of the part is encoded again.
constexpr std::size_t most_marks = 1024;

// A place near `from` where a piece may well begin.
std::size_t likely_start(std::string_view text, std::size_t from) {
  const std::size_t newline = text.substr(from, 4096).find('\n');
  if (newline != std::string_view::npos) return from + newline + 1;
  return whole_characters(text, from);
}

}  // namespace

WordEncoder::WordEncoder(const BpeRules& rules) : rules_(&rules), cache_(rules.merges) {
  for (const BpeRules::Split& split : rules.splits) matchers_.emplace_back(split.pattern);
}

std::optional<std::size_t> WordEncoder::end_of_piece(std::string_view text, std::size_t from,
                                                     bool complete) {
  kept_ = true;
  if (matchers_.empty()) return complete ? std::optional(text.size()) : std::nullopt;
  const PatternMatcher::Match match = matchers_[0].find(text, from, complete);
  if (match.outcome == PatternMatcher::Outcome::Found) {
    if (match.begin == from) return match.end;
    kept_ = rules_->splits[0].keeps_rest;
    return match.begin;
  }
  if (!complete) return std::nullopt;
  kept_ = rules_->splits[0].keeps_rest;
  return text.size();
}

void WordEncoder::encode_piece(std::string_view piece, std::vector<std::uint32_t>& tokens) {
  if (kept_) encode_within(piece, 1, tokens);
}

void WordEncoder::encode_within(std::string_view piece, std::size_t split,
                                std::vector<std::uint32_t>& tokens) {
  if (split >= matchers_.size()) {
    cache_.encode(piece, tokens);
    return;
  }
  std::size_t done = 0;
  while (done < piece.size()) {
    const PatternMatcher::Match match = matchers_[split].find(piece, done, /*complete=*/true);
    const bool found = match.outcome == PatternMatcher::Outcome::Found;
    const std::size_t rest = found ? match.begin : piece.size();
    if (rest > done && rules_->splits[split].keeps_rest)
      encode_within(piece.substr(done, rest - done), split + 1, tokens);
    if (found) encode_within(piece.substr(match.begin, match.end - match.begin), split + 1, tokens);
    done = found ? match.end : piece.size();
  }
}

BpeEncoder::BpeEncoder(const BpeRules& rules, int threads) : rules_(rules) {
  for (int i = 0; i < std::max(threads, 1); ++i) workers_.emplace_back(rules);
  runs_.emplace_back();
}

void BpeEncoder::add(std::span<const std::byte> block, std::vector<std::uint32_t>& tokens) {
  cut_.append(reinterpret_cast<const char*>(block.data()), block.size());
  cut_.erase(0, append_valid_utf8(cut_, /*follows=*/true, text_));
  encode(/*text_ends=*/false, tokens);
}

void BpeEncoder::finish(std::vector<std::uint32_t>& tokens) {
  append_valid_utf8(cut_, /*follows=*/false, text_);
  cut_.clear();
  encode(/*text_ends=*/true, tokens);
}

void BpeEncoder::encode(bool text_ends, std::vector<std::uint32_t>& tokens) {
  read_runs(text_ends);
  std::vector<Job> jobs = make_jobs();
  work(jobs);
  std::span<Job> left(jobs);
  std::size_t used = 0;
  for (const Run& run : runs_) {
    std::size_t count = 0;
    while (count < left.size() && left[count].run == &run) ++count;
    used = join(left.first(count), tokens);
    left = left.subspan(count);
    if (run.token) tokens.push_back(*run.token);
  }
  Run last;
  if (!text_ends) {
    last.started = runs_.back().started;
    last.text = runs_.back().text.substr(used);
  }
  runs_.clear();
  runs_.push_back(std::move(last));
}

void BpeEncoder::close_run(std::uint32_t token) {
  runs_.back().complete = true;
  runs_.back().token = token;
  runs_.emplace_back();
}

// Takes what is certain from text_ by way of normal_ to the runs.
void BpeEncoder::read_runs(bool text_ends) {
  std::size_t limit = text_ends ? text_.size() : rules_.added.certain(text_);
  if (rules_.normal_form_c && !text_ends) {
    for (std::size_t before = limit + 1; limit < before;) {
      before = limit;
      limit = rules_.added.before_taken(text_, normal_form_cut(text_, limit));
    }
  }
  std::size_t done = 0;
  while (const auto found = rules_.added.find(text_, done, limit)) {
    normalise(std::string_view(text_).substr(done, found->begin - done), /*complete=*/true);
    close_run(found->id);
    done = found->end;
  }
  if (done < limit || text_ends) {
    normalise(std::string_view(text_).substr(done, std::max(limit, done) - done), text_ends);
    done = std::max(limit, done);
  }
  text_.erase(0, done);
  runs_.back().complete = text_ends;
  for (Run& run : runs_) {
    if (run.text.empty()) continue;
    if (rules_.leading_space && !run.started && run.text[0] != ' ') run.text.insert(0, 1, ' ');
    run.started = true;
  }
}

// `complete`: an added token or the end of the text follows.
void BpeEncoder::normalise(std::string_view text, bool complete) {
  if (rules_.normal_form_c) {
    append_normal_form_c(text, normal_);
  } else {
    normal_ += text;
  }
  const std::size_t limit = complete ? normal_.size() : rules_.normalised_added.certain(normal_);
  std::size_t done = 0;
  while (const auto found = rules_.normalised_added.find(normal_, done, limit)) {
    runs_.back().text.append(normal_, done, found->begin - done);
    close_run(found->id);
    done = found->end;
  }
  if (done < limit) {
    runs_.back().text.append(normal_, done, limit - done);
    done = limit;
  }
  normal_.erase(0, done);
}

std::vector<BpeEncoder::Job> BpeEncoder::make_jobs() const {
  std::vector<Job> jobs;
  for (const Run& run : runs_) {
    const std::size_t size = run.text.size();
    std::size_t begin = 0;
    while (begin < size) {
      std::size_t end = size;
      if (workers_.size() > 1 && size - begin >= 2 * job_bytes)
        end = std::min(size, likely_start(run.text, begin + job_bytes));
      jobs.push_back({.run = &run, .begin = begin, .end = end, .tokens = {}, .marks = {}});
      begin = end;
    }
  }
  return jobs;
}

void BpeEncoder::work(std::vector<Job>& jobs) {
  std::atomic<std::size_t> next{0};
  std::exception_ptr failure;
  std::mutex mutex;
  const auto take_jobs = [&](WordEncoder& words) {
    try {
      for (std::size_t job = next++; job < jobs.size(); job = next++) encode_job(jobs[job], words);
    } catch (...) {
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
    }
  };
  const std::size_t count = std::min(workers_.size(), jobs.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < count; ++i) threads.emplace_back(take_jobs, std::ref(workers_[i]));
  take_jobs(workers_[0]);
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

void BpeEncoder::encode_job(Job& job, WordEncoder& words) const {
  const std::string_view text = job.run->text;
  std::size_t place = job.begin;
  while (place < job.end) {
    const auto end = words.end_of_piece(text, place, job.run->complete);
    if (!end) break;
    words.encode_piece(text.substr(place, *end - place), job.tokens);
    place = *end;
    if (job.marks.size() < most_marks) job.marks.emplace_back(place, job.tokens.size());
  }
  job.stopped = place;
}

// Appends the tokens of the jobs of one run, where one goes on from the place at which that before
// it has stopped. Returns how much of the run is encoded.
std::size_t BpeEncoder::join(std::span<Job> jobs, std::vector<std::uint32_t>& tokens) {
  std::size_t place = 0;
  for (Job& job : jobs) {
    const std::string_view text = job.run->text;
    while (place < job.end) {
      std::optional<std::size_t> skipped;
      if (place == job.begin) skipped = 0;
      const auto mark =
          std::lower_bound(job.marks.begin(), job.marks.end(), std::pair(place, std::size_t{0}));
      if (mark != job.marks.end() && mark->first == place) skipped = mark->second;
      if (skipped) {
        tokens.insert(tokens.end(), job.tokens.begin() + static_cast<std::ptrdiff_t>(*skipped),
                      job.tokens.end());
        place = job.stopped;
        break;
      }
      const auto end = workers_[0].end_of_piece(text, place, job.run->complete);
      if (!end) return place;
      workers_[0].encode_piece(text.substr(place, *end - place), tokens);
      place = *end;
    }
    if (place < job.end) break;  // what follows is not certain
  }
  return place;
}

}  // namespace garonne::data
