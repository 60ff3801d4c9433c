// Varuna (Athlur et al. 2022, arXiv 2111.04007): every device but the last keeps only inputs and
// runs the forward again, while the next device is still busy with its backward.
//
// The order is found by playing a rule in equal quanta, two for a backward and one for anything
// else: a backward whose recompute is done, else a recompute, else a forward. A recompute may start
// once the next device has started its backward; one recomputed micro-batch waits at a time.
#include "plan/pipeline/schedule_makers.hpp"

namespace garonne::plan {
namespace {

constexpr int not_yet = -1;

struct VarunaDevice {
  std::vector<int> forward_end;  // by micro-batch; the quantum after it
  std::vector<int> backward_start;
  int forwards = 0;
  int recomputes = 0;
  int backwards = 0;
  int busy_until = 0;
};

class VarunaRule {
 public:
  explicit VarunaRule(PipelineSchedule& schedule) : schedule_(schedule) {
    const auto micro_batches = static_cast<std::size_t>(schedule.micro_batches);
    devices_.resize(static_cast<std::size_t>(schedule.devices));
    for (VarunaDevice& device : devices_) {
      device.forward_end.assign(micro_batches, not_yet);
      device.backward_start.assign(micro_batches, not_yet);
    }
  }

  void run() {
    // The first device is always the last to finish.
    for (int now = 0; devices_.front().backwards < schedule_.micro_batches; ++now) {
      for (std::size_t r = 0; r < devices_.size(); ++r) {
        if (devices_[r].busy_until <= now) start(r, now);
      }
    }
  }

 private:
  static int at(const std::vector<int>& list, int micro_batch) {
    return list[static_cast<std::size_t>(micro_batch)];
  }
  bool exists(int micro_batch) const { return micro_batch < schedule_.micro_batches; }
  bool last(std::size_t r) const { return r + 1 == devices_.size(); }

  bool backward_ready(std::size_t r, int now) const {
    const VarunaDevice& device = devices_[r];
    const int m = device.backwards;
    if (!exists(m)) return false;
    if (last(r)) return at(device.forward_end, m) != not_yet && at(device.forward_end, m) <= now;
    const int above = at(devices_[r + 1].backward_start, m);
    return device.recomputes > m && above != not_yet && above + 2 <= now;
  }
  bool recompute_ready(std::size_t r, int now) const {
    const VarunaDevice& device = devices_[r];
    if (last(r) || !exists(device.recomputes) || device.recomputes > device.backwards) return false;
    const int above = at(devices_[r + 1].backward_start, device.recomputes);
    return above != not_yet && above < now;
  }
  bool forward_ready(std::size_t r, int now) const {
    const int m = devices_[r].forwards;
    if (!exists(m)) return false;
    if (r == 0) return true;
    const int below = at(devices_[r - 1].forward_end, m);
    return below != not_yet && below <= now;
  }

  void start(std::size_t r, int now) {
    VarunaDevice& device = devices_[r];
    auto& order = schedule_.order[r];
    if (backward_ready(r, now)) {
      order.push_back({PipelineWork::Backward, 0, device.backwards, false});
      device.backward_start[static_cast<std::size_t>(device.backwards++)] = now;
      device.busy_until = now + 2;
    } else if (recompute_ready(r, now)) {
      order.push_back({PipelineWork::Recompute, 0, device.recomputes++, false});
      device.busy_until = now + 1;
    } else if (forward_ready(r, now)) {
      order.push_back({PipelineWork::Forward, 0, device.forwards, false});
      device.forward_end[static_cast<std::size_t>(device.forwards++)] = now + 1;
      device.busy_until = now + 1;
    }
  }

  PipelineSchedule& schedule_;
  std::vector<VarunaDevice> devices_;
};

}  // namespace

PipelineSchedule make_varuna(const PipelineRequest& request) {
  PipelineSchedule schedule = empty_schedule(request, "varuna", 1, ChunkPlacement::Looped);
  for (int r = 0; r + 1 < schedule.devices; ++r) schedule.recomputed.push_back({r, 0});
  VarunaRule(schedule).run();
  return schedule;
}

}  // namespace garonne::plan
