// The writer of random toy programs.
#include <random>
#include <set>
#include <utility>

#include "toy_program.hpp"

namespace garonne::device {
namespace {

// Writes a program step by step and keeps, for each step on a lane, which ones surely end before
// it.
class ToyWriter {
 public:
  explicit ToyWriter(std::uint64_t seed) : random_(seed) {}

  ToyProgram write(int steps) {
    for (int number = 0; number < 2; ++number) {
      const int buffer = make(Tier::Device);
      compute_kernel(buffer, {});
    }
    while (static_cast<int>(program_.steps.size()) < steps) step();
    return std::move(program_);
  }

 private:
  using Steps = std::set<int>;

  struct Buffer {
    bool live = true;
    bool written = false;
    Steps readers;  // on lanes other than Compute
    Steps writers;
  };

  int below(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }
  float factor() { return static_cast<float>(below(1801) - 900) / 1000.0F; }

  std::vector<int> buffers(Tier tier, bool written) const {
    std::vector<int> found;
    for (int buffer = 0; buffer < static_cast<int>(buffers_.size()); ++buffer) {
      const Buffer& state = buffers_[static_cast<std::size_t>(buffer)];
      if (state.live && program_.tiers[static_cast<std::size_t>(buffer)] == tier &&
          (state.written || !written)) {
        found.push_back(buffer);
      }
    }
    return found;
  }

  int add(ToyStep step) {
    program_.steps.push_back(std::move(step));
    return static_cast<int>(program_.steps.size()) - 1;
  }

  int make(Tier tier) {
    const int buffer = static_cast<int>(buffers_.size());
    buffers_.emplace_back();
    program_.tiers.push_back(tier);
    add({.operation = ToyOperation::Make, .buffer = buffer});
    return buffer;
  }

  // A buffer to write into: a new one, or one that has contents already.
  int target(Tier tier) {
    const std::vector<int> there = buffers(tier, false);
    if (there.size() < 3 || (there.size() < 8 && below(4) != 0)) return make(tier);
    return there[static_cast<std::size_t>(below(static_cast<int>(there.size())))];
  }

  // What has to be over before a step touches these buffers, the latest first, since a wait for it
  // may cover earlier ones.
  std::vector<int> conflicts(const std::vector<int>& reads, int written) {
    Steps found;
    for (const int buffer : reads) {
      const Steps& writers = buffers_[static_cast<std::size_t>(buffer)].writers;
      found.insert(writers.begin(), writers.end());
    }
    if (written >= 0) {
      const Buffer& state = buffers_[static_cast<std::size_t>(written)];
      found.insert(state.writers.begin(), state.writers.end());
      found.insert(state.readers.begin(), state.readers.end());
    }
    return {found.rbegin(), found.rend()};
  }

  void wait_for(int step) {
    add({.operation = ToyOperation::Wait, .waits_for = step});
    const Steps& before = before_.at(step);
    joined_.insert(before.begin(), before.end());
    joined_.insert(step);
  }

  void join(const std::vector<int>& steps) {
    for (const int step : steps) {
      if (!joined_.contains(step)) wait_for(step);
    }
  }

  void compute_kernel(int out, const std::vector<int>& reads) {
    join(conflicts(reads, out));
    Buffer& state = buffers_[static_cast<std::size_t>(out)];
    add({.operation = ToyOperation::Kernel,
         .buffer = out,
         .reads = reads,
         .factors = {factor(), factor(), factor()}});
    state.written = true;
    state.readers.clear();
    state.writers.clear();
  }

  void lane_step(ToyOperation operation, Lane lane, int out, const std::vector<int>& reads) {
    Steps before = joined_;
    if (const auto last = last_of_lane_.find(lane); last != last_of_lane_.end()) {
      before.insert(last->second);
      before.insert(before_.at(last->second).begin(), before_.at(last->second).end());
    }
    std::vector<int> after;
    for (const int step : conflicts(reads, out)) {
      if (before.contains(step)) continue;
      if (below(3) == 0) {
        wait_for(step);
        before.insert(joined_.begin(), joined_.end());
      } else {
        after.push_back(step);
        before.insert(step);
        before.insert(before_.at(step).begin(), before_.at(step).end());
      }
    }
    const int number = add({.operation = operation,
                            .lane = lane,
                            .buffer = out,
                            .reads = reads,
                            .factors = {factor(), factor(), factor()},
                            .after = std::move(after)});
    before_[number] = std::move(before);
    last_of_lane_[lane] = number;
    for (const int read : reads) buffers_[static_cast<std::size_t>(read)].readers.insert(number);
    Buffer& state = buffers_[static_cast<std::size_t>(out)];
    state.written = true;
    state.writers.insert(number);
  }

  // Two buffers to read, the second not the one written: a kernel reads its neighbours. What had
  // contents goes into its new ones, so that few faults are forgotten.
  std::vector<int> two_of(const std::vector<int>& there, int out) {
    std::vector<int> others = there;
    std::erase(others, out);
    if (others.empty()) return {};
    const auto pick = [&] {
      return others[static_cast<std::size_t>(below(static_cast<int>(others.size())))];
    };
    return {others.size() < there.size() ? out : pick(), pick()};
  }

  void step() {
    const std::vector<int> on_device = buffers(Tier::Device, true);
    const std::vector<int> on_host = buffers(Tier::Host, true);
    const auto pick = [&](const std::vector<int>& from) {
      return from[static_cast<std::size_t>(below(static_cast<int>(from.size())))];
    };
    switch (below(6)) {
      case 0:
      case 1: {
        const int out = target(Tier::Device);
        compute_kernel(out, two_of(on_device, out));
        return;
      }
      case 2: {
        if (on_device.empty()) return;
        const int from = pick(on_device);
        lane_step(ToyOperation::Copy, Lane::CopyOut, target(Tier::Host), {from});
        return;
      }
      case 3: {
        if (on_host.empty()) return;
        const int from = pick(on_host);
        lane_step(ToyOperation::Copy, Lane::CopyIn, target(Tier::Device), {from});
        return;
      }
      case 4: {
        const int out = target(Tier::Host);
        lane_step(ToyOperation::Kernel, Lane::HostCompute, out, two_of(on_host, out));
        return;
      }
      default: {
        const std::vector<int>& there = below(2) == 0 ? on_host : on_device;
        if (there.size() < 3) return;
        const int buffer = pick(there);
        join(conflicts({}, buffer));
        add({.operation = ToyOperation::Free, .buffer = buffer});
        buffers_[static_cast<std::size_t>(buffer)].live = false;
      }
    }
  }

  std::mt19937_64 random_;
  ToyProgram program_;
  std::vector<Buffer> buffers_;
  std::map<int, Steps> before_;
  std::map<Lane, int> last_of_lane_;
  Steps joined_;  // surely over before what is put on Compute next
};

}  // namespace

ToyProgram make_toy_program(std::uint64_t seed, int steps) {
  return ToyWriter(seed).write(steps);
}

}  // namespace garonne::device
