#include "plan/program/replay_roles.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <tuple>

#include "base/bytes.hpp"
#include "base/contains.hpp"
#include "base/index.hpp"
#include "plan/program/message_check.hpp"
#include "plan/program/replay.hpp"

namespace garonne::plan {

RoleCheck::RoleCheck(const Program& program)
    : program_(program),
      trained_(program),
      summed_(program.pieces.size(), 0),
      updated_(program.pieces.size(), 0) {
  check_tables();
}

void RoleCheck::fail(const std::string& reason) const {
  throw ReplayError(number_, instruction_ == nullptr ? "what is trained" : describe(*instruction_),
                    reason);
}

const std::string& RoleCheck::name(int buffer) const {
  if (buffer < 0 || as_index(buffer) >= program_.buffers.size())
    fail(fmt::format("no buffer has the id {}", buffer));
  return program_.buffers[as_index(buffer)].name;
}

bool RoleCheck::reads(int buffer) const {
  return contains(instruction_->reads, buffer);
}

bool RoleCheck::writes(int buffer) const {
  return contains(instruction_->writes, buffer);
}

void RoleCheck::known(int buffer, const char* role) const {
  if (buffer < 0 || reads(buffer) || writes(buffer)) return;
  fail(fmt::format("uses buffer {} as {} and neither reads nor writes it", buffer, role));
}

void RoleCheck::inside(const Range& range, const char* role) const {
  const std::string& of = name(range.buffer);
  const Buffer& buffer = program_.buffers[as_index(range.buffer)];
  // Each bound by itself: their sum may not be a number.
  if (range.offset < 0 || range.elements < 0 || range.elements > buffer.elements ||
      range.offset > buffer.elements - range.elements) {
    // Of a file that says anything, the sum may be no number.
    std::int64_t end = 0;
    if (__builtin_add_overflow(range.offset, range.elements, &end)) end = range.offset;
    fail(fmt::format("takes elements {} to {} of {} as {}, which has {}", range.offset, end, of,
                     role, buffer.elements));
  }
}

void RoleCheck::read_range(const Range& range, const char* role) const {
  inside(range, role);
  if (!reads(range.buffer))
    fail(fmt::format("uses {} as {} and does not read it", name(range.buffer), role));
}

void RoleCheck::written_range(const Range& range, const char* role) const {
  inside(range, role);
  if (!writes(range.buffer))
    fail(fmt::format("uses {} as {} and does not write it", name(range.buffer), role));
}

// Sizes, and that no two pieces train the same elements.
void RoleCheck::check_tables() const {
  for (const Buffer& buffer : program_.buffers) {
    expect_role(
        buffer.elements >= 0 && buffer.element_bytes >= 0 &&
            (buffer.elements == 0 ||
             (buffer.element_bytes > 0 && buffer.elements <= buffer.bytes / buffer.element_bytes)),
        [&] {
          return fmt::format("{} has {} elements of {} bytes in {} bytes", buffer.name,
                             buffer.elements, buffer.element_bytes, buffer.bytes);
        });
  }
  std::vector<std::tuple<int, std::int64_t, std::int64_t>> held;
  for (const Piece& piece : program_.pieces) {
    const std::int64_t elements = piece.trained.elements;
    expect_role(piece.parameter >= 0 && piece.first >= 0 && elements > 0,
                "a piece is of no parameter, or has no elements");
    const auto hold_numbers = [&](const Range& range, const char* role, bool lasts,
                                  std::int64_t numbers) {
      inside(range, role);
      expect_role(range.elements == numbers, [&] {
        return fmt::format("{} of a piece of {} elements has {}{}", role, elements, range.elements,
                           numbers == elements ? "" : fmt::format(" and wants {}", numbers));
      });
      const int home = trained_.home(range.buffer);
      expect_role(!lasts || home >= 0, [&] {
        return fmt::format("{} is trained and does not last", name(range.buffer));
      });
      if (lasts) held.emplace_back(home, range.offset, range.offset + numbers);
    };
    const auto hold = [&](const Range& range, const char* role, bool lasts) {
      hold_numbers(range, role, lasts, elements);
    };
    hold(piece.gradient, "gradient", false);
    hold(piece.trained, "trained", true);
    expect_role(
        program_.state_blocks.empty() || piece.states.size() == program_.state_blocks.size(),
        "a piece has another number of states than there are blocks of");
    for (std::size_t k = 0; k < piece.states.size(); ++k) {
      const StateBlocks blocks = blocks_of(program_, k);
      expect_role(blocks.elements > 0 && (blocks.numbers > 0 || blocks.of_whole()) &&
                      piece.first % blocks.elements == 0,
                  "a piece starts within a block of a state");
      // How many a side has is the model's to say.
      hold_numbers(piece.states[k], "state", true,
                   blocks.of_whole() ? std::max<std::int64_t>(piece.states[k].elements, 1)
                                     : blocks.count(elements));
    }
    if (piece.compute_copy.buffer >= 0) hold(piece.compute_copy, "compute copy", true);
    for (const Range& sums : piece.sums) inside(sums, "sums");
  }
  std::sort(held.begin(), held.end());
  for (std::size_t k = 1; k < held.size(); ++k) {
    expect_role(std::get<0>(held[k - 1]) != std::get<0>(held[k]) ||
                    std::get<2>(held[k - 1]) <= std::get<1>(held[k]),
                [&] {
                  return fmt::format("two pieces have the same elements of {}",
                                     name(std::get<0>(held[k])));
                });
  }
}

void RoleCheck::check(int number, const Instruction& instruction) {
  number_ = number;
  instruction_ = &instruction;
  const Arguments& arguments = instruction.arguments;
  // What is among these is known to be in the table.
  for (const int id : instruction.reads) name(id);
  for (const int id : instruction.writes) name(id);
  for (const int id : arguments.inputs) {
    // Only a backward has inputs that it is not handed.
    expect_role(id >= 0 || is_backward(instruction.operation) ||
                    instruction.operation == Operation::FinishBackward,
                "lacks an input");
    known(id, "input");
  }
  for (const int id : arguments.record) {
    expect_role(id >= 0, "has a private slot without a buffer");
    known(id, "record");
  }
  for (const int id : arguments.input_gradients) known(id, "input gradient");
  for (const int id : arguments.accumulated) known(id, "accumulated gradient");
  known(arguments.output, "output");
  known(arguments.output_gradient, "output gradient");
  known(arguments.pinned_output, "pinned output");
  known(arguments.staging, "staging");
  known(arguments.exchanged, "exchanged");
  for (const LoadedValue& loaded : arguments.loaded) {
    expect_role(writes(loaded.buffer) && loaded.value >= 0,
                [&] { return fmt::format("loads {} and does not write it", name(loaded.buffer)); });
  }
  for (const Range& range : arguments.parameters) read_range(range, "parameter");
  for (const Range& range : arguments.zeroed) {
    written_range(range, "padding");
    expect_role(!reads(range.buffer),
                [&] { return "zeroes what is there: " + name(range.buffer); });
  }
  passes_.check(number, instruction);
  if (is_backward(instruction.operation)) check_placements();
  check_part();
  check_made();
  check_copy();
  check_targets();
  check_pieces();
  check_sums();
  check_scalars();
  // What is made new holds nothing of what it was before.
  for (const int freed : instruction.frees) {
    contents_.erase(freed);
    tensor_sums_.erase(freed);
    trained_.forget(freed);
  }
}

// What neither a copy nor an update writes has other numbers than what lasts. A gather within a
// buffer adds to an update what other ranks have updated.
void RoleCheck::check_made() {
  const bool gathers = instruction_->operation == Operation::AllGather &&
                       contains(instruction_->arguments.inputs, instruction_->arguments.output);
  if (gathers || is_copy(instruction_->operation) || is_update(instruction_->operation)) return;
  for (const int id : instruction_->writes) trained_.forget(id);
}

void RoleCheck::check_placements() const {
  const Arguments& arguments = instruction_->arguments;
  const std::size_t inputs = arguments.inputs.size();
  if (arguments.input_gradients.size() != inputs || arguments.accumulated.size() != inputs ||
      arguments.placements.size() != inputs) {
    fail("does not say for every input where its gradient goes");
  }
  for (std::size_t i = 0; i < inputs; ++i) check_gradient(i);
}

void RoleCheck::check_gradient(std::size_t input) const {
  const Arguments& arguments = instruction_->arguments;
  const int gradient = arguments.input_gradients[input];
  const int existing = arguments.accumulated[input];
  const int given = arguments.output_gradient;
  const Placement placement = arguments.placements[input];
  const bool adds = placement == Placement::AddInPlace || placement == Placement::AddExisting ||
                    placement == Placement::SumWithAlias;
  const bool makes = placement == Placement::Fresh || placement == Placement::AddExisting ||
                     placement == Placement::SumWithAlias;
  const auto says = [&](bool holds, const char* reason) {
    if (!holds)
      fail(fmt::format("the gradient of input {} is {}: {}", input, to_string(placement), reason));
  };
  says((gradient >= 0) == (placement != Placement::None), "wanted and not made, or the reverse");
  if (gradient < 0) return;
  says((existing >= 0) == adds, "what is there is lost, or there is nothing");
  says(existing < 0 || reads(existing), "what is there is not read");
  switch (placement) {
    case Placement::None:
    case Placement::Fresh:
    case Placement::AddExisting:
      break;
    case Placement::Alias:
      says(gradient == given && !writes(gradient),
           "it is more than a name of the output's gradient");
      break;
    case Placement::Overwrite:
      says(gradient == given && writes(gradient), "it does not write the output's gradient");
      break;
    case Placement::AddInPlace:
      says(gradient == existing && writes(gradient), "it does not write what is there");
      break;
    case Placement::SumWithAlias:
      says(given >= 0, "there is no gradient of the output");
      break;
  }
  says(!makes || (writes(gradient) && !reads(gradient)), "it is not made by this instruction");
}

// Whether the range is the parameter's gradient, from element `first` of it on.
bool RoleCheck::holds(const Range& range, int parameter, std::int64_t first) const {
  const auto buffer = contents_.find(range.buffer);
  if (buffer == contents_.end()) return false;
  const auto next = buffer->second.upper_bound(range.offset);
  if (next == buffer->second.begin()) return false;
  const auto& [offset, content] = *std::prev(next);
  return content.parameter == parameter && content.first + range.offset - offset == first &&
         range.offset + range.elements <= offset + content.elements;
}

// What lies in the range, by element of the range.
RoleCheck::Contents RoleCheck::contents_of(const Range& range) const {
  Contents inside;
  const auto found = contents_.find(range.buffer);
  if (found == contents_.end()) return inside;
  for (const auto& [offset, content] : found->second) {
    const std::int64_t from = std::max(offset, range.offset);
    const std::int64_t to = std::min(offset + content.elements, range.offset + range.elements);
    if (from >= to) continue;
    inside[from - range.offset] = {content.parameter, content.first + from - offset, to - from};
  }
  return inside;
}

void RoleCheck::put(const Range& range, const Contents& contents, bool accumulate) {
  if (accumulate) {
    expect_role(contents_of(range) == contents,
                [&] { return "adds to the gradient of something else in " + name(range.buffer); });
    return;
  }
  Contents& all = contents_[range.buffer];
  const auto next = all.lower_bound(range.offset);
  const bool over_next = next != all.end() && next->first < range.offset + range.elements;
  const bool over_last = next != all.begin() &&
                         std::prev(next)->first + std::prev(next)->second.elements > range.offset;
  expect_role(!over_next && !over_last, [&] {
    return "writes over the gradient of something else in " + name(range.buffer);
  });
  for (const auto& [offset, content] : contents) all[range.offset + offset] = content;
}

void RoleCheck::check_targets() {
  for (const GradientTarget& target : instruction_->arguments.parameter_gradients) {
    written_range(target.range, "parameter gradient");
    if (target.accumulate) read_range(target.range, "parameter gradient");
    if (target.parameter < 0) {
      // A shard gets its part of them all.
      put(target.range, contents_of(instruction_->arguments.part), target.accumulate);
    } else if (!target.accumulate) {
      put(target.range, {{0, {target.parameter, 0, target.range.elements}}}, false);
    } else {
      expect_role(holds(target.range, target.parameter, 0), [&] {
        return "adds to the gradient of something else in " + name(target.range.buffer);
      });
    }
  }
}

void RoleCheck::check_part() {
  const Arguments& arguments = instruction_->arguments;
  if (instruction_->operation == Operation::KeepShard) {
    expect_role(arguments.parameter_gradients.size() == 1 && arguments.inputs.size() == 1 &&
                    arguments.part.buffer == arguments.inputs[0],
                "does not say what of its input goes where");
    read_range(arguments.part, "part that is kept");
    expect_role(arguments.part.elements == arguments.parameter_gradients[0].range.elements,
                "keeps another number of elements than it has room for");
  }
  if (is_part_of_message(*instruction_)) {
    const bool sends = instruction_->operation == Operation::Send;
    sends ? read_range(arguments.part, "part that is sent")
          : written_range(arguments.part, "part that is received");
    refuse(wrong_part(program_, *instruction_));
  }
  if (instruction_->operation == Operation::AllGather) {
    expect_role(arguments.inputs.size() == 1 && arguments.output >= 0, "gathers nothing");
    if (gathers_message(*instruction_)) refuse(wrong_gather(program_, *instruction_));
    if (arguments.output == arguments.inputs[0]) return;
    written_range(arguments.part, "part that is there");
    expect_role(arguments.part.buffer == arguments.output, "puts its part elsewhere");
  }
}

// One buffer goes to another tier, whole: what is in it is there, too.
void RoleCheck::check_copy() {
  if (!is_copy(instruction_->operation)) return;
  const Arguments& arguments = instruction_->arguments;
  expect_role(arguments.inputs.size() == 1 && arguments.output >= 0, "copies nothing, or nowhere");
  const int from = arguments.inputs[0];
  const int to = arguments.output;
  expect_role(reads(from) && writes(to), "does not read what it copies, or does not write it");
  const Buffer& source = program_.buffers[as_index(from)];
  const Buffer& copy = program_.buffers[as_index(to)];
  expect_role(copy_between(source.tier, copy.tier) == instruction_->operation, [&] {
    return fmt::format("goes from {} on the tier {} to {} on the tier {}", source.name,
                       to_string(source.tier), copy.name, to_string(copy.tier));
  });
  expect_role(instruction_->lane == lane_of_copy(instruction_->operation) && !instruction_->channel,
              [&] { return fmt::format("is on the lane {}", to_string(instruction_->lane)); });
  const std::int64_t granularity =
      std::max(program_.tier(source.tier).granularity, program_.tier(copy.tier).granularity);
  expect_role(
      source.kind == copy.kind && source.elements == copy.elements &&
          source.element_bytes == copy.element_bytes &&
          round_up(source.bytes, granularity) == round_up(copy.bytes, granularity),
      [&] { return fmt::format("{} is not of the size and kind of {}", copy.name, source.name); });
  refuse(trained_.copy(from, to));
  const auto contents = contents_.find(from);
  if (contents == contents_.end()) {
    contents_.erase(to);
  } else {
    contents_[to] = Contents(contents->second);
  }
  reduced_.erase(to);
  if (reduced_.contains(from)) reduced_.insert(to);
}

// A gradient is summed over the data group, or none is, and in a shard only when it is.
void RoleCheck::check_sums() {
  const Arguments& arguments = instruction_->arguments;
  const bool sums = instruction_->operation == Operation::AllReduce ||
                    instruction_->operation == Operation::ReduceScatter;
  const bool narrow = instruction_->channel && instruction_->channel->wire;
  expect_role(!narrow || (sums && instruction_->channel->wire == NumberType::BFloat16),
              "travels in a type of its own, which only sums do, in bfloat16");
  // Beside those of the nodes.
  const bool collective = sums && arguments.exchanged < 0;
  if (collective && !arguments.inputs.empty()) {
    const int buffer = arguments.inputs[0];
    const BufferKind kind = program_.buffers[as_index(buffer)].kind;
    expect_role(kind == BufferKind::Gradient || kind == BufferKind::Scalar,
                [&] { return "sums " + name(buffer) + ", which is no gradient"; });
    expect_role(
        !narrow ||
            (kind == BufferKind::Gradient && program_.buffers[as_index(buffer)].element_bytes == 4),
        [&] { return "sums " + name(buffer) + " in bfloat16, which is not kept in float32"; });
    if (instruction_->channel && instruction_->channel->group == GroupAxis::Data)
      reduced_.insert(buffer);
    // What all ranks sum are the sums of the step.
    const bool of_all = instruction_->channel && instruction_->channel->group == GroupAxis::World;
    const bool of_tensors = tensor_sums_.contains(buffer);
    expect_role(of_tensors ? !of_all
                           : of_all == (kind == BufferKind::Scalar) && (!of_all || buffer == sums_),
                [&] { return "sums " + name(buffer) + " over another group than its own"; });
  }
  if (is_backward(instruction_->operation)) {
    for (const GradientTarget& target : arguments.parameter_gradients)
      reduced_.erase(target.range.buffer);
  }
  if (instruction_->operation == Operation::KeepShard) {
    expect_role(reduced_.contains(arguments.part.buffer),
                [&] { return "keeps of what is not summed: " + name(arguments.part.buffer); });
    reduced_.insert(arguments.parameter_gradients[0].range.buffer);
  }
  if (instruction_->operation == Operation::SumSquares) {
    const auto is_summed = [&](int id) {
      return reduced_.contains(program_.pieces[as_index(id)].gradient.buffer);
    };
    const auto some = std::count_if(arguments.pieces.begin(), arguments.pieces.end(), is_summed);
    expect_role(some == 0 || some == static_cast<std::ptrdiff_t>(arguments.pieces.size()),
                "some gradients are summed over the data group and some are not");
  }
}

// The sums of the step, and the norm that follows from them, are one buffer each.
void RoleCheck::check_scalars() {
  const Arguments& arguments = instruction_->arguments;
  const auto is = [&](int& wanted, int buffer, const char* role) {
    if (wanted < 0) wanted = buffer;
    expect_role(wanted == buffer && buffer >= 0,
                [&] { return fmt::format("has another buffer for {}", role); });
  };
  const auto input = [&](std::size_t number) {
    expect_role(number < arguments.inputs.size(), "lacks an input");
    return arguments.inputs[number];
  };
  switch (instruction_->operation) {
    case Operation::EmitLoss:
    case Operation::SumSquares:
      return is(sums_, arguments.output, "the sums");
    case Operation::Norm:
      if (arguments.output < 0) return;
      is(sums_, input(0), "the sums");
      return is(norm_, arguments.output, "the norm");
    case Operation::SumTensors:
      return is(norm_, input(0), "the norm");
    case Operation::Update:
      if (arguments.pieces.empty()) return;
      return is(norm_, input(0), "the norm");
    case Operation::UpdateHost:
      return expect_role(norms_on_host_.contains(input(0)), "has another buffer for the norm");
    case Operation::CopyOut:
      norms_on_host_.erase(arguments.output);
      if (input(0) == norm_) norms_on_host_.insert(arguments.output);
      return;
    case Operation::Report:
      if (arguments.inputs.size() < 2) return;
      is(sums_, input(0), "the sums");
      reported_ = true;
      return is(norm_, input(1), "the norm");
    default:
      return;
  }
}

void RoleCheck::finish() const {
  passes_.finish();
  // Who runs the step learns only so that they are not finite, with which nothing is updated.
  if (norm_ >= 0 && !reported_) fail("the norm is never reported");
  for (std::size_t id = 0; id < program_.pieces.size(); ++id) {
    if (summed_[id] == 1 && updated_[id] == 1) continue;
    fail(fmt::format("piece {} is summed {} times and updated {} times", id, summed_[id],
                     updated_[id]));
  }
  if (const std::string wrong = trained_.finish(); !wrong.empty()) fail(wrong);
}

}  // namespace garonne::plan
