#include "plan/program/program_mutants.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "plan/program/program_edit.hpp"
#include "plan/program/rotated_step.hpp"
#include "plan/step/graphs.hpp"

namespace garonne::plan::test {
namespace {

// With the wait for it and what others say of it, where there is any.
void delete_instruction(Program& program, std::size_t number) {
  auto& instructions = program.instructions;
  ProgramEdit edit(program);
  const auto remove = [&](std::size_t i, int staging) {
    std::vector<int> frees = instructions[i].frees;
    // Staging is there only while a collective is.
    std::erase(frees, staging);
    Instruction& next = instructions.at(i + 1 < instructions.size() ? i + 1 : i - 1);
    next.frees.insert(next.frees.end(), frees.begin(), frees.end());
    edit.remove(static_cast<int>(i));
  };
  const int staging = instructions[number].arguments.staging;
  remove(number, staging);
  for (std::size_t i = 0; i < instructions.size(); ++i) {
    if (instructions[i].completes == static_cast<int>(number)) remove(i, staging);
  }
  for (Instruction& instruction : instructions)
    std::erase(instruction.after, static_cast<int>(number));
  edit.apply();
}

void move_instruction(Program& program, std::size_t from, std::size_t to) {
  auto& instructions = program.instructions;
  const auto begin = instructions.begin();
  const auto place = [&](int number) {
    const auto i = as_index(number);
    if (number < 0 || i == from) return number < 0 ? number : static_cast<int>(to);
    if (from < i && i <= to) return number - 1;
    return to <= i && i < from ? number + 1 : number;
  };
  for (Instruction& instruction : instructions) {
    instruction.completes = place(instruction.completes);
    for (int& one : instruction.after) one = place(one);
  }
  const auto offset = [&](std::size_t i) { return begin + static_cast<std::ptrdiff_t>(i); };
  if (from < to) {
    std::rotate(offset(from), offset(from + 1), offset(to + 1));
  } else {
    std::rotate(offset(to), offset(from), offset(from + 1));
  }
}

void swap_in(Program& program, std::size_t number, const Mutation& mutation) {
  Instruction& instruction = program.instructions[number];
  swap_buffers(instruction, mutation.a, mutation.b);
  if (!mutation.frees) return;
  for (int& id : instruction.frees) {
    if (id == mutation.a || id == mutation.b) id = id == mutation.a ? mutation.b : mutation.a;
  }
}

}  // namespace

std::string_view to_string(MutantKind kind) {
  switch (kind) {
    case MutantKind::WaitDeleted:
      return "wait deleted";
    case MutantKind::AfterDeleted:
      return "after deleted";
    case MutantKind::PartDeleted:
      return "part of a pass deleted";
    case MutantKind::FreeEarlier:
      return "free one earlier";
    case MutantKind::Swapped:
      return "buffers swapped";
    case MutantKind::SwappedOn:
      return "swapped from there on";
    case MutantKind::Deleted:
      return "instruction deleted";
    case MutantKind::Moved:
      return "moved";
    case MutantKind::OfOtherStep:
      return "of the other step";
  }
  return "";
}

std::vector<Mutation> single_mutations(const Program& program) {
  std::vector<Mutation> all;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (instruction.operation == Operation::Wait) {
      all.push_back({MutantKind::WaitDeleted, i});
    } else if (instruction.arguments.exchanged >= 0) {
      all.push_back({MutantKind::PartDeleted, i});
    } else {
      all.push_back({MutantKind::Deleted, i});
    }
    for (std::size_t k = 0; k < instruction.after.size(); ++k)
      all.push_back({MutantKind::AfterDeleted, i, static_cast<int>(k)});
    if (is_rotated(program) && instruction.operation != Operation::Wait)
      all.push_back({MutantKind::OfOtherStep, i});
    if (i == 0) continue;
    for (const int id : instruction.frees) all.push_back({MutantKind::FreeEarlier, i, id});
  }
  return all;
}

std::vector<Mutation> random_swaps(const Program& program, int count, std::mt19937& random) {
  std::vector<Mutation> all;
  const auto buffers = static_cast<unsigned>(program.buffers.size());
  for (int attempt = 0; static_cast<int>(all.size()) < count && attempt < 200 * count; ++attempt) {
    Mutation mutation;
    mutation.kind = attempt % 4 == 3 ? MutantKind::SwappedOn : MutantKind::Swapped;
    mutation.instruction = random() % program.instructions.size();
    mutation.a = static_cast<int>(random() % buffers);
    mutation.b = static_cast<int>(random() % buffers);
    mutation.frees = mutation.kind == MutantKind::SwappedOn || random() % 2 == 0;
    if (mutation.a == mutation.b ||
        program.buffers[as_index(mutation.a)].bytes != program.buffers[as_index(mutation.b)].bytes)
      continue;
    Instruction swapped = program.instructions[mutation.instruction];
    if (!swap_buffers(swapped, mutation.a, mutation.b)) continue;
    if (says_the_same(swapped, program.instructions[mutation.instruction])) continue;
    all.push_back(mutation);
  }
  return all;
}

std::vector<Mutation> random_moves(const Program& program, int count, std::mt19937& random) {
  std::vector<Mutation> all;
  const std::size_t instructions = program.instructions.size();
  while (static_cast<int>(all.size()) < count) {
    const std::size_t from = random() % instructions;
    const auto to = static_cast<int>(random() % instructions);
    if (as_index(to) != from) all.push_back({MutantKind::Moved, from, to});
  }
  return all;
}

void mutate(Program& program, const Mutation& mutation) {
  Instruction& instruction = program.instructions.at(mutation.instruction);
  switch (mutation.kind) {
    case MutantKind::WaitDeleted:
    case MutantKind::PartDeleted:
    case MutantKind::Deleted:
      return delete_instruction(program, mutation.instruction);
    case MutantKind::AfterDeleted:
      instruction.after.erase(instruction.after.begin() + mutation.a);
      return;
    case MutantKind::FreeEarlier:
      std::erase(instruction.frees, mutation.a);
      program.instructions.at(mutation.instruction - 1).frees.push_back(mutation.a);
      return;
    case MutantKind::OfOtherStep:
      for (Instruction& one : program.instructions) {
        if (&one == &instruction || one.completes == static_cast<int>(mutation.instruction))
          one.of_previous_step = !one.of_previous_step;
      }
      return;
    case MutantKind::Moved:
      return move_instruction(program, mutation.instruction, as_index(mutation.a));
    case MutantKind::Swapped:
      return swap_in(program, mutation.instruction, mutation);
    case MutantKind::SwappedOn:
      for (std::size_t i = mutation.instruction; i < program.instructions.size(); ++i)
        swap_in(program, i, mutation);
      return;
  }
}

std::string describe(const Program& program, const Mutation& mutation) {
  const bool has_buffers =
      mutation.kind != MutantKind::AfterDeleted && mutation.kind != MutantKind::Moved;
  const auto name = [&](int id) {
    return id < 0 ? std::string()
                  : " " + program.buffers.at(as_index(id)).name + " (" + std::to_string(id) + ")";
  };
  return std::string(to_string(mutation.kind)) + ", instruction " +
         std::to_string(mutation.instruction) + ", " +
         plan::describe(program.instructions.at(mutation.instruction)) +
         (mutation.kind == MutantKind::Moved ? " to " + std::to_string(mutation.a) : "") +
         (has_buffers ? name(mutation.a) + name(mutation.b) : "") +
         (mutation.frees ? ", frees too" : "");
}

bool swap_buffers(Instruction& instruction, int a, int b) {
  bool changed = false;
  const auto swap = [&](int& id) {
    if (id != a && id != b) return;
    id = id == a ? b : a;
    changed = true;
  };
  const auto swap_all = [&](std::vector<int>& ids) { std::for_each(ids.begin(), ids.end(), swap); };
  swap_all(instruction.reads);
  swap_all(instruction.writes);
  Arguments& arguments = instruction.arguments;
  for (auto& loaded : arguments.loaded) swap(loaded.buffer);
  swap_all(arguments.inputs);
  swap(arguments.output);
  swap_all(arguments.record);
  swap(arguments.output_gradient);
  swap_all(arguments.input_gradients);
  swap_all(arguments.accumulated);
  swap(arguments.pinned_output);
  swap(arguments.exchanged);
  for (auto& range : arguments.parameters) swap(range.buffer);
  for (auto& target : arguments.parameter_gradients) swap(target.range.buffer);
  for (auto& range : arguments.zeroed) swap(range.buffer);
  swap(arguments.part.buffer);
  for (auto& one : arguments.stand_ins) swap(one.on_host);
  swap(arguments.staging);
  return changed;
}

bool says_the_same(const Instruction& a, const Instruction& b) {
  const auto text = [](Instruction instruction) {
    std::sort(instruction.reads.begin(), instruction.reads.end());
    std::sort(instruction.writes.begin(), instruction.writes.end());
    Program alone;
    alone.instructions = {std::move(instruction)};
    return to_json(alone, {}, {}).dump();
  };
  return text(a) == text(b);
}

}  // namespace garonne::plan::test
