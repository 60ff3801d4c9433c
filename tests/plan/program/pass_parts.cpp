#include "plan/program/pass_parts.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/contains.hpp"
#include "base/index.hpp"
#include "plan/program/program_edit.hpp"

namespace garonne::plan::test {

Program fold_passes(Program program) {
  struct Open {
    int first = -1;
    int meeting = -1;
  };
  std::map<int, Open> open;  // by what is exchanged
  std::set<int> added;       // buffers
  ProgramEdit edit(program);
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    Instruction& last = program.instructions[as_index(i)];
    const int exchanged = last.arguments.exchanged;
    if (exchanged < 0) continue;
    if (!is_finish(last.operation)) {
      Open& pass = open[exchanged];
      (is_collective(last.operation) ? pass.meeting : pass.first) = i;
      edit.remove(i);
      continue;
    }
    const Open pass = open.at(exchanged);
    open.erase(exchanged);
    const Instruction& first = program.instructions[as_index(pass.first)];
    const Instruction& meeting = program.instructions[as_index(pass.meeting)];
    const bool forward = is_forward(first.operation);
    const int result = forward ? last.arguments.output : last.arguments.input_gradients.at(0);
    if (exchanged != result) added.insert(exchanged);
    if (meeting.arguments.staging >= 0) added.insert(meeting.arguments.staging);
    // The most that is taken beside what was there and what stays.
    const auto size = [&](int buffer) { return program.buffers[as_index(buffer)].bytes; };
    const bool makes =
        !contains(first.reads, result) && (exchanged == result || !contains(last.reads, result));
    const std::int64_t made = makes ? size(result) : 0;
    std::int64_t during = meeting.transient_bytes + (exchanged == result ? made : size(exchanged));
    if (meeting.arguments.staging >= 0) during += size(meeting.arguments.staging);
    const std::int64_t after = exchanged == result ? made : size(exchanged) + made;

    Instruction whole = last;
    whole.operation = first.operation;
    whole.channel = meeting.channel;
    whole.seconds = first.seconds + meeting.seconds + last.seconds;
    whole.transient_bytes = std::max(during, after) - made;
    whole.reads = first.reads;
    for (const int read : last.reads) {
      if (read != exchanged && read != result) whole.reads.push_back(read);
    }
    std::erase_if(whole.frees, [&](int freed) { return freed == exchanged && freed != result; });
    whole.arguments.inputs = forward ? first.arguments.inputs : last.arguments.inputs;
    whole.arguments.output_gradient = first.arguments.output_gradient;
    whole.arguments.exchanged = -1;
    last = whole;
  }
  edit.apply();
  if (!open.empty()) throw std::logic_error("a pass is never finished");
  // What was added stands behind all others.
  while (!program.buffers.empty() &&
         added.erase(static_cast<int>(program.buffers.size()) - 1) == 1) {
    program.buffers.pop_back();
  }
  if (!added.empty()) throw std::logic_error("a buffer that was added stands before others");
  return program;
}

Program with_passes_beside_compute(Program program) {
  std::map<int, int> under_way;  // by what is exchanged
  ProgramEdit edit(program);
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    Instruction& instruction = program.instructions[as_index(i)];
    const int exchanged = instruction.arguments.exchanged;
    if (exchanged < 0) continue;
    if (is_collective(instruction.operation)) {
      instruction.lane = Lane::Collective;
      under_way[exchanged] = i;
    } else if (is_finish(instruction.operation)) {
      Instruction& meeting = program.instructions[as_index(under_way.at(exchanged))];
      Instruction wait;
      wait.operation = Operation::Wait;
      wait.node = meeting.node;
      wait.micro_batch = meeting.micro_batch;
      wait.completes = under_way.at(exchanged);
      wait.frees = std::move(meeting.frees);
      meeting.frees.clear();
      edit.insert_before(i, std::move(wait));
    }
  }
  edit.apply();
  return program;
}

}  // namespace garonne::plan::test
