// Of the check of roles: what is done with pieces: sums, and updates on the device and on the host.
#include <fmt/format.h>

#include <set>
#include <string>

#include "base/index.hpp"
#include "plan/program/replay_roles.hpp"

namespace garonne::plan {

void RoleCheck::check_pieces() {
  const bool sums = instruction_->operation == Operation::SumSquares;
  const bool updates = is_update(instruction_->operation);
  const bool tensors = instruction_->operation == Operation::SumTensors;
  if (tensors) {
    const int output = instruction_->arguments.output;
    expect_role(output >= 0 && writes(output) && !reads(output) &&
                    program_.buffers[as_index(output)].kind == BufferKind::Scalar,
                "does not make the sums of parameters anew");
    expect_role(!instruction_->arguments.inputs.empty(), "lacks an input");
    tensor_sums_.insert(output);
  }
  if (instruction_->operation == Operation::UpdateHost) {
    check_update_on_host();
  } else if (!instruction_->arguments.stand_ins.empty()) {
    fail("has stand-ins on the host and is no update there");
  }
  for (const int id : instruction_->arguments.pieces) {
    if (!sums && !updates && !tensors) fail("has pieces and trains nothing");
    if (id < 0 || as_index(id) >= program_.pieces.size())
      fail(fmt::format("no piece has the number {}", id));
    const Piece piece = piece_of(program_, *instruction_, id);
    read_range(piece.gradient, "gradient");
    expect_role(holds(piece.gradient, piece.parameter, piece.first), [&] {
      return fmt::format("takes something else for the gradient of piece {}", id);
    });
    if (sums) {
      expect_role(id > last_summed_ || summed_[as_index(id)] > 0,
                  "adds squares in another order than that of the pieces");
      last_summed_ = id;
      ++summed_[as_index(id)];
    }
    if (tensors) sum_tensor(id);
    if (updates) expect_sums_of(id, program_.pieces[as_index(id)].sums.size());
    if (updates) update_piece(id);
  }
}

// What stands in for something is as large, and on the host.
void RoleCheck::check_update_on_host() {
  expect_role(instruction_->lane == Lane::HostCompute && !instruction_->channel,
              [&] { return fmt::format("is on the lane {}", to_string(instruction_->lane)); });
  std::set<int> seen;
  for (const StandIn& one : instruction_->arguments.stand_ins) {
    name(one.buffer);
    known(one.on_host, "stand-in");
    expect_role(reads(one.on_host) || writes(one.on_host), [&] {
      return "does not use " + name(one.on_host) + ", which stands in for something";
    });
    const Buffer& device = program_.buffers[as_index(one.buffer)];
    const Buffer& host = program_.buffers[as_index(one.on_host)];
    expect_role(seen.insert(one.buffer).second && seen.insert(one.on_host).second,
                "has two stand-ins for one buffer");
    expect_role(
        device.tier == Tier::Device && host.tier == Tier::Host && device.kind == host.kind &&
            device.elements == host.elements && device.element_bytes == host.element_bytes &&
            host.name == fmt::format("{}@{}", device.name, to_string(host.tier)),
        [&] {
          return fmt::format("{} on the tier {} cannot stand in for {} on the tier {}", host.name,
                             to_string(host.tier), device.name, to_string(device.tier));
        });
  }
  for (const auto& ids : {instruction_->reads, instruction_->writes}) {
    for (const int id : ids) {
      expect_role(program_.buffers[as_index(id)].tier == Tier::Host,
                  [&] { return "uses " + name(id) + ", which is not on the host"; });
    }
  }
}

void RoleCheck::update_piece(int number) {
  ++updated_[as_index(number)];
  const Piece& own = program_.pieces[as_index(number)];
  const Piece piece = piece_of(program_, *instruction_, number);
  const auto trained = [&](const Range& range, const char* role) {
    read_range(range, role);
    written_range(range, role);
    const std::string wrong = trained_.update(range.buffer, number);
    if (!wrong.empty()) fail(wrong);
  };
  // Both are of the same ranks.
  expect_role(
      reduced_.contains(piece.gradient.buffer) == reduced_.contains(own.gradient.buffer),
      [&] { return "takes a gradient of other ranks for that of " + name(own.gradient.buffer); });
  trained(piece.trained, "trained");
  for (const Range& state : piece.states) trained(state, "state");
  if (piece.compute_copy.buffer < 0) return;
  if (instruction_->operation == Operation::Update || reads(piece.compute_copy.buffer))
    return trained(piece.compute_copy, "compute copy");
  // Made anew, it is of this piece alone: nothing is beside it.
  written_range(piece.compute_copy, "compute copy");
  const Buffer& copy = program_.buffers[as_index(piece.compute_copy.buffer)];
  expect_role(piece.compute_copy.offset == 0 && piece.compute_copy.elements == copy.elements,
              [&] { return "makes " + copy.name + " of less than all of it"; });
  trained_.remake(piece.compute_copy.buffer, own.compute_copy.buffer, number);
}

// Of what its update will be given.
void RoleCheck::sum_tensor(int number) const {
  const Piece& piece = program_.pieces[as_index(number)];
  const std::size_t round = instruction_->arguments.inputs.size() - 1;
  expect_role(round < piece.sums.size() &&
                  piece.sums[round].buffer == instruction_->arguments.output &&
                  piece.sums[round].elements > 0,
              [&] { return fmt::format("has no room for the sums of piece {}", number); });
  expect_sums_of(number, round);
  expect_role(updated_[as_index(number)] == 0,
              [&] { return fmt::format("sums of piece {} what is updated already", number); });
  read_range(piece.trained, "trained");
  for (const Range& state : piece.states) read_range(state, "state");
}

// On the host the update makes them itself.
void RoleCheck::expect_sums_of(int number, std::size_t rounds) const {
  const std::vector<Range>& sums = program_.pieces[as_index(number)].sums;
  const auto& inputs = instruction_->arguments.inputs;
  const std::size_t wanted = instruction_->operation == Operation::UpdateHost ? 0 : rounds;
  expect_role(inputs.size() == 1 + wanted,
              [&] { return fmt::format("takes {} inputs for piece {}", inputs.size(), number); });
  for (std::size_t round = 0; round < wanted; ++round) {
    const int buffer = sums[round].buffer;
    expect_role(inputs[1 + round] == buffer && reads(buffer) && tensor_sums_.contains(buffer), [&] {
      return fmt::format("takes something else for the sums of piece {}", number);
    });
  }
}

}  // namespace garonne::plan
