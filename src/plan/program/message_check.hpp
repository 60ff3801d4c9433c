// What holds of messages between stages, whole or in parts. Private to plan/program.
#pragma once

#include <string>

#include "plan/program/program.hpp"

namespace garonne::plan {

// All return why not; empty where it holds.

// Of a message in parts, whose range lies in its buffer: each tensor rank has its own part, and as
// many as there are make the whole.
std::string wrong_part(const Program& program, const Instruction& message);
// Of what gathers a message that came in parts, with one input.
std::string wrong_gather(const Program& program, const Instruction& gather);
// Of a receive, with what rank `sender` sends: they are of the same value, part and bytes.
std::string wrong_receive(const Instruction& receive, const Instruction& send, int sender);

}  // namespace garonne::plan
