#include "plan/offload/buffer_uses.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "base/contains.hpp"
#include "base/index.hpp"

namespace garonne::plan {
namespace {

class UseFinder {
 public:
  UseFinder(const Program& program, const std::vector<int>& buffers) : program_(program) {
    for (std::size_t k = 0; k < buffers.size(); ++k) item_of_[buffers[k]] = k;
    uses_.resize(buffers.size());
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
      if (program.instructions[i].operation == Operation::Wait)
        wait_of_[program.instructions[i].completes] = static_cast<int>(i);
    }
  }

  // By buffer, in order.
  std::vector<std::vector<Use>> run() {
    for (int i = 0; as_index(i) < program_.instructions.size(); ++i) {
      const Instruction& instruction = program_.instructions[as_index(i)];
      const int end = instruction.lane == Lane::Compute ? i : wait_of_.at(i);
      for (const int id : instruction.reads) {
        if (!contains(instruction.writes, id)) add(id, {i, end, -1, false, false});
      }
      for (const int id : instruction.writes)
        add(id, {i, end, end, !contains(instruction.reads, id), false});
      for (const int id : instruction.frees) {
        const auto found = item_of_.find(id);
        if (found == item_of_.end() || uses_[found->second].empty()) continue;
        Use& last = uses_[found->second].back();
        last.end = std::max(last.end, i);
        last.frees = true;
      }
    }
    return std::move(uses_);
  }

 private:
  void add(int id, const Use& use) {
    const auto found = item_of_.find(id);
    if (found == item_of_.end()) return;
    std::vector<Use>& all = uses_[found->second];
    if (all.empty() || use.begin > all.back().end + 1 || all.back().frees) {
      all.push_back(use);
      return;
    }
    all.back().end = std::max(all.back().end, use.end);
    all.back().changed_at = std::max(all.back().changed_at, use.changed_at);
  }

  const Program& program_;
  std::map<int, std::size_t> item_of_;  // by buffer
  std::map<int, int> wait_of_;          // by instruction on another lane
  std::vector<std::vector<Use>> uses_;
};

}  // namespace

std::vector<std::vector<Use>> uses_of(const Program& program, const std::vector<int>& buffers) {
  return UseFinder(program, buffers).run();
}

void add_live_bytes(const Buffer& buffer, const std::vector<Use>& uses, std::int64_t sign,
                    std::vector<std::int64_t>& bytes) {
  const auto add = [&](int from, int to) {
    for (int place = from; place <= to; ++place) bytes[as_index(place)] += sign * buffer.bytes;
  };
  if (buffer.live_at_start) return add(0, static_cast<int>(bytes.size()) - 1);
  int from = -1;
  for (const Use& use : uses) {
    if (use.makes) from = use.begin;
    if (use.frees) add(from, use.end);
  }
}

}  // namespace garonne::plan
