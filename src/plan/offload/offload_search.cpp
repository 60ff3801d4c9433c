#include "plan/offload/offload_search.hpp"

#include <algorithm>
#include <array>
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
  std::size_t offload = 0;  // that it is of
};

// A lane with its jobs one after the other, and what each is late by: moments are those of a step
// that nothing holds up, and what one is late by the next ones have gained. What a job more or less
// makes of it is counted from there on, to where nothing differs any more.
class JobLane {
 public:
  double lost() const { return states_.empty() ? 0 : states_.back().lost; }

  double lost_with(const Job& job) const {
    const std::size_t at = place_of(job);
    State state = after(before(at), job);
    for (std::size_t k = at; k < jobs_.size(); ++k) {
      state = after(state, jobs_[k]);
      if (state == states_[k]) return lost();
    }
    return state.lost;
  }

  // `at`: of a job.
  double lost_without(std::size_t at) const {
    State state = before(at);
    for (std::size_t k = at + 1; k < jobs_.size(); ++k) {
      state = after(state, jobs_[k]);
      if (state == states_[k]) return lost();
    }
    return state.lost;
  }

  // Behind those of the same place.
  void add(const Job& job) {
    const std::size_t at = place_of(job);
    jobs_.insert(jobs_.begin() + static_cast<std::ptrdiff_t>(at), job);
    states_.resize(jobs_.size());
    for (std::size_t k = at; k < jobs_.size(); ++k) states_[k] = after(before(k), jobs_[k]);
  }

  const std::vector<Job>& jobs() const { return jobs_; }

 private:
  struct State {
    double free_at = 0;
    double lost = 0;

    bool operator==(const State&) const = default;
  };

  static State after(const State& state, const Job& job) {
    const double end = std::max(job.ready + state.lost, state.free_at) + job.seconds;
    return {end, std::max(state.lost, end - job.wanted)};
  }
  State before(std::size_t at) const { return at == 0 ? State() : states_[at - 1]; }
  std::size_t place_of(const Job& job) const {
    const auto later = std::ranges::upper_bound(jobs_, job.place, {}, &Job::place);
    return static_cast<std::size_t>(later - jobs_.begin());
  }

  std::vector<Job> jobs_;
  std::vector<State> states_;  // after each of them
};

// How a search begins.
struct Beginning {
  double more = 0;      // to be taken off beyond what is over the budget, as a share of that
  double slowness = 1;  // of copies; 0: they lose nothing, so that large buffers go first
};

// Where a greedy search ends depends on where it began. What it takes off too much it drops again,
// the dearest first, so that choices are made among more than the first ones that do.
constexpr std::array<Beginning, 10> other_beginnings = {{{1.0 / 16},
                                                         {1.0 / 8},
                                                         {1.0 / 4},
                                                         {1.0 / 2},
                                                         {1},
                                                         {0, 2},
                                                         {0, 0.5},
                                                         {0, 0},
                                                         {0.25, 0},
                                                         {1, 0}}};

// To be copied where it begins several times.
class OffloadSearch {
 public:
  OffloadSearch(const Program& program, const OffloadRequest& request)
      : program_(program),
        request_(request),
        spans_(spans_of(program)),
        budget_bytes_(request.budget_bytes) {
    const Prediction prediction = replay(program);
    seconds_ = prediction.seconds;
    device_ = prediction.during_bytes;
    for (std::size_t place = 0; place < request.more_bytes.size(); ++place)
      device_[place] -= request.more_bytes[place];
    // Behind each instruction, where copies of one end and those of another begin.
    for (const auto& [tier, below] : request.tiers) {
      below_[tier] = prediction.of(tier).live_bytes;
      below_[tier].resize(program.instructions.size(), 0);
      for (const std::int64_t live : below_[tier])
        most_below_[tier] = std::max(most_below_[tier], live);
      lanes_[tier];
    }
    for (const IdleTime& idle : idle_times(program)) {
      if (program.buffers[as_index(idle.buffer)].bytes >= request.least_bytes)
        idle_.push_back(idle);
    }
  }

  // Of a step in which nothing moves.
  double seconds() const { return seconds_; }

  std::optional<std::vector<Offload>> run(const Beginning& beginning = {}) {
    std::int64_t excess = 0;
    for (const std::int64_t bytes : device_) excess = std::max(excess, bytes - budget_bytes_);
    budget_bytes_ -= static_cast<std::int64_t>(beginning.more * static_cast<double>(excess));
    slowness_ = beginning.slowness;
    find_places_over();
    for (const IdleTime& idle : idle_) {
      for (const auto& [tier, below] : request_.tiers) {
        if (std::optional<Choice> choice = value(idle, tier)) waiting_.push(*choice);
      }
    }
    while (!over_.empty()) {
      if (!take_best()) return std::nullopt;
    }
    return finish();
  }

  std::optional<std::vector<Offload>> place(const std::vector<IdleTime>& all) {
    find_places_over();
    for (const IdleTime& idle : all) {
      for (const auto& [tier, below] : request_.tiers) {
        const Offload offload{idle, tier, idle.complete_at, idle.last_use + 1, idle.next_use};
        if (bytes(offload) < request_.least_bytes || !fits_below(offload)) continue;
        choose(offload);
        break;
      }
    }
    if (!over_.empty()) return std::nullopt;
    return finish();
  }

 private:
  struct Choice {
    Offload offload;
    double score = 0;

    bool operator<(const Choice& other) const { return score < other.score; }
  };

  void find_places_over() {
    for (int place = 0; place < static_cast<int>(device_.size()); ++place)
      if (over(place) > 0) over_.push_back(place);
  }

  std::vector<Offload> finish() {
    budget_bytes_ = request_.budget_bytes;
    drop_the_needless();
    for (Offload& offload : chosen_) shorten(offload);
    std::sort(chosen_.begin(), chosen_.end(), [](const Offload& a, const Offload& b) {
      return std::pair(a.out_behind, a.idle.buffer) < std::pair(b.out_behind, b.idle.buffer);
    });
    return chosen_;
  }

  std::int64_t over(int place) const {
    return std::max<std::int64_t>(0, device_[as_index(place)] - budget_bytes_);
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
    for (auto place = std::ranges::lower_bound(over_, offload->room_from);
         place != over_.end() && *place < offload->back_from; ++place)
      removed += static_cast<double>(std::min(over(*place), bytes(*offload)));
    // Of those that lose nothing the one that takes off most.
    constexpr double least_seconds = 1e-9;
    return Choice{*offload, removed / (lost_with(*offload) - lost_ + least_seconds)};
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
        choose(now->offload);
        return true;
      }
    }
    return false;
  }

  // Away from the first place over the budget to the last.
  std::optional<Offload> narrowest(const IdleTime& idle, Tier tier) const {
    const auto first = std::ranges::upper_bound(over_, idle.last_use);
    const auto end = std::ranges::lower_bound(over_, idle.next_use);
    if (first >= end) return std::nullopt;
    return Offload{idle, tier, idle.complete_at, *first, *(end - 1) + 1};
  }

  bool fits_below(const Offload& offload) const {
    const std::vector<std::int64_t>& live = below_.at(offload.tier);
    const std::int64_t limit = request_.tiers.at(offload.tier).budget_bytes;
    if (most_below_.at(offload.tier) + bytes_below(offload) <= limit) return true;
    for (int place = offload.out_behind; place < offload.idle.next_use; ++place) {
      if (live[as_index(place)] + bytes_below(offload) > limit) return false;
    }
    return true;
  }

  struct Lanes {
    JobLane out;
    JobLane in;
  };

  Job out_job(const Offload& offload) const {
    return {offload.out_behind, spans_[as_index(offload.out_behind)].end,
            spans_[as_index(offload.room_from)].begin,
            slowness_ * message_seconds(bytes(offload), request_.tiers.at(offload.tier).links.out),
            chosen_.size()};
  }
  Job in_job(const Offload& offload) const {
    return {offload.back_from, spans_[as_index(offload.back_from)].begin,
            spans_[as_index(offload.idle.next_use)].begin,
            slowness_ * message_seconds(bytes(offload), request_.tiers.at(offload.tier).links.in),
            chosen_.size()};
  }

  // What all that are chosen lose, lane by lane, where those of `tier` lose `out` and `in`.
  double lost_where(Tier of, double out, double in) const {
    double all = 0;
    for (const auto& [tier, lanes] : lanes_) {
      all += tier == of ? out : lanes.out.lost();
      all += tier == of ? in : lanes.in.lost();
    }
    return all;
  }
  double lost_with(const Offload& offload) const {
    const Lanes& lanes = lanes_.at(offload.tier);
    return lost_where(offload.tier, lanes.out.lost_with(out_job(offload)),
                      lanes.in.lost_with(in_job(offload)));
  }

  void choose(const Offload& offload) {
    Lanes& lanes = lanes_.at(offload.tier);
    lanes.out.add(out_job(offload));
    lanes.in.add(in_job(offload));
    lost_ = lost_where(offload.tier, lanes.out.lost(), lanes.in.lost());
    chosen_.push_back(offload);
    count(offload, 1);
    std::erase_if(over_, [&](int place) { return over(place) == 0; });
  }

  // What they would lose without each of them.
  std::vector<double> lost_without_each() const {
    std::vector<double> out(chosen_.size());
    std::vector<double> in(chosen_.size());
    for (const auto& [tier, lanes] : lanes_) {
      for (std::size_t at = 0; at < lanes.out.jobs().size(); ++at) {
        out[lanes.out.jobs()[at].offload] = lanes.out.lost_without(at);
        in[lanes.in.jobs()[at].offload] = lanes.in.lost_without(at);
      }
    }
    std::vector<double> lost;
    for (std::size_t k = 0; k < chosen_.size(); ++k)
      lost.push_back(lost_where(chosen_[k].tier, out[k], in[k]));
    return lost;
  }

  void count(const Offload& offload, std::int64_t sign) {
    for (int place = offload.room_from; place < offload.back_from; ++place)
      device_[as_index(place)] -= sign * bytes(offload);
    std::vector<std::int64_t>& live = below_.at(offload.tier);
    std::int64_t& most = most_below_.at(offload.tier);
    for (int place = offload.out_behind; place < offload.idle.next_use; ++place) {
      live[as_index(place)] += sign * bytes_below(offload);
      most = std::max(most, live[as_index(place)]);
    }
  }

  bool has_room(const Offload& offload, int place) const {
    return device_[as_index(place)] + bytes(offload) <= budget_bytes_;
  }

  // Later ones may have made room for earlier ones: the dearest first.
  void drop_the_needless() {
    std::vector<std::pair<double, std::size_t>> by_gain;
    const std::vector<double> without = lost_without_each();
    for (std::size_t k = 0; k < chosen_.size(); ++k) by_gain.emplace_back(without[k] - lost_, k);
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
  double seconds_ = 0;
  std::int64_t budget_bytes_;  // that is searched for
  double slowness_ = 1;
  std::vector<std::int64_t> device_;  // during each instruction, without what others make room for
  std::vector<int> over_;             // places over the budget, ascending, while choices are made
  std::map<Tier, std::vector<std::int64_t>> below_;  // during each instruction
  std::map<Tier, std::int64_t> most_below_;          // no place has more
  std::vector<IdleTime> idle_;
  std::priority_queue<Choice> waiting_;
  std::set<std::pair<int, int>> taken_;  // idle times: buffer, last use
  std::vector<Offload> chosen_;
  std::map<Tier, Lanes> lanes_;  // of them
  double lost_ = 0;              // by them
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
  const OffloadSearch search(program, request);
  std::optional<std::vector<Offload>> best = OffloadSearch(search).run();
  if (!best || best->empty()) return best;
  std::map<Tier, TierLinks> links;
  for (const auto& [tier, below] : request.tiers) links[tier] = below.links;
  double seconds = with_offloads(program, *best, links).seconds;
  for (const Beginning& beginning : other_beginnings) {
    if (seconds <= search.seconds()) break;
    std::optional<std::vector<Offload>> other = OffloadSearch(search).run(beginning);
    if (!other) continue;
    const double others = with_offloads(program, *other, links).seconds;
    if (others >= seconds) continue;
    seconds = others;
    best = std::move(other);
  }
  return best;
}

std::optional<std::vector<Offload>> place_offloads(const Program& program,
                                                   const OffloadRequest& request,
                                                   const std::vector<IdleTime>& idle) {
  return OffloadSearch(program, request).place(idle);
}

}  // namespace garonne::plan
