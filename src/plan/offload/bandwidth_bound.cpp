#include "plan/offload/bandwidth_bound.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "base/index.hpp"
#include "plan/offload/offload.hpp"
#include "plan/program/replay.hpp"
#include "plan/program/spans.hpp"

namespace garonne::plan {
namespace {

constexpr double no_time = std::numeric_limits<double>::infinity();

// What one pass of a node for one micro-batch made.
struct Maker {
  double seconds = no_time;  // to do it again
  double bytes = 0;          // of it that are idle at a place
};

class BandwidthBound {
 public:
  BandwidthBound(const Program& program, const OffloadRequest& request, const ModelGraph* graph)
      : program_(program),
        request_(request),
        prediction_(replay(program)),
        spans_(spans_of(program)),
        idle_(idle_times(program)) {
    for (const auto& [tier, below] : request.tiers) {
      if (below.budget_bytes == 0) continue;
      out_rate_ += below.links.out.bytes_per_second;
      in_rate_ += below.links.in.bytes_per_second;
      room_ += static_cast<double>(below.budget_bytes);
    }
    if (graph != nullptr) find_makers(*graph);
  }

  double seconds() const {
    double least = prediction_.seconds;
    for (std::size_t place = 0; place < spans_.size(); ++place)
      least = std::max(least, seconds_at(place));
    return least;
  }

 private:
  // The pass that made each buffer first, and what the least of its ways takes.
  void find_makers(const ModelGraph& graph) {
    maker_of_.assign(program_.buffers.size(), -1);
    const auto made = [&](int buffer, int maker) {
      if (buffer >= 0 && maker_of_[as_index(buffer)] < 0) maker_of_[as_index(buffer)] = maker;
    };
    for (const Instruction& instruction : program_.instructions) {
      const bool forward = instruction.operation == Operation::Forward ||
                           instruction.operation == Operation::ForwardKeep;
      if (!forward) continue;
      const NodeSpec& node = graph.nodes[as_index(instruction.node_index)];
      double seconds = node.forward.seconds;
      for (int k = 0; k < node.keep_options(); ++k)
        seconds = std::min(seconds, node.keep_option(k).forward_keep.seconds);
      const int maker = static_cast<int>(makers_.size());
      makers_.push_back(std::min(seconds, instruction.seconds));
      made(instruction.arguments.output, maker);
      for (const int slot : instruction.arguments.record) made(slot, maker);
    }
  }

  double seconds_at(std::size_t place) const {
    const std::int64_t more = request_.more_bytes.empty() ? 0 : request_.more_bytes[place];
    const double over =
        static_cast<double>(prediction_.during_bytes[place] - more - request_.budget_bytes);
    if (over <= 0) return 0;
    const int at = static_cast<int>(place);
    double first_out = no_time;
    double last_in = no_time;
    double idle_bytes = 0;
    std::map<int, double> bytes_of;
    for (const IdleTime& idle : idle_) {
      if (idle.last_use >= at || at >= idle.next_use) continue;
      const auto bytes = static_cast<double>(program_.buffers[as_index(idle.buffer)].bytes);
      idle_bytes += bytes;
      first_out = std::min(first_out, spans_[as_index(idle.complete_at)].end);
      last_in = std::min(last_in, prediction_.seconds - spans_[as_index(idle.next_use)].begin);
      if (!maker_of_.empty() && maker_of_[as_index(idle.buffer)] >= 0)
        bytes_of[maker_of_[as_index(idle.buffer)]] += bytes;
    }
    if (idle_bytes < over) return no_time;
    std::vector<Maker> makers;
    double droppable = 0;
    for (const auto& [maker, bytes] : bytes_of) {
      makers.push_back({makers_[as_index(maker)], bytes});
      droppable += bytes;
    }
    std::sort(makers.begin(), makers.end(), [](const Maker& a, const Maker& b) {
      return a.seconds * b.bytes < b.seconds * a.bytes;
    });
    const Span span = spans_[place];
    const double after = prediction_.seconds - span.end;
    // With so many bytes made again, the others moved.
    const auto step = [&](double again) {
      const double moved = over - again;
      double extra = 0;
      for (const Maker& maker : makers) {
        if (again <= 0) break;
        extra += maker.seconds * std::min(1.0, again / maker.bytes);
        again -= maker.bytes;
      }
      if (moved <= 0) return span.end + after + extra;
      if (out_rate_ <= 0 || in_rate_ <= 0 || moved > room_) return no_time;
      return std::max(span.begin, first_out + moved / out_rate_) + (span.end - span.begin) +
             std::max(after + extra, moved / in_rate_ + last_in);
    };
    return least_of(step, std::max(0.0, over - (out_rate_ > 0 ? room_ : 0)),
                    std::min(over, droppable));
  }

  // Of a convex function on an interval. It is flat at its least only.
  template <typename Function>
  static double least_of(const Function& function, double from, double to) {
    if (from > to) return no_time;
    constexpr int halvings = 100;
    for (int k = 0; k < halvings; ++k) {
      const double left = from + (to - from) / 3;
      const double right = to - (to - from) / 3;
      if (function(left) <= function(right)) {
        to = right;
      } else {
        from = left;
      }
    }
    return std::min(function(from), function(to));
  }

  const Program& program_;
  const OffloadRequest& request_;
  const Prediction prediction_;
  const std::vector<Span> spans_;
  const std::vector<IdleTime> idle_;
  std::vector<int> maker_of_;   // by buffer
  std::vector<double> makers_;  // seconds
  double out_rate_ = 0;
  double in_rate_ = 0;
  double room_ = 0;
};

}  // namespace

double least_step_seconds(const Program& program, const OffloadRequest& request,
                          const ModelGraph* graph) {
  return BandwidthBound(program, request, graph).seconds();
}

}  // namespace garonne::plan
