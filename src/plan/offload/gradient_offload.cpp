#include "plan/offload/gradient_offload.hpp"

#include <algorithm>
#include <utility>

#include "base/contains.hpp"
#include "plan/offload/lower_buffers.hpp"
#include "plan/program/program_edit.hpp"

namespace garonne::plan {
namespace {

// Buckets whose parameters have no other bucket's between them, in the order of parameters.
std::vector<std::vector<const Bucket*>> runs_of_buckets(const Program& program) {
  struct Extent {
    int first = 0;  // parameters
    int last = 0;
    const Bucket* bucket = nullptr;
  };
  std::vector<Extent> extents;
  for (const Bucket& bucket : program.buckets) {
    const auto [first, last] =
        std::minmax_element(bucket.parameters.begin(), bucket.parameters.end());
    extents.push_back({*first, *last, &bucket});
  }
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return a.first < b.first; });
  std::vector<std::vector<const Bucket*>> runs;
  int last = -1;
  for (const Extent& extent : extents) {
    if (runs.empty() || extent.first > last) runs.emplace_back();
    runs.back().push_back(extent.bucket);
    last = std::max(last, extent.last);
  }
  return runs;
}

int gradient_of(const Bucket& bucket) {
  return bucket.shard.gradient >= 0 ? bucket.shard.gradient : bucket.buffer;
}

// Of the whole, what belongs to some of its gradients.
Instruction part_of(const Program& program, const Instruction& whole,
                    const std::vector<const Bucket*>& run, bool is_first) {
  Instruction part = whole;
  part.frees.clear();
  part.reads.clear();
  part.seconds = 0;
  std::int64_t all = 0;
  std::int64_t here = 0;
  for (const Bucket& bucket : program.buckets)
    all += program.buffers[static_cast<std::size_t>(gradient_of(bucket))].bytes;
  for (const Bucket* bucket : run) {
    part.reads.push_back(gradient_of(*bucket));
    here += program.buffers[static_cast<std::size_t>(gradient_of(*bucket))].bytes;
  }
  if (all > 0) part.seconds = whole.seconds * static_cast<double>(here) / static_cast<double>(all);
  const int sums = whole.arguments.output;
  if (!is_first || contains(whole.reads, sums)) part.reads.push_back(sums);
  std::erase_if(part.arguments.pieces, [&](int piece) {
    return !contains(part.reads, program.pieces[static_cast<std::size_t>(piece)].gradient.buffer);
  });
  return part;
}

}  // namespace

std::vector<int> movable_gradients(const Program& program, std::int64_t least_bytes) {
  std::vector<int> found;
  for (std::size_t id = 0; id < program.buffers.size(); ++id) {
    const Buffer& buffer = program.buffers[id];
    if (buffer.kind == BufferKind::Gradient && buffer.tier == Tier::Device &&
        buffer.bytes >= std::max<std::int64_t>(least_bytes, 1))
      found.push_back(static_cast<int>(id));
  }
  return found;
}

Program with_divided_squares(Program program) {
  const auto squares =
      std::find_if(program.instructions.begin(), program.instructions.end(),
                   [](const Instruction& one) { return one.operation == Operation::SumSquares; });
  const std::vector<std::vector<const Bucket*>> runs = runs_of_buckets(program);
  if (squares == program.instructions.end() || runs.size() < 2) return program;
  const Instruction whole = *squares;
  const auto place = static_cast<int>(squares - program.instructions.begin());
  ProgramEdit edit(program);
  for (std::size_t k = 0; k < runs.size(); ++k) {
    Instruction part = part_of(program, whole, runs[k], k == 0);
    if (k + 1 == runs.size()) part.frees = whole.frees;
    edit.insert_before(place, std::move(part));
  }
  edit.remove(place);
  edit.apply();
  set_replayed(program);
  return program;
}

}  // namespace garonne::plan
