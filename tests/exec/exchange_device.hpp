// A device with the lane of plan/program/exchange_lane.hpp beside those of another device.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/device.hpp"
#include "plan/program/exchange_lane.hpp"

namespace garonne::exec {

// Work on the lane is carried out by a lane of that device which no Program here has work for.
class ExchangeDevice final : public device::Device {
 public:
  explicit ExchangeDevice(std::unique_ptr<device::Device> device) : device_(std::move(device)) {}

  DeviceKind kind() const override { return device_->kind(); }
  device::MemoryFacts memory() const override { return device_->memory(); }
  Queue queue(Lane lane) const override { return device_->queue(carrier(lane)); }
  device::Mark launched(Lane lane, const std::string& activity) override {
    return named(lane, device_->launched(carrier(lane), activity));
  }
  device::Mark mark(Lane lane) override { return named(lane, device_->mark(carrier(lane))); }
  void order(Lane later, device::Mark earlier) override {
    device_->order(carrier(later), carried(earlier));
  }
  void wait(device::Mark mark) override { device_->wait(carried(mark)); }
  bool done(device::Mark mark) override { return device_->done(carried(mark)); }
  device::Mark timed_mark(Lane lane) override {
    return named(lane, device_->timed_mark(carrier(lane)));
  }
  double seconds(device::Mark from, device::Mark to) const override {
    return device_->seconds(carried(from), carried(to));
  }
  void forget_times() override { device_->forget_times(); }
  void end() noexcept override { device_->end(); }

 private:
  static Lane carrier(Lane lane) {
    return lane == plan::test::exchange_lane ? Lane::HostCompute : lane;
  }
  static device::Mark carried(device::Mark mark) { return {carrier(mark.lane), mark.number}; }
  static device::Mark named(Lane lane, device::Mark mark) { return {lane, mark.number}; }
  static std::vector<device::Mark> carried(std::span<const device::Mark> marks) {
    std::vector<device::Mark> all;
    for (const device::Mark mark : marks) all.push_back(carried(mark));
    return all;
  }

  device::Mark put_copy(Lane lane, device::Span to, device::Span from, std::string activity,
                        std::span<const device::Mark> after) override {
    return named(lane, device_->copy(carrier(lane), to, from, std::move(activity), carried(after)));
  }
  device::Mark put_run(Lane lane, std::function<void()> work, std::string activity,
                       std::span<const device::Mark> after) override {
    return named(lane,
                 device_->run(carrier(lane), std::move(work), std::move(activity), carried(after)));
  }

  const std::unique_ptr<device::Device> device_;
};

}  // namespace garonne::exec
