#include "plan/offload/offload_search.hpp"

#include <algorithm>
#include <queue>
#include <set>
#include <utility>

#include "base/bytes.hpp"
#include "base/index.hpp"
#include "plan/program/replay.hpp"
#include "plan/program/spans.hpp"

namespace garonne::plan {
namespace {

// A job of a lane: it cannot begin before `ready`, and who waits for it does so from `wanted` on.
struct Job {
  int place = -1;  // in the list, by which lanes take them
  double ready = 0;
  double wanted = 0;
  double seconds = 0;
};

// Of jobs one after the other, what each is late by: moments are those of a step that nothing holds
// up, and what one is late by the next ones have gained.
double lost_seconds(const std::vector<Job>& jobs) {
  double free_at = 0;
  double lost = 0;
  for (const Job& job : jobs) {
    const double end = std::max(job.ready + lost, free_at) + job.seconds;
    free_at = end;
    lost = std::max(lost, end - job.wanted);
  }
  return lost;
}

class OffloadSearch {
 public:
  OffloadSearch(const Program& program, const OffloadRequest& request)
      : program_(program), request_(request), spans_(spans_of(program)) {
    const Prediction prediction = replay(program);
    device_ = prediction.during_bytes;
    for (std::size_t place = 0; place < request.more_bytes.size(); ++place)
      device_[place] -= request.more_bytes[place];
    // Behind each instruction, where copies of one end and those of another begin.
    for (const auto& [tier, below] : request.tiers) {
      below_[tier] = prediction.of(tier).live_bytes;
      below_[tier].resize(program.instructions.size(), 0);
    }
    for (const IdleTime& idle : idle_times(program)) {
      if (program.buffers[as_index(idle.buffer)].bytes >= request.least_bytes)
        idle_.push_back(idle);
    }
  }

  std::optional<std::vector<Offload>> run() {
    for (const IdleTime& idle : idle_) {
      for (const auto& [tier, below] : request_.tiers) {
        if (std::optional<Choice> choice = value(idle, tier)) waiting_.push(*choice);
      }
    }
    while (is_over_budget()) {
      if (!take_best()) return std::nullopt;
    }
    return finish();
  }

  std::optional<std::vector<Offload>> place(const std::vector<IdleTime>& all) {
    for (const IdleTime& idle : all) {
      for (const auto& [tier, below] : request_.tiers) {
        const Offload offload{idle, tier, idle.complete_at, idle.last_use + 1, idle.next_use};
        if (bytes(offload) < request_.least_bytes || !fits_below(offload)) continue;
        chosen_.push_back(offload);
        count(offload, 1);
        break;
      }
    }
    if (is_over_budget()) return std::nullopt;
    return finish();
  }

 private:
  struct Choice {
    Offload offload;
    double score = 0;

    bool operator<(const Choice& other) const { return score < other.score; }
  };

  std::vector<Offload> finish() {
    drop_the_needless();
    for (Offload& offload : chosen_) shorten(offload);
    std::sort(chosen_.begin(), chosen_.end(), [](const Offload& a, const Offload& b) {
      return std::pair(a.out_behind, a.idle.buffer) < std::pair(b.out_behind, b.idle.buffer);
    });
    return chosen_;
  }

  std::int64_t over(int place) const {
    return std::max<std::int64_t>(0, device_[as_index(place)] - request_.budget_bytes);
  }
  bool is_over_budget() const {
    return std::any_of(device_.begin(), device_.end(),
                       [&](std::int64_t bytes) { return bytes > request_.budget_bytes; });
  }
  std::int64_t bytes(const Offload& offload) const {
    return program_.buffers[as_index(offload.idle.buffer)].bytes;
  }
  std::int64_t bytes_below(const Offload& offload) const {
    return round_up(bytes(offload), program_.tier(offload.tier).granularity);
  }

  // None where nothing over the budget is in it, or the tier has no room for it.
  std::optional<Choice> value(const IdleTime& idle, Tier tier) const {
    const std::optional<Offload> offload = narrowest(idle, tier);
    if (!offload || !fits_below(*offload)) return std::nullopt;
    double removed = 0;
    for (int place = offload->room_from; place < offload->back_from; ++place)
      removed += static_cast<double>(std::min(over(place), bytes(*offload)));
    std::vector<Offload> with = chosen_;
    with.push_back(*offload);
    // Of those that lose nothing the one that takes off most.
    constexpr double least_seconds = 1e-9;
    return Choice{*offload, removed / (lost(with) - lost_ + least_seconds)};
  }

  // What a choice is worth falls as others are made, so that only the best ones are looked at again
  // (lazy greedy: Minoux 1978).
  bool take_best() {
    while (!waiting_.empty()) {
      const Choice stale = waiting_.top();
      waiting_.pop();
      const IdleTime& idle = stale.offload.idle;
      if (!taken_.contains({idle.buffer, idle.last_use})) {
        const std::optional<Choice> now = value(idle, stale.offload.tier);
        if (!now) continue;
        if (!waiting_.empty() && *now < waiting_.top()) {
          waiting_.push(*now);
          continue;
        }
        taken_.insert({idle.buffer, idle.last_use});
        chosen_.push_back(now->offload);
        count(now->offload, 1);
        lost_ = lost(chosen_);
        return true;
      }
    }
    return false;
  }

  // Away from the first place over the budget to the last.
  std::optional<Offload> narrowest(const IdleTime& idle, Tier tier) const {
    Offload offload{idle, tier, idle.complete_at, -1, -1};
    for (int place = idle.last_use + 1; place < idle.next_use; ++place) {
      if (over(place) == 0) continue;
      if (offload.room_from < 0) offload.room_from = place;
      offload.back_from = place + 1;
    }
    if (offload.room_from < 0) return std::nullopt;
    return offload;
  }

  bool fits_below(const Offload& offload) const {
    const std::vector<std::int64_t>& live = below_.at(offload.tier);
    const std::int64_t limit = request_.tiers.at(offload.tier).budget_bytes;
    for (int place = offload.out_behind; place < offload.idle.next_use; ++place) {
      if (live[as_index(place)] + bytes_below(offload) > limit) return false;
    }
    return true;
  }

  // What all of them lose, lane by lane.
  double lost(const std::vector<Offload>& offloads) const {
    double all = 0;
    for (const auto& [tier, below] : request_.tiers) {
      std::vector<Job> out;
      std::vector<Job> in;
      for (const Offload& offload : offloads) {
        if (offload.tier != tier) continue;
        out.push_back({offload.out_behind, spans_[as_index(offload.out_behind)].end,
                       spans_[as_index(offload.room_from)].begin,
                       message_seconds(bytes(offload), below.links.out)});
        in.push_back({offload.back_from, spans_[as_index(offload.back_from)].begin,
                      spans_[as_index(offload.idle.next_use)].begin,
                      message_seconds(bytes(offload), below.links.in)});
      }
      for (auto* jobs : {&out, &in}) {
        std::stable_sort(jobs->begin(), jobs->end(),
                         [](const Job& a, const Job& b) { return a.place < b.place; });
        all += lost_seconds(*jobs);
      }
    }
    return all;
  }

  void count(const Offload& offload, std::int64_t sign) {
    for (int place = offload.room_from; place < offload.back_from; ++place)
      device_[as_index(place)] -= sign * bytes(offload);
    for (int place = offload.out_behind; place < offload.idle.next_use; ++place)
      below_.at(offload.tier)[as_index(place)] += sign * bytes_below(offload);
  }

  bool has_room(const Offload& offload, int place) const {
    return device_[as_index(place)] + bytes(offload) <= request_.budget_bytes;
  }

  // Later ones may have made room for earlier ones: the dearest first.
  void drop_the_needless() {
    std::vector<std::pair<double, std::size_t>> by_gain;
    const double all = lost(chosen_);
    for (std::size_t k = 0; k < chosen_.size(); ++k) {
      std::vector<Offload> without = chosen_;
      without.erase(without.begin() + static_cast<std::ptrdiff_t>(k));
      by_gain.emplace_back(lost(without) - all, k);
    }
    std::sort(by_gain.begin(), by_gain.end());
    std::vector<bool> dropped(chosen_.size(), false);
    for (const auto& [gain, k] : by_gain) {
      bool needless = true;
      for (int place = chosen_[k].room_from; place < chosen_[k].back_from; ++place)
        needless = needless && has_room(chosen_[k], place);
      if (!needless) continue;
      dropped[k] = true;
      count(chosen_[k], -1);
    }
    std::vector<Offload> kept;
    for (std::size_t k = 0; k < chosen_.size(); ++k) {
      if (!dropped[k]) kept.push_back(chosen_[k]);
    }
    chosen_ = std::move(kept);
  }

  // It goes later and comes back earlier where there is room for it.
  void shorten(Offload& offload) {
    while (offload.room_from + 1 < offload.back_from && has_room(offload, offload.room_from)) {
      device_[as_index(offload.room_from)] += bytes(offload);
      ++offload.room_from;
    }
    while (offload.back_from - 1 > offload.room_from && has_room(offload, offload.back_from - 1)) {
      --offload.back_from;
      device_[as_index(offload.back_from)] += bytes(offload);
    }
  }

  const Program& program_;
  const OffloadRequest& request_;
  const std::vector<Span> spans_;
  std::vector<std::int64_t> device_;  // during each instruction, without what others make room for
  std::map<Tier, std::vector<std::int64_t>> below_;  // the same
  std::vector<IdleTime> idle_;
  std::priority_queue<Choice> waiting_;
  std::set<std::pair<int, int>> taken_;  // idle times: buffer, last use
  std::vector<Offload> chosen_;
  double lost_ = 0;  // by them
};

}  // namespace

std::int64_t bytes_without_the_idle(const Program& program, std::int64_t least_bytes,
                                    const std::vector<std::int64_t>& more_bytes) {
  std::vector<std::int64_t> during = replay(program).during_bytes;
  for (std::size_t place = 0; place < more_bytes.size(); ++place)
    during[place] -= more_bytes[place];
  for (const IdleTime& idle : idle_times(program)) {
    const std::int64_t bytes = program.buffers[as_index(idle.buffer)].bytes;
    if (bytes < least_bytes) continue;
    for (int place = idle.last_use + 1; place < idle.next_use; ++place)
      during[as_index(place)] -= bytes;
  }
  return during.empty() ? 0 : *std::max_element(during.begin(), during.end());
}

std::optional<std::vector<Offload>> choose_offloads(const Program& program,
                                                    const OffloadRequest& request) {
  return OffloadSearch(program, request).run();
}

std::optional<std::vector<Offload>> place_offloads(const Program& program,
                                                   const OffloadRequest& request,
                                                   const std::vector<IdleTime>& idle) {
  return OffloadSearch(program, request).place(idle);
}

}  // namespace garonne::plan
